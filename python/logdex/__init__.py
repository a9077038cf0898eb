"""Find one message out of billions in broker files, without the broker.

`open` opens a store or a log directory. Each broker has its own package, `logdex.rocketmq` and `logdex.kafka`; `logdex.spark`
needs pyspark.
"""

from __future__ import annotations

import logging
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

try:
    from logdex._core import __version__, locate
except ModuleNotFoundError as error:
    if (_wheel := Path(__file__).parents[1]).is_file():
        raise ImportError(
            f"{_wheel}: Python cannot load the compiled part of logdex out of a wheel or zip file, so --py-files and addPyFile "
            "cannot bring it: install the wheel on each machine, or ship a whole environment with spark.archives (docs/spark.md)"
        ) from error
    raise
from logdex.errors import (
    CorruptFileError,
    DamageWarning,
    GeometryError,
    IndexFullError,
    LockedError,
    LogdexError,
    UnknownTopicWarning,
)
from logdex.report import Finding, Report

if TYPE_CHECKING:
    from collections.abc import Mapping
    from os import PathLike
    from types import ModuleType

    from logdex import kafka, rocketmq
    from logdex.kafka import Log, LogDir
    from logdex.rocketmq import MessageStore

__all__ = [
    "CorruptFileError",
    "DamageWarning",
    "Finding",
    "GeometryError",
    "IndexFullError",
    "LockedError",
    "LogdexError",
    "Report",
    "UnknownTopicWarning",
    "__version__",
    "kafka",
    "open",
    "rocketmq",
]

logging.getLogger(__name__).addHandler(logging.NullHandler())


def open(  # noqa: A001 -- logdex.open, as gzip.open
    path: str | PathLike[str], *, storage_options: Mapping[str, str] | None = None
) -> MessageStore | LogDir | Log:
    """Open a RocketMQ store or commit log, a Kafka log directory or the directory of a partition.

    Args:
        path: A local path or a URL.
        storage_options: Options of a URL's store; see `MessageStore.open`.

    Raises:
        OSError: The path does not exist or cannot be read.
        ValueError: The path is none of these; the message names the call for it.
    """
    from logdex.kafka import Log, LogDir  # noqa: PLC0415 -- imported on first use
    from logdex.rocketmq import MessageStore  # noqa: PLC0415 -- as above

    root = locate(path, storage_options)
    if MessageStore.exists_at(root):
        return MessageStore.open(root)
    if Log.exists_at(root):
        return Log.open(root)
    if LogDir.exists_at(root):
        return LogDir.open(root)
    root.stat()
    raise ValueError(
        f"{root}: expected a RocketMQ store (holds commitlog) or a Kafka log directory (holds <topic>-<partition>); "
        f"{_hint(root)}"
    )


def _hint(root: Path) -> str:
    from logdex.hash_index.rolling import is_index_file_name, names_index_file  # noqa: PLC0415 -- as above

    if root.is_file():
        if names_index_file(root.name):
            return "open an index file with logdex.rocketmq.IndexFile.open"
        return "give the directory of the file, or the store's root"
    names = [entry.name for entry in root.iterdir() if entry.is_file() and is_index_file_name(entry.name)]
    if any(map(names_index_file, names)):
        return "open an index directory with logdex.rocketmq.IndexService.open"
    if names:
        return "open a consume queue with MessageStore.queue"
    return "give the directory that holds commitlog and index"


def __getattr__(name: str) -> ModuleType:
    if name in ("kafka", "rocketmq", "spark"):
        return import_module(f"logdex.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
