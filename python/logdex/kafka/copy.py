"""A copy of topics of a log directory into a new log directory, whose partitions a broker loads."""

from __future__ import annotations

import errno
import shlex
import shutil
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING, Literal, NamedTuple, get_args

from logdex._core import LogWriter, bootstrap_with_topics, bound_ms, local_path, replace_file, transactions_before
from logdex._files import refuse_broker_directory
from logdex._types import MAX_INT32, MAX_INT64
from logdex.errors import CorruptFileError
from logdex.kafka.files import LOG, META_PROPERTIES, METADATA_TOPIC, SNAPSHOT, TopicPartition
from logdex.kafka.groups import OFFSETS_TOPIC, read_groups
from logdex.kafka.key_index import partitions_of
from logdex.kafka.log_dir import opened_log_dir
from logdex.kafka.writer import LogDirWriter, new_id, read_topic_id
from logdex.report import Report

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping
    from os import PathLike
    from pathlib import Path
    from typing import TypeAlias

    from logdex._core import GroupOffsets
    from logdex._types import Progress, Time
    from logdex.kafka.log import Log, Part
    from logdex.kafka.log_dir import LogDir
    from logdex.report import Finding

    _Parts: TypeAlias = list[Part | Finding]
    _NewTopic: TypeAlias = tuple[str, str, int, list[tuple[str, str]]]
    """Name, id, number of partitions, settings."""

OpenTransactions = Literal["abort", "keep"]
INTERNAL = frozenset(
    {OFFSETS_TOPIC, METADATA_TOPIC, "__transaction_state", "__share_group_state", "__remote_log_metadata"}
)
"""Topics with the state of one cluster, which has no meaning in another one."""
_CONFIG = {"segment.bytes": MAX_INT32, "segment.ms": MAX_INT64, "max.message.bytes": MAX_INT32}
"""Segments end where those of the source end."""
_UNKNOWN_BROKER = -2
"""Epoch of a broker that the new cluster does not know, for its marker of a clean shutdown."""
_OFFSETS_PARTITIONS = 50
"""offsets.topic.num.partitions."""
_MOST_PARTITIONS = 1000
_BOOTSTRAP = "bootstrap.checkpoint"
_NO_RETENTION: dict[str, object] = {"retention.ms": -1, "retention.bytes": -1}
_OFFSETS_CONFIG: dict[str, object] = {
    "cleanup.policy": "compact",
    "compression.type": "producer",
    "segment.bytes": 104_857_600,
}


def copy(
    source: str | PathLike[str] | LogDir,
    directory: str | PathLike[str],
    *,
    topics: str | Iterable[str] | None = None,
    partitions: int | Iterable[int] | None = None,
    begin: Time | None = None,
    end: Time | None = None,
    keys: Iterable[str | bytes] | None = None,
    header: str | None = None,
    as_of: Time | None = None,
    groups: bool = False,
    committed: bool = False,
    open_transactions: OpenTransactions = "abort",
    progress: Progress | None = None,
) -> Report:
    """Copy topics into a new log directory, including the records after damage.

    Offsets, timestamps, headers, producer ids and transactions are kept. Batches are copied whole; where some of their records
    are dropped, they are encoded again, and offsets are missing as after a compaction. The epochs of leaders become 0, because
    consumers wait for a leader of an epoch that another cluster does not have. No producer snapshots are written, so a new
    producer that gets the id of an old one is not taken for it.

    A file next to the directory, `<directory>.steps.txt`, has the commands with which a broker loads the partitions. If the
    directory is one that `kafka-storage.sh format` made, the topics are also added to the metadata with which its broker starts
    for the first time: the broker then has them, with the topic ids of the source.

    Args:
        source: The log directory, open or by its path or URL. It is only read.
        directory: The new log directory: missing, empty, or formatted and never used.
        topics: Topics by names and patterns (see `LogDir.named_topics`); None: all except those with the state of the cluster.
        partitions: One partition of the topics, or several, by their numbers; None: all.
        begin: First timestamp of records, ms or an aware datetime; None: no bound.
        end: Last timestamp of records, included.
        keys: Only records whose key is one of these; a `str` stands for its UTF-8 bytes. None: all.
        header: Compare the values of the header of this name with `keys`, not the record's key.
        as_of: Each partition ends before its first record with a later timestamp, as it was at that moment.
        groups: Restore the offsets that consumer groups committed, as of that moment, as records of `__consumer_offsets`: of the
            copied partitions, and within their offsets.
        committed: Leave out the records of aborted transactions.
        open_transactions: "abort" writes a marker for each transaction that is open at the end of the copy; a commit if another
            partition has one for it. "keep" leaves it open: readers of committed records stop there until a producer of the
            same transactional id begins anew.
        progress: Called with the bytes of `.log` files that were read, and all of them.

    Returns:
        A report that counts what was copied. Findings are damage that was skipped. If nothing was copied, the new directory is
        removed.

    Raises:
        FileExistsError: The directory has other files.
        CorruptFileError: `bootstrap.checkpoint` of the directory is damaged.
        FileNotFoundError: A topic has no partition here, or not the wanted ones.
        ValueError: The directory is in a log directory, or a topic has the state of a cluster.
        OSError: An I/O error. The new directory is then as after a crash.
        TypeError: A key is neither `str` nor `bytes`.
    """
    if open_transactions not in get_args(OpenTransactions):
        raise ValueError(
            f"open_transactions={open_transactions!r}: expected one of {', '.join(get_args(OpenTransactions))}"
        )
    moment = None if as_of is None else bound_ms(as_of, end=True, name="as_of")
    target = local_path(directory).absolute()
    with opened_log_dir(source) as logs:
        before = {entry.name for entry in target.iterdir()} if target.exists() else None
        formatted = _formatted(target, before)
        refuse_broker_directory(target, own=[] if formatted is None else [target], others=[logs.path])
        selected = _Selected(begin, end, None if keys is None else _checked(keys), header)
        if header is not None and keys is None:
            raise ValueError("header: expected keys as well, the values that the header may have")
        wanted = _wanted(logs, topics, partitions)
        plans = {each: list(logs.log(each.topic, each.partition).parts()) for each in wanted}
        if committed:
            plans = _without_aborted(plans, moment)
        with ExitStack() as stack:
            writer = LogDirWriter.open(target, config=_CONFIG, broker_epoch=_UNKNOWN_BROKER)
            stack.callback(writer.abandon)
            size = sum(logs.log(each.topic, each.partition).size for each in wanted)
            copying = _Copy(writer, selected, moment, progress, size)
            copying.topic_ids = {} if formatted is None else _topic_ids(logs, wanted)
            for each, parts in plans.items():
                copying.copy(each, logs.log(each.topic, each.partition), parts)
            copying.end_transactions(open_transactions)
            counts = _partition_counts(wanted) | (copying.restore_groups(logs) if groups else {})
            topics_of_broker = [] if formatted is None else copying.complete_topics(counts)
            writer.close()
        if not copying.counts["records"] and not copying.counts.get("group_records"):
            _remove_content(target, before)
            return Report(copying.findings, copying.counts)
        if open_transactions == "abort":
            for snapshot in target.glob(f"*/*{SNAPSHOT}"):
                snapshot.unlink()
        steps = (
            formatted.add_topics(topics_of_broker, copying.next_producer_id) if formatted else _steps(target, counts)
        )
        replace_file(steps_path(target), steps.encode())
    return Report(copying.findings, copying.counts)


def _wanted(
    logs: LogDir, topics: str | Iterable[str] | None, partitions: int | Iterable[int] | None
) -> list[TopicPartition]:
    """Return the partitions to copy."""
    names = logs.named_topics(topics)
    if names and (internal := INTERNAL.intersection(names)):
        text = "expected topics of users; it has the state of one cluster (consumer groups: groups=True)"
        raise ValueError(f"topics: {min(internal)}: {text}")
    found = partitions_of(logs, names) if names is not None else logs.partitions()
    numbers = None if partitions is None else {partitions} if isinstance(partitions, int) else set(partitions)
    wanted = [each for each in found if each.topic not in INTERNAL and (numbers is None or each.partition in numbers)]
    if not wanted:
        which = "" if numbers is None else f" with the number {', '.join(map(str, sorted(numbers)))}"
        raise FileNotFoundError(errno.ENOENT, f"no partition{which} to copy", str(logs.path))
    return wanted


class _Formatted(NamedTuple):
    """A log directory that `kafka-storage.sh format` made and no broker has used."""

    directory: Path
    node_id: int
    directory_id: str

    def add_topics(self, topics: list[_NewTopic], next_producer_id: int) -> str:
        """Add topics to the metadata with which the broker starts; return the steps to start it."""
        path = self.directory / _BOOTSTRAP
        content = bootstrap_with_topics(
            path,
            topics,
            node_id=self.node_id,
            directory_id=self.directory_id,
            next_producer_id=next_producer_id,
        )
        replace_file(path, content)
        return _START.format(directory=shlex.quote(str(self.directory)), node_id=self.node_id)


def _formatted(directory: Path, names: set[str] | None) -> _Formatted | None:
    """Return the directory to write into if it was formatted; None if it is missing or empty."""
    if not names:
        return None
    metadata = f"{METADATA_TOPIC}-0"
    used = any(path.stat().st_size for path in (directory / metadata).glob(f"*{LOG}"))
    if used or not {META_PROPERTIES, _BOOTSTRAP} <= names <= {META_PROPERTIES, _BOOTSTRAP, metadata}:
        expected = "expected a missing or empty directory, or one that was formatted and never used"
        raise FileExistsError(errno.EEXIST, f"{expected}; found files", str(directory))
    path = directory / META_PROPERTIES
    values = dict(line.split("=", 1) for line in path.read_text(errors="replace").splitlines() if "=" in line)
    node_id, directory_id = values.get("node.id", ""), values.get("directory.id", "")
    if not node_id.isdecimal() or int(node_id) > MAX_INT32 or not directory_id:
        raise CorruptFileError(str(path), 0, "node.id and directory.id", f"{node_id!r} and {directory_id!r}")
    return _Formatted(directory, int(node_id), directory_id)


def _partition_counts(places: Iterable[TopicPartition]) -> dict[str, int]:
    """Return the number of partitions that each topic has at least."""
    counts: dict[str, int] = {}
    for each in places:
        counts[each.topic] = max(counts.get(each.topic, 0), each.partition + 1)
    return counts


def _topic_ids(logs: LogDir, places: Iterable[TopicPartition]) -> dict[str, str]:
    """Return the ids that the topics have in the source, and new ones where it has none."""
    ids: dict[str, str] = {}
    for each in places:
        found = ids.get(each.topic) or read_topic_id(logs.path / str(each))
        ids.update({each.topic: found} if found else {})
    return {each.topic: ids.get(each.topic) or new_id() for each in places}


def _without_aborted(plans: Mapping[TopicPartition, _Parts], moment: int | None) -> dict[TopicPartition, _Parts]:
    """Return the plans with the transactions to leave out: those that were aborted, or are going to be."""
    found = {each: transactions_before(parts, moment) for each, parts in plans.items()}
    decided = {marker for *_, markers in found.values() for marker in markers}
    omitted = {
        each: [*aborted, *(place for place, epoch in still_open if (place[0], epoch + 1) not in decided)]
        for each, (_, aborted, still_open, _) in found.items()
    }
    return {
        each: [(*part[:3], omitted[each]) if isinstance(part, tuple) else part for part in parts]
        for each, parts in plans.items()
    }


def _remove_content(directory: Path, before: Collection[str] | None) -> None:
    """Remove what a copy wrote, except the names before it; without any the directory itself, which the copy made."""
    for path in directory.iterdir():
        if before and path.name in before:
            continue
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()
    if before is None:
        directory.rmdir()


class _Selected(NamedTuple):
    """The records to copy."""

    begin: Time | None
    end: Time | None
    keys: list[str | bytes] | None
    header: str | None


def _checked(keys: Iterable[str | bytes]) -> list[str | bytes]:
    """Return the keys, which each partition is asked for."""
    if isinstance(keys, str | bytes):
        raise TypeError("keys: expected several keys, got one; put it into a list")
    return list(keys)


class _Copy:
    """A copy in progress."""

    def __init__(
        self, writer: LogDirWriter, selected: _Selected, moment: int | None, progress: Progress | None, size: int
    ) -> None:
        self._writer = writer
        self._selected = selected
        self._moment = moment
        self._progress = progress
        self._size = size
        self._read = 0
        self._open: list[LogWriter] = []
        self._committed: set[tuple[int, int]] = set()
        self._ranges: dict[tuple[str, int], tuple[int, int]] = {}
        self.findings: list[Finding] = []
        self.topic_ids: dict[str, str] = {}
        self.next_producer_id = 0
        names = ("partitions", "records", "whole_batches", "encoded_batches", "log_bytes", "ended_transactions")
        self.counts = dict.fromkeys(names, 0)

    def copy(self, place: TopicPartition, log: Log, parts: _Parts) -> None:
        """Copy a partition. It stays open if a transaction is."""
        topic_id = self.topic_ids.get(place.topic)
        out = self._writer.log(place.topic, place.partition, topic_id=topic_id, log_start_offset=log.log_start_offset)
        show = None if self._progress is None else self._show
        counts, findings, markers, next_producer_id = out.copy(
            parts, **self._selected._asdict(), as_of=self._moment, progress=show
        )
        self.next_producer_id = max(self.next_producer_id, next_producer_id)
        self._read += log.size
        self._show(0)
        for name, count in zip(("records", "whole_batches", "encoded_batches", "log_bytes"), counts, strict=True):
            self.counts[name] += count
        self.counts["partitions"] += 1
        self.findings += findings
        self._committed.update(markers)
        self._ranges[place.topic, place.partition] = out.log_start_offset, out.end_offset
        if out.last_stable_offset < out.end_offset:
            self._open.append(out)
        else:
            out.close()

    def _show(self, done: int) -> None:
        if self._progress is not None:
            self._progress(min(self._read + done, self._size), self._size)

    def end_transactions(self, what: OpenTransactions) -> None:
        """End the open transactions, now that the markers of all partitions are known."""
        time_ms = _now() if self._moment is None else self._moment
        for out in self._open:
            if what == "abort":
                self.counts["ended_transactions"] += out.end_transactions(time_ms, committed=list(self._committed))
            out.close()

    def restore_groups(self, logs: LogDir) -> dict[str, int]:
        """Write the offsets of the consumer groups, and return their topic with the number of its partitions."""
        read: dict[int, GroupOffsets] = {}
        for place in logs.partitions(OFFSETS_TOPIC):
            read[place.partition], findings = read_groups(logs.log(place.topic, place.partition), self._moment)
            self.findings += findings
        least = max(read, default=-1) + 1
        counts = (least, _OFFSETS_PARTITIONS, *range(least, _MOST_PARTITIONS + 1))
        fitting = (count for count in counts if all(each.are_of(number, count) for number, each in read.items()))
        count: int | None = next((count for count in fitting if count >= least), None)
        if count is None:
            raise ValueError(
                f"{logs.path}: expected the partitions of {OFFSETS_TOPIC} to have the groups of their numbers"
            )
        self.counts["group_records"] = 0
        if self.topic_ids:
            self.topic_ids[OFFSETS_TOPIC] = self._writer.create_topic(OFFSETS_TOPIC, max(count, 1))
        for number, each in read.items():
            records = each.restored(self._ranges, _now())
            if records.num_rows:
                self._writer.append(OFFSETS_TOPIC, number, records)
                self.counts["group_records"] += records.num_rows
        return {OFFSETS_TOPIC: max(count, 1)}

    def complete_topics(self, counts: Mapping[str, int]) -> list[_NewTopic]:
        """Create the missing partitions of the topics; return name, id, number of partitions and settings of each."""
        topics = []
        for name, number in sorted(counts.items()):
            topic_id = self.topic_ids[name]
            for partition in range(number):
                if (name, partition) not in self._ranges:
                    self._writer.log(name, partition, topic_id=topic_id).close()
            settings = _OFFSETS_CONFIG if name == OFFSETS_TOPIC else _NO_RETENTION
            topics.append((name, topic_id, number, [(setting, str(value)) for setting, value in settings.items()]))
        return topics


def steps_path(directory: str | PathLike[str]) -> Path:
    """Return the path of the file with the steps to load a copy."""
    target = local_path(directory)
    return target.with_name(f"{target.name}.steps.txt")


def _now() -> int:
    return time.time_ns() // 1_000_000


_STEPS = """\
How to load {directory} into a Kafka broker

The broker must run, with one log directory (log.dirs), and have none of these topics.{offsets}

1. Copy the directories of the partitions, and nothing else, into the broker's log directory, as the
   broker's user:

     cp -R {directory}/*-*[0-9] LOG_DIR/

2. Create the topics with these numbers of partitions. The broker takes the directories as theirs:

{creations}

3. Read a topic to its end, for example with kafka-console-consumer.sh --from-beginning.

Records that are older than retention.ms are deleted within minutes. Leave it at -1 as long as they are
needed.
If the directories come into the log directory of a broker that is starting or stopped, the broker
renames them to <topic>-<partition>.<id>-stray and serves empty topics. Then delete the topics, rename the
directories and begin anew.
To load them into a broker that is stopped, create the topics as in step 2, stop the broker, replace all
files of each partition's directory but partition.metadata, and start it.
"""
_START = """\
How to start a Kafka broker with {directory}

bootstrap.checkpoint in the directory has the topics, which the controller takes over when it starts for
the first time.

1. The configuration must have node.id={node_id} and log.dirs={directory}, as when the directory was formatted,
   and process.roles=broker,controller. The broker's user must own the files in the directory.
2. Start the broker:

     kafka-server-start.sh server.properties

3. Read a topic to its end, for example with kafka-console-consumer.sh --from-beginning.

The topics keep all records (retention.ms=-1, retention.bytes=-1), and their other settings are the
defaults of the broker; kafka-configs.sh changes them.
"""
_OFFSETS = """
Its offsets.topic.num.partitions must be {count}, and no consumer group may have used it."""


def _steps(directory: Path, counts: Mapping[str, int]) -> str:
    """Return the steps to load a directory with some numbers of partitions."""
    settings = {name: _OFFSETS_CONFIG if name == OFFSETS_TOPIC else _NO_RETENTION for name in counts}
    # Groups are read as soon as their topic exists, and the topics that they name exist then.
    names = sorted(counts, key=lambda name: (name == OFFSETS_TOPIC, name))
    creations = (
        f"     kafka-topics.sh --bootstrap-server HOST:9092 --create --topic {shlex.quote(name)}"
        f" --partitions {counts[name]} --replication-factor 1"
        + "".join(f" --config {setting}={value}" for setting, value in settings[name].items())
        for name in names
    )
    offsets = _OFFSETS.format(count=counts[OFFSETS_TOPIC]) if OFFSETS_TOPIC in counts else ""
    return _STEPS.format(directory=shlex.quote(str(directory)), offsets=offsets, creations="\n".join(creations))
