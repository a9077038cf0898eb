"""The index that Kafka never had: from the key of a record to its offset, one directory of index files per partition.

The files are those of `logdex.hash_index`; docs/formats/kafka-log.md, "Key index", says what their fields hold here. An
answer of the index is a candidate: `find` reads the record itself before it gives it.
"""

from __future__ import annotations

import contextlib
import errno
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from arro3.core import Array, DataType

from logdex.errors import CorruptFileError
from logdex.hash_index import IndexDirectory
from logdex.hash_index.directory import list_directory
from logdex.hash_index.geometry import DEFAULT_MAX_ENTRIES, file_size
from logdex.kafka.key_settings import KeySettings
from logdex.kafka.log_dir import LogDir, is_partition
from logdex.report import Report, merge

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from os import PathLike

    from arro3.core import RecordBatch

    from logdex.kafka.file_name import TopicPartition
    from logdex.kafka.log import Log
    from logdex.kafka.record import Record

_LEAST_ENTRIES = 1 << 10
_ENTRIES_A_SLOT = 4
_FEWEST_ENTRIES = 2
_MOST_ENTRIES = 100_000_000
"""With their slots in less than 2^31 bytes, as every index file is."""
_BATCH_ROWS = 65_536


class Key(NamedTuple):
    """What is looked for.

    Attributes:
        value: The bytes of the key, or of the header's value.
        header: The header's name; None for the record's key.
    """

    value: bytes
    header: str | None = None

    @property
    def text(self) -> str:
        """What is hashed after the topic."""
        return key_text(self.value) if self.header is None else f"{self.header}={key_text(self.value)}"

    def is_of(self, record: Record) -> bool:
        """Say whether a record carries it."""
        if self.header is None:
            return record.key == self.value
        return (self.header, self.value) in record.headers


def key_text(key: bytes) -> str:
    """Give the text that stands for a key in the index: the key itself where it is UTF-8, else its hexadecimal digits."""
    try:
        return key.decode()
    except UnicodeDecodeError:
        return key.hex()


def build_key_index(
    log_dir: str | PathLike[str] | LogDir,
    directory: str | PathLike[str],
    *,
    topics: str | Iterable[str] | None = None,
    header: str | None = None,
    max_entries: int | None = None,
    progress: Callable[[TopicPartition, int], None] | None = None,
) -> Report:
    """Index the records of partitions by their keys, or go on where an earlier call ended.

    Args:
        log_dir: The log directory, or its path. It is only read.
        directory: Where the index goes: `<directory>/<topic>-<partition>/`.
        topics: One topic, or several; None: all.
        header: The name of a header whose values are indexed beside the keys.
        max_entries: Entries of an index file, plus one; None: as many as the partition needs, at most 20,000,000. A directory
            that is there keeps what it has.
        progress: Called with the partition and the number of offsets read, after each batch.

    Returns:
        What was passed over because it is damaged, and `checked`: partitions, records and entries.

    Raises:
        CorruptFileError: The settings of an index that is there are damaged, or its files are not whole. A damaged batch is
            passed over and named in the report.
        ValueError: The index that is there was built with another header; or `max_entries` is below 2 or above 100,000,000.
        FileNotFoundError: A topic that was asked for does not lie here.
        FileExistsError: Where the index would go lies a partition of Kafka.
        OSError: A file cannot be read or written.
    """
    check_max_entries(max_entries)
    reports = []
    with opened(log_dir) as logs:
        partitions = partitions_of(logs, topics)
        check_targets(partitions, Path(directory), header)
        for partition in partitions:
            log = logs.log(partition.topic, partition.partition)
            show = None if progress is None else partial(progress, partition)
            target = Path(directory) / str(partition)
            reports.append(index_partition(log, target, header=header, max_entries=max_entries, progress=show))
    return merge([Report([], {"partitions": 0, "records": 0, "entries": 0}), *reports])


def check_max_entries(max_entries: int | None) -> None:
    """Refuse a size that index files cannot have, before anything is written.

    Raises:
        ValueError: It is one.
    """
    if max_entries is not None and not _FEWEST_ENTRIES <= max_entries <= _MOST_ENTRIES:
        raise ValueError(f"max_entries is {_FEWEST_ENTRIES} to {_MOST_ENTRIES}")


def check_targets(partitions: Iterable[TopicPartition], directory: Path, header: str | None) -> None:
    """Refuse a directory that cannot take the indexes of all these partitions, before that of one is written.

    Raises:
        CorruptFileError: The settings of an index that is there are damaged.
        ValueError: One was built with another header.
        FileExistsError: Where one would go lies a partition of Kafka.
    """
    for partition in partitions:
        target = directory / str(partition)
        if is_partition(target):
            message = "a partition of Kafka lies there; give the index a directory of its own"
            raise FileExistsError(errno.EEXIST, message, str(target))
        settings = KeySettings.read(target)
        if settings is not None and settings.header != header:
            raise ValueError(f"{target} was built with header={settings.header!r}, not {header!r}: build another index")


def partitions_of(logs: LogDir, topics: str | Iterable[str] | None) -> list[TopicPartition]:
    """Give the partitions of the topics that were asked for; None: of all.

    Raises:
        FileNotFoundError: One of the topics does not lie here.
    """
    wanted = None if topics is None else {topics} if isinstance(topics, str) else set(topics)
    partitions = logs.partitions(wanted)
    missing = (wanted or set()) - {partition.topic for partition in partitions}
    if missing:
        raise FileNotFoundError(errno.ENOENT, "no partition of this topic", str(logs.path / f"{min(missing)}-0"))
    return partitions


def index_partition(
    log: Log,
    target: Path,
    *,
    header: str | None = None,
    max_entries: int | None = None,
    progress: Callable[[int], None] | None = None,
) -> Report:
    """Index the records of one partition, whose target `check_targets` has seen; see `build_key_index`."""
    settings = KeySettings.read(target)
    if settings is None:
        settings = KeySettings(*_geometry(log, max_entries), header)
        settings.write(target)
    check_files(target, settings)
    columns = ["topic", "key", "offset", "timestamp", *([] if header is None else ["headers"])]
    records = entries = 0
    with IndexDirectory.open(
        target, mode="a", hash_slots=settings.hash_slots, max_entries=settings.max_entries
    ) as index:
        # A record may have two entries; where a crash came between them the second one is put again.
        first = indexed_end(index) - (header is not None)
        stream = log.records(max(first, 0), columns=columns, batch_size=_BATCH_ROWS, on_error="skip")
        for batch in stream:
            entries += sum(index.put_batch(part) for part in _entries(batch, header))
            records += batch.num_rows
            if progress is not None:
                progress(batch.num_rows)
    return Report(list(stream.findings), {"partitions": 1, "records": records, "entries": entries})


def check_files(directory: Path, settings: KeySettings) -> None:
    """Refuse index files that are not whole: what they lost would only be missing in an answer.

    Raises:
        CorruptFileError: One is shorter or longer than all files of this index are.
    """
    expected = file_size((settings.hash_slots, settings.max_entries))
    for entry in list_directory(directory):
        if entry.is_numeric and entry.size != expected:
            what = f"{expected} bytes, as all files of this index have; build it anew in another directory"
            raise CorruptFileError(str(directory / entry.name), min(entry.size, expected), what, f"{entry.size} bytes")


def _geometry(log: Log, max_entries: int | None) -> tuple[int, int]:
    """Choose slots and entries after the number of records, so that a small partition has a small index."""
    if max_entries is None:
        needed = 1 + sum(
            _count(batch)
            for segment in log.segments
            for batch in segment.batches(
                columns=["count", "baseOffset", "lastOffset"], check_crc=False, on_error="stop"
            )
        )
        max_entries = min(DEFAULT_MAX_ENTRIES, max(_LEAST_ENTRIES, 1 << needed.bit_length()))
    return max(1, max_entries // _ENTRIES_A_SLOT), max_entries


def _count(batch: RecordBatch) -> int:
    names = ("count", "baseOffset", "lastOffset")
    rows = zip(*(batch.column(name).to_pylist() for name in names), strict=True)
    # A message set of old does not say how many it holds.
    return sum(
        count if count is not None else last - (last if base is None else base) + 1 for count, base, last in rows
    )


def indexed_end(index: IndexDirectory) -> int:
    """Give the offset after the last indexed record."""
    ends = [file.header.end_phy_offset + 1 for file in index.files if len(file)]
    return max(ends, default=0)


def _entries(batch: RecordBatch, header: str | None) -> Iterator[dict[str, Any]]:
    """Give the index entries of a batch of records."""
    if header is not None:
        yield from _header_entries(batch, header)
        return
    keys = batch.column("key")
    if keys.null_count:
        rows = [row for row, key in enumerate(keys.to_pylist()) if key is not None]
        if not rows:
            return
        batch = batch.take(Array(rows, type=DataType.int64()))
        keys = batch.column("key")
    # A key that is no UTF-8 becomes null here.
    text = keys.cast(DataType.utf8())
    if text.null_count:
        text = Array([key_text(key) for key in keys.to_pylist()], type=DataType.utf8())
    yield _columns(batch.column("topic"), text, batch.column("offset"), batch.column("timestamp"))


def _header_entries(batch: RecordBatch, header: str) -> Iterator[dict[str, Any]]:
    names = ("topic", "key", "offset", "headers")
    rows = zip(
        *(batch.column(name).to_pylist() for name in names),
        batch.column("timestamp").cast(DataType.int64()).to_pylist(),
        strict=True,
    )
    found: list[tuple[str, str, int, int]] = []
    for topic, key, offset, headers, timestamp in rows:
        values = [item["value"] for item in headers or () if item["key"] == header and item["value"] is not None]
        wanted = [] if key is None else [Key(key)]
        wanted += [Key(value, header) for value in dict.fromkeys(values)]
        found += [(topic, each.text, offset, timestamp) for each in wanted]
    if found:
        yield _columns(*(list(column) for column in zip(*found, strict=True)))


def _columns(topic: Any, key: Any, offset: Any, timestamp: Any) -> dict[str, Any]:  # noqa: ANN401 -- Arrow or lists
    return {"topic": topic, "key": key, "phy_offset": offset, "store_timestamp": timestamp}


@contextlib.contextmanager
def opened(log_dir: str | PathLike[str] | LogDir) -> Iterator[LogDir]:
    """Use a log directory that is open, or open one for as long as it is needed."""
    if isinstance(log_dir, LogDir):
        yield log_dir
    else:
        with LogDir.open(log_dir) as logs:
            yield logs
