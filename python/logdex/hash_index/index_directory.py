"""An index directory: index files that are rolled when one is full, and searched from the newest to the oldest."""

from __future__ import annotations

import io
import math
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal, get_args

from logdex import _core
from logdex._files import existing_directory
from logdex._types import Access, check_int64, check_text
from logdex.arrow import entry_batches
from logdex.hash_index.files import refuse_other_directory, resolve_zone
from logdex.hash_index.index_writer import IndexWriter, PlannedIndexWriter
from logdex.hash_index.query import CLOCK_SLACK_MS, TimeRange, check_clock_slack, check_max_num
from logdex.source import Info, Source, Table

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from datetime import tzinfo
    from os import PathLike
    from pathlib import Path

    from arro3.core import Array
    from typing_extensions import Self

    from logdex._core import IndexFile, IndexHeader
    from logdex._types import Progress, Time
    from logdex.report import Report


MAX_THREADS: Final = 64
"""More threads than any put can use."""


@dataclass(frozen=True, slots=True)
class QueryOffsetResult:
    """The answer of an index to one question: candidates, because an index file stores hashes and not keys.

    Attributes:
        phy_offsets: Commit-log offsets, newest first. A message may come twice, and one may carry another key.
        truncated: More candidates exist than requested; with `compat`: the broker's limit, or the caller's, cut some off.
        index_last_update_timestamp: Store time of the newest entry, in ms; 0 without files.
        index_last_update_phyoffset: Commit-log offset of the newest entry; 0 without files.
    """

    phy_offsets: list[int]
    truncated: bool
    index_last_update_timestamp: int
    index_last_update_phyoffset: int


class IndexDirectory(Source):
    """Puts keys into the newest file of an index directory and finds candidates in all of them.

    One writer in mode "a" at a time, any number of readers. Puts on one object are serialised; queries run at the same time. It
    pickles as a reader, by path and options.
    """

    kind = "index directory"

    def __init__(self, directory: Path, mode: Literal["r", "a"], options: dict[str, Any]) -> None:
        self._directory = directory
        self._mode = mode
        self._options = options
        self._lock = _core.ThreadLock()
        self._closed = False
        self._process = _core.fork_generation()
        self._writer: IndexWriter | None = None
        names = ("hash_slots", "max_entries", "access", "compat", "last_exit_ok", "without")
        self._files = _core.IndexFiles(directory, **{name: options[name] for name in names if name in options})

    @classmethod
    def open(
        cls,
        directory: str | PathLike[str],
        *,
        mode: Literal["r", "a"] = "r",
        hash_slots: int | None = None,
        max_entries: int | None = None,
        zone: str | tzinfo | None = None,
        clock_slack_ms: int = CLOCK_SLACK_MS,
        access: Access = "auto",
        storage_options: Mapping[str, str] | None = None,
    ) -> Self:
        """Open an index directory.

        Mode "r" reads and changes nothing; "a" also puts, and creates the directory with the first put. Slots and entries are
        inferred from the fullest file if they are not given; a new directory gets files of 5,000,000 and 20,000,000. `zone` is
        that of file names, by default the machine's. The clock may step by `clock_slack_ms` within one file before a search by
        time may miss an entry. Access "auto" maps files, and reads plainly where mapping fails.
        `storage_options` are those of the store of a URL; see `MessageStore.open`.

        Raises:
            FileNotFoundError: Mode "r" and the directory does not exist, or it holds something else than index files.
            LockedError: Mode "a" and another writer holds the directory or its newest file.
            GeometryError: Slots and entries were not given and cannot be inferred from the files.
            ValueError: The files have other slots and entries than those given.
        """
        return cls._open(
            directory,
            mode,
            storage_options,
            hash_slots=hash_slots,
            max_entries=max_entries,
            zone=zone,
            clock_slack_ms=clock_slack_ms,
            access=access,
        )

    @classmethod
    def _open(
        cls,
        directory: str | PathLike[str],
        mode: Literal["r", "a"],
        storage_options: Mapping[str, str] | None,
        **options: Any,  # noqa: ANN401 -- see `open`
    ) -> Self:
        if mode not in ("r", "a"):
            raise ValueError(f'mode must be "r" or "a", not {mode!r}')
        path = _core.locate(directory, storage_options) if mode == "r" else _core.local_path(directory)
        if mode == "a":
            # The process may change its directory while files are made.
            path = path.absolute()
        if options["access"] not in get_args(Access):
            raise ValueError(f"access must be one of {', '.join(get_args(Access))}, not {options['access']!r}")
        geometry = {name: options[name] for name in ("hash_slots", "max_entries")}
        if list(geometry.values()).count(None) == 1:
            raise ValueError("give both hash_slots and max_entries, or neither")
        check_int64(**geometry)
        check_clock_slack(options["clock_slack_ms"])
        if mode == "r":
            existing_directory(path, "index directory")
        refuse_other_directory(path, for_puts=mode == "a")
        index = cls(path, mode, options)
        try:
            index._load()
        except BaseException:
            index.release()
            raise
        return index

    def _load(self) -> None:
        """Lock the directory for puts and open the files."""
        if self._mode == "a":
            _core.check_own_parts(self._directory, 2)
            if self._options.get("dry_run"):
                self._writer = PlannedIndexWriter(self._files)
            else:
                self._writer = IndexWriter(self._files, resolve_zone(self._options["zone"]), self._on_full())
        self._files.check_geometry(for_puts=self._writer is not None)
        self._recover_after_crash()
        if self._writer is None:
            self._files.refresh()
        else:
            self._writer.load()

    def _recover_after_crash(self) -> None:
        """Repair or leave out files before they are opened."""

    def _on_full(self) -> Callable[[int], None]:
        """Return the function that takes note that a full file, which ends at a time, is on the disk."""
        return lambda _end_timestamp: None

    @property
    def directory(self) -> Path:
        """The index directory."""
        return self._directory

    @property
    def mode(self) -> Literal["r", "a"]:
        """The mode in which it was opened."""
        return self._mode

    @property
    def files(self) -> list[IndexFile]:
        """The open index files, the oldest first, as a broker loads them; listed again if the directory changed."""
        self._check_open()
        return self._files.refresh()

    def named_files(self) -> list[tuple[str, IndexFile]]:
        """Return `files` with their names, which in an object store are not those of the objects."""
        self._check_open()
        return self._files.named()

    def whole_files(self) -> list[IndexFile]:
        """Return those of `files` that have their full length; the others lost entries."""
        self._check_open()
        return self._files.whole()

    def newest_first(self) -> list[IndexFile]:
        """Return `files` in the order of the commit-log offsets of their first entries, the newest first."""
        self._check_open()
        return self._files.newest_first()

    def put_key(self, key: str, phy_offset: int, store_timestamp: Time) -> bool:
        """Put one whole index key (`topic#key`), as `IndexFile.put_key` does, but roll when the file is full.

        Returns:
            True: there is always room.

        Raises:
            LockedError: A running broker or another writer holds the directory.
            OSError: A file cannot be created or written.
        """
        return bool(self.put_batch([key], [phy_offset], [store_timestamp]))

    def put_batch(
        self,
        batch: Any,  # noqa: ANN401 -- anything with the PyCapsule interface
        phy_offsets: Any = None,  # noqa: ANN401 -- as above
        store_timestamps: Any = None,  # noqa: ANN401 -- as above
        *,
        topics: Any = None,  # noqa: ANN401 -- as above
        threads: int = 1,
    ) -> int:
        """Put index entries in their order. A full file is followed by a new one, in the middle of a batch too.

        Args:
            batch: An Arrow batch, table or stream, or a mapping of columns: topic and key (text), phy_offset (bytes),
                store_timestamp (ms). Or the keys, as `IndexFile.put_batch` takes them, with the next arguments.
            phy_offsets: Commit-log offsets, one for each key.
            store_timestamps: Store times, one for each key: integers in ms, timestamps or datetimes.
            topics: One topic for all keys, or a column of them; None: the keys are whole index keys, `topic#key`.
            threads: Threads that share the work; the files are the same. Worthwhile from tens of thousands of entries on.

        Returns:
            The number of entries put: all of them.

        Raises:
            ValueError: A column is missing, a value is null or does not fit, or a wrong number of threads.
            TypeError: A column of another type. With either nothing was written.
            LockedError: A running broker holds the store.
            OSError: A file cannot be created or written; what was put stays.
        """
        if not 1 <= threads <= MAX_THREADS:
            raise ValueError(f"threads is 1 to {MAX_THREADS}, not {threads}")
        columns = {"topic": topics, "key": batch, "phy_offset": phy_offsets, "store_timestamp": store_timestamps}
        parts = entry_batches(batch) if phy_offsets is None else [columns]
        with self._lock.hold():
            writer = self._writable()
            return sum(writer.put(**part, threads=threads) for part in parts)

    def query_offset(
        self, topic: str, key: str, max_num: int | None = None, begin: Time | None = None, end: Time | None = None
    ) -> QueryOffsetResult:
        """Find the candidates of one key, newest first.

        Args:
            topic: The topic.
            key: The unique key, or one of the space-separated keys.
            max_num: The most candidates; None: all. With `compat` at most 64.
            begin: First store time, ms or an aware datetime; None: no bound.
            end: Last store time, included.

        Raises:
            ValueError: `max_num` is negative.
            TypeError: The topic or the key is not a `str`.
        """
        check_text(topic=topic, key=key)
        check_max_num(max_num)
        times = TimeRange.of(begin, end)
        max_num = self._limit(max_num)
        most = None if max_num is None else max_num + 1
        newest = self._newest_header(self.files)
        found: list[int] = self._select([_core.index_key(topic, key)], None, times, most)[0].as_py()
        return QueryOffsetResult(
            phy_offsets=found[:max_num],
            truncated=max_num is not None and len(found) > max_num,
            index_last_update_timestamp=newest.end_timestamp if newest else 0,
            index_last_update_phyoffset=newest.end_phy_offset if newest else 0,
        )

    def query_batch(
        self,
        topics: Any,  # noqa: ANN401 -- anything with the PyCapsule interface
        keys: Any,  # noqa: ANN401 -- as above
        *,
        max_num: int | None = None,
        begin: Time | None = None,
        end: Time | None = None,
    ) -> Array:
        """Find the candidates of many keys in one call.

        Args:
            topics: One topic for all, or one a key: a sequence or Arrow.
            keys: The keys: a sequence or Arrow.
            max_num: The most candidates a key; None: all. With `compat` at most 64.
            begin: First store time, ms or an aware datetime; None: no bound.
            end: Last store time, included.

        Returns:
            Arrow list<int64>, one list a key in the order given; null where topic or key is null.
        """
        check_max_num(max_num)
        times = TimeRange.of(begin, end)
        return self._select(keys, topics, times, self._limit(max_num))

    def _select(self, keys: Any, topics: Any, times: TimeRange, max_num: int | None) -> Array:  # noqa: ANN401 -- as above
        self._check_open()
        bounds = {"begin": times.begin, "end": times.end, "clock_slack_ms": self._options["clock_slack_ms"]}
        return self._files.select(keys, topics=topics, max_num=max_num, **bounds)

    def _limit(self, max_num: int | None) -> int | None:
        """Return the most candidates of an answer."""
        return max_num

    def _newest_header(self, files: Sequence[IndexFile]) -> IndexHeader | None:
        return self._files.newest_first()[0].header if files else None

    def info(self) -> Info:
        """Return the index files with their ranges of offsets and times."""
        return describe_index(self.kind, self.files)

    def verify(self) -> Report:
        """Check every file of the directory, linear in their size; never raises for what it finds."""
        self._check_open()
        return self._files.verify()

    def flush(self) -> None:
        """Write the newest file to the disk."""
        with self._lock.hold():
            self._writable().flush()

    def _check_open(self) -> None:
        if self._closed:
            raise ValueError("the index service is closed")

    def _writable(self) -> IndexWriter:
        self._check_open()
        if self._writer is None:
            raise io.UnsupportedOperation('the index service was opened for reading; open it with mode="a"')
        if self._process != _core.fork_generation():
            raise ValueError("an index opened for writing belongs to the process that opened it")
        return self._writer

    def close(self) -> None:
        """Flush the entries and close the files. A second call does nothing; a forked child flushes nothing."""
        with self._lock.hold():
            if self._closed:
                return
            try:
                if self._writer is not None and self._process == _core.fork_generation():
                    # An empty file stays as a broker leaves it.
                    self._writer.flush(even_if_empty=False)
            finally:
                self.release()

    def release(self) -> None:
        """Close the files without a flush, as a crash would."""
        self._closed = True
        self._files.close()
        if self._writer is not None:
            self._writer.release()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self._directory)!r}, mode={self._mode!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle as a reader, by path and options."""
        hash_slots, max_entries = self._files.geometry or (None, None)
        options = {**self._options, "hash_slots": hash_slots, "max_entries": max_entries}
        if self._mode == "a" and "last_exit_ok" in options:
            # An unclean open has repaired the files on disk by now.
            options["last_exit_ok"] = True
        return partial(type(self).open, self._directory, **options), ()


def describe_index(kind: str, files: Sequence[IndexFile]) -> Info:
    """Return the description of some index files; see `Source.info`."""
    headers = [file.header for file in files if len(file)]
    facts = {
        "files": len(files),
        "entries": sum(map(len, files)),
        "hash_slots": files[0].hash_slots if files else None,
        "max_entries": files[0].max_entries if files else None,
    }
    names = ("begin_timestamp", "end_timestamp", "begin_phy_offset", "end_phy_offset")
    for name, outermost in zip(names, (min, max, min, max), strict=True):
        facts[name] = outermost((getattr(header, name) for header in headers), default=None)
    rows = [(file.path.name, len(file), *(getattr(file.header, name) for name in names)) for file in files]
    return Info(kind, facts, [Table("index files", ("name", "entries", *names), rows)])


_TIME_BUCKETS = 24
_REGIONS = 64
_SHOWN_LENGTHS = 24


def measure(files: Sequence[IndexFile], progress: Progress | None = None) -> tuple[dict[str, Any], list[int]]:
    """Count the entries of index files; linear, and 4 bytes of memory for each slot and entry of a file.

    Returns JSON values, and the entries in each of equal parts of the slots. A hash in two files counts twice.
    """
    chains, regions, times, distinct = _core.chain_statistics(
        files, time_buckets=_TIME_BUCKETS, regions=_REGIONS, progress=progress
    )
    likely = max((length for length in range(_SHOWN_LENGTHS) if _expected(files, length) >= 0.5), default=0)  # noqa: PLR2004
    statistics = {
        "files": len(files),
        "entries": sum(map(len, files)),
        "slots": sum(file.hash_slots for file in files),
        "used_slots": sum(slots for length, slots in chains.items() if length),
        "longest_chain": max(chains, default=0),
        "distinct_hashes": distinct,
        "chains": [
            {"length": length, "slots": chains.get(length, 0), "expected": round(_expected(files, length), 3)}
            for length in sorted({*range(likely + 1), *chains})
        ],
        "times": [{"begin_timestamp": begin, "entries": entries} for begin, entries in times],
    }
    return statistics, regions


def _expected(files: Sequence[IndexFile], length: int) -> float:
    """Return how many slots would have a chain of this length if the hashes were random (Poisson)."""
    total = 0.0
    for file in files:
        mean = len(file) / file.hash_slots
        if mean:
            total += file.hash_slots * math.exp(length * math.log(mean) - mean - math.lgamma(length + 1))
        elif not length:
            total += file.hash_slots
    return total
