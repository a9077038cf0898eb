"""`logdex sql` and `--where`: the result as a table or JSON lines, the plan, and errors in one line."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

import golden_kafka
from logdex.rocketmq import MessageStore, StoreWriter

pytest.importorskip("duckdb")
pa = pytest.importorskip("pyarrow")

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Command = Callable[..., Any]


@pytest.fixture
def orders(tmp_path: Path) -> Path:
    """A store with JSON bodies."""
    root = tmp_path / "orders"
    bodies = [json.dumps({"user": {"id": f"u{at % 9}"}, "total": at}).encode() for at in range(90)]
    with StoreWriter.open(root, file_size=1 << 20) as writer:
        writer.put_messages({"topic": ["Orders"] * 90, "tags": ["A", "B"] * 45, "body": bodies})
        writer.put_messages({"topic": ["Other"] * 3, "body": [b"no JSON"] * 3})
    return root


def failing(command: Command, code: int, *words: object) -> str:
    """Run a command; return what it prints on standard error."""
    done = command(*words)
    assert done.code == code
    error: str = done.err
    return error


def test_a_table_for_people_and_json_for_programs(store: Callable[[str], Path], logdex_command: Command) -> None:
    root = store("basic")
    query = "SELECT topic, count(*) AS number FROM messages GROUP BY topic ORDER BY topic"
    with MessageStore.open(root) as opened:
        topics = pa.table(opened.messages(columns=["topic"])).column("topic").to_pylist()
    rows = logdex_command("sql", root, query, "--json").rows
    assert {row["topic"]: row["number"] for row in rows} == Counter(topics)
    lines = logdex_command("sql", root, query).out.splitlines()
    assert lines[0].split() == ["topic", "number"]
    assert [line.split() for line in lines[1:]] == [[row["topic"], f"{row['number']}"] for row in rows]


def test_options_of_cat_hold_for_the_query(orders: Path, logdex_command: Command) -> None:
    count = "SELECT count(*) AS n FROM messages"
    assert logdex_command("sql", orders, count, "--json").rows == [{"n": 93}]
    assert logdex_command("sql", orders, count, "-t", "Ord*", "--json").rows == [{"n": 90}]
    assert logdex_command("sql", orders, count, "-t", "/Oth.r/", "--grep", "JSON", "--json").rows == [{"n": 3}]
    query = "SELECT body.user.id AS id, sum(body.total) AS total FROM messages GROUP BY id ORDER BY total LIMIT 1"
    rows = logdex_command("sql", orders, query, "-t", "Orders", "--decode", "body=json", "--json").rows
    assert rows == [{"id": "u0", "total": sum(range(0, 90, 9))}]


def test_times_are_in_the_zone(orders: Path, logdex_command: Command) -> None:
    query = "SELECT TIMESTAMPTZ '2026-07-01 12:00:00Z' AS noon"
    assert "2026-07-01 12:00:00+00" in logdex_command("sql", orders, query).out
    assert "2026-07-01 20:00:00+08" in logdex_command("sql", orders, query, "--tz", "Asia/Shanghai").out
    assert "expected local, UTC" in failing(logdex_command, 2, "sql", orders, query, "--tz", "Nowhere")


def test_the_plan_shows_what_is_read(orders: Path, logdex_command: Command) -> None:
    query = "SELECT keys FROM messages WHERE topic = 'Orders' AND queue_id = 3"
    lines = logdex_command("sql", orders, query, "--explain").out.splitlines()
    assert lines[-1] == "messages(columns=['keys', 'topic', 'queue_id'], queue_id=3, topics=['Orders'])"
    assert any("topic = 'Orders'" in line.replace('"', "") for line in lines)


def test_statements_without_a_result_and_with_no_rows(orders: Path, tmp_path: Path, logdex_command: Command) -> None:
    file = tmp_path / "keys.csv"
    assert logdex_command("sql", orders, f"COPY (SELECT tags FROM messages) TO '{file}'").code == 0
    assert len(file.read_text().splitlines()) == 94
    assert "the result has no rows" in failing(
        logdex_command, 1, "sql", orders, "SELECT 1 FROM messages WHERE topic = 'None'"
    )
    assert logdex_command(
        "sql", orders, f"CREATE TABLE t AS FROM '{file}'; SELECT count(*) AS n FROM t", "--json"
    ).rows == [{"n": 93}]


def test_errors_are_one_line(orders: Path, tmp_path: Path, logdex_command: Command) -> None:
    for query, text in (
        ("SELEC 1", "syntax error"),
        ("SELECT tag FROM messages", "tag"),
        ("SELECT 1 FROM records", "records"),
        ("INSTALL httpfs; LOAD nothing_here", ""),
    ):
        error = failing(logdex_command, 2, "sql", orders, query)
        assert text in error
        assert len(error.splitlines()) == 1
        assert "bug in logdex" not in error
    assert "no such file" in failing(logdex_command, 2, "sql", tmp_path / "none", "SELECT 1")


def test_where_prints_as_cat_does(orders: Path, logdex_command: Command) -> None:
    options = ("-t", "Orders", "--decode", "body=json")
    every = logdex_command("cat", orders, *options, "--json", "--body").rows
    found = logdex_command(
        "cat", orders, *options, "--json", "--body", "--where", "body.user.id = 'u1' AND tags = 'A'"
    ).rows
    assert found == [row for row in every if row["body"]["user"]["id"] == "u1" and row["tags"] == "A"]
    assert found
    whole = logdex_command("cat", orders, "--json").rows
    assert (
        logdex_command("cat", orders, "--json", "--where", "phy_offset > 300", "-n", "4").rows
        == [row for row in whole if row["phy_offset"] > 300][:4]
    )
    chosen = logdex_command(
        "cat", orders, "--where", "tags = 'B' AND topic = 'Orders'", "--columns", "tags,queue_offset"
    ).out
    assert len(chosen.splitlines()) == 45
    assert "nothing found" in failing(logdex_command, 1, "cat", orders, "--where", "tags = 'C'")
    assert "tagz" in failing(logdex_command, 2, "cat", orders, "--where", "tagz = 'C'", "--tail", "3")
    assert "tagz" in failing(logdex_command, 2, "cat", orders, "--where", "tagz = 'C'")


def test_where_with_tail_and_grep(orders: Path, logdex_command: Command) -> None:
    options = ("-t", "Orders", "--decode", "body=json", "--json", "--body")
    every = logdex_command("cat", orders, *options).rows
    wanted = [row for row in every if row["body"]["total"] < 60 and row["tags"] == "A"]
    for num in (0, 1, 7, 30, 31):
        found = logdex_command(
            "cat", orders, *options, "--where", "body.total < 60 AND tags = 'A'", "--tail", str(num)
        ).rows
        assert found == wanted[len(wanted) - num if num < len(wanted) else 0 :]
    assert len(wanted) == 30
    two = logdex_command("cat", orders, *options, "--where", "tags = 'A'", "--tail", "5", "-n", "2").rows
    assert [row["body"]["total"] for row in two] == [80, 82]
    every = logdex_command("cat", orders, "--json", "--body").rows
    some = [row["phy_offset"] for row in every if '"u1"' in row["body"] and row["queue_offset"] > 20]
    found = logdex_command("grep", '"u1"', orders, "--where", "queue_offset > 20", "--json").rows
    assert [row["phy_offset"] for row in found] == some
    assert all(len(row["matches"]) == 1 for row in found)
    assert logdex_command("grep", '"u1"', orders, "--where", "queue_offset > 20", "-c").out == f"{len(some)}\n"
    assert "queue_off" in failing(logdex_command, 2, "grep", "u1", orders, "--where", "queue_off > 20")
    assert failing(logdex_command, 1, "grep", "u1", orders, "--where", "FALSE").startswith("logdex: nothing found")


def test_where_with_follow(orders: Path) -> None:
    words = ["cat", orders, "-t", "Orders", "--decode", "body=json", "--where", "body.total >= 89 AND tags = 'B'"]
    command = [sys.executable, "-m", "logdex", *map(str, words), "--follow", "--limit", "3", "--json", "--body"]
    with (
        StoreWriter.open(orders, services=False) as writer,
        subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process,
    ):
        assert process.stdout is not None
        assert json.loads(process.stdout.readline())["body"]["total"] == 89
        # A read of these alone would find no field of the condition.
        for total in (90, 91):
            writer.put_message("Orders", b"{}", tags="B")
            writer.put_message("Orders", json.dumps({"total": 1}).encode(), tags="B")
            writer.put_message("Orders", json.dumps({"total": total}).encode(), tags="B")
            assert json.loads(process.stdout.readline())["body"]["total"] == total
        assert process.wait(60) == 0


def test_where_of_logs_of_kafka(tmp_path: Path, logdex_command: Command) -> None:
    logs = golden_kafka.unpack("codecs", tmp_path / "logs")
    every = logdex_command("cat", logs, "--json").rows
    condition, some = '"offset" % 2 = 0', [row for row in every if row["offset"] % 2 == 0]
    last = {(row["topic"], row["partition"]): row for row in some}
    assert logdex_command("cat", logs, "--where", condition, "--tail", "1", "--json").rows == list(last.values())
    assert len(last) > 3
    every = logdex_command("grep", "a", logs, "--json").rows
    found = logdex_command("grep", "a", logs, "--where", condition, "--json").rows
    assert found == [row for row in every if row["offset"] % 2 == 0]
    assert len(found) < len(every)
    (segment, *_) = logs.glob("cod-none-0/*.log")
    for words in (("cat", segment, "--tail", "1"), ("cat", segment), ("grep", "a", segment)):
        assert "expected a store, or a Kafka log" in failing(logdex_command, 2, *words, "--where", condition)


@pytest.mark.parametrize("form", ["json", "msgpack"])
def test_objects_have_the_fields_of_the_first_ones_whatever_is_wanted(
    form: str, tmp_path: Path, logdex_command: Command
) -> None:
    pack = json.dumps if form == "json" else pytest.importorskip("msgpack").packb
    bodies = [pack({"number": number}) for number in range(9_000)] + [pack({"name": "x"}), pack({"number": 7})]
    with StoreWriter.open(tmp_path / "store", services=False) as writer:
        topics = ["First"] * 9_000 + ["Second"] * 2
        writer.put_messages(
            {"topic": topics, "body": [body.encode() if isinstance(body, str) else body for body in bodies]}
        )
    options = ("--decode", f"body={form}", "--json", "--body")
    every = logdex_command("cat", tmp_path / "store", *options).rows
    second = logdex_command("cat", tmp_path / "store", *options, "--where", "topic = 'Second'").rows
    assert second == every[-2:]
    assert [row["body"] for row in second] == [None, {"number": 7}]
    assert second[0]["body_error"]
    last = logdex_command("cat", tmp_path / "store", *options, "--where", "body.number = 7", "--tail", "1").rows
    assert last == every[-1:]


def test_where_exports_the_types_of_the_read(orders: Path, tmp_path: Path, logdex_command: Command) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    logdex_command("export", orders, tmp_path / "all.parquet")
    logdex_command("export", orders, tmp_path / "b.parquet", "--where", "tags = 'B'")
    every, found = (parquet.read_table(tmp_path / name) for name in ("all.parquet", "b.parquet"))
    assert found.schema == every.schema
    assert found.to_pylist() == [row for row in every.to_pylist() if row["tags"] == "B"]


def test_records_of_kafka(tmp_path: Path, logdex_command: Command) -> None:
    logs = golden_kafka.unpack("codecs", tmp_path / "logs")
    every = logdex_command("cat", logs, "--json").rows
    topics = {row["topic"] for row in every}
    query = "SELECT topic, count(*) AS n FROM records GROUP BY topic"
    rows = logdex_command("sql", logs, query, "--json").rows
    assert {row["topic"]: row["n"] for row in rows} == {
        topic: sum(row["topic"] == topic for row in every) for topic in topics
    }
    some = [row for row in every if row["topic"].startswith("cod-n")]
    assert logdex_command("cat", logs, "-t", "cod-n*", "--json").rows == some
    assert logdex_command("cat", logs, "--where", "topic LIKE 'cod-n%'", "--json").rows == some
    assert some
    (partition,) = logs.glob("cod-none-0")
    segment = next(partition.glob("*.log"))
    assert logdex_command("sql", partition, "SELECT count(*) AS n FROM records", "--json").rows[0]["n"] > 0
    assert "expected a store, or a Kafka log" in failing(logdex_command, 2, "sql", segment, "SELECT 1")


def test_the_missing_package_is_named(orders: Path, logdex_command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "duckdb", None)
    monkeypatch.delitem(sys.modules, "logdex.duckdb", raising=False)
    for words in (("sql", orders, "SELECT 1"), ("cat", orders, "--where", "tags = 'A'")):
        assert failing(logdex_command, 2, *words) == (
            "logdex: logdex.duckdb needs duckdb and pyarrow: pip install 'logdex[sql]'\n"
        )
