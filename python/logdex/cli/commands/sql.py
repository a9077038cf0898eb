"""`logdex sql`: queries over messages, queues, groups and the index."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from logdex.cli.arguments import FILTERS, OPEN, STORE_OR_LOG, Command, add_options, add_source, zone_name
from logdex.cli.output import complain, say, say_json, say_lines, table
from logdex.cli.sources import open_path

if TYPE_CHECKING:
    import argparse

    from logdex.duckdb import Tables

_DETAILS = """\
Runs a query of DuckDB (https://duckdb.org/docs/sql), which `pip install 'logdex[sql]'` installs. The
tables are messages (of RocketMQ) or records (of Kafka), queues, groups, and index_entries of the
index files. Only the columns of the query are read. Conditions on topic, queue or partition, time,
offset, key and tag reach the read, as the options below do; --explain shows it and reads nothing.

  logdex sql /data/store "SELECT tags, count(*) FROM messages WHERE topic = 'Orders' GROUP BY tags"
  logdex sql /data/store "FROM messages WHERE body.user.id = 'u1' LIMIT 5" -t Orders --decode body=json
  logdex sql /data/kafka "SELECT \"group\", sum(lag) FROM groups GROUP BY 1" --json
  logdex sql /data/store "COPY (SELECT keys, tags FROM messages) TO 'keys.parquet'\""""
_ROWS_OF_A_TABLE = 2_048
"""Rows that are fitted to the terminal together."""


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    add_source(parser, STORE_OR_LOG)
    parser.add_argument(
        "query", metavar="QUERY", help="one or more statements of SQL; the result of the last is printed"
    )
    add_options(parser, *(name for name in FILTERS if name not in ("--limit", "--tz")), *OPEN, "--decode", "--grep")
    parser.add_argument("--tz", type=zone_name, default="UTC", metavar="ZONE", help="time zone of the query: see `cat`")
    parser.add_argument(
        "--explain", action="store_true", help="print the plan and the reads of the query, not its rows"
    )
    add_options(parser, "--wide")


def _run(arguments: argparse.Namespace) -> int:
    """Print the result; 1 if it has no rows."""
    with open_path(arguments) as opened, opened.tables(arguments, empty=arguments.explain) as tables:
        if arguments.tz.lower() != "local":
            tables.connection.execute("SET TimeZone = ?", [arguments.tz])
        relation: Any = tables.connection.sql(arguments.query)
        if arguments.explain:
            return _explain(relation, tables)
        rows = None if relation is None else _say(relation, as_json=arguments.json)
        for _, stream in tables.reads:
            opened.say_skipped(stream)
    if rows == 0:
        complain("the result has no rows")
    return 1 if rows == 0 else 0


def _explain(relation: Any, tables: Tables) -> int:  # noqa: ANN401 -- of an optional package
    """Print the plan of a query, and the reads that it begins."""
    if relation is None:
        raise ValueError("--explain: expected a query with a result")
    say_lines(relation.explain())
    relation.fetchall()
    for options, _ in tables.reads:
        say(f"{tables.rows.name}({', '.join(f'{name}={value!r}' for name, value in sorted(options.items()))})")
    return 0


def _say(relation: Any, *, as_json: bool) -> int:  # noqa: ANN401 -- of an optional package
    """Print the rows of a result; return their number."""
    if as_json:
        relation = relation.query("result", "SELECT to_json(result)::VARCHAR AS line FROM result")
    else:
        relation = relation.project("COLUMNS(*)::VARCHAR")
    rows = 0
    for batch in relation.to_arrow_reader(_ROWS_OF_A_TABLE):
        columns = [column.to_pylist() for column in batch.columns]
        if as_json:
            for line in columns[0]:
                say_json(json.loads(line))
        else:
            table(zip(*columns, strict=True), () if rows else relation.columns)
        rows += batch.num_rows
    return rows


COMMAND = Command("sql", "run a query over messages, queues and groups", _DETAILS, _add_arguments, _run)
