"""A sealed index: one lookup in sorted rows instead of one in each index file. docs/formats/sealed.md describes its files.

It stands for the index files that are as they were when the store was sealed. Files that changed or came later are searched as
before. A sealed index that is missing or damaged changes no answer: the index files are searched.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from logdex import _core
from logdex._core import SealedStore, Sealing, SealSource
from logdex._files import refuse_broker_directory
from logdex.hash_index.sealed import open_sealed
from logdex.report import Report, merge

if TYPE_CHECKING:
    from pathlib import Path

    from logdex._core import CommitLog
    from logdex._types import Progress, Sealed
    from logdex.rocketmq.index_service import IndexService
    from logdex.rocketmq.layout import StoreLayout


def open_store(sealed: Sealed, root: Path) -> SealedStore | None:
    """Open the sealed index of a store; see `open_sealed`.

    The directories of a remote store that a search needs are listed at the same time.
    """
    return open_sealed(sealed, root, partial(SealedStore.open, beside=[root / "commitlog", root / "index"]))


def sealing_target(root: Path, out: Path | None) -> Path:
    """Return the directory of a new sealed index of a store."""
    directory = _core.sealed_directory(root if out is None else out)
    # A copy of log files without a store does not belong to a broker.
    refuse_broker_directory(directory, own=[root] if directory.parent == root else [])
    return directory


def seal(
    layout: StoreLayout, log: CommitLog, index: IndexService | None, out: Path | None, progress: Progress | None
) -> Report:
    """Seal a store; see `MessageStore.seal`."""
    directory = sealing_target(layout.root, out)
    files = index.files if index is not None else []
    sealing = Sealing.of_store(layout.root, directory, log, files)
    total, done = sum(map(len, files)), 0
    for file in files:
        sealing.add(SealSource.index_file(log, file))
        done += len(file)
        if progress is not None:
            progress(done, total)
    absent = Report(absent=[] if files else ["key index"])
    return merge([sealing.finish(), absent])
