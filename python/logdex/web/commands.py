"""A page as a command of the shell, and as Python."""

from __future__ import annotations

import shlex
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping


def command(name: str, *words: object, **options: object) -> str:
    """Return a command of logdex; an option that is None is left out, and one that is True has no value."""
    flags: list[str] = []
    for option, value in options.items():
        if value is not None and value is not False:
            flag, text = f"--{option.replace('_', '-')}", str(value)
            # With `=`, a value that starts with a dash is not parsed as an option.
            flags += [flag] if value is True else [f"{flag}={text}"] if text.startswith("-") else [flag, text]
    # After `--`, a word that begins with a dash is not parsed as an option.
    dashed = ["--"] if any(str(word).startswith("-") for word in words) else []
    return shlex.join(["logdex", *name.split(), *flags, *dashed, *map(str, words)])


def call(name: str, *values: Any, **options: Any) -> str:  # noqa: ANN401 -- anything with a repr
    """Return a call in Python; an argument that is None is left out."""
    given = [f"{option}={value!r}" for option, value in options.items() if value is not None]
    return f"{name}({', '.join([*map(repr, values), *given])})"


@dataclass(frozen=True, slots=True)
class Place:
    """Path as the user wrote it, and the options to open it. Commands and calls need both."""

    path: str
    options: Mapping[str, Any] = field(default_factory=dict)

    def command(self, name: str, *words: object, **options: object) -> str:
        """Return a command with the path and these words."""
        return command(name, self.path, *words, **options, **self.options)

    def opened(self, name: str) -> str:
        """Return a call in Python that opens the path."""
        return call(name, self.path, **self.options)
