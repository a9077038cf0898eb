"""The likely causes of an answer. The closed list is `explanation.CAUSES`."""

from __future__ import annotations

import unicodedata
from dataclasses import replace
from typing import TYPE_CHECKING

from logdex._core import MessageFilter
from logdex.report import near_names
from logdex.rocketmq.broker_config import DLQ_PREFIX, HALF_TOPIC, RETRY_PREFIX, SCHEDULE_TOPIC
from logdex.rocketmq.explain.explanation import Candidate, Cause, Explanation
from logdex.rocketmq.find import TAG_PREFIX
from logdex.rocketmq.index_service import MAX_MSGS_NUM_BATCH
from logdex.rocketmq.message import offset_in_msg_id

if TYPE_CHECKING:
    from collections.abc import Iterator

    from logdex.rocketmq.message import Message
    from logdex.rocketmq.store import MessageStore

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
    """Yield causes in the topic and key that were asked for."""
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
                f"{candidates:,} entries have this hash; a broker looks at the newest {MAX_MSGS_NUM_BATCH} and does not say so",
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
