"""An index from the key of a record to its offset: one directory of index files for each partition.

The files are those of `logdex.hash_index`; docs/formats/kafka-log.md, "Key index", describes their fields here. An
answer of the index is a candidate: `find` compares the record's own key.
"""

from __future__ import annotations

import errno
import json
from typing import TYPE_CHECKING, NamedTuple

from logdex import _core
from logdex._core import RemotePath
from logdex._files import refuse_broker_directory
from logdex.hash_index import IndexDirectory
from logdex.hash_index.files import DEFAULT_MAX_ENTRIES
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


class KeySettings(NamedTuple):
    """Settings that do not change after an index is begun, in a small file next to its index files.

    `max_entries` is one more than an index file holds. Values of `header` are indexed besides the keys.
    """

    hash_slots: int
    max_entries: int
    header: str | None = None

    @classmethod
    def read(cls, directory: Path) -> KeySettings | None:
        """Read the settings of a partition's index; None without an index."""
        found = _core.read_key_settings(directory)
        return None if found is None else cls(*found)

    @property
    def content(self) -> bytes:
        """The content of their file."""
        return json.dumps(self._asdict()).encode("ascii")


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
        # The settings come before the first index file.
        target.mkdir(parents=True, exist_ok=True)
        _core.replace_file(target / SETTINGS_FILE, settings.content)
    columns = ["topic", "key", "offset", "timestamp", *([] if header is None else ["headers"])]
    records = entries = 0
    _core.check_key_index(target)
    with IndexDirectory.open(
        target, mode="a", hash_slots=settings.hash_slots, max_entries=settings.max_entries
    ) as index:
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
