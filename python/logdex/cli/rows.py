"""Rows of Arrow batches, printed."""

from __future__ import annotations

import sys
from dataclasses import fields
from typing import TYPE_CHECKING

from logdex._core import json_lines, text_lines
from logdex.cli.output import say_lines
from logdex.rocketmq import Message

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from arro3.core import RecordBatch

    from logdex._core import BatchStream, SegmentReader

MESSAGE_COLUMNS = tuple(field.name for field in fields(Message))


def limited_batches(stream: BatchStream | SegmentReader, limit: int | None) -> Iterator[RecordBatch]:
    """Iterate over the batches of a stream that have rows, with at most `limit` rows in all."""
    left = sys.maxsize if limit is None else limit
    while left and (batch := next(stream, None)) is not None:
        part = batch.slice(0, min(left, batch.num_rows))
        left -= part.num_rows
        if part.num_rows:
            yield part


def say_rows(batches: Iterable[RecordBatch], *, as_json: bool) -> int:
    """Print rows as JSON lines, with times in ms, or as lines for people; return their number."""
    rows = 0
    for batch in batches:
        if as_json:
            json_lines(batch, sys.stdout.write)
        else:
            text_lines(batch, say_lines)
        rows += batch.num_rows
    return rows
