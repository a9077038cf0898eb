"""The paths of a store. Every part but the log may be missing.

Source: StorePathConfigHelper. `storePathCommitLog` may name other directories for the log.
"""

from __future__ import annotations

import errno
from dataclasses import dataclass
from typing import TYPE_CHECKING

from logdex import source
from logdex._core import (
    RemotePath,
    broker_lock_holder,
    commit_log_directories,
    expect_heads,
    expect_lists,
    locate,
    locate_all,
    read_file,
)
from logdex._files import existing_directory
from logdex.rocketmq.broker_config import LIGHT_OFFSETS, TOPICS, members_of

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping
    from pathlib import Path


ABORT = "logdex"
"""First word of `abort` while logdex writes. A broker checks only the file's name; 5.x writes a process id into it."""


@dataclass(frozen=True, slots=True)
class StoreLayout:
    """The paths of a store. `root` is the directory of the log if there is no store around it."""

    root: Path
    commit_log: Path
    """The directory of the log, or several, shown with commas between."""

    @property
    def index(self) -> Path:
        """Directory of the index files."""
        return self.root / "index"

    @property
    def queues(self) -> Path:
        """Directory of the consume queues."""
        return self.root / "consumequeue"

    @property
    def batch_queues(self) -> Path:
        """Directory of the queues of inner batches (5.x)."""
        return self.root / "batchconsumequeue"

    @property
    def queue_extensions(self) -> Path:
        """Directory of the consume queues' extension files."""
        return self.root / "consumequeue_ext"

    @property
    def folders(self) -> tuple[Path, ...]:
        """The directories of a store; each may be missing."""
        return (self.root / "commitlog", self.index, self.queues, self.batch_queues, self.queue_extensions, self.config)

    @property
    def directories(self) -> tuple[Path, ...]:
        """The root and the directories of the parts, which may be missing or elsewhere."""
        return (self.root, *self.folders, *commit_log_directories(self.commit_log))

    @property
    def checkpoint(self) -> Path:
        """The checkpoint file."""
        return self.root / "checkpoint"

    @property
    def abort(self) -> Path:
        """The file that exists while a broker runs, and after a crash."""
        return self.root / "abort"

    @property
    def broker(self) -> int | None:
        """The process that has the store open, a broker or a writer of logdex, if it is on this machine."""
        try:
            return broker_lock_holder(self.root / "lock")
        except OSError:
            return None

    @property
    def written_by_logdex(self) -> bool:
        """True if logdex writes to the store, or ended without `close`."""
        try:
            return read_file(self.abort, len(ABORT)) == ABORT.encode()
        except OSError:
            return False

    @property
    def has_light_queues(self) -> bool:
        """True if the broker of the store had light message queues (enableLmq), so that it wrote their offsets."""
        return (self.config / LIGHT_OFFSETS.file).exists()

    @property
    def config(self) -> Path:
        """Directory of the broker's tables: topics, offsets."""
        return self.root / "config"


def find_layout(
    path: str | os.PathLike[str],
    commit_log: str | os.PathLike[str] | None = None,
    storage_options: Mapping[str, str] | None = None,
    *,
    is_sealed: bool = False,
) -> StoreLayout:
    """Find the parts of a store; see `MessageStore.open`. Of a remote store that is sealed less is listed."""
    if commit_log is not None:
        root = existing_directory(path, "store directory", storage_options)
        return StoreLayout(root, locate_all(commit_log, storage_options))
    root = locate(path, storage_options)
    log = root / "commitlog"
    if isinstance(root, RemotePath):
        # A catalog came with these lists, or was requested together with them.
        expect_lists([log, root / "index"])
        if log.is_dir():
            if not is_sealed:
                # A catalog has the end of the log. Else the root shows whether a broker runs, and the first message is read, and
                # the last file that holds one: a broker makes the next file ahead.
                expect_lists([root])
                files = sorted(filter(source.OFFSET_NAME.fullmatch, _names(log)))
                expect_heads([log / name for name in {*files[:1], *files[-2:]}])
            return StoreLayout(root, log)
    # Not is_dir(), which hides errors of the system.
    names = _names(root)
    if "commitlog" in names:
        return StoreLayout(root, log)
    if source.holds_log_files(root, names):
        alone = root.name != "commitlog"
        return StoreLayout(root if alone else root.parent, root)
    hint = source.hint(root, names)
    what = f"no RocketMQ store (it would hold a commitlog directory){f'; {hint}' if hint else ''}"
    raise FileNotFoundError(errno.ENOENT, what, str(root))


def _names(directory: Path) -> set[str]:
    return {path.name for path in directory.iterdir()}


def configured_topics(config: Path) -> list[str]:
    """Return the topics of the broker's own table (topics.json); none if it is missing or damaged."""
    try:
        table = members_of(read_file(config / TOPICS.file).decode()).get(TOPICS.name, {})
    except (OSError, ValueError):
        return []
    return list(table) if isinstance(table, dict) else []
