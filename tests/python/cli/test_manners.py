"""How the command line behaves: help, wrong words, times, pipes, interrupts, places that cannot be read."""

from __future__ import annotations

import argparse
import io
import json
import os
import re
import signal
import subprocess
import sys
import time
import types
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import logdex
from logdex._core import time_text
from logdex.cli import commands, main
from logdex.cli.arguments import BeforeEnd, time_ms
from logdex.cli.commands import info
from logdex.cli.output import Progress, duration_text, progress_line
from logdex.errors import printable
from logdex.report import size_text

if TYPE_CHECKING:
    from collections.abc import Callable

_NOBODY = 65534
ON_ONE_PATH = [
    name
    for name in commands.names()
    if name
    not in {
        "find",
        "explain",
        "export",
        "build-index",
        "build-queues",
        "copy",
        "grep",
        "kafka",
        "replicate",
        "serve",
        "sql",
    }
]
"""Commands that need one path and nothing else, and end."""


def start(*words: object, **options: Any) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "logdex", *map(str, words)]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, encoding="utf-8", **options
    )


def test_help_names_every_command_and_teaches(logdex_command: Callable[..., Any]) -> None:
    ran = logdex_command("--help")
    assert ran.code == 0
    for name in commands.names():
        assert f"\n    {name}" in ran.out
        own = logdex_command(name, "--help")
        assert own.code == 0
        # An example that begins with the command itself.
        assert f"\n  logdex {name} " in own.out
    assert logdex_command("--version").out.startswith(f"logdex {logdex.__version__}\n")


@pytest.mark.parametrize(
    "words", [("nonsense",), ("find", "x"), ("cat", "x", "--begin", "soon"), ("cat", "x", "--limit", "-1")]
)
def test_wrong_words_are_2(words: tuple[str, ...], logdex_command: Callable[..., Any]) -> None:
    ran = logdex_command(*words)
    assert ran.code == 2
    assert "usage: logdex" in ran.err


def test_the_name_alone_is_a_question_for_help(logdex_command: Callable[..., Any]) -> None:
    ran = logdex_command()
    assert (ran.code, ran.err) == (0, "")
    assert ran.out == logdex_command("--help").out


def test_a_wrong_word_is_reported_with_its_command_and_near_spellings(
    tmp_path: Path, logdex_command: Callable[..., Any]
) -> None:
    for words, usage, text in (
        (
            ("cat", tmp_path, "--topci=x", "y"),
            "logdex cat",
            "unrecognized arguments: --topci=x y; near spellings: --topic",
        ),
        (("kafka", "dump", tmp_path, "--zzz"), "logdex kafka dump", "unrecognized arguments: --zzz"),
        (("fnd", tmp_path), "logdex", "no command 'fnd'; near spellings: find"),
        (("q\x1b[2J",), "logdex", "no command 'q\\x1b[2J'; there are: browse, build-index, "),
    ):
        ran = logdex_command(*words)
        assert (ran.code, ran.out) == (2, "")
        assert ran.err.startswith(f"usage: {usage} [-h]")
        assert f"{usage}: error: {text}" in ran.err


@pytest.mark.parametrize("command", ON_ONE_PATH)
def test_a_path_without_a_store_is_2_in_one_line(
    command: str, tmp_path: Path, logdex_command: Callable[..., Any]
) -> None:
    file = tmp_path / "notes.txt"
    file.write_text("x")
    for path in (tmp_path / "nowhere", tmp_path, file):
        ran = logdex_command(command, path)
        assert (ran.code, ran.out) == (2, ""), path
        assert len(ran.err.splitlines()) == 1
        assert str(path) in ran.err


def test_commands_for_stores_name_the_path(tmp_path: Path, logdex_command: Callable[..., Any]) -> None:
    for words in (
        ("find", tmp_path, "T", "k"),
        ("explain", tmp_path, "T", "k"),
        ("build-index", tmp_path, tmp_path / "x"),
    ):
        ran = logdex_command(*words)
        assert (ran.code, ran.out) == (2, "")
        assert str(tmp_path) in ran.err
        assert "commitlog" in ran.err


@pytest.mark.parametrize("refused", ["commitlog", "."])
def test_a_directory_without_permission_is_2(
    refused: str, store: Callable[[str], Path], logdex_command: Callable[..., Any]
) -> None:
    root = store("basic")
    (root / refused).chmod(0)
    user = os.geteuid()
    try:
        if not user:
            # Root may read everything.
            os.seteuid(_NOBODY)
        for words in (("info", root), ("cat", root), ("verify", root), ("find", root, "T", "k")):
            ran = logdex_command(*words)
            assert (ran.code, ran.out) == (2, "")
            assert "Permission denied" in ran.err
            assert len(ran.err.splitlines()) == 1
    finally:
        os.seteuid(user)
        (root / refused).chmod(0o755)


def test_a_closed_pipe_is_quiet(store: Callable[[str], Path]) -> None:
    process = start("cat", store("rolled"), "--json")
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.readline()
    process.stdout.close()
    assert (process.wait(60), process.stderr.read()) == (0, "")
    process.stderr.close()


def test_an_interrupt_is_one_line(tmp_path: Path) -> None:
    script = (
        "import os, signal, sys, threading\n"
        "from logdex.__main__ import main\n"
        "from dataclasses import replace\n"
        "from logdex.cli.commands import info\n"
        "def run(arguments):\n"
        "    os.kill(os.getpid(), signal.SIGINT)\n"
        "    threading.Event().wait(60)\n"
        "info.COMMAND = replace(info.COMMAND, run=run)\n"
        f"sys.argv = ['logdex', 'info', {str(tmp_path)!r}]\n"
        "sys.exit(main())\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (128 + signal.SIGINT, "", "logdex: interrupted\n")


def test_a_terminal_that_cannot_show_a_character_gets_its_escape(store: Callable[[str], Path]) -> None:
    environment = {**os.environ, "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"}
    process = start("cat", store("basic"), env=environment)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (0, "")
    assert len(out.splitlines()) == 553
    assert out.isascii()
    assert "\\u8ba2" in out


def test_the_package_runs_as_a_program() -> None:
    module = subprocess.run([sys.executable, "-m", "logdex", "--version"], capture_output=True, check=True, timeout=60)
    assert module.stdout.decode().startswith(f"logdex {logdex.__version__}\n")


def test_times() -> None:
    assert time_ms("1700000000123") == 1_700_000_000_123
    assert time_ms("2023-11-14T22:13:20Z") == time_ms("2023-11-14T22:13:20") == 1_700_000_000_000
    assert time_ms("2023-11-15T06:13:20.123+08:00") == 1_700_000_000_123
    assert time_ms("2023-11-15T06:13:20,1+0800") == time_ms("2023-11-14T22:13:20.1z") == 1_700_000_000_100
    assert time_ms("2023-11-14T22:13") == 1_700_000_000_000 - 20_000
    # What is finer than a millisecond is rounded into the range.
    assert time_ms("2023-11-14T22:13:20.000000001Z", end=False) == 1_700_000_000_001
    assert time_ms("2023-11-14T22:13:20.000999999Z", end=True) == 1_700_000_000_000
    assert time_ms("2023-11-14T22:13:20.000001Z", end=False) == 1_700_000_000_001
    assert time_ms("2023-11-14T22:13:20.000999Z", end=True) == 1_700_000_000_000
    assert (time_ms("2023-11-14"), time_ms("2023-11-14", end=True)) == (1_699_920_000_000, 1_700_006_399_999)
    now = time.time_ns() // 1_000_000
    for text, ago in (("-500ms", 500), ("-2s", 2_000), ("-3m", 180_000), ("-2h", 7_200_000), ("-1.5d", 129_600_000)):
        at = time_ms(text)
        assert isinstance(at, int)
        assert now - ago <= at <= now - ago + 60_000
    assert time_ms("end-2h") == time_ms("end-2h", end=True) == BeforeEnd(7_200_000)
    assert time_ms("end") == BeforeEnd(0)
    for text in (
        "",
        "soon",
        "end-",
        "end-soon",
        "ending",
        "2023-13-01",
        "1e5",
        "99999999999999999999",
        "-2y",
        "-99999999999999999d",
        "9" * 5000,
        f"-{'9' * 400}d",
    ):
        with pytest.raises(argparse.ArgumentTypeError, match="time"):
            time_ms(text)


def test_a_date_needs_no_dashes() -> None:
    assert time_ms("20261121") == time_ms("2026-11-21") == 1_795_219_200_000
    assert time_ms("20261121", end=True) == time_ms("2026-11-21", end=True) == 1_795_219_200_000 + 86_400_000 - 1
    for text in ("20261321", "2026-1121", "202611-21"):
        with pytest.raises(argparse.ArgumentTypeError, match="expected a time"):
            time_ms(text)


@pytest.mark.parametrize(
    ("text", "milliseconds", "seconds"),
    [
        ("1795219200", "1970-01-21T18:40:19.200Z", "2026-11-21T00:00:00.000Z"),
        ("631151999999", "1989-12-31T23:59:59.999Z", "631151999999000"),
        ("2026", "1970-01-01T00:00:02.026Z", "1970-01-01T00:33:46.000Z"),
        ("-5", "1969-12-31T23:59:59.995Z", "1969-12-31T23:59:55.000Z"),
    ],
)
def test_a_number_before_1990_is_refused_with_both_readings(text: str, milliseconds: str, seconds: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError) as refused:
        time_ms(text)
    assert str(refused.value).startswith(f"{text} is ambiguous: {milliseconds} in milliseconds, {seconds} in seconds; ")
    assert time_ms("631152000000") == 631_152_000_000
    assert time_ms("1970-01-01T00:00:02.026Z") == 2_026


def test_a_time_ago_is_no_option(store: Callable[[str], Path], logdex_command: Callable[..., Any]) -> None:
    ran = logdex_command("cat", store("basic"), "--begin", "-2h", "--end", "-1h")
    assert (ran.code, ran.out) == (1, "")
    assert ran.err.startswith("logdex: nothing found from ")


def test_a_time_that_is_none_is_named(store: Callable[[str], Path], logdex_command: Callable[..., Any]) -> None:
    ran = logdex_command("cat", store("basic"), "--begin", "-2x")
    assert (ran.code, ran.out) == (2, "")
    assert "an age such as -2h, now, today, yesterday, or 11:30): '-2x'" in ran.err


def test_numbers_that_no_broker_holds_are_wrong_words(tmp_path: Path, logdex_command: Callable[..., Any]) -> None:
    for words in (
        ("info", tmp_path, "--hash-slots", 1 << 80, "--max-entries", 2),
        ("cat", tmp_path, "--queue", 1 << 31),
        ("build-index", tmp_path, tmp_path / "x", "--max-entries", 1 << 63),
        ("kafka", "rebuild-index", tmp_path, "--to", tmp_path, "--max-index-bytes", 1 << 64),
    ):
        ran = logdex_command(*words)
        assert (ran.code, ran.out) == (2, "")
        assert "must be at most 2147483647" in ran.err


@pytest.mark.parametrize("stream", ["1", "2"])
def test_closed_streams_change_no_exit_code(stream: str, tmp_path: Path) -> None:
    command = f'"{sys.executable}" -m logdex info "{tmp_path}" {stream}>&-'
    done = subprocess.run(["/bin/sh", "-c", command], capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stdout) == (2, "")
    assert "Traceback" not in done.stderr


def test_a_full_disk_is_one_line(store: Callable[[str], Path]) -> None:
    with Path("/dev/full").open("w", encoding="utf-8") as full:
        command = [sys.executable, "-m", "logdex", "cat", str(store("basic")), "--json"]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False, timeout=60)
    assert (done.returncode, done.stderr) == (2, "logdex: No space left on device\n")


def test_a_locale_without_utf_8_asks_the_same(store: Callable[[str], Path]) -> None:
    environment = {**os.environ, "LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"}
    process = start("find", store("basic"), "order_events", "\u8ba2\u5355-203", "--json", env=environment)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (0, "")
    assert json.loads(out)["phy_offset"] == 141_402
    process = start("find", store("basic"), "order_events", b"\xff".decode("utf-8", "surrogateescape"))
    assert process.wait(60) == 2
    assert "is not valid UTF-8" in process.communicate()[1]


def test_a_fault_of_our_own_is_one_line(
    monkeypatch: pytest.MonkeyPatch, logdex_command: Callable[..., Any], tmp_path: Path
) -> None:
    def fail(_: object) -> int:
        raise KeyError("x")

    monkeypatch.setattr(info, "COMMAND", replace(info.COMMAND, run=fail))
    ran = logdex_command("info", tmp_path)
    assert (ran.code, ran.out) == (2, "")
    assert re.fullmatch(r"logdex: this is a bug in logdex, .*KeyError: 'x' \(test_manners\.py:\d+\)\n", ran.err)


def test_words_for_people() -> None:
    assert printable("a\x1b[31mb\n\u202e") == "a\\x1b[31mb\\n\\u202e"
    assert printable("\u8ba2\u5355 ok") == "\u8ba2\u5355 ok"
    assert [size_text(n) for n in (0, 1023, 1024, 1 << 30)] == ["0 bytes", "1023 bytes", "1.0 KiB", "1.0 GiB"]
    assert time_text(1_700_000_000_123) == "2023-11-14T22:13:20.123Z"
    assert time_text((1 << 63) - 1) == str((1 << 63) - 1)
    assert progress_line("scan", 512 << 20, 1 << 30, 2.0) == "scan: 512.0 MiB of 1.0 GiB (50%), 256.0 MiB/s, 2 s left"
    assert [duration_text(s) for s in (3, 75, 7_500)] == ["3 s", "1 min 15 s", "2 h 5 min"]


def test_main_can_be_called() -> None:
    assert main(["--version"]) == 0


@pytest.mark.parametrize(("words", "package"), [(("stats", "--plot", "x.png"), "matplotlib"), (("export",), "pyarrow")])
def test_a_missing_package_is_named(  # noqa: PLR0917 -- given by name
    words: tuple[str, ...],
    package: str,
    store: Callable[[str], Path],
    logdex_command: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    monkeypatch.chdir(tmp_path)
    name, *options = words
    ran = logdex_command(name, store("basic"), *options, *([] if options else ["out.parquet"]))
    assert (ran.code, ran.out) == (2, "")
    assert f"pip install {package}" in ran.err
    assert list(tmp_path.glob("*.p*")) == []


def test_stats_draws_what_it_tells(
    store: Callable[[str], Path], logdex_command: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Without the package itself: what is handed to it."""
    drawn: dict[str, Any] = {}

    class Axes:
        def __init__(self, name: str) -> None:
            self.name = name
            self.spines = {side: types.SimpleNamespace(set_visible=lambda _: None) for side in ("top", "right")}

        def bar(self, places: Any, heights: Any, **_: Any) -> None:
            drawn[self.name] = (list(places), list(heights))

        def plot(self, places: Any, heights: Any, *_: Any, **__: Any) -> None:
            drawn["poisson"] = (list(places), list(heights))

        def set(self, **_: Any) -> None: ...
        def legend(self, **_: Any) -> None: ...
        def set_xticks(self, *_: Any) -> None: ...

    class Figure:
        def savefig(self, path: str, **_: Any) -> None:
            Path(path).write_bytes(b"picture")

    plot = types.ModuleType("matplotlib.pyplot")
    axes = [Axes("chains"), Axes("slots"), Axes("times")]
    vars(plot).update(subplots=lambda *_, **__: (Figure(), axes), close=lambda _: None)
    package = types.ModuleType("matplotlib")
    vars(package).update(use=lambda _: None, pyplot=plot)
    monkeypatch.setitem(sys.modules, "matplotlib", package)
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", plot)
    # The picture is there, whether anybody reads the numbers or not.
    with monkeypatch.context() as patch:
        patch.setattr("logdex.cli.commands.stats.say", lambda _="": (_ for _ in ()).throw(OSError("nobody reads")))
        assert logdex_command("stats", store("basic"), "--plot", tmp_path / "x.png").code == 2
    assert (tmp_path / "x.png").read_bytes() == b"picture"
    ran = logdex_command("stats", store("basic"), "--plot", tmp_path / "x.png", "--json")
    assert (ran.code, (tmp_path / "x.png").read_bytes()) == (0, b"picture")
    (told,) = ran.rows
    assert drawn["chains"] == ([r["length"] for r in told["chains"]], [r["slots"] for r in told["chains"]])
    assert drawn["poisson"][1] == pytest.approx([r["expected"] for r in told["chains"]], abs=0.001)
    assert sum(drawn["slots"][1]) == sum(drawn["times"][1]) == told["entries"]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_progress_is_shown_on_a_terminal_and_taken_away(monkeypatch: pytest.MonkeyPatch) -> None:
    now = iter([0.0, 1.0, 1.1, 2.0])
    monkeypatch.setattr(time, "monotonic", lambda: next(now))
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    with Progress("verify") as progress:
        progress(1 << 20, 4 << 20)
        progress(2 << 20, 4 << 20)
        progress(4 << 20, 4 << 20)
    first, last, *gone = terminal.getvalue().split("\r")[1:]
    assert first == "verify: 1.0 MiB of 4.0 MiB (25%), 1.0 MiB/s, 3 s left"
    # The second came too soon after the first.
    assert last.rstrip() == "verify: 4.0 MiB of 4.0 MiB (100%), 2.0 MiB/s, 0 s left"
    assert "".join(gone).strip() == ""


def test_progress_fits_the_terminal_and_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    now = iter([0.0, 0.1, 1.0, 2.0])
    monkeypatch.setattr(time, "monotonic", lambda: next(now))
    monkeypatch.setattr(os, "get_terminal_size", lambda _: os.terminal_size((24, 10)))
    terminal = Terminal()
    monkeypatch.setattr(terminal, "fileno", lambda: 2)
    monkeypatch.setattr(sys, "stderr", terminal)
    with Progress("verify") as progress:
        progress(1 << 20, 4 << 20)
        assert terminal.getvalue() == ""
        progress(2 << 20, 4 << 20)
    shown, *_ = terminal.getvalue().split("\r")[1:]
    assert shown == "verify: 2.0 MiB of 4.0 "


def test_progress_is_silent_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    with Progress("verify") as progress:
        progress(1, 2)
    assert stream.getvalue() == ""


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_shell_completes_commands_and_options(shell: str, logdex_command: Callable[..., Any]) -> None:
    ran = logdex_command("--print-completion", shell)
    assert (ran.code, ran.err) == (0, "")
    assert all(word in ran.out for word in ("build-index", "skip-damaged", "rebuild-index"))


def test_bash_completes(tmp_path: Path, logdex_command: Callable[..., Any]) -> None:
    script = tmp_path / "logdex.bash"
    script.write_text(logdex_command("--print-completion", "bash").out)
    ask = f". {script}; COMP_WORDS=(logdex ver); COMP_CWORD=1; _shtab_logdex; echo ${{COMPREPLY[@]}}"
    done = subprocess.run(["bash", "-c", ask], capture_output=True, text=True, check=False)  # noqa: S607 -- the script above
    assert done.stdout.split() == ["verify"], done.stderr


def test_the_man_page_has_every_command(logdex_command: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    ran = logdex_command("--print-man-page")
    assert ran.code == 0
    assert ran.out.startswith(f'.TH LOGDEX "1" "" "logdex {logdex.__version__}" "User Commands"\n')
    text = ran.out.replace("\\-", "-")
    assert all(f"\nusage: logdex {name} " in text for name in commands.names())
    assert {line.split()[0] for line in ran.out.splitlines() if line[:1] in (".", "'")} == {".TH", ".SH", ".TP", ".B"}


@pytest.mark.skipif(sys.version_info < (3, 11), reason="Python 3.10 adds defaults to the help of flags")
@pytest.mark.parametrize(
    ("words", "path"),
    [
        (["--print-man-page"], "man/man1/logdex.1"),
        (["--print-completion", "bash"], "bash-completion/completions/logdex"),
        (["--print-completion", "zsh"], "zsh/site-functions/_logdex"),
        (["--print-completion", "fish"], "fish/vendor_completions.d/logdex.fish"),
    ],
    ids=["man", "bash", "zsh", "fish"],
)
def test_the_wheel_has_the_current_files(
    words: list[str], path: str, logdex_command: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    installed = Path(__file__).parents[3] / "logdex.data" / "data" / "share" / path
    assert logdex_command(*words).out == installed.read_text(encoding="utf-8"), "`make guides` writes the file"


def test_the_version_names_codecs_and_stores(logdex_command: Callable[..., Any]) -> None:
    lines = logdex_command("--version").out.splitlines()
    assert lines == [
        f"logdex {logdex.__version__}",
        "codecs: gzip, lz4, snappy, zlib, zstd",
        "stores: local, s3://, s3a://, gs://, az://, azure://, abfs://, abfss://, adl://, http://, https://, hdfs://",
    ]


@pytest.mark.parametrize(
    ("name", "unpack"), [("store.tar.gz", "tar -xf"), ("store.ZIP", "unzip"), ("00000000000000000000.gz", "gunzip -k")]
)
def test_an_archive_is_refused_with_what_unpacks_it(
    name: str, unpack: str, tmp_path: Path, logdex_command: Callable[..., Any]
) -> None:
    archive = tmp_path / name
    archive.touch()
    for words in (("info", archive), ("find", archive, "T", "k"), ("verify", archive)):
        ran = logdex_command(*words)
        assert (ran.code, ran.out) == (2, "")
        assert ran.err.endswith(f"found an archive; unpack it first: {unpack} {archive}\n")


def test_colour_is_for_terminals(store: Callable[[str], Path]) -> None:
    import pty  # noqa: PLC0415 -- not on Windows

    words = [sys.executable, "-m", "logdex", "du", str(store("basic"))]
    for variables, begins in (({}, b"\x1b[1mtopic"), ({"NO_COLOR": "1"}, b"topic")):
        ours, theirs = pty.openpty()
        with os.fdopen(ours, "rb") as terminal:
            environment = {**{name: value for name, value in os.environ.items() if name != "NO_COLOR"}, **variables}
            subprocess.run(words, stdout=theirs, check=True, env={**environment, "TERM": "xterm"})
            assert terminal.read1(1 << 16).startswith(begins)
            os.close(theirs)
    piped = subprocess.run(words, stdout=subprocess.PIPE, check=True)
    assert b"\x1b" not in piped.stdout
