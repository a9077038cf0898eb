"""The sealed index that a store uses. docs/formats/sealed.md describes its files."""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING, TypeVar

from logdex import _core
from logdex._core import locate_beside
from logdex.errors import CorruptFileError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from logdex._types import Sealed

_log = logging.getLogger("logdex")
_Opened = TypeVar("_Opened")


def check_sealed(sealed: object) -> None:
    """Raise `TypeError` if the argument is neither a word nor a path."""
    if not isinstance(sealed, str | os.PathLike):
        raise TypeError(f'sealed={sealed!r}: expected "auto", "never" or the directory of a sealed index')


def open_sealed(sealed: Sealed, root: Path, open_at: Callable[[Path], _Opened]) -> _Opened | None:
    """Open the sealed index of a store. With "auto", an unreadable index is not used, and a warning gives the reason.

    Raises:
        CorruptFileError: The catalog at the given path is damaged.
        OSError: The catalog at the given path is missing or cannot be read.
    """
    if sealed == "never":
        return None
    is_given = sealed != "auto"
    place = locate_beside(root, sealed) if is_given else root
    try:
        return open_at(_core.sealed_directory(place))
    except FileNotFoundError:
        if not is_given:
            return None
        if (place / "catalog.parquet").is_file():
            return open_at(place)
        raise
    except (CorruptFileError, OSError) as error:
        if is_given:
            raise
        _log.warning("the sealed index is not used: %s", error)
    return None
