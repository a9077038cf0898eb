"""The commands, one module each. A module has the name of its command, and the object `COMMAND`."""

from __future__ import annotations

import pkgutil
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from logdex.cli.arguments import Command


@cache
def names() -> tuple[str, ...]:
    """Return the names of all commands, sorted. No module is imported."""
    return tuple(sorted(module.name.replace("_", "-") for module in pkgutil.iter_modules(__path__)))


def load(name: str) -> Command:
    """Import the module of a command."""
    command: Command = import_module(f"{__name__}.{name.replace('-', '_')}").COMMAND
    return command
