"""A page as a command of the shell, and as Python."""

from __future__ import annotations

import shlex
from typing import Any


def command(name: str, *words: object, **options: object) -> str:
    """Return a command of logdex; an option that is None is left out, and one that is True has no value."""
    flags: list[str] = []
    for option, value in options.items():
        if value is not None and value is not False:
            flags.append(f"--{option.replace('_', '-')}")
            flags += [] if value is True else [str(value)]
    # A word that begins with a dash is no option.
    dashed = ["--"] if any(str(word).startswith("-") for word in words) else []
    return shlex.join(["logdex", *name.split(), *flags, *dashed, *map(str, words)])


def call(name: str, *values: Any, **options: Any) -> str:  # noqa: ANN401 -- anything with a repr
    """Return a call in Python; an argument that is None is left out."""
    given = [f"{option}={value!r}" for option, value in options.items() if value is not None]
    return f"{name}({', '.join([*map(repr, values), *given])})"
