"""The progress of a search that finds nothing for long: shown on a terminal, quiet in a pipe, ended by Ctrl-C."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

import logdex
from logdex.cli import output
from logdex.kafka import LogWriter
from logdex.pushdown import Rows
from logdex.rocketmq import StoreWriter

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

BODY = 256 << 10
MESSAGES = 200
PIECES = 3
"""The least pieces that are searched: one has 16 MiB."""


class Terminal(io.StringIO):
    """A terminal that keeps what it was given."""

    def isatty(self) -> bool:
        """Return that it is one."""
        return True


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Return a store and a log directory of 50 MiB, of which only the last message has the word `needle`."""
    root = tmp_path_factory.mktemp("search")
    bodies = [bytes([97 + number % 16]) * BODY for number in range(MESSAGES)]
    bodies[-1] = b"needle"
    with StoreWriter.open(root / "store", services=False) as writer:
        for number in range(0, MESSAGES, 10):
            part = bodies[number : number + 10]
            writer.put_messages({"topic": ["Orders", "Other"] * 5, "body": part})
    with LogWriter.open(root / "logs" / "orders-0") as log:
        log.become_leader(0)
        for number, body in enumerate(bodies):
            log.append({"key": [str(number).encode()] * 2, "value": [body, body]})
    return {"store": root / "store", "logs": root / "logs"}


@pytest.mark.parametrize("name", ["store", "logs"])
@pytest.mark.parametrize("options", [{}, {"threads": 1}, {"topic": True}])
def test_a_read_calls_although_nothing_passes(sources: dict[str, Path], name: str, options: dict[str, Any]) -> None:
    calls: list[tuple[int, int]] = []
    if "topic" in options:
        options = {"topic": "Orders", "scan": False} if name == "store" else {"topic": "orders", "keys": ["7", "no"]}
    with logdex.open(sources[name]) as source:
        read = getattr(source, "messages" if name == "store" else "records")
        rows = read(matches="needle|none", progress=lambda *done: calls.append(done), **options)
        assert sum(batch.num_rows for batch in rows) == (options.get("topic") is None) * (1 if name == "store" else 2)
    read_bytes = [done for done, _ in calls]
    assert read_bytes == sorted(read_bytes)
    assert len(set(read_bytes)) >= (PIECES if "threads" not in options or name == "store" else 2)
    # The last message of a queue of Orders is not the last of the log.
    least = MESSAGES * BODY if name == "store" else 2 * MESSAGES * BODY
    assert read_bytes[-1] >= (least - 2 * BODY) * (0.9 if "keys" not in options else 0.5)
    (total,) = {total for _, total in calls}
    assert total >= read_bytes[-1]
    if name == "logs":
        files = list(sources[name].glob("*/*.log"))
        assert total == sum(file.stat().st_size for file in files)
        assert read_bytes[-1] == total or "keys" in options


@pytest.mark.parametrize("name", ["store", "logs"])
def test_an_exception_of_the_function_ends_the_read(sources: dict[str, Path], name: str) -> None:
    calls: list[object] = []

    def interrupt(*done: object) -> None:
        calls.append(done)
        signal.raise_signal(signal.SIGINT)

    with logdex.open(sources[name]) as source:
        read = getattr(source, "messages" if name == "store" else "records")
        with pytest.raises(KeyboardInterrupt):
            list(read(matches="none", progress=interrupt))
    assert len(calls) == 1


@pytest.mark.parametrize("name", ["store", "logs"])
def test_ctrl_c_ends_a_query(sources: dict[str, Path], name: str) -> None:
    duckdb = pytest.importorskip("logdex.duckdb")
    calls: list[Any] = []

    def interrupt(*done: object) -> None:
        calls.append(done)
        signal.raise_signal(signal.SIGINT)

    with logdex.open(sources[name]) as source:
        rows = Rows(source, {"matches": "none", "progress": interrupt})
        with pytest.raises(KeyboardInterrupt), duckdb.Tables(rows) as tables:
            tables.where("TRUE", ["topic"]).read_all()
    assert tables.is_interrupted
    assert len(calls) == 1


@pytest.mark.parametrize("name", ["store", "logs"])
@pytest.mark.parametrize(
    "words",
    [
        ["grep", "needle", "PATH"],
        ["grep", "-c", "needle", "PATH"],
        ["grep", "needle", "PATH", "--where", "TRUE"],
        ["cat", "PATH", "--grep", "needle"],
        ["cat", "PATH", "--grep", "needle", "--tail", "1"],
        ["export", "PATH", "TARGET", "--grep", "needle"],
    ],
)
def test_the_commands_show_it_on_a_terminal(  # noqa: PLR0917 -- fixtures
    sources: dict[str, Path],
    name: str,
    words: list[str],
    tmp_path: Path,
    logdex_command: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(output, "_SECONDS_BETWEEN", 0.0)
    monkeypatch.setattr(sys, "stderr", terminal := Terminal())
    given = {"PATH": sources[name], "TARGET": tmp_path / "rows.jsonl"}
    ran = logdex_command(*(given.get(word, word) for word in words))
    assert ran.code == 0
    shown = terminal.getvalue().split("\r")
    lines = [line for line in shown if line.startswith(f"{words[0]}: ")]
    assert len(lines) >= (1 if "--tail" in words else PIECES), shown
    if "--tail" not in words:
        assert any((" of 49.8 MiB (" if name == "store" else " MiB (") in line for line in lines), lines
    # The line is removed at the end.
    assert shown[-1] == ""
    assert not shown[-2].strip()


def test_it_is_quiet_in_a_pipe(sources: dict[str, Path]) -> None:
    import pty  # noqa: PLC0415 -- not on Windows

    # A pager may have the terminal.
    program = "import sys; from logdex.cli import main, output; output._SECONDS_BETWEEN = 0.0; sys.exit(main())"
    command = [sys.executable, "-c", program, "grep", "needle", str(sources["store"])]
    for stdout in (subprocess.PIPE, subprocess.DEVNULL):
        ours, theirs = pty.openpty()
        ran = subprocess.run(command, stdout=stdout, stderr=theirs, check=True)
        os.write(theirs, b"end\n")
        shown = os.read(ours, 1 << 16)
        os.close(ours)
        os.close(theirs)
        assert (b"grep: " in shown) == (stdout == subprocess.DEVNULL)
        if stdout == subprocess.PIPE:
            assert b"needle" in ran.stdout
