"""Commands and kinds of sources that other rooms of the package bring along."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator


def rooms(*names: str) -> Iterator[Any]:
    """Give those modules of this package that are there, imported.

    What each brings is up to it: `add_parsers` for a command, `recognise` for a kind of source.
    """
    for name in names:
        path = f"{__package__}.{name}"
        if find_spec(path) is not None:
            yield import_module(path)
