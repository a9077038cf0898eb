"""Log directories of a broker, joined with the segments that it moved to remote storage."""

from __future__ import annotations

from collections.abc import Mapping
from os import PathLike
from typing import TYPE_CHECKING, TypeAlias

from logdex import _core

if TYPE_CHECKING:
    from pathlib import Path

Key: TypeAlias = str | PathLike[str]
"""A private key: a text in PEM, or the path of such a file."""
Keys: TypeAlias = Key | Mapping[str, Key]
"""A key for all key pairs, or a key for each by its name."""


def join_log_dir(
    log_dir: Path | None, tiered: str | PathLike[str], keys: Keys | None, storage_options: Mapping[str, str] | None
) -> Path:
    """Return the path of a log directory with the files of both; None: remote storage alone."""
    by_name = keys if isinstance(keys, Mapping) else {} if keys is None else {"": keys}
    return _core.join_tiered(None if log_dir is None else log_dir.absolute(), tiered, by_name, storage_options)


def join_partition(
    partition_dir: Path, tiered: str | PathLike[str], keys: Keys | None, storage_options: Mapping[str, str] | None
) -> Path:
    """Return the path of a partition with the files of both."""
    place = partition_dir.absolute()
    return join_log_dir(place.parent, tiered, keys, storage_options) / place.name
