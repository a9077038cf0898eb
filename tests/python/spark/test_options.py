"""Arguments and options of Spark's side that no number may be: refused on the driver, by name, before any job."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from logdex import spark as ls
from logdex.spark import options

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

NOTHING: Any = None
"""In place of a DataFrame or a session, which are not asked."""

CALLS: dict[str, Callable[[Path, int], object]] = {
    "lookup:max_num": lambda path, n: ls.lookup(NOTHING, path, n),
    "lookup:hash_slots": lambda path, n: ls.lookup(NOTHING, path, hash_slots=n, max_entries=9),
    "lookup:max_entries": lambda path, n: ls.lookup(NOTHING, path, hash_slots=9, max_entries=n),
    "query_offset:max_num": ls.query_offset,
    "query_offset:hash_slots": lambda path, n: ls.query_offset(path, hash_slots=n, max_entries=9),
    "query_offset:max_entries": lambda path, n: ls.query_offset(path, hash_slots=9, max_entries=n),
    "find:max_num": lambda path, n: ls.find(NOTHING, path, n),
    "find:hash_slots": lambda path, n: ls.find(NOTHING, path, hash_slots=n, max_entries=9),
    "find:max_entries": lambda path, n: ls.find(NOTHING, path, hash_slots=9, max_entries=n),
    "build_index:hash_slots": lambda path, n: ls.build_index(NOTHING, path, path, hash_slots=n, max_entries=9),
    "build_index:max_entries": lambda path, n: ls.build_index(NOTHING, path, path, hash_slots=9, max_entries=n),
    "build_index:max_tasks": lambda path, n: ls.build_index(NOTHING, path, path, max_tasks=n),
    "build_key_index:max_entries": lambda path, n: ls.build_key_index(NOTHING, path, path, max_entries=n),
    "option begin": lambda _, n: options.instant({"begin": str(n)}, "begin", end=False),
    "option rows": lambda _, n: options.integer({"rows": str(n)}, "rows"),
}


@pytest.mark.parametrize("n", [2**70, -(2**70)], ids=["large", "small"])
@pytest.mark.parametrize("name", CALLS)
def test_an_integer_of_more_than_64_bits_is_refused_by_name(tmp_path: Path, name: str, n: int) -> None:
    with pytest.raises(ValueError, match=name.rpartition(":")[2]):
        CALLS[name](tmp_path, n)
    assert not list(tmp_path.iterdir())
