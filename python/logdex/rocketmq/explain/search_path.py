"""The way of a search, step by step: files, chains, candidates."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from logdex import _core
from logdex.errors import LogdexError
from logdex.hash_index.query import MAX_TIME, MIN_TIME
from logdex.rocketmq.explain.causes import likely_causes
from logdex.rocketmq.explain.explanation import Candidate, Chain, Explanation, FileStep, Link, SealedStep
from logdex.rocketmq.index_service import IndexService

if TYPE_CHECKING:
    from collections.abc import Sequence

    from logdex._core import CommitLog, IndexFile
    from logdex.hash_index.query import TimeRange
    from logdex.rocketmq.find import FindResult
    from logdex.rocketmq.message import Message
    from logdex.rocketmq.store import MessageStore

_MAX_LINKS = 1_000

_log = logging.getLogger(__name__)


def explain(store: MessageStore, topic: str, key: str, times: TimeRange, clock_slack_ms: int) -> Explanation:
    """Follow the whole search for one key; see `MessageStore.explain`."""
    index_key = _core.index_key(topic, key)
    key_hash = _core.key_hash(index_key)
    index = store.index
    files = index.newest_first() if index is not None else []
    whole = {file.path for file in index.whole_files()} if index is not None else set()
    steps = tuple(
        _file_step(file, index_key, key_hash, times, clock_slack_ms, is_whole=file.path in whole) for file in files
    )
    result = store.find(topic, key, begin=times.begin, end=times.end)
    found = tuple(message.phy_offset for message in result)
    read_by, not_read_by = _readers(store, result[0]) if found else ((), ())
    indexed_up_to = max((file.header.end_phy_offset for file in files if len(file)), default=None)
    explanation = Explanation(
        topic=topic,
        key=key,
        begin=None if times.begin == MIN_TIME else times.begin,
        end=None if times.end == MAX_TIME else times.end,
        index_key=index_key,
        key_hash=key_hash,
        files=steps,
        sealed=_sealed_step(store, topic, key, times),
        candidates=_candidates(store.commit_log, (topic, key), times, steps, result),
        found=found,
        broker_found=None if index is None else _broker_found(index, topic, key, times, found),
        min_offset=store.commit_log.min_offset,
        max_offset=store.commit_log.max_offset,
        indexed_up_to=indexed_up_to,
        lag_bytes=_lag(store.commit_log, indexed_up_to),
        scanned_bytes=result.scanned_bytes,
        unscanned=tuple(result.unscanned),
        unreadable=tuple(result.unreadable),
        causes=(),
        read_by=read_by,
        not_read_by=not_read_by,
    )
    return likely_causes(store, explanation)


def _sealed_step(store: MessageStore, topic: str, key: str, times: TimeRange) -> SealedStep | None:
    asked = store.ask_sealed(topic, key, times)
    if asked is None:
        return None
    place, files, found = asked
    return SealedStep(str(place), len(files.names), files.entries, tuple(sorted(found, reverse=True)))


def _readers(store: MessageStore, message: Message) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the groups whose offset in the message's queue is after it, and those whose is not."""
    try:
        groups = store.groups()
    except (LogdexError, OSError) as error:
        _log.warning("%s", error)
        return (), ()
    own = [each for each in groups if (each.topic, each.queue_id) == (message.topic, message.queue_id)]
    read = {each.group for each in own if each.offset > message.queue_offset}
    return tuple(sorted(read)), tuple(sorted({each.group for each in own} - read))


def _lag(log: CommitLog, indexed_up_to: int | None) -> int:
    """Return the bytes of the log after the message that was indexed last."""
    if indexed_up_to is None:
        return log.max_offset - log.min_offset
    last = log.message(indexed_up_to)
    return max(0, log.max_offset - indexed_up_to - (0 if last is None else last.store_size))


def _file_step(
    file: IndexFile, index_key: str, key_hash: int, times: TimeRange, clock_slack_ms: int, *, is_whole: bool
) -> FileStep:
    header = file.header
    searched = bool(len(file)) and file.is_time_matched(times.begin, times.end, clock_slack_ms)
    if not len(file):
        why = "it holds no entry"
    elif not searched:
        why = "its time window, with the slack for clock steps, misses the range"
    elif (times.begin, times.end) == (MIN_TIME, MAX_TIME):
        why = "no range was asked for"
    else:
        why = "its time window, with the slack for clock steps, meets the range"
    if not is_whole:
        why += "; the file is shorter than it should be"
    return FileStep(
        name=file.path.name,
        begin_timestamp=header.begin_timestamp,
        end_timestamp=header.end_timestamp,
        begin_phy_offset=header.begin_phy_offset,
        end_phy_offset=header.end_phy_offset,
        entries=len(file),
        searched=searched,
        why=why,
        chain=_chain(file, key_hash) if searched else None,
        candidates=tuple(file.select_phy_offset(index_key)) if searched else (),
    )


def _chain(file: IndexFile, key_hash: int) -> Chain:
    slot, slot_value, links, length, broken_by = _core.read_chain(file, key_hash, _MAX_LINKS)
    return Chain(slot, slot_value, tuple(Link(*link) for link in links), length, broken_by)


def _candidates(
    log: CommitLog, asked: tuple[str, str], times: TimeRange, steps: Sequence[FileStep], result: FindResult
) -> tuple[Candidate, ...]:
    """Look at every place that the files lead to, and at those that only the log gave."""
    found = {message.phy_offset: message for message in result}
    sources = dict.fromkeys(found, "log")
    for step in steps:
        sources |= dict.fromkeys(step.candidates, step.name)
    offsets = sorted(sources, reverse=True)
    verdicts = _core.judge_candidates(log, offsets, *asked, begin=times.begin, end=times.end)
    return tuple(
        _candidate(log, offset, sources[offset], verdict, found.get(offset))
        for offset, verdict in zip(offsets, verdicts, strict=True)
    )


def _candidate(log: CommitLog, offset: int, source: str, verdict: str, found: Message | None) -> Candidate:
    message = log.message(offset) if found is None else found
    if message is None:
        return Candidate(offset, source, verdict)
    return Candidate(
        offset,
        source,
        verdict,
        topic=message.topic,
        keys=message.keys,
        uniq_key=message.uniq_key,
        store_timestamp=message.store_timestamp,
        born_timestamp=message.born_timestamp,
    )


def _broker_found(index: IndexService, topic: str, key: str, times: TimeRange, found: Sequence[int]) -> tuple[int, ...]:
    """Return the messages that a broker finds in the same files, with its faults."""
    files = index.files
    if not files:
        return ()
    slots, entries = files[0].hash_slots, files[0].max_entries
    with IndexService.open(index.directory, hash_slots=slots, max_entries=entries, compat="4.9.3") as broker:
        begin, end = max(times.begin, 0), times.end
        answer = set(broker.query_offset(topic, key, begin=begin, end=end).phy_offsets)
    return tuple(offset for offset in found if offset in answer)
