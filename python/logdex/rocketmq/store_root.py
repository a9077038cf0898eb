"""What a store that shall be written to may lie in: a store, or nothing yet."""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING

from logdex.rocketmq.layout import OFFSET_NAME

if TYPE_CHECKING:
    from pathlib import Path

    from logdex.rocketmq.layout import StoreLayout

ABORT = "logdex"
"""What `abort` begins with while logdex writes; only its name means something to a broker (5.x writes a process id)."""

_MARKS = {"abort", "abort.bak", "checkpoint", "config", "lock", "lost+found"}
"""What may lie in a store in which no message was stored yet."""


def holds_log(root: Path) -> bool:
    """Say whether a store lies at a root; if not, a new one can begin there.

    Raises:
        FileExistsError: Neither: other things lie there, a log by itself, or parts of a store whose log is elsewhere.
        OSError: The system refuses.
    """
    try:
        names = set(os.listdir(root))  # noqa: PTH208 -- names are wanted
    except FileNotFoundError:
        return False
    if "commitlog" in names and any(map(OFFSET_NAME.fullmatch, os.listdir(root / "commitlog"))):  # noqa: PTH208 -- as above
        return True
    others = sorted(name for name in names - _MARKS if not _is_empty_tree(root / name))
    if others:
        raise FileExistsError(
            errno.EEXIST,
            f"no store with a log in commitlog, and no empty directory: it has {', '.join(others[:3])}",
            str(root),
        )
    return False


def written_by_logdex(layout: StoreLayout) -> bool:
    """Say whether logdex writes to a store, or did when it ended without `close`."""
    try:
        return layout.abort.read_bytes().startswith(ABORT.encode())
    except OSError:
        return False


def _is_empty_tree(path: Path) -> bool:
    """Say whether a path is a directory in which there are directories at most."""
    return path.is_dir() and all(map(_is_empty_tree, path.iterdir()))
