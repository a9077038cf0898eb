"""Where Python turns Arrow data into Python values or back: printing, reports, result objects, single values.

Everything else moves in record batches. A new place belongs in Rust, or into the list with a reason.
"""

from __future__ import annotations

import ast
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

PACKAGE = Path(__file__).resolve().parents[2] / "python" / "logdex"

# Calls that turn a column or a batch into Python values, or Python values into one.
ROW_CALLS = {
    "as_py",
    "from_pydict",
    "from_pylist",
    "iter_rows",
    "iterrows",
    "itertuples",
    "to_numpy",
    "to_pandas",
    "to_pydict",
    "to_pylist",
    "tolist",
}

# Function -> reason.
ALLOWED: dict[str, str] = {
    "arrow.py: to_pandas": "columns stay Arrow columns",
    "cli/commands/sql.py: _say": "printed rows, in JSON, or fitted to the terminal",
    "duckdb.py: _parse.operands": "constants of a query",
    "kafka/overview.py: _time_at": "the first time of a day",
    "rocketmq/overview.py: _time_at": "the first time of a day",
    "cli/sources/rocketmq.py: _StoreOpened._first": "the place of one queue offset",
    "cli/sources/rocketmq.py: _phy_offset": "one value, for info",
    "hash_index/index_directory.py: IndexDirectory.query_offset": "query_offset returns a list of offsets",
    "kafka/find.py: _records_of": "objects of a FindResult",
    "rocketmq/explain.py: _of_messages_not_indexed": "one value",
    "rocketmq/copy.py: copy_messages": "one value, for a finding",
    "rocketmq/index_service.py: IndexService._build": "one value a batch: where the index file rolls",
    "hash_index/index_writer.py: PlannedIndexWriter.put": "one value a batch: the last offset",
    "broker/replica/replication.py: StoreCopy.last_message": "one value a batch, for a comparison with the master",
    "broker/rocketmq/handlers/administration.py: queue_units": "a few units, for a tool that prints them",
    "broker/rocketmq/server.py: _warn_of_addresses": "one value, for a warning",
    "rocketmq/overview.py: first_time": "one value, for info",
    "rocketmq/overview.py: store_times": "two values a queue, for what is said if nothing is found",
    "spark/find.py: _same_times": "one value for each distinct time range",
    "spark/seal.py: _packed.pack": "parts of index files and segments, of which a task has few",
    "browse/message_pages.py: MessagePages._neighbours": "one value for each neighbour of the message that is shown",
    "browse/store_pages.py: StorePages._ends": "two values a queue that is shown",
    "browse/view.py: rows_of": "the rows of the page that is shown",
    "spark/messages/source.py: ReadOptions._topics_of": "topics of a part of the log, for a pattern",
    "spark/workers.py: call_in_tasks.answers": "one argument for each task",
}


class _Places(ast.NodeVisitor):
    """Collects the functions that make one of the calls."""

    def __init__(self) -> None:
        self.scope: list[str] = []
        self.found: set[str] = set()

    def _enter(self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> None:
        self.scope.append(node.name)
        self.generic_visit(node)
        self.scope.pop()

    visit_FunctionDef = visit_AsyncFunctionDef = visit_ClassDef = _enter  # noqa: N815 -- names of ast

    def visit_Attribute(self, node: ast.Attribute) -> None:
        if node.attr in ROW_CALLS:
            self.found.add(".".join(self.scope))
        self.generic_visit(node)


def _places() -> Iterator[str]:
    for module in sorted(PACKAGE.rglob("*.py")):
        visitor = _Places()
        visitor.visit(ast.parse(module.read_text(encoding="utf-8"), str(module)))
        yield from (f"{module.relative_to(PACKAGE).as_posix()}: {function}" for function in sorted(visitor.found))


def test_rows_become_python_values_only_where_the_list_says() -> None:
    found = set(_places())
    assert not found - ALLOWED.keys(), "move this into Rust, or add it to the list with a reason"
    assert not ALLOWED.keys() - found, "no longer needed in the list"


@pytest.mark.parametrize("call", sorted(ROW_CALLS))
def test_the_calls_are_recognised(call: str) -> None:
    visitor = _Places()
    visitor.visit(ast.parse(f"class A:\n    def f(self, column):\n        return [v for v in column.{call}()]"))
    assert visitor.found == {"A.f"}
