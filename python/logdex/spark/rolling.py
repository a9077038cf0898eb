"""Index files that one task fills one after another, as the index service would.

The service (logdex.hash_index) does the same for one writer with the whole directory before it. A task has only its part:
it must begin where another task's last file ends, so the seed of its first file is given.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from logdex.hash_index.roll import put_rolling
from logdex.rocketmq import IndexFile
from logdex.spark.commit import WrittenFile

if TYPE_CHECKING:
    from pathlib import Path

    from logdex._types import Access


@dataclass(frozen=True, slots=True)
class Seed:
    """Where the previous index file ends: what a new one starts its header with.

    Source: constructor of IndexFile; docs/formats/rocketmq-index.md, section 7.

    Attributes:
        phy_offset: Commit-log offset of the previous file's last entry; 0 when there is none.
        timestamp: Its store time, milliseconds since the epoch; 0 when there is none.
    """

    phy_offset: int = 0
    timestamp: int = 0


@dataclass(slots=True)
class RollingFiles:
    """Fills index files in a directory that belongs to one attempt of a task.

    Attributes:
        directory: Where the files go; they are named 0, 1, ... in their order.
        hash_slots: Slots of each file.
        max_entries: Entries of each file, one of which is never used.
        seed: What the next file starts with.
        access: How files are written.
    """

    directory: Path
    hash_slots: int
    max_entries: int
    seed: Seed = field(default_factory=Seed)
    access: Access = "auto"
    _file: IndexFile | None = None
    _written: list[WrittenFile] = field(default_factory=list)

    def put(self, rows: Any) -> None:
        """Put rows (entry_rows), rolling as often as a file becomes full.

        Raises:
            IndexFullError: Not even an empty file has room for a row.
        """
        hashes, phy_offsets, store_timestamps = rows.columns

        def put(file: IndexFile, start: int) -> int:
            return file.put_batch(hashes, phy_offsets, store_timestamps, start=start)

        put_rolling(rows.num_rows, self._current, put)

    def discard(self) -> None:
        """Throw the files away, and their directory."""
        if self._file is not None:
            self._file.close()
        shutil.rmtree(self.directory, ignore_errors=True)

    def put_nothing(self) -> None:
        """Make sure that there is a file which is not full, as a service does for a message without keys."""
        self._current()

    def close(self) -> list[WrittenFile]:
        """Bring the last file to disk and give all of them, paths relative to the job's directory."""
        self._finish()
        return self._written

    def _current(self) -> IndexFile:
        if self._file is not None and self._file.is_full:
            self._finish()
        if self._file is None:
            self._file = IndexFile.create(
                self.directory / str(len(self._written)),
                hash_slots=self.hash_slots,
                max_entries=self.max_entries,
                begin_timestamp=self.seed.timestamp,
                begin_phy_offset=self.seed.phy_offset,
                access=self.access,
            )
        return self._file

    def _finish(self) -> None:
        file, self._file = self._file, None
        if file is None:
            return
        header = file.header
        self.seed = Seed(header.end_phy_offset, header.end_timestamp)
        # An empty file is left as it was created: flushing would write its count of 1, which no broker does before a put.
        if len(file):
            file.flush()
        relative = f"{self.directory.name}/{len(self._written)}"
        self._written.append(WrittenFile(relative, len(file), file.reserved_bytes))
        file.close()
