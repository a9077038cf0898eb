"""Counts of the values in a part of a list; each value is a link that narrows the list to it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from logdex import _core
from logdex.browse.view import address, is_internal

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from arro3.core import RecordBatch

MOST_ROWS = 10_000
"""Of a list, which are counted."""
_HOUR = 3_600_000
_VALUES, _HOURS = 10, 24
_SHOWN = 120
"""Letters of a value."""


@dataclass(frozen=True, slots=True)
class Facet:
    """Most frequent values: the text, the number of rows, and the address of the list with only them, or None without one.

    Attributes:
        name: The name of the filter.
        values: The values.
        number: Number of different values.
    """

    name: str
    values: Sequence[tuple[str, int, str | None]]
    number: int


def facets(batch: RecordBatch, columns: Mapping[str, str], path: str, kept: Mapping[str, Any]) -> list[Facet]:
    """Return the values of columns by the names of their filters. `kept` are the filters of the list at an address."""
    found = []
    for name, column in columns.items():
        is_time, is_keys = column.endswith("timestamp"), column == "keys"
        rows, number = _core.value_counts(
            batch.column(column),
            limit=_HOURS if is_time else _VALUES,
            separator=" " if is_keys else None,
            step=_HOUR if is_time else None,
        )
        if is_time:
            rows.sort()
        elif name == "topic":
            rows.sort(key=lambda row: is_internal(row[0]))
        shown = [_value(name, value, count, path, kept) for value, count in rows]
        if shown:
            found.append(Facet(name, shown, number))
    return found


def _value(name: str, value: Any, count: int, path: str, kept: Mapping[str, Any]) -> tuple[str, int, str | None]:  # noqa: ANN401
    if name == "hour":
        begin, end = _core.time_text(value) or "", _core.time_text(value + _HOUR - 1)
        return begin.replace(":00:00.000Z", ":00Z"), count, address(path, kept, begin=begin, end=end)
    if isinstance(value, bytes):
        try:
            value = value.decode()
        except UnicodeDecodeError:
            # The filter is a text.
            return f"0x{value.hex()}"[:_SHOWN], count, None
    # An empty word in an address is no filter.
    return str(value)[:_SHOWN], count, address(path, kept, **{name: value}) if value != "" else None
