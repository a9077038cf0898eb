"""What is at a path: `open_source` asks each kind of source in turn."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from logdex.cli.sources import Source, kafka, open_first, rocketmq

if TYPE_CHECKING:
    import os

KINDS = (rocketmq.open_store, rocketmq.open_index, kafka.open_source, rocketmq.open_part, kafka.open_part)


def open_source(path: str | os.PathLike[str], **options: Any) -> Source:  # noqa: ANN401 -- each kind takes those it knows
    """Open the file or directory at a path; see `open_first`."""
    expected = (
        "expected a store (holds commitlog), an index directory (files named by 17 digits) "
        "or a Kafka log directory (<topic>-<partition>); found none of them"
    )
    return open_first(Path(path), KINDS, expected, **options)
