"""Missing and damaged data is said: each call of both brokers, in Python, on the command line and on the pages.

The tables are those of docs/findings.md. Spark, whose reports come from its workers, has tests of its own in tests/python/spark.
"""

from __future__ import annotations

import html
import json
import logging
import re
import warnings
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import browsing
import golden
import log_losses
import store_losses
from logdex import DamageWarning
from logdex.cli import main
from logdex.errors import CorruptFileError
from logdex.kafka import Log, LogDir, build_key_index
from logdex.rocketmq import MessageStore, copy_messages

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


class Place(NamedTuple):
    """What is opened, the message that is searched for, and a directory for output."""

    root: Path
    row: dict[str, Any]
    out: Path


class Answer(NamedTuple):
    """What a caller sees: rows, texts, the exit code (None in Python and on pages), and the number of warnings."""

    rows: list[Any]
    text: str
    code: int | None = None
    warned: int = 0


Call: TypeAlias = "Callable[[Place], tuple[list[Any], str]]"


# The calls of Python: rows, and what their result says.


def _with_store(call: Callable[[MessageStore, Place], tuple[list[Any], str]]) -> Call:
    def opened(place: Place) -> tuple[list[Any], str]:
        with MessageStore.open(place.root) as store:
            return call(store, place)

    return opened


def _found_messages(store: MessageStore, place: Place) -> tuple[list[Any], str]:
    result = store.find(place.row["topic"], place.row["uniqKey"])
    assert result.complete == (not result.unscanned)
    assert all(any(b <= at and end <= e for b, e in result.unscanned) for at, end in result.unreadable)
    unscanned, unreadable = ([tuple(each) for each in ranges] for ranges in (result.unscanned, result.unreadable))
    return [each.phy_offset for each in result], f"unscanned {unscanned} unreadable {unreadable}"


def _explained(store: MessageStore, place: Place) -> tuple[list[Any], str]:
    explained = store.explain(place.row["topic"], place.row["uniqKey"])
    return list(explained.found), f"{[cause.kind for cause in explained.causes]} {explained}"


def _one(message: Any) -> tuple[list[Any], str]:
    return [] if message is None else [message.phy_offset], ""


def _streamed(stream: Any, column: str = "phy_offset") -> tuple[list[Any], str]:
    return pa.table(stream)[column].to_pylist(), " ".join(each.kind for each in stream.findings)


def _reported(report: Any, counted: str) -> tuple[list[Any], str]:
    return list(range(report.checked[counted])), str(report)


def _overview(store: MessageStore, _: Place) -> tuple[list[Any], str]:
    facts = store.overview()
    names = ("missing_log_bytes", "missing_queue_bytes", "not_indexed_bytes")
    return [], " ".join(f"{name} {facts[name]}" for name in names if facts[name])


def _with_logs(call: Callable[[LogDir, Place], tuple[list[Any], str]]) -> Call:
    def opened(place: Place) -> tuple[list[Any], str]:
        with LogDir.open(place.root) as logs:
            return call(logs, place)

    return opened


def _found_records(result: Any) -> tuple[list[Any], str]:
    assert result.complete == (not result.unscanned)
    return [each.offset for each in result], f"{result!r} {result.unscanned} {list(result.findings)}"


def _until_it_raises(stream: Any) -> tuple[list[Any], str]:
    rows: list[int] = []
    try:
        rows.extend(offset for batch in stream for offset in batch.column("offset").to_pylist())
    except CorruptFileError as error:
        return rows, str(error)
    return rows, ""


def _explained_records(explained: Any) -> tuple[list[Any], str]:
    return [offset for step in explained.steps for offset in step.offsets], str(explained)


PYTHON: dict[str, dict[str, Call]] = {
    "rocketmq": {
        "find": _with_store(_found_messages),
        "find_batch": _with_store(lambda s, p: _streamed(s.find_batch(p.row["topic"], [p.row["uniqKey"]]))),
        "explain": _with_store(_explained),
        "message by offset": _with_store(lambda s, p: _one(s.message(p.row["physicalOffset"]))),
        "message by id": _with_store(lambda s, p: _one(s.message(p.row["msgId"]))),
        "messages": _with_store(lambda s, _: _streamed(s.messages())),
        "messages of a topic": _with_store(lambda s, p: _streamed(s.messages(topic=p.row["topic"], scan=False))),
        "copy_messages": _with_store(lambda s, p: _reported(copy_messages(s, p.out / "copy"), "messages")),
        "build_index": _with_store(lambda s, p: _reported(s.build_index(p.out / "index"), "messages")),
        "build_queues": _with_store(lambda s, p: _reported(s.build_queues(p.out / "queues"), "messages")),
        "overview": _with_store(_overview),
        "verify": _with_store(lambda s, _: ([], str(s.verify()))),
    },
    "kafka": {
        "find": _with_logs(lambda d, _: _found_records(d.find("orders", "key-3"))),
        "explain": _with_logs(lambda d, _: _explained_records(d.explain("orders", "key-3"))),
        "records": _with_logs(lambda d, _: _until_it_raises(d.records())),
        "records of a topic, skip": _with_logs(lambda d, _: _streamed(d.records("orders", on_error="skip"), "offset")),
        "records of a log, skip": lambda p: _streamed(Log.open(p.root / "orders-0").records(on_error="skip"), "offset"),
        "build_key_index": lambda p: _reported(build_key_index(p.root, p.out / "keys"), "records"),
        "verify": _with_logs(lambda d, _: ([], str(d.verify()))),
        "verify of a log": lambda p: ([], str(Log.open(p.root / "orders-0").verify())),
    },
}
WARN = {
    *("find_batch", "message by offset", "message by id", "messages", "messages of a topic", "overview"),
    *("kafka find", "kafka explain", "records of a topic, skip", "records of a log, skip"),
}
"""The calls that issue one `DamageWarning`. The others have a report, raise, or have a result that says it."""

COMMANDS: dict[str, dict[str, Callable[[Place], list[object]]]] = {
    "rocketmq": {
        "find": lambda p: ["find", p.root, p.row["topic"], p.row["uniqKey"]],
        "explain": lambda p: ["explain", p.root, p.row["topic"], p.row["uniqKey"]],
        "cat": lambda p: ["cat", p.root, "--json"],
        "export": lambda p: ["export", p.root, p.out / "x.parquet"],
        "copy": lambda p: ["copy", p.root, p.out / "copy"],
        "build-index": lambda p: ["build-index", p.root, p.out / "index"],
        "build-queues": lambda p: ["build-queues", p.root, p.out / "queues"],
        "info": lambda p: ["info", p.root],
        "verify": lambda p: ["verify", p.root],
    },
    "kafka": {
        "find": lambda p: ["kafka", "find", p.root, "orders", "key-3"],
        "explain": lambda p: ["explain", p.root, "orders", "key-3"],
        "cat": lambda p: ["cat", p.root, "--json"],
        "cat --no-skip-damaged": lambda p: ["cat", p.root, "--json", "--no-skip-damaged"],
        "export": lambda p: ["export", p.root, p.out / "x.parquet"],
        "info": lambda p: ["info", p.root],
        "verify": lambda p: ["verify", p.root],
        "kafka verify": lambda p: ["kafka", "verify", p.root],
        "kafka build-index": lambda p: ["kafka", "build-index", p.root, p.out / "keys"],
    },
}

PAGES: dict[str, dict[str, Callable[[Place], str]]] = {
    "rocketmq": {
        "overview": lambda _: "/",
        "messages": lambda _: "/messages?order=oldest&rows=500",
        "message": lambda p: f"/message?at={p.row['physicalOffset']}",
        "search": lambda p: f"/search?topic={p.row['topic']}&key={p.row['uniqKey']}",
        "steps": lambda p: f"/search/steps?topic={p.row['topic']}&key={p.row['uniqKey']}",
        "topic": lambda p: f"/topic?topic={p.row['topic']}",
        "queue": lambda p: f"/queue?topic={p.row['topic']}&queue=0",
        "log": lambda _: "/log",
    },
    "kafka": {
        "overview": lambda _: "/",
        "partitions": lambda _: "/partitions",
        "partition": lambda _: "/partition?topic=orders&partition=0",
        "records": lambda _: "/records?topic=orders&partition=0&order=oldest&rows=500",
        "search": lambda _: "/search?topic=orders&key=key-3",
    },
}

LOSSES = {"rocketmq": tuple(store_losses.ASKED), "kafka": tuple(log_losses.LOSSES)}
_FILE, _GAP = store_losses.FILE, store_losses.GAP
_MIDDLE = log_losses.MIDDLE

# A text that is said, by loss in the order of LOSSES. None: nothing is missing from the answer.
# "not read": the call does not read that part; `verify` does.
_KAFKA_FOUND = ("found none", f"found {_MIDDLE}.gz", "found an empty file", f"{_MIDDLE} at byte 0: expected crc")
SAID: dict[tuple[str, str, str], tuple[str | None, ...]] = {
    ("rocketmq", "python", "find"): (
        f"unreadable [{_GAP}]",
        f"unreadable [({4 * _FILE}, ",
        None,
        None,
        "unreadable [(",
    ),
    ("rocketmq", "python", "find_batch"): ("file-gap", "file-gap", None, None, "log-frame"),
    ("rocketmq", "python", "explain"): ("missing-file", "missing-file", None, "index-lost", "damaged-message"),
    **{
        ("rocketmq", "python", f"message by {what}"): (
            *("a file that begins at 131072", "a file that begins at 262144", None, None),
            "a body with checksum",
        )
        for what in ("offset", "id")
    },
    ("rocketmq", "python", "messages"): ("file-gap", "file-gap", None, None, "log-frame"),
    ("rocketmq", "python", "messages of a topic"): (
        *("file-gap", "file-gap", "expected unit 50, found none; the log is read", None),
        "log-frame",
    ),
    ("rocketmq", "python", "copy_messages"): ("file-gap", "file-gap", None, None, "log-frame"),
    ("rocketmq", "python", "build_index"): ("file-gap", "file-gap", None, None, "log-frame"),
    ("rocketmq", "python", "build_queues"): ("file-gap", "file-gap", None, None, "log-frame"),
    ("rocketmq", "python", "overview"): (
        *(f"missing_log_bytes {_FILE}", "missing_log_bytes ", "missing_queue_bytes 1000", "not_indexed_bytes "),
        "not read",
    ),
    ("rocketmq", "python", "verify"): ("file-gap", "queue-message", "queue-missing", "index-hole", "log-frame"),
    ("rocketmq", "command", "find"): (
        *("the log from 131,072 to 196,608 cannot be read", "the log from 262,144 to", None, None),
        "cannot be read",
    ),
    ("rocketmq", "command", "explain"): ("missing-file", "missing-file", None, "index-lost", "damaged-message"),
    **{
        ("rocketmq", "command", name): (
            *("a file that begins at 131072", "a file that begins at 262144", None, None),
            "a body with checksum",
        )
        for name in ("cat", "export")
    },
    ("rocketmq", "command", "copy"): ("file-gap", "file-gap", None, None, "log-frame"),
    ("rocketmq", "command", "build-index"): ("file-gap", "file-gap", None, None, "log-frame"),
    ("rocketmq", "command", "build-queues"): ("file-gap", "file-gap", None, None, "log-frame"),
    ("rocketmq", "command", "info"): (
        *("missing log", "missing log", "a file that begins at 1000", "not indexed"),
        "not read",
    ),
    ("rocketmq", "command", "verify"): ("file-gap", "queue-message", "queue-missing", "index-hole", "log-frame"),
    ("rocketmq", "page", "overview"): (
        *("64.0 KiB of the log are missing, in 1 gap", "KiB of the log are missing, in 1 gap"),
        *(
            "1000 bytes of the consume queues are missing",
            "of the log are not indexed; a search reads them",
            "not read",
        ),
    ),
    ("rocketmq", "page", "messages"): (
        *("Passed over: ", "expected a file that begins at 262144", None, None),
        "expected a body with checksum",
    ),
    ("rocketmq", "page", "message"): (
        *("offsets 131,072 to 196,608 are missing or damaged", "offsets 262,144 to 312,903 are missing or damaged"),
        *(None, None, "expected a body with checksum"),
    ),
    ("rocketmq", "page", "search"): (
        *("Offsets 131,072 to 196,608 cannot be read", "Offsets 262,144 to 312,903 cannot be read", None, None),
        "cannot be read",
    ),
    ("rocketmq", "page", "steps"): ("missing-file", "missing-file", None, "index-lost", "damaged-message"),
    ("rocketmq", "page", "topic"): ("not read", "not read", "expected a file that begins at 1000", None, "not read"),
    ("rocketmq", "page", "queue"): ("not read", "not read", "expected a file that begins at 1000", None, "not read"),
    ("rocketmq", "page", "log"): (
        *("Offsets 131,072 to 196,608 are missing", "Offsets 262,144 to 312,903 are missing", None, None),
        "not read",
    ),
    **{
        ("kafka", door, name): _KAFKA_FOUND
        for door, names in {
            "python": ("find", "records"),
            "command": ("find", "cat", "cat --no-skip-damaged", "export"),
            "page": ("records", "search"),
        }.items()
        for name in names
    },
    **{
        ("kafka", "python", name): ("file-gap", "file-gap", "file-gap", "batch-crc")
        for name in (
            "records of a topic, skip",
            "records of a log, skip",
            "build_key_index",
            "verify",
            "verify of a log",
        )
    },
    **{("kafka", door, "explain"): ("not searched",) * 4 for door in ("python", "command")},
    ("kafka", "command", "info"): (*_KAFKA_FOUND[:3], "not read"),
    **{
        ("kafka", "command", name): ("file-gap", "file-gap", "file-gap", "batch-crc")
        for name in ("verify", "kafka verify", "kafka build-index")
    },
    ("kafka", "page", "overview"): (*("Segments are missing in 1 partition: orders-0",) * 3, "not read"),
    ("kafka", "page", "partitions"): (*("1 missing",) * 3, "not read"),
    ("kafka", "page", "partition"): (*_KAFKA_FOUND[:3], "not read"),
}
CALLS: dict[str, dict[str, dict[str, Any]]] = {"python": PYTHON, "command": COMMANDS, "page": PAGES}
COUNTS = {
    "overview",
    "info",
    "verify",
    "kafka verify",
    "verify of a log",
    "topic",
    "queue",
    "log",
    "partitions",
    "partition",
}
"""The calls whose answer has no messages."""


def _cases() -> Iterator[Any]:
    for (broker, door, call), texts in SAID.items():
        for loss, text in zip(LOSSES[broker], texts, strict=True):
            yield pytest.param(broker, door, call, loss, text, id=f"{broker}-{door}-{call}-{loss}")


def test_each_call_has_a_row() -> None:
    assert set(SAID) == {
        (broker, door, name) for door in CALLS for broker, calls in CALLS[door].items() for name in calls
    }


def _place(broker: str, loss: str, directory: Path) -> Place:
    """Return a place without damage."""
    out = directory / "out"
    out.mkdir(parents=True)
    if broker == "rocketmq":
        return Place(golden.unpack("basic", directory), store_losses.ASKED[loss], out)
    log_losses.make_partition(directory / "logs" / "orders-0")
    return Place(directory / "logs", {}, out)


def _damage(broker: str, loss: str, place: Place) -> None:
    if broker == "rocketmq":
        store_losses.take(place.root, loss)
    else:
        log_losses.LOSSES[loss].damage(place.root / "orders-0")


def _text_of_page(answer: browsing.Answer) -> str:
    return " ".join(html.unescape(re.sub(r"<[^>]*>", " ", answer.text)).split())


def _call(  # noqa: PLR0917 -- a case and fixtures
    broker: str, door: str, name: str, place: Place, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> Answer:
    """Call by one of the doors, and return all that the caller sees."""
    call, rows, code = CALLS[door][broker][name], [], None
    caplog.clear()
    with warnings.catch_warnings(record=True) as issued:
        warnings.simplefilter("always")
        if door == "python":
            rows, text = call(place)
        elif door == "command":
            code = _run([str(word) for word in call(place)])
            out, err = capfd.readouterr()
            text = out + err
            assert "DamageWarning" not in text
            if name.startswith("cat"):
                rows = [row.get("phy_offset", row.get("offset")) for row in map(json.loads, out.splitlines())]
            elif name == "export":
                table = pq.read_table(place.out / "x.parquet")
                rows = table.column("phy_offset" if broker == "rocketmq" else "offset").to_pylist()
        else:
            page = browsing.answers(place.root, call(place))[0]
            assert page.status in (200, 404)
            text = _text_of_page(page)
    of_damage = [each for each in issued if issubclass(each.category, DamageWarning)]
    said = " ".join(f"{each.message}" for each in of_damage)
    return Answer(rows, f"{text} {said} {capfd.readouterr().err} {caplog.text}", code, len(of_damage))


def _run(words: list[str]) -> int:
    """Run a command with the logging that it sets up by itself."""
    root = logging.getLogger()
    before, root.handlers[:] = root.handlers[:], []
    try:
        return main(words)
    finally:
        root.handlers[:] = before


def _lost(broker: str, loss: str) -> set[int]:
    return store_losses.lost(loss) if broker == "rocketmq" else set(log_losses.LOSSES[loss].lost)


@pytest.mark.parametrize(("broker", "door", "call", "loss", "text"), [*_cases()])
def test_missing_data_is_said(  # noqa: PLR0917 -- parameters and fixtures
    broker: str,
    door: str,
    call: str,
    loss: str,
    text: str | None,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    if door == "page":
        pytest.importorskip("starlette")
    whole, damaged = _place(broker, loss, tmp_path / "whole"), _place(broker, loss, tmp_path / "damaged")
    before = _call(broker, door, call, whole, capfd, caplog)
    assert (before.warned, before.code or 0) == (0, 0)
    _damage(broker, loss, damaged)
    after = _call(broker, door, call, damaged, capfd, caplog)
    # The log holds all that a queue or an index leads to.
    is_in_log = loss in ("queue-file", "index-file")
    if text in (None, "not read"):
        assert (after.rows, after.code, after.warned) == (before.rows, before.code, 0)
        return
    assert text in after.text
    assert text not in before.text or call in ("overview", "info")
    assert after.text != before.text
    if door == "command":
        # A message that is found in the log is found.
        assert after.code == (2 if "no-skip" in call else 0 if loss == "index-file" and call != "verify" else 1)
    if door == "python":
        warns = call in WARN or f"{broker} {call}" in WARN
        assert after.warned == (1 if warns and (not is_in_log or (call == "overview" and loss == "queue-file")) else 0)
    if before.rows:
        assert set(before.rows) <= set(after.rows) if is_in_log else not set(before.rows) <= set(after.rows)
    if before.rows and call in ("cat", "export", "messages", "records of a topic, skip", "records of a log, skip"):
        assert after.rows == [row for row in before.rows if row not in _lost(broker, loss)]
