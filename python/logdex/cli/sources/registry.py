"""What is at a path: `open_source` asks each kind of source in turn."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import TYPE_CHECKING, Any

from logdex.cli.sources import Source, kafka, rocketmq

if TYPE_CHECKING:
    import os
    from collections.abc import Callable

KINDS: tuple[Callable[..., Source | None], ...] = (
    rocketmq.open_store,
    rocketmq.open_index,
    kafka.open_source,
    rocketmq.open_part,
    kafka.open_part,
)
"""Each opens a path of its kind and returns None for another. The first that opens it wins."""


def open_source(path: str | os.PathLike[str], **options: Any) -> Source:  # noqa: ANN401 -- each kind has its own
    """Open the file or directory at a path.

    Args:
        path: A file or directory.
        options: How to open it; each kind takes the options that it knows.

    Raises:
        OSError: The path does not exist or cannot be read.
        ValueError: It holds nothing that logdex reads.
    """
    place = Path(path)
    for open_kind in KINDS:
        source = open_kind(place, **options)
        if source is not None:
            return source
    if not place.exists():
        raise FileNotFoundError(errno.ENOENT, "no such file or directory", str(place))
    raise ValueError(
        f"{place}: expected a store (holds commitlog), an index directory (files named by 17 digits) "
        "or a Kafka log directory (<topic>-<partition>); found none of them"
    )
