"""Tables for notebooks, and short texts for long values."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from logdex.errors import printable

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

SHOWN_ROWS = 20
_SHOWN_BYTES = 64


def html_table(caption: str, heads: Sequence[str], rows: Iterable[Sequence[object]], more: int = 0) -> str:
    """Return a table for `_repr_html_`, with the number of rows that it leaves out."""
    cells = ("".join(f"<td>{escape(printable(_text(value)))}</td>" for value in row) for row in rows)
    body = "".join(f"<tr>{line}</tr>" for line in cells)
    titles = "".join(f"<th>{escape(head)}</th>" for head in heads)
    rest = f"<tfoot><tr><td colspan={len(heads)}>and {more:,} more</td></tr></tfoot>" if more > 0 else ""
    text = escape(printable(caption))
    return f"<table><caption>{text}</caption><thead><tr>{titles}</tr></thead><tbody>{body}</tbody>{rest}</table>"


def short_bytes(value: bytes | None) -> str:
    """Return the repr of bytes; of many only the first, and their number."""
    if value is None or len(value) <= _SHOWN_BYTES:
        return repr(value)
    return f"<{len(value):,} bytes, {value[:_SHOWN_BYTES]!r}...>"


def _text(value: object) -> str:
    if value is None:
        return "-"
    return short_bytes(value) if isinstance(value, bytes) else str(value)
