"""Find one message out of billions in broker files, without the broker.

`open` opens what lies at a path; the formats have their own modules: `logdex.rocketmq`, `logdex.kafka`. Spark's side is
`logdex.spark`.
"""

from __future__ import annotations

import logging
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from logdex._core import __version__
from logdex.errors import CorruptFileError, GeometryError, IndexFullError, LockedError, LogdexError
from logdex.report import Finding, Report

if TYPE_CHECKING:
    from os import PathLike
    from types import ModuleType

    from logdex import kafka, rocketmq
    from logdex.kafka import Log, LogDir
    from logdex.rocketmq import MessageStore

__all__ = [
    "CorruptFileError",
    "Finding",
    "GeometryError",
    "IndexFullError",
    "LockedError",
    "LogdexError",
    "Report",
    "__version__",
    "kafka",
    "open",
    "rocketmq",
]

_LOG_NAME_DIGITS = 20

logging.getLogger(__name__).addHandler(logging.NullHandler())


def open(path: str | PathLike[str]) -> MessageStore | LogDir | Log:  # noqa: A001 -- logdex.open, as gzip.open
    """Open what lies at a path.

    That is the store directory of a RocketMQ broker, or the directory of its commit log; or the log directory of a Kafka
    broker, or the directory of a partition.

    Raises:
        OSError: Nothing lies there, or the system refuses to read it.
        ValueError: What lies there is none of these; the message says what to use for it.
    """
    from logdex.kafka import Log, LogDir  # noqa: PLC0415 -- only who opens something pays for it
    from logdex.rocketmq import MessageStore  # noqa: PLC0415 -- as above

    root = Path(path)
    if MessageStore.lies_at(root):
        return MessageStore.open(root)
    if Log.lies_at(root):
        return Log.open(root)
    if LogDir.lies_at(root):
        return LogDir.open(root)
    root.stat()
    raise ValueError(
        f"{root} is no RocketMQ store directory (it would hold commitlog) and no Kafka log directory (<topic>-<partition>); "
        f"{_hint(root)}"
    )


def _hint(root: Path) -> str:
    from logdex.hash_index.rolling import is_index_file_name  # noqa: PLC0415 -- as above

    if root.is_file():
        if is_index_file_name(root.name) and len(root.name) < _LOG_NAME_DIGITS:
            return "a single index file is opened with logdex.rocketmq.IndexFile.open"
        return "give the directory that a file lies in, or the store's root"
    names = [entry.name for entry in root.iterdir() if entry.is_file() and is_index_file_name(entry.name)]
    if any(len(name) < _LOG_NAME_DIGITS for name in names):
        return "an index directory is opened with logdex.rocketmq.IndexService.open"
    if names:
        return "a consume queue is opened with MessageStore.queue"
    return "give the directory that holds commitlog and index"


def __getattr__(name: str) -> ModuleType:
    if name in ("kafka", "rocketmq", "spark"):
        return import_module(f"logdex.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
