"""The explanation of a search: its steps, files, chains and candidates, and the likely causes."""

from __future__ import annotations

import logging
import unicodedata
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from logdex import _core
from logdex._core import MessageFilter, time_text
from logdex.errors import LogdexError, printable
from logdex.hash_index.query import MAX_TIME, MIN_TIME
from logdex.report import SHOWN_ROWS, html_table, near_names
from logdex.rocketmq.broker_config import DLQ_PREFIX, HALF_TOPIC, RETRY_PREFIX, SCHEDULE_TOPIC
from logdex.rocketmq.find import TAG_PREFIX
from logdex.rocketmq.index_service import MAX_MSGS_NUM_BATCH, IndexService
from logdex.rocketmq.message import offset_in_msg_id

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from logdex._core import CommitLog, IndexFile
    from logdex.hash_index.query import TimeRange
    from logdex.rocketmq.find import FindResult
    from logdex.rocketmq.message import Message
    from logdex.rocketmq.store import MessageStore


_SHOWN_LINKS = 12
_SHOWN_CANDIDATES = 20

CAUSES = {
    "broker-cap": "more candidates than the 64 that a broker's answer holds",
    "broker-time": "a broker misses it: its index has whole seconds, and searches end early after clock steps",
    "clock-difference": "the requested range fits the producer's clock, not the broker's",
    "cut-off": "a broker cut the message off when it started after a crash; it is still on the disk",
    "damaged-message": "the index leads to it, but no valid message begins there",
    "delayed": "the message waits for its delivery under a topic of the broker's own",
    "expired-file": "the index still has it, but the log file that held it was deleted",
    "half-message": "a message of a transaction that was not committed",
    "hash-collision": "only messages of other keys with the same hash exist",
    "index-behind": "the broker had yet to index the end of the log",
    "index-lost": "index files are missing, as after an unclean stop",
    "missing-file": "a file inside of the log is missing: deleted, renamed or compressed",
    "not-here": "no trace of it: never stored here, another broker's, or older than log and index",
    "offset-id": "this is the broker's id of a message, which contains its offset; no index has it",
    "other-topic": "a message with this key is stored under another topic",
    "out-of-range": "messages carry the key, but their store time is outside of the range",
    "not-indexed": "the message is there, but no index entry leads to it: brokers index no rolled-back message",
    "retry-topic": "the message is stored under a retry or dead-letter topic",
    "spelling": "a message carries the key in another spelling",
    "split-key": "keys are split at spaces; each piece is a key",
    "stale-entry": "the index leads to another message: the log was truncated and written again",
    "tags-not-indexed": "tags are indexed by 5.5.0 and later only",
    "unknown-topic": "the store has no such topic",
    "unread-log": "parts of the log are neither indexed nor read",
}
"""The closed list of causes and their meanings."""


@dataclass(frozen=True, slots=True)
class Link:
    """An entry of a chain; `time_diff` is in seconds, as stored, and `prev_index` is 0 at the end of the chain."""

    position: int
    key_hash: int
    phy_offset: int
    time_diff: int
    prev_index: int


@dataclass(frozen=True, slots=True)
class Chain:
    """The entries of a slot: `links` has the newest of the `length` entries.

    `slot_value` is the number of the newest entry, as stored. `broken_by` is what ends the chain before its last entry.
    """

    slot: int
    slot_value: int
    links: tuple[Link, ...]
    length: int
    broken_by: str | None


@dataclass(frozen=True, slots=True)
class FileStep:
    """One index file of a search, and why it was searched or skipped.

    Times are in ms. `candidates` are the offsets of entries with the key's hash, newest first.
    """

    name: str
    begin_timestamp: int
    end_timestamp: int
    begin_phy_offset: int
    end_phy_offset: int
    entries: int
    searched: bool
    why: str
    chain: Chain | None
    candidates: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class SealedStep:
    """The sealed index of a search: its directory, the index files that it stands for, and its candidates, newest first."""

    path: str
    files: int
    entries: int
    candidates: tuple[int, ...]

    def lines(self) -> Iterator[str]:
        """Iterate over lines for people."""
        asked = f"{self.files:,} index files with {self.entries:,} entries"
        yield f"  sealed index: used instead of {asked}: {len(self.candidates):,} candidates; {self.path}"


@dataclass(frozen=True, slots=True)
class Candidate:
    """One place in the log that the index, or a scan of a range that no index file covers, leads to, and its message.

    Attributes:
        source: Name of the index file, or `log` if it was read from the log.
        verdict: `match`, `out-of-range`, `other-key`, `other-topic`, `stale-entry`, `expired`, `missing-file`,
            `beyond-log`, `cut-off`, `damaged`.
    """

    phy_offset: int
    source: str
    verdict: str
    topic: str | None = None
    keys: str | None = None
    uniq_key: str | None = None
    store_timestamp: int | None = None
    born_timestamp: int | None = None


@dataclass(frozen=True, slots=True)
class Cause:
    """A reason (a word of `CAUSES`) why a key is not found, or why a broker does not find it; with what to do."""

    kind: str
    text: str


@dataclass(frozen=True, slots=True, repr=False)
class Explanation:
    """The way from a key to its messages.

    Attributes:
        begin: First requested store time, ms; None: no bound.
        end: Last store time, ms; None: no bound.
        index_key: The text that is hashed.
        files: The index files, newest first.
        sealed: The sealed index that was used instead of index files; None: each index file was searched.
        candidates: The places that the files and the log lead to, newest first, each once.
        found: Offsets of the messages that `find` returns.
        broker_found: Those of them that a 4.9.3 broker finds in its index; None without an index.
        indexed_up_to: Offset of the message of the last index entry; None without one.
        lag_bytes: Bytes of the log after that message; all of the log without one.
        scanned_bytes: Bytes of the log that were read because no index file covers them.
        unscanned: Ranges of the log that are neither indexed nor read, or cannot be read.
        unreadable: Those of them that cannot be read: the file is missing, or the bytes are not a valid message.
        causes: Why the key is not found, the likeliest first; if it is found, why a broker might not find it.
        read_by: Consumer groups of the topic whose committed offset is after the newest message found.
        not_read_by: Those whose offset is not.
    """

    topic: str
    key: str
    begin: int | None
    end: int | None
    index_key: str
    key_hash: int
    files: tuple[FileStep, ...]
    sealed: SealedStep | None
    candidates: tuple[Candidate, ...]
    found: tuple[int, ...]
    broker_found: tuple[int, ...] | None
    min_offset: int
    max_offset: int
    indexed_up_to: int | None
    lag_bytes: int
    scanned_bytes: int
    unscanned: tuple[tuple[int, int], ...]
    unreadable: tuple[tuple[int, int], ...]
    causes: tuple[Cause, ...]
    read_by: tuple[str, ...] = ()
    not_read_by: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, for JSON."""
        return asdict(self)

    def __repr__(self) -> str:
        """Return the question and the answer, not the steps."""
        causes = "".join(f", {cause.kind}" for cause in self.causes)
        return f"Explanation(topic={self.topic!r}, key={self.key!r}: {len(self.found)} found{causes})"

    def _repr_html_(self) -> str:
        """Return the causes and the candidates as tables."""
        candidates = [
            (c.phy_offset, c.source, c.verdict, c.topic, c.keys, c.uniq_key, time_text(c.store_timestamp))
            for c in self.candidates[:SHOWN_ROWS]
        ]
        heads = ("phy_offset", "source", "verdict", "topic", "keys", "uniq_key", "stored")
        causes = [(cause.kind, cause.text) for cause in self.causes]
        more = len(self.candidates) - len(candidates)
        return html_table(repr(self), ("cause", "why"), causes) + html_table("candidates", heads, candidates, more)

    def __str__(self) -> str:
        return self.text()

    def text(self, *, files: bool = True) -> str:
        """Return lines for people: the verdict, how far log and index were searched, the candidates, the index files."""
        return "\n".join(map(printable, self._lines(files=files)))

    def _verdict(self, within: str) -> Iterator[str]:
        missed = ""
        if self.broker_found is not None and len(self.broker_found) < len(self.found):
            missed = f"; a 4.9.3 broker would find {len(self.broker_found)}"
        yield f"key {self.key!r} of topic {self.topic!r}{within}: {len(self.found):,} found{missed}"
        for cause in self.causes:
            yield f"  {cause.kind}: {cause.text}"
        for groups, words in ((self.read_by, "read by"), (self.not_read_by, "not yet read by")):
            if groups:
                yield f"  the newest is {words} the group{'s' if len(groups) > 1 else ''} {', '.join(groups)}"

    def _lines(self, *, files: bool) -> Iterator[str]:
        within = ""
        if self.begin is not None or self.end is not None:
            within = f", stored from {time_text(self.begin) or 'the beginning'} to {time_text(self.end) or 'the end'}"
        yield from self._verdict(within)
        yield ""
        yield f"  hashed as {self.index_key!r}: {self.key_hash}"
        lag = f"{self.lag_bytes:,} bytes before the log's end" if self.lag_bytes else "up to the log's end"
        how_far = "no entries" if self.indexed_up_to is None else lag
        yield f"  log: offsets {self.min_offset:,} to {self.max_offset:,}; index: {how_far}"
        if self.scanned_bytes or self.unscanned:
            unread = sum(end - begin for begin, end in self.unscanned)
            yield f"  not indexed: {self.scanned_bytes:,} bytes read from the log, {unread:,} bytes not read"
        for begin, end in self.unreadable:
            yield f"  cannot be read: offsets {begin:,} to {end:,}, missing or damaged"
        yield from () if self.sealed is None else self.sealed.lines()
        searched = sum(file.searched for file in self.files)
        yield f"  index files: {searched:,} of {len(self.files):,} searched{'' if files else ' (--verbose shows each)'}"
        yield ""
        yield f"candidates: {len(self.candidates)}"
        for candidate in self.candidates[:_SHOWN_CANDIDATES]:
            yield _candidate_line(candidate)
        if len(self.candidates) > _SHOWN_CANDIDATES:
            yield f"  ... and {len(self.candidates) - _SHOWN_CANDIDATES:,} more"
        if files:
            yield ""
            yield f"index files, newest first: {len(self.files)}"
            for file in self.files:
                yield from _file_lines(file)


def _file_lines(file: FileStep) -> Iterator[str]:
    window = f"{time_text(file.begin_timestamp)} to {time_text(file.end_timestamp)}"
    yield f"  {file.name}  {file.entries:,} entries, {window}: {'searched' if file.searched else 'skipped'}, {file.why}"
    if file.chain is None:
        return
    links = [f"{link.position}{'*' if link.phy_offset in file.candidates else ''}" for link in file.chain.links]
    shown = " > ".join(links[:_SHOWN_LINKS]) + (" > ..." if file.chain.length > _SHOWN_LINKS else "")
    walk = f"entries {shown}" if links else "empty"
    yield f"      slot {file.chain.slot:,}: {walk}; {len(file.candidates)} of {file.chain.length} with this hash (*)"
    if file.chain.broken_by:
        yield f"      the chain is broken by {file.chain.broken_by}"


def _candidate_line(candidate: Candidate) -> str:
    what = "no message"
    if candidate.topic is not None:
        keys = f" keys={candidate.keys!r}" if candidate.keys else ""
        uniq_key = f" id={candidate.uniq_key}" if candidate.uniq_key else ""
        what = f"{candidate.topic!r}{keys}{uniq_key} stored {time_text(candidate.store_timestamp) or '-'}"
    return f"  phy {candidate.phy_offset:,} ({candidate.source}): {candidate.verdict}; {what}"


_RETRY = (RETRY_PREFIX, DLQ_PREFIX)
_DELAYED = (SCHEDULE_TOPIC, "rmq_sys_wheel_timer")
_ROLLBACK = 0xC
_READ_BYTES = 1 << 30
_BROKER_SLACK_MS = 1_000
"""A client subtracts this from the time in a unique key; whole seconds can hide as much (B14)."""

_BY_VERDICT = {
    "expired": Cause(
        "expired-file",
        "{number} entries with this hash lead to offsets up to {last:,}, but the log begins at {0.min_offset:,}: the files "
        "before were deleted (fileReservedTime); a backup may have them",
    ),
    "missing-file": Cause(
        "missing-file",
        "entries with this hash lead to offsets {offsets}, in a log file that is missing: deleted, renamed or compressed",
    ),
    "cut-off": Cause(
        "cut-off",
        "entries with this hash lead to whole messages at offsets {offsets} that begin after the end of the log: a broker cut "
        'them off; read them with CommitLog.scan(stop="salvage")',
    ),
    "damaged": Cause(
        "damaged-message",
        "entries with this hash lead to offsets {offsets}, where no valid message begins; `verify` reports the damage",
    ),
    "beyond-log": Cause(
        "damaged-message",
        "entries with this hash lead to offsets {offsets}, but the log ends at {0.max_offset:,}: it was truncated since, or its "
        "newest files are missing",
    ),
    "stale-entry": Cause(
        "stale-entry",
        "at offsets {offsets} other messages begin than were indexed: the log was truncated",
    ),
    "other-key": Cause(
        "hash-collision",
        "{number} messages of other keys have the same hash {0.key_hash}; a broker answers with them",
    ),
}
"""The cause and its text for each verdict on the message of an entry, the likeliest first."""


def likely_causes(store: MessageStore, explanation: Explanation) -> Explanation:
    """Return an explanation with its causes: why nothing is found, or why a broker might find less."""
    causes = list(_why_a_broker_misses(store, explanation) if explanation.found else _why_nothing(store, explanation))
    return replace(explanation, causes=tuple(causes))


def _why_nothing(store: MessageStore, explanation: Explanation) -> Iterator[Cause]:
    causes = [
        *_of_the_words(store, explanation),
        *_of_candidates(explanation),
        *_of_other_topics(store, explanation),
        *_of_the_topic(store, explanation),
        *_of_the_index(store, explanation),
        *_of_messages_not_indexed(store, explanation),
    ]
    yield from causes
    if {cause.kind for cause in causes} <= {"hash-collision", "unknown-topic", "index-lost", "index-behind"}:
        whole = "the index and the log that it does not cover were searched"
        searched = "what is indexed was searched" if explanation.unscanned else whole
        yield Cause(
            "not-here",
            f"{searched}, and nothing carries this key; was it sent to another broker, under another key, or before the log's "
            f"first message at offset {explanation.min_offset:,}?",
        )


def _of_the_words(store: MessageStore, explanation: Explanation) -> Iterator[Cause]:
    """Yield causes in the topic and key of the search."""
    topic, key = explanation.topic, explanation.key
    if store.is_msg_id(key):
        message = store.message(key)
        if message is not None:
            yield Cause(
                "offset-id",
                f"the message at offset {message.phy_offset:,} of topic {message.topic!r} has this as its offset id; read it "
                f"by the id (`find STORE '*' {key}`), or search for its unique key {message.uniq_key}",
            )
        elif explanation.max_offset > (offset := offset_in_msg_id(key)) and not explanation.candidates:
            state = "expired" if offset < explanation.min_offset else "not this broker's"
            yield Cause("offset-id", f"if this is an offset id, it is {state}: no message with it at {offset:,}")
    yield from _split_key(store, explanation)
    forms = (unicodedata.normalize("NFC", key), unicodedata.normalize("NFD", key))
    for other in dict.fromkeys((key.strip(), key.upper(), key.lower(), *forms)):
        if other not in (key, "") and " " not in other:
            found = store.find(topic, other, begin=explanation.begin, end=explanation.end)
            if found:
                yield Cause("spelling", f"{len(found)} messages carry {other!r}")
    if key.startswith(TAG_PREFIX) and not store.indexes_tags:
        tags = key.removeprefix(TAG_PREFIX)
        yield Cause("tags-not-indexed", f"tags are no key here; read by topic and filter by tags = {tags!r}")


def _split_key(store: MessageStore, explanation: Explanation) -> Iterator[Cause]:
    """Yield a cause if a message has the pieces of a key with spaces."""
    pieces = [piece for piece in explanation.key.split(" ") if piece]
    if len(pieces) < 2:  # noqa: PLR2004 -- one piece is not split
        return
    for message in store.find(explanation.topic, pieces[0], begin=explanation.begin, end=explanation.end):
        if set(pieces) <= set((message.keys or "").split(" ")):
            yield Cause(
                "split-key",
                f"the message at offset {message.phy_offset:,} has the keys {message.keys!r}; each piece is a key of its "
                f"own: search for {pieces[0]!r}",
            )
            return
    yield Cause("split-key", f"a broker never indexes a key with a space; search for a piece: {pieces[0]!r}")


def _of_candidates(explanation: Explanation) -> Iterator[Cause]:
    """Yield causes in the messages that the index leads to."""
    by_verdict: dict[str, list[int]] = {}
    for candidate in explanation.candidates:
        verdict = "other-key" if candidate.verdict == "other-topic" else candidate.verdict
        by_verdict.setdefault(verdict, []).append(candidate.phy_offset)
    outside = next((each for each in explanation.candidates if each.verdict == "out-of-range"), None)
    if outside is not None:
        yield _out_of_range(outside, explanation)
    for verdict, cause in _BY_VERDICT.items():
        if offsets := by_verdict.get(verdict):
            facts = {"number": len(offsets), "last": max(offsets), "offsets": _some(offsets)}
            yield replace(cause, text=cause.text.format(explanation, **facts))


def _out_of_range(candidate: Candidate, explanation: Explanation) -> Cause:
    born, stored = candidate.born_timestamp or 0, candidate.store_timestamp or 0
    begin = born if explanation.begin is None else explanation.begin
    end = born if explanation.end is None else explanation.end
    if begin <= born <= end:
        return Cause(
            "clock-difference",
            f"the message at offset {candidate.phy_offset:,} was made at {born} by its producer's clock, which is in the range, "
            f"and stored at {stored} by the broker's, {stored - born:+,} ms; ranges are of store times: widen it",
        )
    return Cause("out-of-range", f"the message at offset {candidate.phy_offset:,} was stored at {stored}")


def _of_other_topics(store: MessageStore, explanation: Explanation) -> Iterator[Cause]:
    """Yield the topics under which the key is found."""
    seen = {explanation.topic}
    for message in store.find(None, explanation.key):
        if message.topic not in seen:
            seen.add(message.topic)
            yield _other_topic(message, explanation.topic)


def _other_topic(message: Message, asked: str) -> Cause:
    where = f"the message at offset {message.phy_offset:,} carries the key under topic {message.topic!r}"
    real = message.properties.get("REAL_TOPIC")
    if message.topic.startswith(_RETRY):
        origin = message.properties.get("RETRY_TOPIC", "unknown")
        return Cause("retry-topic", f"{where}; its first topic was {origin!r}, and a consumer gave it back")
    if message.topic in _DELAYED:
        why = f"it is due for {real!r} and was not delivered yet, or this is the copy that waited"
        return Cause("delayed", f"{where}; {why}")
    if message.topic == HALF_TOPIC:
        return Cause("half-message", f"{where}; it belongs to {real!r} once its transaction is committed")
    return Cause("other-topic", f"{where}, not {asked!r}")


def _of_the_topic(store: MessageStore, explanation: Explanation) -> Iterator[Cause]:
    topic, topics = explanation.topic, store.topics
    if topic not in topics:
        text = f"none of the {len(topics)} topics here is {topic!r}; {near_names(topic, topics)}"
        yield Cause("unknown-topic", text)


def _of_the_index(store: MessageStore, explanation: Explanation) -> Iterator[Cause]:
    """Yield causes in missing parts of the index."""
    ranges = explanation.unscanned, explanation.unreadable
    unscanned, unreadable = (sum(end - begin for begin, end in each) for each in ranges)
    if unscanned > unreadable:
        size = unscanned - unreadable
        text = f"{size:,} bytes of the log are neither indexed nor read; find(..., scan=True) reads them"
        yield Cause("unread-log", text)
    for begin, end, finding in store.commit_log.gaps():
        yield Cause("missing-file", f"no search finds messages at offsets {begin:,} to {end:,}: {finding}")
    if not any(step.entries for step in explanation.files) and explanation.max_offset > explanation.min_offset:
        text = f"there is no index entry for {explanation.lag_bytes:,} bytes of log{_how_it_ended(store)}"
        yield Cause("index-lost", text)


def _of_messages_not_indexed(store: MessageStore, explanation: Explanation) -> Iterator[Cause]:
    """Yield a cause if a message of the end of the log carries the key, although no index entry leads to it."""
    selection = MessageFilter(
        topics=[explanation.topic], keys=[explanation.key], begin=explanation.begin, end=explanation.end
    )
    begin = max(explanation.min_offset, explanation.max_offset - _READ_BYTES)
    scan = store.commit_log.scan(begin_phy_offset=begin, columns=["phy_offset"], stop="valid", selection=selection)
    offsets = (batch.column(0)[0].as_py() for batch in scan if batch.num_rows)
    message = store.commit_log.message(next(offsets, -1))
    if message is not None:
        why = "no index entry leads to it, which `verify` reports"
        if message.sys_flag & _ROLLBACK == _ROLLBACK:
            why = "it was rolled back: brokers neither index nor dispatch it, so no search finds it; read it by its offset"
        yield Cause("not-indexed", f"the message at offset {message.phy_offset:,} carries the key; {why}")


def _why_a_broker_misses(store: MessageStore, explanation: Explanation) -> Iterator[Cause]:
    """Yield causes for which a broker's own query may fail although the store holds the message."""
    from_log = [candidate.phy_offset for candidate in explanation.candidates if candidate.source == "log"]
    last = explanation.indexed_up_to
    if last is None:
        yield Cause(
            "index-lost",
            f"found by reading the log: there is no index entry{_how_it_ended(store)}; `build-index` makes the files again",
        )
    else:
        if any(offset >= last for offset in from_log):
            yield Cause("index-behind", f"found by reading the log: the index ends at offset {last:,}")
        if any(offset < last for offset in from_log):
            yield Cause(
                "index-lost",
                f"found by reading the log, at offsets {_some([o for o in from_log if o < last])}: index files that "
                f"held it are gone{_how_it_ended(store)}; `build-index` makes them again",
            )
    missed = [o for o in explanation.found if o not in (explanation.broker_found or ()) and o not in from_log]
    if missed:
        candidates = sum(len(step.candidates) for step in explanation.files)
        if candidates > MAX_MSGS_NUM_BATCH:
            yield Cause(
                "broker-cap",
                f"{candidates:,} entries have this hash; a broker reads only the newest {MAX_MSGS_NUM_BATCH}, without a note",
            )
        else:
            yield Cause("broker-time", f"a broker misses those at offsets {_some(missed)} in this range")
    early = max(
        (
            (candidate.born_timestamp or 0) - (candidate.store_timestamp or 0)
            for candidate in explanation.candidates
            if candidate.verdict == "match" and candidate.uniq_key == explanation.key
        ),
        default=0,
    )
    if early > _BROKER_SLACK_MS:
        yield Cause(
            "clock-difference",
            f"the producer's clock was {early:,} ms ahead of the broker's; 4.x clients search from the time in the unique key "
            "on, less a second, and miss the message",
        )


def _how_it_ended(store: MessageStore) -> str:
    return "; the broker did not stop cleanly (abort is there)" if store.layout.abort.exists() else ""


def _some(offsets: list[int]) -> str:
    shown = ", ".join(f"{offset:,}" for offset in offsets[:3])
    return shown + (f" and {len(offsets) - 3:,} more" if len(offsets) > 3 else "")  # noqa: PLR2004 -- three examples


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
        why = "no range was requested"
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
