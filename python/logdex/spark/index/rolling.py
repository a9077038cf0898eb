"""Rows of index entries, and the index files that one task fills with them, one file after another.

A batch of rows has the columns key_hash (int32), phy_offset (int64) and store_timestamp (int64, milliseconds since the epoch),
without nulls: 20 bytes a row, with the hash in place of topic and key. An index file needs no more, so a task can hold the rows
of a whole file, sort them and put them.

The index service (logdex.hash_index) fills one directory with all files in it. A task fills only its part: its first file
begins where the last file of another task ends, so the seed of that file is an argument.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from logdex._core import key_hashes, offset_order
from logdex.hash_index.rolling import put_rolling
from logdex.rocketmq import IndexFile
from logdex.spark.index.job import WrittenFile
from logdex.spark.schema import milliseconds

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from logdex._types import Access
    from logdex.spark.index.job import Job

COLUMNS = ("topic", "key", "phy_offset", "store_timestamp")
"""Columns of an index entry, from which rows are made."""

ROW_SCHEMA = pa.schema([("key_hash", pa.int32()), ("phy_offset", pa.int64()), ("store_timestamp", pa.int64())])
_BATCH_ROWS = 65_536


def entry_rows(batch: Any) -> Any:
    """Return the rows of a batch that has the four columns of an index entry.

    Raises:
        ValueError: A value is null.
    """
    columns = [batch.column(name) for name in COLUMNS]
    for name, column in zip(COLUMNS, columns, strict=True):
        if column.null_count:
            raise ValueError(f"cannot index a row whose {name} is null")
    topics, keys, offsets, times = columns
    hashes = pa.array(key_hashes(keys, topics=topics))
    rows = pa.RecordBatch.from_arrays([hashes, offsets.cast(pa.int64()), milliseconds(times)], schema=ROW_SCHEMA)
    # Copied, or the numbers would keep the buffers of topics and keys in memory.
    return rows.copy_to(pa.default_cpu_memory_manager())


def ordered_end(rows: Any, begin: int) -> int | None:
    """Return the last offset of rows if their offsets are in order and none is below `begin`, otherwise None."""
    offsets = rows.column("phy_offset")
    before = pa.concat_arrays([pa.array([begin], pa.int64()), offsets])
    in_order = pc.all(pc.less_equal(before.slice(0, len(offsets)), offsets), min_count=0)
    return before[-1].as_py() if in_order.as_py() else None


def sorted_rows(batches: Sequence[Any]) -> Iterator[Any]:
    """Yield the rows in the order of their offsets; rows of one offset keep their order."""
    (rows,) = pa.Table.from_batches(batches).combine_chunks().to_batches()
    order = pa.array(offset_order(rows.column("phy_offset")))
    for start in range(0, len(order), _BATCH_ROWS):
        yield rows.take(order.slice(start, _BATCH_ROWS))


@dataclass(slots=True)
class RollingFiles:
    """Fills index files in the directory of one attempt of a task.

    Attributes:
        directory: The directory; the files in it are named 0, 1, ... in their order.
        hash_slots: Slots of each file.
        max_entries: Entries of each file, one of which is never used.
        access: How files are written.
        seed: phy_offset and store_timestamp of the entry before the next file, with which its header starts; zeros if there is
            none. Source: constructor of IndexFile; docs/formats/rocketmq-index.md, section 7.
    """

    directory: Path
    hash_slots: int
    max_entries: int
    access: Access = "auto"
    seed: tuple[int, int] = (0, 0)
    _file: IndexFile | None = None
    _written: list[WrittenFile] = field(default_factory=list)

    @classmethod
    def start(cls, job: Job) -> RollingFiles:
        """Start an attempt of a task of a job."""
        return cls(job.start_attempt(), job.hash_slots, job.max_entries, job.access)

    def put(self, rows: Any) -> None:
        """Put rows, and start a new file each time that one becomes full.

        Raises:
            IndexFullError: Not even an empty file takes a row.
        """
        hashes, phy_offsets, store_timestamps = rows.columns

        def put(file: IndexFile, start: int) -> int:
            return file.put_batch(hashes, phy_offsets, store_timestamps, start=start)

        put_rolling(rows.num_rows, self._current, put)

    def put_nothing(self) -> None:
        """Create a file if there is none or the last one is full, as a service does for a message without keys."""
        self._current()

    def close(self) -> list[WrittenFile]:
        """Flush and close the last file, and return all files, with paths relative to the job's directory."""
        self._finish()
        return self._written

    def discard(self) -> None:
        """Remove the files and their directory."""
        if self._file is not None:
            self._file.close()
        shutil.rmtree(self.directory, ignore_errors=True)

    def _current(self) -> IndexFile:
        if self._file is not None and self._file.is_full:
            self._finish()
        if self._file is None:
            self._file = IndexFile.create(
                self.directory / str(len(self._written)),
                hash_slots=self.hash_slots,
                max_entries=self.max_entries,
                begin_phy_offset=self.seed[0],
                begin_timestamp=self.seed[1],
                access=self.access,
            )
        return self._file

    def _finish(self) -> None:
        file, self._file = self._file, None
        if file is None:
            return
        self.seed = (file.header.end_phy_offset, file.header.end_timestamp)
        # An empty file is not flushed: a flush would write its count of 1, which no broker does before a put.
        if len(file):
            file.flush()
        relative = f"{self.directory.name}/{len(self._written)}"
        self._written.append(WrittenFile(relative, len(file), file.reserved_bytes))
        file.close()
