"""Rows of index entries, and the index files that one task fills with them, one file after another.

A batch of rows has the columns key_hash (int32), phy_offset (int64) and store_timestamp (int64, milliseconds since the epoch),
without nulls: 20 bytes a row, with the hash in place of topic and key. An index file needs no more, so a task can hold the rows
of a whole file, sort them and put them.

A task fills only its part of an index: its first file begins where the last file of another task ends, so the seed of that
file is an argument.
"""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from logdex._core import key_hashes, offset_order
from logdex.hash_index.directory import FileSet
from logdex.hash_index.index_writer import IndexWriter
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


class RollingFiles:
    """Fills index files in the directory of one attempt of a task.

    They are those of a sequential writer that continues after `seed`: phy_offset and store_timestamp of the entry before the
    first row, with which the first header starts. Source: constructor of IndexFile; docs/formats/rocketmq-index.md, section 7.
    """

    def __init__(
        self,
        directory: Path,
        hash_slots: int,
        max_entries: int,
        access: Access = "auto",
        *,
        seed: tuple[int, int] | None = None,
    ) -> None:
        self.directory = directory
        if seed is not None:
            IndexFile.create(
                directory / "0",
                hash_slots=hash_slots,
                max_entries=max_entries,
                begin_phy_offset=seed[0],
                begin_timestamp=seed[1],
                access=access,
            ).close()
        self._files = FileSet(directory, (hash_slots, max_entries), access=access)
        # A task knows no file after its last one, so none is prepared ahead.
        self._writer = IndexWriter(self._files, None, lambda _: None, prepare=False)

    @classmethod
    def start(cls, job: Job, seed: tuple[int, int] | None = None) -> RollingFiles:
        """Start an attempt of a task of a job."""
        return cls(job.start_attempt(), job.hash_slots, job.max_entries, job.access, seed=seed)

    def put(self, rows: Any) -> None:
        """Put rows, and start a new file each time that one becomes full.

        Raises:
            IndexFullError: Not even an empty file takes a row.
        """
        self._writer.put(None, *rows.columns)

    def put_nothing(self) -> None:
        """Create a file if there is none or the last one is full, as a service does for a message without keys."""
        self._writer.current()

    def close(self) -> list[WrittenFile]:
        """Flush and close the files, and return them with paths relative to the job's directory."""
        # An empty file is not flushed: a flush would write its count of 1, which no broker does before a put.
        self._writer.flush(even_if_empty=False)
        files = [(file.path, len(file)) for file in self._files.refresh()]
        written = [WrittenFile(f"{self.directory.name}/{path.name}", n, path.stat().st_size) for path, n in files]
        self._release()
        return written

    def discard(self) -> None:
        """Remove the files and their directory."""
        self._release()
        shutil.rmtree(self.directory, ignore_errors=True)

    def _release(self) -> None:
        self._writer.release()
        self._files.close()
