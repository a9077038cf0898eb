"""The index files of one attempt of a task: filled one after the other, in a directory of their own."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Any

from logdex._core import IndexFiles
from logdex.hash_index.index_writer import IndexWriter
from logdex.rocketmq import IndexFile
from logdex.spark.index.job import WrittenFile, place_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from logdex._types import Access
    from logdex.spark.index.job import Job
    from logdex.spark.index.object_job import ObjectJob


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
        keep: Callable[[Path], str] = place_of,
    ) -> None:
        """Fill a directory of this machine; `keep` takes a finished file, and returns its place below the job's directory."""
        self.directory = directory
        self._keep = keep
        if seed is not None:
            IndexFile.create(
                directory / "0",
                hash_slots=hash_slots,
                max_entries=max_entries,
                begin_phy_offset=seed[0],
                begin_timestamp=seed[1],
                access=access,
            ).close()
        self._files = IndexFiles(directory, hash_slots=hash_slots, max_entries=max_entries, access=access)
        # A task knows no file after its last one, so none is prepared ahead.
        self._writer = IndexWriter(self._files, None, lambda _: None, prepare=False)

    @classmethod
    def start(cls, job: Job | ObjectJob, seed: tuple[int, int] | None = None) -> RollingFiles:
        """Start an attempt of a task of a job."""
        return cls(job.start_attempt(), job.hash_slots, job.max_entries, job.access, seed=seed, keep=job.keep)

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
        """Flush, close and keep the files, and return them."""
        # An empty file is not flushed: a flush would write its count of 1, which no broker does before a put.
        self._writer.flush(even_if_empty=False)
        files = [(file.path, len(file), file.path.stat().st_size) for file in self._files.refresh()]
        self._release()
        return [WrittenFile(self._keep(path), entries, size) for path, entries, size in files]

    def discard(self) -> None:
        """Remove the files and their directory."""
        self._release()
        shutil.rmtree(self.directory, ignore_errors=True)

    def _release(self) -> None:
        self._writer.release()
        self._files.close()
