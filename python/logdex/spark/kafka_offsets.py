"""Options that say where a read of `kafka_log` begins and ends in each partition: those of Spark's own Kafka source."""

from __future__ import annotations

import json
import re
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from logdex.kafka import TopicPartition
from logdex.spark import options as opt
from logdex.spark.kafka_dirs import latest

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from logdex.kafka import Log
    from logdex.spark.kafka_dirs import LogDirs

_EARLIEST = -2
_LATEST = -1
_WORDS = {"earliest": _EARLIEST, "latest": _LATEST}
_WHOLE = re.compile("-?[0-9]+")
_INTERNAL = ("__consumer_offsets", "__transaction_state", "__share_group_state", "__cluster_metadata")
"""Topics that a pattern of Spark's own source does not match."""
_SAME_ESCAPE = re.compile(r"\\[dDwWsSbB.\-_^$|?*+()\[\]{}/\\nrt]")
_NOT_THE_SAME = re.compile(r"\\|&&|\[\^?\]|\[[^\]]*\[|[*+?}]\+|\(\?(?![:=!]|<[=!]|[ims]+[:)])|\{(?![0-9])")
"""What Java's and Python's regular expressions do not have in common."""

_ByPartition: TypeAlias = dict[TopicPartition, int]

TOPIC_OPTIONS = ("topic", "subscribe", "subscribePattern", "assign")
OFFSET_OPTIONS = (
    "startingOffsets",
    "endingOffsets",
    "startingTimestamp",
    "endingTimestamp",
    "startingOffsetsByTimestamp",
    "endingOffsetsByTimestamp",
    "startingOffsetsByTimestampStrategy",
)


@dataclass(frozen=True, slots=True)
class Bound:
    """One end of a read. As in Spark, one timestamp counts before timestamps, and these before offsets.

    `word` is the offset of each partition without one in `offsets`: -2 the earliest, -1 the latest. Timestamps are milliseconds,
    of every partition or of single ones. `missing` is "error" or "latest": a start by time without a record at or after it.
    """

    word: int
    offsets: _ByPartition | None = None
    timestamp: int | None = None
    timestamps: _ByPartition | None = None
    missing: str = "latest"

    def check_names(self, chosen: Collection[TopicPartition]) -> None:
        """Raise ValueError if a named partition is not read: a mistyped name must not read everything."""
        named = {*(self.offsets or ()), *(self.timestamps or ())}
        unread = sorted(each for each in named if each not in chosen)
        if unread:
            there = ", ".join(map(str, chosen)) or "nothing"
            raise ValueError(f"offsets are given for {', '.join(map(str, unread))}, which is not read; read is {there}")

    def resolve(self, log: Log, *, committed: bool = False) -> int:
        """Return the offset that this means in a log; `committed`: the latest one is that of a read-committed consumer.

        Raises:
            ValueError: A start by time has no record at or after it, and `missing` is "error".
        """
        partition = TopicPartition(log.topic, log.partition)
        time = (self.timestamps or {}).get(partition) if self.timestamp is None else self.timestamp
        if time is not None:
            found = log.offset_for_timestamp(time, special=False)
            if found is not None:
                return found[1]
            if self.missing == "error":
                raise ValueError(
                    f"{partition}: no record at or after {time}; startingOffsetsByTimestampStrategy=latest begins at the end"
                )
            return latest(log, committed=committed)
        offset = (self.offsets or {}).get(partition, self.word)
        if offset == _EARLIEST:
            return log.log_start_offset
        return latest(log, committed=committed) if offset == _LATEST else offset


def starting(options: Mapping[str, str], *, stream: bool = False) -> Bound:
    """Return where to begin, by default at the start of the log. Only a stream may begin at the latest offset."""
    strategy = opt.one_of(options, "startingOffsetsByTimestampStrategy", ("error", "latest"), "error")
    bound = _bound(options, "starting", "earliest", strategy)
    if not stream:
        _refuse(bound, _LATEST, "startingOffsets", "begins at the latest")
    return bound


def ending(options: Mapping[str, str]) -> Bound:
    """Return where to end, by default at the end of the log."""
    bound = _bound(options, "ending", "latest", "latest")
    _refuse(bound, _EARLIEST, "endingOffsets", "ends at the earliest")
    return bound


def _refuse(bound: Bound, offset: int, name: str, does: str) -> None:
    """Raise ValueError for a batch that can only be empty, as Spark's own source does.

    Source: KafkaSourceProvider#validateBatchOptions.
    """
    if bound.timestamp is not None or bound.timestamps is not None:
        return
    empty = [f", {partition}" for partition, each in sorted((bound.offsets or {}).items()) if each == offset]
    if empty or (bound.offsets is None and bound.word == offset):
        raise ValueError(f"option {name}{''.join(empty)}: a batch that {does} offset reads nothing")


def refuse_ending(options: Mapping[str, str]) -> None:
    """Raise ValueError if an option says where a stream ends, as Spark's own source does."""
    given = [name for name in OFFSET_OPTIONS if name.startswith("ending") and options.get(name) is not None]
    if given:
        raise ValueError(
            f"option {given[0]}: a stream has no end; trigger(availableNow=True) ends where the logs end now"
        )


def _bound(options: Mapping[str, str], which: Literal["starting", "ending"], word: str, missing: str) -> Bound:
    name = f"{which}Offsets"
    given = options.get(name, word).strip()
    offsets = None if given.lower() in _WORDS else _by_partition(given, name)
    timestamps = options.get(f"{name}ByTimestamp")
    return Bound(
        word=_WORDS[given.lower()] if offsets is None else _WORDS[word],
        offsets=offsets,
        timestamp=opt.instant(options, f"{which}Timestamp", end=False),
        timestamps=None if timestamps is None else _by_partition(timestamps, f"{name}ByTimestamp"),
        missing=missing,
    )


def _by_partition(text: str, name: str) -> _ByPartition:
    """Read JSON of topic, partition and a number: {"orders": {"0": 23, "1": -2}}."""
    with _expected(name, text, '{"orders": {"0": 23, "1": -2}}'):
        return {
            TopicPartition(topic, _whole(partition, 0)): _whole(number, _EARLIEST)
            for topic, numbers in json.loads(text).items()
            for partition, number in numbers.items()
        }


@contextmanager
def _expected(name: str, text: str, example: str) -> Iterator[None]:
    """Raise ValueError that names an option and an example if the option is not JSON of this form."""
    try:
        yield
    except (AttributeError, TypeError, ValueError) as error:
        raise ValueError(f"option {name}: expected JSON such as {example}, got {text!r}") from error


def _whole(value: Any, least: int) -> int:
    """Return a whole number, or the value of its digits; not 1.5, and not true, which Python takes as 1."""
    if isinstance(value, str) and _WHOLE.fullmatch(value):
        value = int(value)
    if type(value) is not int or value < least:
        raise ValueError(value)
    return value


@dataclass(frozen=True, slots=True)
class Topics:
    """Which partitions are wanted: topics by name, by a pattern for a part of the name, or single partitions; None: any."""

    names: tuple[str, ...] | None = None
    pattern: str | None = None
    partitions: frozenset[TopicPartition] | None = None

    def choose(self, logs: LogDirs) -> list[TopicPartition]:
        """Return the wanted partitions of a directory.

        Raises:
            ValueError: A named topic or partition is missing: a mistyped name must not read as empty.
        """
        found = logs.partitions(self.names)
        missing = sorted(set(self.names or ()) - {partition.topic for partition in found})
        missing += [str(partition) for partition in sorted(self.partitions or ()) if partition not in found]
        if missing:
            there = dict.fromkeys(each.topic for each in logs.partitions())
            raise ValueError(
                f"{logs.path} does not hold {', '.join(missing)}; it holds {', '.join(there) or 'nothing'}"
            )
        if self.pattern is not None:
            matches = re.compile(self.pattern, re.ASCII).search
            found = [each for each in found if matches(each.topic) and each.topic not in _INTERNAL]
        return [partition for partition in found if self.partitions is None or partition in self.partitions]


def topics(options: Mapping[str, str]) -> Topics:
    """Return which topics are wanted, by default all.

    Raises:
        ValueError: Several options choose topics, or one is invalid.
    """
    given = [name for name in TOPIC_OPTIONS if options.get(name) is not None]
    if len(given) > 1:
        raise ValueError(f"give one of the options {', '.join(TOPIC_OPTIONS)}, not {' and '.join(given)}")
    if options.get("assign") is not None:
        return Topics(partitions=_assigned(options["assign"]))
    if options.get("subscribePattern") is not None:
        pattern = options["subscribePattern"]
        other = _NOT_THE_SAME.search(_SAME_ESCAPE.sub("a", pattern))
        if other is not None:
            raise ValueError(
                f"option subscribePattern: {pattern!r}: {other[0]!r} is not the same in Java and Python; write it another "
                "way, or name the topics with subscribe"
            )
        try:
            re.compile(pattern)
        except re.error as error:
            raise ValueError(f"option subscribePattern: {pattern!r} is no regular expression: {error}") from error
        return Topics(pattern=pattern)
    names = opt.names(options, "subscribe")
    return Topics(names=opt.texts(options, "topic") if names is None else names)


def _assigned(text: str) -> frozenset[TopicPartition]:
    """Read JSON of topics and partitions: {"orders": [0, 1]}."""
    with _expected("assign", text, '{"orders": [0, 1]}'):
        wanted = json.loads(text).items()
        chosen = frozenset(TopicPartition(topic, _whole(n, 0)) for topic, numbers in wanted for n in _listed(numbers))
    if not chosen:
        raise ValueError(f"option assign: {text!r} names nothing")
    return chosen


def _listed(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise TypeError(value)
    return value
