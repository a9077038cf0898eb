"""Output on a terminal of 80 columns: each command prints lines that fit, and a pipe gets everything."""

from __future__ import annotations

import os
import struct
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

import golden
import golden_kafka
from logdex.cli import commands, output
from logdex.cli.commands import kafka
from logdex.cli.output import _fitted, _parts, _shortened

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="has no pseudo terminals")

COLUMNS = 80
ROWS = {"cat", "find", "grep", "kafka dump", "kafka find"}
"""These print rows, which are copied from a terminal, and which it breaks itself."""
ENDLESS = {"browse", "replicate", "serve"}
WORDS: dict[str, list[list[str]]] = {
    "build-index": [["store", "new"], ["logs", "new-keys"]],
    "build-queues": [["store", "new"]],
    "copy": [["store", "new"], ["logs", "new-logs"]],
    "du": [
        ["store"],
        ["store", "--by", "queue"],
        ["store", "--by", "day"],
        ["store", "--by", "part"],
        ["logs"],
        ["logs", "--by", "queue"],
    ],
    "explain": [["store", "t", "k0"], ["store", "t", "nobody's"], ["logs", "cod-none", "k"]],
    "export": [["store", "new.json"]],
    "groups": [["store"], ["logs"]],
    "info": [["store"], ["store/index"], ["logs"], ["logs/cod-none-0"], ["store/consumequeue"], ["damaged"]],
    "kafka build-index": [["logs", "new"]],
    "kafka rebuild-index": [["logs/cod-none-0", "--to", "new"]],
    "kafka verify": [["logs"]],
    "recover": [["store", "--dry-run"], ["store"], ["logs", "--dry-run"], ["logs"], ["damaged"]],
    "seal": [["store", "--out", "new"], ["logs", "--out", "new-logs"]],
    "sql": [
        ["store", "SELECT topic, tags, queue_id, phy_offset, store_timestamp, keys, properties FROM messages"],
        ["logs", "FROM records", "--explain"],
        ["logs", "FROM queues"],
    ],
    "stats": [["store/index"]],
    "verify": [["store"], ["logs"], ["damaged"], ["store/index"]],
}


def on_terminal(words: list[str], cwd: Path) -> str:
    """Run the program with a terminal of 80 columns as its streams; return what that shows."""
    import fcntl  # noqa: PLC0415 -- not on Windows
    import pty  # noqa: PLC0415 -- as above
    import termios  # noqa: PLC0415 -- as above

    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, COLUMNS, 0, 0))
    command = [sys.executable, "-m", "logdex", *words]
    environment = {**os.environ, "NO_COLOR": "1"}
    with subprocess.Popen(command, stdout=theirs, stderr=theirs, stdin=theirs, cwd=cwd, env=environment) as process:
        os.close(theirs)
        shown = b""
        # Linux reports an error when the last writer has closed the terminal.
        while part := _read(ours):
            shown += part
    os.close(ours)
    assert process.returncode in (0, 1), shown.decode()
    return shown.decode().replace("\r\n", "\n")


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 1 << 16)
    except OSError:
        return b""


@pytest.fixture
def place(tmp_path: Path) -> Path:
    golden.unpack("basic", tmp_path / "a").rename(tmp_path / "store")
    golden_kafka.unpack("codecs", tmp_path / "logs")
    golden.unpack("rolled", tmp_path / "b").rename(tmp_path / "damaged")
    log = min((tmp_path / "damaged" / "commitlog").iterdir())
    data = bytearray(log.read_bytes())
    data[1_000:1_100] = bytes(100)
    log.write_bytes(data)
    return tmp_path


def test_every_command_is_in_the_list() -> None:
    below = {f"kafka {each.name}" for each in kafka.COMMAND.commands}
    assert {*commands.names(), "grep"} - {"kafka"} | below == {*WORDS, *ROWS, *ENDLESS}


@pytest.mark.parametrize("command", WORDS)
def test_no_line_is_longer_than_the_terminal(command: str, place: Path) -> None:
    for words in WORDS[command]:
        shown = on_terminal([*command.split(), *words], place)
        assert shown.strip(), words
        # A progress line is removed with spaces.
        lines = [part for line in shown.split("\n") for part in line.split("\r")]
        assert [line for line in lines if len(line.rstrip()) > COLUMNS] == [], words


def test_wide_and_a_pipe_get_everything(place: Path, logdex_command: Callable[..., Any]) -> None:
    topic = "L" + "o" * 99 + "ng"
    for words in (["info", "store"], ["du", "store"]):
        fitting = on_terminal(words, place)
        assert topic not in fitting
        assert "Looooo" in fitting
        assert "ooo...ooo" in fitting
        assert topic in on_terminal([*words, "--wide"], place)
        assert topic in logdex_command(words[0], place / "store").out
        assert "..." not in logdex_command(words[0], place / "store").out


def test_columns_that_do_not_fit_are_in_a_further_line(place: Path) -> None:
    lines = on_terminal(["info", "logs"], place).split("\n")
    at = next(number for number, line in enumerate(lines) if line.startswith("  cod-none  "))
    assert lines[at].split() == ["cod-none", "0", "5", "0", "64"]
    assert lines[at + 1] == "      2023-11-14T22:13:20.000Z  2023-11-14T22:13:25.106Z  14.4 KiB"


def test_widths_of_columns() -> None:
    assert _fitted([100, 8, 30], 80) == [38, 8, 30]
    assert _fitted([30, 30], 80) == [30, 30]
    assert _fitted([90, 90], 40) == [24, 24]
    assert _parts([24, 24, 24, 5], 60) == [[0, 1], [2, 3]]
    assert _parts([90, 5], 60) == [[0], [1]]
    assert [_shortened("abcdefghij", width) for width in (10, 9, 8, 5)] == [
        "abcdefghij",
        "abc...hij",
        "abc...ij",
        "a...j",
    ]


def test_a_long_line_is_broken_at_spaces(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(output, "_width", lambda _: 20)
    output.say("  " + "word " * 6 + "x" * 25)
    assert capsys.readouterr().out == f"  word word word\n      word word word\n      {'x' * 25}\n"


def test_a_format_is_safe_on_a_terminal_and_exact_in_a_pipe(place: Path) -> None:
    words = ["cat", "logs", "--topic", "cod-none", "--format", r"%k|%s\n", "--limit", "40"]
    shown = on_terminal(words, place)
    assert not any(letter in shown for letter in "\x00\x01\x1b")
    assert "\\x00\\x01" in shown
    piped = subprocess.run([sys.executable, "-m", "logdex", *words], cwd=place, capture_output=True, check=True).stdout
    assert b"\x00\x01" in piped
