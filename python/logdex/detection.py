"""Detection of the kind of a path, by names and content. No other module decides it."""

from __future__ import annotations

import errno
import re
from enum import Enum
from typing import TYPE_CHECKING, Any

from logdex import _core
from logdex._core import locate_beside
from logdex.hash_index.rolling import names_index_file

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from pathlib import Path

    from logdex.hash_index.sealed import Sealed

OFFSET_NAME = re.compile(r"\d{20}")
"""The name of a file of a commit log or of a queue: the offset of its first byte."""

_SEGMENT_NAME = re.compile(r"\d{1,20}\.log")
_MAGIC = slice(4, 8)
_FRAME_MAGICS = (b"\xda\xa3\x20\xa7", b"\xda\xa3\x20\xab", b"\xcb\xd4\x31\x94")
"""Bytes 4 to 7 of messages of version 1 and 2, and of BLANK."""


class Kind(Enum):
    """A kind of path that can be opened. The value is its name in words."""

    STORE = "RocketMQ message store"
    INDEX = "RocketMQ index directory"
    INDEX_FILE = "RocketMQ index file"
    LOG_DIR = "Kafka log directory"
    PARTITION = "Kafka partition"
    SEGMENT = "Kafka segment"

    @property
    def is_kafka(self) -> bool:
        """True if it belongs to Kafka."""
        return self in _OF_KAFKA


_OF_KAFKA = (Kind.LOG_DIR, Kind.PARTITION, Kind.SEGMENT)


def detect(path: Path, *, sealed: Sealed = "auto") -> Kind | None:
    """Return what is at a path; None if it is none of the kinds, or if there is nothing.

    A directory that fits several kinds is the first of them, in the order of `Kind`.

    Args:
        path: A path that `locate` returned.
        sealed: The sealed index that will be used; see `MessageStore.open`. A catalog in an object store is read in advance.

    Raises:
        OSError: The path cannot be read.
    """
    # These are the first requests of a search in a remote store, and so cost it nothing. Another kind waits one round more.
    if sealed != "never":
        _core.expect_catalog(_core.sealed_directory(path if sealed == "auto" else locate_beside(path, sealed)))
    _core.expect_lists([path / "commitlog", path / "index"])
    if (path / "commitlog").is_dir():
        return Kind.STORE
    if not path.is_dir():
        return _kind_of_file(path)
    names = {entry.name for entry in path.iterdir()}
    if "commitlog" in names or holds_log_files(path, names):
        return Kind.STORE
    if any(names_index_file(name) and (path / name).is_file() for name in names):
        return Kind.INDEX
    if _core.has_segments(path):
        return Kind.PARTITION
    return Kind.LOG_DIR if _core.is_log_dir(path) or _core.holds_tiered(path) else None


def _kind_of_file(path: Path) -> Kind | None:
    if path.is_file():
        if names_index_file(path.name):
            return Kind.INDEX_FILE
        if _SEGMENT_NAME.fullmatch(path.name):
            return Kind.SEGMENT
    return None


def holds_log_files(directory: Path, names: Collection[str]) -> bool:
    """Return whether files belong to a commit log; the files of a queue have the same names."""
    for name in sorted(filter(OFFSET_NAME.fullmatch, names)):
        try:
            if _core.read_file(directory / name, _MAGIC.stop)[_MAGIC] in _FRAME_MAGICS:
                return True
        except OSError as error:
            if error.errno not in (errno.EISDIR, errno.ESPIPE):
                raise
    return False


def kind_to_open(path: Path, options: Mapping[str, Any]) -> Kind | None:
    """Return what to open at a path with some options of `logdex.open`; an option of one kind only decides by itself.

    Raises:
        OSError: The path cannot be read.
    """
    if options.get("commit_log") is not None:
        return Kind.STORE
    if options.get("tiered") is not None:
        return Kind.PARTITION if _core.has_segments(path) else Kind.LOG_DIR
    is_as_broker = options.get("compat") is not None
    kind = detect(path, sealed="never" if is_as_broker else options.get("sealed", "auto"))
    if options.get("tiered_keys") is not None and kind is not Kind.LOG_DIR:
        raise ValueError(f"{path}: expected segments in Kafka's remote storage, for which the private keys are")
    return kind


def refusal(path: Path, kind: Kind | None = None) -> OSError | ValueError:
    """Return the error for a path that cannot be opened, with a hint what to open instead."""
    if kind is None and not path.exists():
        return FileNotFoundError(errno.ENOENT, "no such file or directory", str(path))
    if kind is Kind.INDEX_FILE:
        return ValueError(
            f"{path}: expected a directory, found an index file; open it with logdex.rocketmq.IndexFile.open"
        )
    if kind is Kind.SEGMENT:
        return ValueError(f"{path}: expected a directory, found a segment; open it with logdex.kafka.LogSegment.open")
    return ValueError(
        f"{path}: expected a store (holds commitlog), an index directory (files named by 17 digits) or a Kafka log directory "
        f"(holds <topic>-<partition>); {_hint(path)}"
    )


def _hint(path: Path) -> str:
    if path.is_file():
        return "give the directory of the file, or the store's root"
    return hint(path, {entry.name for entry in path.iterdir()}) or "found none of them"


def hint(directory: Path, names: Collection[str]) -> str:
    """Return a hint what to open instead of a directory, if the names of its entries suggest something; else ""."""
    if "store" in names and (directory / "store" / "commitlog").is_dir():
        return f"there is a store in {directory / 'store'}"
    if not {"consumequeue", "index", "checkpoint"}.isdisjoint(names):
        return "it has other parts of a store: if the log is in another directory (storePathCommitLog), give it as commit_log"
    if any(map(OFFSET_NAME.fullmatch, names)):
        return (
            "its files have the names of a commit log or queue, but begin with no message; "
            "open a consume queue with MessageStore.queue"
        )
    return ""
