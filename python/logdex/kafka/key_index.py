"""An index from the key of a record to its offset: one directory of index files for each partition.

The files are those of `logdex.hash_index`; docs/formats/kafka-log.md, "Key index", describes their fields here. An
answer of the index is a candidate: `find` compares the record's own key.
"""

from __future__ import annotations

import errno
import json
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Literal

from logdex import _core
from logdex._core import RemotePath
from logdex._files import Closing, existing_directory, refuse_broker_directory
from logdex.errors import CorruptFileError
from logdex.hash_index import IndexDirectory
from logdex.hash_index.files import DEFAULT_MAX_ENTRIES, file_size, list_directory
from logdex.kafka.files import MAX_OFFSET
from logdex.report import Report, near_names

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from logdex.kafka.files import TopicPartition
    from logdex.kafka.log import Log
    from logdex.kafka.log_dir import LogDir

SETTINGS_FILE = "_key_index.json"
_LEAST_ENTRIES = 1 << 10
_ENTRIES_A_SLOT = 4
_FEWEST_ENTRIES = 2
_MOST_ENTRIES = 100_000_000
"""With their slots in less than 2^31 bytes, as every index file is."""
_BATCH_ROWS = 65_536


@dataclass(frozen=True, slots=True)
class KeySettings:
    """Settings that do not change after an index is begun, in a small file next to its index files.

    `max_entries` is one more than an index file holds. Values of `header` are indexed besides the keys.
    """

    hash_slots: int
    max_entries: int
    header: str | None = None

    @classmethod
    def read(cls, directory: Path) -> KeySettings | None:
        """Read the settings of a partition's index; None without an index."""
        path = directory / SETTINGS_FILE
        try:
            values = json.loads(_core.read_file(path))
        except FileNotFoundError:
            return None
        except ValueError as error:
            raise CorruptFileError(str(path), 0, "JSON", str(error)) from error
        numbers = ("hash_slots", "max_entries")
        if (
            not isinstance(values, dict)
            or set(values) != {*numbers, "header"}
            or not all(isinstance(values[name], int) and values[name] > 0 for name in numbers)
            or not isinstance(values["header"], str | None)
        ):
            raise CorruptFileError(str(path), 0, f"{', '.join(numbers)} and header", repr(values)[:200])
        return cls(**values)

    @property
    def content(self) -> bytes:
        """The content of their file."""
        return json.dumps(asdict(self)).encode("ascii")

    def write(self, directory: Path) -> None:
        """Write the settings, before the first index file."""
        directory.mkdir(parents=True, exist_ok=True)
        _core.replace_file(directory / SETTINGS_FILE, self.content)

    def check_files(self, directory: Path) -> None:
        """Check that all index files are whole: a truncated file would silently shorten an answer."""
        expected = file_size((self.hash_slots, self.max_entries))
        for entry in list_directory(directory):
            if entry.is_numeric and entry.size != expected:
                what = f"{expected} bytes, as all files of this index have; build it again in another directory"
                path = str(entry.path)
                raise CorruptFileError(path, min(entry.size, expected), what, f"{entry.size} bytes")

    def open(self, directory: Path, mode: Literal["r", "a"]) -> IndexDirectory:
        """Open the index files."""
        return IndexDirectory.open(directory, mode=mode, hash_slots=self.hash_slots, max_entries=self.max_entries)


class KeyIndex(Closing):
    """The key index of a log directory, open for searches: the index files of a partition are opened at its first search."""

    def __init__(self, directory: Path) -> None:
        """Use the directory that `build_key_index` wrote."""
        self._directory = existing_directory(directory, "key index")
        self._open: dict[TopicPartition, tuple[KeySettings, IndexDirectory]] = {}
        self._lock = _core.ThreadLock()

    def candidates(
        self, partition: TopicPartition, key: bytes, header: str | None
    ) -> tuple[list[tuple[int, int]], list[int]]:
        """Return the ranges of offsets without an entry between or around the index files, and the candidates for a key.

        A file that is missing leaves such a range. With a header its values are compared, not the keys.
        """
        directory = self._directory / str(partition)
        settings = KeySettings.read(directory)
        if settings is None or header not in (None, settings.header):
            return [(0, MAX_OFFSET)], []
        settings.check_files(directory)
        with self._lock.hold():
            known, index = self._open.get(partition, (None, None))
            if index is None or known != settings:
                index = settings.open(directory, "r")
                self._open[partition] = settings, index
        text = _core.key_text(key) if header is None else f"{header}={_core.key_text(key)}"
        # No bounds: the time of an entry is only a hint, the record's own is compared.
        covered = sorted((f.header.begin_phy_offset, f.header.end_phy_offset + 1) for f in index.files if len(f))
        edges = [(0, 0), *covered, (MAX_OFFSET, MAX_OFFSET)]
        holes = [(end, begin) for (_, end), (begin, _) in pairwise(edges) if end < begin]
        return holes, index.query_offset(partition.topic, text).phy_offsets

    def close(self) -> None:
        """Close all index files."""
        with self._lock.hold():
            for _, index in self._open.values():
                index.close()
            self._open = {}


def check_max_entries(max_entries: int | None) -> None:
    """Raise `ValueError` if index files cannot have this size."""
    if max_entries is not None and not _FEWEST_ENTRIES <= max_entries <= _MOST_ENTRIES:
        raise ValueError(f"max_entries={max_entries}: expected {_FEWEST_ENTRIES} to {_MOST_ENTRIES}")


def check_targets(partitions: Iterable[TopicPartition], directory: Path, header: str | None) -> None:
    """Check that a directory can take the indexes of all these partitions, before the first is written."""
    is_remote = isinstance(directory, RemotePath)
    if not is_remote:
        _core.check_own_parts(directory, 3)
    for each in partitions:
        target = directory / str(each)
        if _core.is_partition(target):
            message = "this directory is a partition of Kafka; give the index another directory"
            raise FileExistsError(errno.EEXIST, message, str(target))
        settings = KeySettings.read(target)
        if settings is not None and is_remote:
            raise FileExistsError(errno.EEXIST, "a key index, and one in an object store is not continued", str(target))
        if settings is not None and settings.header != header:
            raise ValueError(f"{target} was built with header={settings.header!r}, not {header!r}: build another index")
    refuse_broker_directory(directory)


def partitions_of(logs: LogDir, topics: str | Iterable[str] | None) -> list[TopicPartition]:
    """Return the partitions of some topics, each of which must have one; None: of all."""
    wanted = logs.named_topics(topics)
    partitions = logs.partitions(wanted)
    missing = (wanted or set()) - {each.topic for each in partitions}
    if missing:
        what = f"no partition of this topic; {near_names(min(missing), logs.topics)}"
        raise FileNotFoundError(errno.ENOENT, what, str(logs.path / f"{min(missing)}-0"))
    return partitions


def index_partition(
    log: Log,
    target: Path,
    *,
    header: str | None = None,
    max_entries: int | None = None,
    progress: Callable[[int], None] | None = None,
) -> Report:
    """Index the records of one partition, after `check_targets`; see `build_key_index`."""
    settings = KeySettings.read(target)
    if settings is None:
        settings = KeySettings(*_geometry(log, max_entries), header)
        settings.write(target)
    columns = ["topic", "key", "offset", "timestamp", *([] if header is None else ["headers"])]
    records = entries = 0
    settings.check_files(target)
    with settings.open(target, "a") as index:
        # A record may have two entries. If a crash separated them, the second is put again.
        first = indexed_end(index) - (header is not None)
        parts = list(log.parts(max(first, 0)))
        stream = _core.read_records(parts, columns=columns, batch_size=_BATCH_ROWS, on_error="skip", warn=False)
        for batch in stream:
            entries += index.put_batch(_core.key_entries(batch, header))
            records += batch.num_rows
            if progress is not None:
                progress(batch.num_rows)
    return Report(list(stream.findings), {"partitions": 1, "records": records, "entries": entries})


def _geometry(log: Log, max_entries: int | None) -> tuple[int, int]:
    """Choose slots and entries by the number of records, so that a small partition has a small index."""
    if max_entries is None:
        needed = 1 + sum(segment.record_count() for segment in log.segments)
        max_entries = min(DEFAULT_MAX_ENTRIES, max(_LEAST_ENTRIES, 1 << needed.bit_length()))
    return max(1, max_entries // _ENTRIES_A_SLOT), max_entries


def indexed_end(index: IndexDirectory) -> int:
    """Return the offset after the last indexed record."""
    ends = [file.header.end_phy_offset + 1 for file in index.files if len(file)]
    return max(ends, default=0)
