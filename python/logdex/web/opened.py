"""Opens a path as what it is, with the pages about it."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING, Any

from logdex.hash_index.rolling import names_index_file
from logdex.kafka import Log, LogDir
from logdex.rocketmq import IndexService, MessageStore
from logdex.web.commands import Place
from logdex.web.index_pages import IndexPages
from logdex.web.kafka_pages import KafkaPages
from logdex.web.store_pages import StorePages

if TYPE_CHECKING:
    from pathlib import Path

    from logdex.web.site import Pages

_EXPECTED = (
    "expected a store (holds commitlog), an index directory (files named by 17 digits) "
    "or a Kafka log directory (holds <topic>-<partition>)"
)


def open_pages(path: Path, name: str, **options: Any) -> Pages:  # noqa: ANN401 -- those of the open calls
    """Open a path and return the pages about it; `name` is the path as the user wrote it.

    Raises:
        OSError: The path does not exist or cannot be read.
        ValueError: It is none of the three kinds.
    """
    if options.get("commit_log") or MessageStore.exists_at(path):
        given = {option: value for option, value in options.items() if value is not None}
        return StorePages(MessageStore.open(path, **options), Place(name, given))
    options.pop("commit_log", None)
    if path.is_dir():
        if any(names_index_file(entry.name) for entry in path.iterdir() if entry.is_file()):
            return IndexPages(IndexService.open(path, **options), name)
        if Log.exists_at(path):
            raise ValueError(
                f"{path}: this is a partition's directory; give its log directory, {path.absolute().parent}"
            )
        if LogDir.exists_at(path):
            return KafkaPages(LogDir.open(path), name)
    if not path.exists():
        raise FileNotFoundError(errno.ENOENT, "no such file or directory", str(path))
    raise ValueError(f"{path}: {_EXPECTED}; found none of them")
