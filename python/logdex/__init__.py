"""Find one message out of billions in broker files, without the broker.

`open` opens a store or a log directory. Each broker has its own package, `logdex.rocketmq` and `logdex.kafka`; `logdex.spark`
needs pyspark, and `logdex.polars` polars.
"""

from __future__ import annotations

import logging
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

try:
    from logdex._core import Pattern, __version__, locate
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
    KafkaError,
    LockedError,
    LogdexError,
    UnknownTopicWarning,
)
from logdex.report import Finding, Report
from logdex.source import Info, Source, Table

if TYPE_CHECKING:
    from collections.abc import Mapping
    from os import PathLike
    from types import ModuleType

    from logdex import kafka, rocketmq
    from logdex.kafka import Log, LogDir
    from logdex.rocketmq import IndexService, MessageStore

__all__ = [
    "CorruptFileError",
    "DamageWarning",
    "Finding",
    "GeometryError",
    "IndexFullError",
    "Info",
    "KafkaError",
    "LockedError",
    "LogdexError",
    "Pattern",
    "Report",
    "Source",
    "Table",
    "UnknownTopicWarning",
    "__version__",
    "kafka",
    "open",
    "rocketmq",
]

logging.getLogger(__name__).addHandler(logging.NullHandler())


def open(  # noqa: A001 -- logdex.open, as gzip.open
    path: str | PathLike[str],
    *,
    storage_options: Mapping[str, str] | None = None,
    filesystem: object | None = None,
    **options: Any,  # noqa: ANN401 -- those of the open call of each kind
) -> MessageStore | LogDir | Log | IndexService:
    """Open a store, an index directory, a Kafka log directory or a partition's directory; each is a `Source`.

    Args:
        path: A local path or a URL.
        storage_options: Options of a URL's store; see `MessageStore.open`.
        filesystem: See `MessageStore.open`.
        options: Further options of the call that opens this kind: `MessageStore.open`, `IndexService.open`, `LogDir.open` or
            `Log.open`. With `commit_log` the path is a store, with `tiered` or `tiered_keys` it is Kafka's.

    Raises:
        OSError: The path does not exist or cannot be read.
        ValueError: The path is none of these; the message names the call for it.
        TypeError: The call for this kind of path has no such option.
    """
    # Of these and of the brokers, `import logdex` needs none.
    from logdex._filesystem import in_filesystem  # noqa: PLC0415 -- as above
    from logdex.source import Kind, kind_to_open, refusal  # noqa: PLC0415 -- as above

    root = locate(path, storage_options) if filesystem is None else in_filesystem(path, filesystem, storage_options)
    kind = kind_to_open(root, options)
    if kind is Kind.STORE:
        from logdex.rocketmq import MessageStore  # noqa: PLC0415 -- one broker's modules, not both

        return MessageStore.open(root, **options)
    if kind is Kind.INDEX:
        from logdex.rocketmq import IndexService  # noqa: PLC0415 -- as above

        return IndexService.open(root, **options)
    if kind is Kind.LOG_DIR:
        from logdex.kafka import LogDir  # noqa: PLC0415 -- as above

        return LogDir.open(root, **options)
    if kind is Kind.PARTITION:
        from logdex.kafka import Log  # noqa: PLC0415 -- as above

        return Log.open(root, **options)
    raise refusal(root, kind)


def __getattr__(name: str) -> ModuleType:
    if name in ("kafka", "polars", "rocketmq", "spark"):
        return import_module(f"logdex.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
