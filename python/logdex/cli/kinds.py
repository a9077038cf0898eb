"""Which kind of source lies at a path."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import TYPE_CHECKING, Any

from logdex.cli import index_source, kafka_part, kafka_source, store_part, store_source

if TYPE_CHECKING:
    import os
    from collections.abc import Callable

    from logdex.cli.source import Source

KINDS: tuple[Callable[..., Source | None], ...] = (
    store_source.recognise,
    index_source.recognise,
    kafka_source.recognise,
    store_part.recognise,
    kafka_part.recognise,
)
"""Functions that open a path that is theirs and give None for others; the first that takes it has it."""


def open_source(path: str | os.PathLike[str], **options: Any) -> Source:  # noqa: ANN401 -- each kind has its own
    """Open what lies at a path.

    Args:
        path: A file or directory.
        options: How to open it; each kind takes what it knows.

    Raises:
        OSError: Nothing lies there, or the system refuses.
        ValueError: What lies there is nothing that logdex reads.
    """
    place = Path(path)
    for recognise in KINDS:
        source = recognise(place, **options)
        if source is not None:
            return source
    if not place.exists():
        raise FileNotFoundError(errno.ENOENT, "no such file or directory", str(place))
    raise ValueError(
        f"{place}: nothing that logdex reads (a store holds commitlog; an index directory, files named by 17 digits; "
        "a Kafka log directory, <topic>-<partition>)"
    )
