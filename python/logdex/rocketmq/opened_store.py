"""What it means to have a store open: its parts, its options, its end."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, TypeVar

from logdex._files import Closing
from logdex._types import check_int64
from logdex.hash_index.query import CLOCK_SLACK_MS, check_clock_slack
from logdex.rocketmq.commit_log import CommitLog
from logdex.rocketmq.end_of_log import expect_end
from logdex.rocketmq.index_service import IndexService
from logdex.rocketmq.layout import StoreLayout, find_layout, is_store
from logdex.rocketmq.queue_set import QueueSet

if TYPE_CHECKING:
    import os
    from pathlib import Path

    from typing_extensions import Self

    from logdex._types import Access, Compat


_Store = TypeVar("_Store", bound="OpenedStore")


class OpenedStore(Closing):
    """The parts of a store, open for reading. `MessageStore` asks them."""

    def __init__(self, layout: StoreLayout, options: dict[str, Any]) -> None:
        """Open the log; `open` is the way in."""
        self._layout = layout
        self._options = options
        self._lock = threading.Lock()
        self._index: IndexService | None = None
        reading = {"access": options["access"], "compat": options["compat"]}
        self._commit_log = CommitLog.open(layout.commit_log, **reading)
        self._queues = QueueSet(layout, self._commit_log, {**reading, "clock_slack_ms": options["clock_slack_ms"]})
        self._closed = False

    @classmethod
    def open(
        cls,
        root: str | os.PathLike[str],
        *,
        hash_slots: int | None = None,
        max_entries: int | None = None,
        clock_slack_ms: int = CLOCK_SLACK_MS,
        commit_log: str | os.PathLike[str] | None = None,
        access: Access = "auto",
        compat: Compat | None = None,
    ) -> Self:
        """Open a store directory; all but the log may be missing.

        Args:
            root: The store's root, which holds `commitlog`, `consumequeue` and `index`; or a `commitlog` directory.
            hash_slots: Slots of each index file (maxHashSlotNum); None: found from the fullest file.
            max_entries: Entries of each index file plus one (maxIndexNum); None: as above.
            clock_slack_ms: How far the broker's clock may have stepped within one index file, in ms.
            commit_log: The log where it does not lie in the root (storePathCommitLog): its directory, or several with commas
                between them.
            access: "mmap", "pread", or "auto": map, and read plainly where mapping fails.
            compat: A broker's release, to search the index as it does, faults included; None searches right.

        Raises:
            OSError: There is no store at `root`, or the system refuses to read it.
            GeometryError: Slots and entries were not given and cannot be told from the index files.
            ValueError: The index files have other slots and entries than those given; a negative slack.
        """
        check_int64(hash_slots=hash_slots, max_entries=max_entries)
        check_clock_slack(clock_slack_ms)
        layout = find_layout(root, commit_log)
        options = {
            "hash_slots": hash_slots,
            "max_entries": max_entries,
            "clock_slack_ms": clock_slack_ms,
            "access": access,
            "compat": compat,
        }
        store = cls(layout, options)
        index = store.index
        if index is not None and compat is None:
            expect_end(layout, store.commit_log, index)
        return store

    @staticmethod
    def lies_at(path: Path) -> bool:
        """Say whether `open` takes a path: a store's root or the directory of a commit log.

        Raises:
            PermissionError: The system refuses to say.
        """
        return is_store(path)

    @property
    def root(self) -> Path:
        """The store's root directory; of a log that stands alone its own."""
        return self._layout.root

    @property
    def layout(self) -> StoreLayout:
        """Where the parts of the store lie."""
        return self._layout

    @property
    def commit_log(self) -> CommitLog:
        """The log that holds the messages."""
        self._check_open()
        return self._commit_log

    @property
    def index(self) -> IndexService | None:
        """The key index; None while the store has no index directory."""
        self._check_open()
        with self._lock:
            directory = self._layout.index
            if self._index is None and directory.is_dir():
                self._index = IndexService.open(directory, **self._options)
            return self._index

    def _check_open(self) -> None:
        if self._closed:
            raise ValueError("the store is closed")

    def close(self) -> None:
        """Let the files go; a second call does nothing."""
        if self._closed:
            return
        self._closed = True
        if self._index is not None:
            self._index.close()
        self._queues.close()
        self._commit_log.close()

    def __repr__(self) -> str:
        """Name the root."""
        return f"{type(self).__name__}({str(self._layout.root)!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle by path and options."""
        return _reopen, (type(self), self._layout.root, {**self._options, "commit_log": self._layout.commit_log})


def _reopen(kind: type[_Store], root: Path, options: dict[str, Any]) -> _Store:
    return kind.open(root, **options)
