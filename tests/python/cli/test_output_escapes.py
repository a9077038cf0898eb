"""What a terminal would obey never reaches it: every command, with escapes in every field, name and file."""

from __future__ import annotations

import argparse
import logging
import sys
from typing import TYPE_CHECKING, Any

import pytest

from kafka_batches import Row, batch, write_segment
from logdex.cli import parser
from logdex.cli.commands import names
from logdex.rocketmq import MessageStore, StoreWriter

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="names of files cannot hold control characters")

# The title of a terminal, clearing it, colours; DEL, C1, and characters that turn or hide text.
_ESCAPES = "\x1b]0;owned\x07\x1b[2J\x7f\x85\x9b31m\u202e\u2066\u200b\ufeff\u2028"
_NAME = f"x{_ESCAPES}\n y"
_PLACE = "Q" * len(_ESCAPES.encode())


@pytest.fixture
def hostile_store(tmp_path: Path) -> Path:
    """Return a store with escapes in everything that a producer or a stranger names, in a directory of such a name."""
    root = tmp_path / f"store{_ESCAPES}"
    sizes = {"file_size": 65536, "queue_file_size": 400, "hash_slots": 50, "max_entries": 120, "zone": "UTC"}
    with StoreWriter.open(root, services=False, **sizes) as writer:  # type: ignore[arg-type]
        # A writer refuses such a topic, so it is put into the file.
        words = f"tag{_ESCAPES}", f"key{_ESCAPES} same", f"id{_ESCAPES}"
        for topic in (f"T{_PLACE}", "T"):
            writer.put_message(
                topic,
                f"body {_ESCAPES}\r\n\t{_ESCAPES}".encode(),
                tags=words[0],
                keys=words[1],
                uniq_key=words[2],
                properties={f"name{_ESCAPES}": f"value{_ESCAPES}"},
            )
        writer.put_message("T", b"\x1b[31m\xff\xfe", keys="same")
    log = root / "commitlog" / "00000000000000000000"
    log.write_bytes(log.read_bytes().replace(_PLACE.encode(), _ESCAPES.encode()))
    (root / "consumequeue" / f"T{_PLACE}").rename(root / "consumequeue" / f"T{_ESCAPES}")
    return root


@pytest.fixture
def strays(hostile_store: Path) -> Path:
    """Return the store with files of such names in its directories, and a damaged message."""
    for folder in ("commitlog", "consumequeue/T/0", "index", "config", ""):
        path = hostile_store / folder / _NAME
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"x")
    (hostile_store / "index" / f"link{_ESCAPES}").symlink_to(f"nowhere{_ESCAPES}")
    (hostile_store / "config" / "delayOffset.json").write_text(f'{{"offset{_ESCAPES}"', encoding="utf-8")
    log = hostile_store / "commitlog" / "00000000000000000000"
    content = bytearray(log.read_bytes())
    content[9] ^= 1
    log.write_bytes(content)
    return hostile_store


@pytest.fixture
def hostile_logs(tmp_path: Path) -> Path:
    """Return a log directory of Kafka with escapes in topics, keys, values, headers, names and checkpoints."""
    logs = tmp_path / f"logs{_ESCAPES}"
    text = _ESCAPES.encode()
    row = Row(0, 0, b"key" + text, b"value" + text, ((b"name" + text, b"of" + text),))
    for partition in (f"t{_ESCAPES}-0", "t-0"):
        write_segment(logs / partition, 0, batch([row, Row(1, 0, b"\x1b[31m\xff", b"\xfe\x1b[31m")]))
        (logs / partition / _NAME).write_bytes(b"x")
        (logs / partition / "leader-epoch-checkpoint").write_text(f"0\n1\n{_ESCAPES} 0\n", encoding="utf-8")
        (logs / partition / "00000000000000000000.snapshot").write_bytes(text)
    (logs / _NAME).write_bytes(b"x")
    (logs / "meta.properties").write_text(f"cluster.id={_ESCAPES}\n{_ESCAPES}=1\n", encoding="utf-8")
    for name in ("recovery-point-offset-checkpoint", "log-start-offset-checkpoint"):
        (logs / name).write_text(f"0\n1\nt{_ESCAPES} 0 0{_ESCAPES}\n", encoding="utf-8")
    return logs


@pytest.fixture
def is_safe(logdex_command: Callable[..., Any], ran: set[str]) -> Iterator[Callable[..., None]]:
    """Return a function that runs a command and checks both streams; warnings of the log are printed as outside of tests."""
    compared = []
    root_handlers = logging.getLogger().handlers

    def check(*words: object) -> None:
        root_handlers.clear()
        ran.add(" ".join(map(str, words[: 1 + (words[0] == "kafka")])))
        result = logdex_command(*words)
        # A command that gets too few words shows only its usage.
        assert "the following arguments are required" not in result.err, words
        for stream in (result.out, result.err):
            wrong = [c for line in stream.split("\n") for c in line if not c.isprintable()]
            assert not wrong, (words[0], wrong, stream)
            assert "bug in logdex" not in stream
        compared.append(len(result.out) + len(result.err))

    yield check
    assert sum(compared) > 1_000


@pytest.fixture(scope="module")
def ran() -> set[str]:
    return set()


# Commands with more arguments than a path, which are below by name; all others of the registry take a path alone.
_WITH_WORDS = {
    "cat",
    "grep",
    "find",
    "explain",
    "seal",
    "build-index",
    "build-queues",
    "copy",
    "export",
    "recover",
    "sql",
    "kafka",
}
# These run until they are stopped, or need a broker.
_ENDLESS = {"serve", "browse", "replicate"}


def _store_commands(root: Path, target: Path) -> Iterator[tuple[object, ...]]:
    topic = f"T{_ESCAPES}"
    for json in ((), ("--json",)):
        for command in sorted({*names()} - _WITH_WORDS - _ENDLESS):
            yield (command, root, *json)
        yield ("cat", root, *json)
        yield ("cat", root, "--body", *json)
        for options in ((), ("--body",), ("-o",), ("-v",), ("-c",)):
            yield ("grep", r"\W", root, root, "--in", "body,keys,properties", *options, *json)
        yield ("grep", f"({_ESCAPES}", root, *json)
        for query in (
            "FROM messages",
            "FROM queues",
            f"SELECT 1 AS '{_ESCAPES}'",
            f"SELECT '{_ESCAPES}",
            f"FROM t{_ESCAPES}",
        ):
            yield ("sql", root, query, *json)
            yield ("sql", root, query, "--explain", *json)
        yield ("cat", root, "--topic", topic, *json)
        yield ("cat", root, "--topic", f"{topic}absent", *json)
        for of in (topic, "T", "*"):
            for key in ("same", f"key{_ESCAPES}", f"id{_ESCAPES}", f"absent{_ESCAPES}"):
                yield ("find", root, of, key, "--body", *json)
                yield ("explain", root, of, key, *json)
        suffix = f"{len(json)}{_ESCAPES}"
        yield ("seal", root, "--out", target / f"sealed{suffix}", *json)
        for command in ("build-index", "build-queues", "copy"):
            yield (command, root, target / f"{command}{suffix}", *json)
        yield ("export", root, target / f"{suffix}.parquet", *json)
        yield ("export", root, target / f"{suffix}.parquet", *json)
    for part in ("commitlog", "index", "consumequeue", "checkpoint", f"consumequeue/{topic}/0", "absent"):
        yield ("info", root / part)
        yield ("verify", root / part)
    yield ("recover", root)
    yield ("recover", root, "--json")


def test_no_command_prints_what_a_message_or_a_file_name_holds_as_it_is(
    hostile_store: Path, tmp_path: Path, is_safe: Callable[..., None]
) -> None:
    with MessageStore.open(hostile_store) as store:
        assert f"T{_ESCAPES}" in store.topics
        assert f"id{_ESCAPES}" not in str(store.explain("T", "same"))
    for words in _store_commands(hostile_store, tmp_path / "targets"):
        is_safe(*words)


def test_damage_and_stray_files_are_named_safely(strays: Path, tmp_path: Path, is_safe: Callable[..., None]) -> None:
    with MessageStore.open(strays) as store:
        report = store.verify()
    assert {"file-name", "log-frame"} <= set(report.kinds)
    assert all(line.isprintable() for line in [*map(str, report.findings), *str(report).split("\n")])
    for words in _store_commands(strays, tmp_path / "targets"):
        is_safe(*words)


def test_kafka_commands_print_safely(hostile_logs: Path, tmp_path: Path, is_safe: Callable[..., None]) -> None:
    topic, partition = f"t{_ESCAPES}", hostile_logs / f"t{_ESCAPES}-0"
    segment = partition / "00000000000000000000.log"
    for json in ((), ("--json",)):
        for path in (hostile_logs, partition, segment):
            for command in ("info", "verify", "cat"):
                is_safe(command, path, *json)
            is_safe("cat", path, "--body", *json)
            is_safe("grep", r"\W", path, path, "--in", "value,key,headers", *json)
            is_safe("grep", r"\W", path, "--in", "value,key,headers", "-o", "--body", *json)
            is_safe("kafka", "verify", path, *json)
        for name in (_NAME, "meta.properties", "recovery-point-offset-checkpoint", "log-start-offset-checkpoint"):
            is_safe("info", hostile_logs / name, *json)
            is_safe("verify", hostile_logs / name, *json)
        for name in ("leader-epoch-checkpoint", "00000000000000000000.snapshot"):
            is_safe("info", partition / name, *json)
            is_safe("kafka", "verify", partition / name, *json)
        is_safe("kafka", "dump", partition, "--print-data-log", *json)
        target = tmp_path / f"key-index{_ESCAPES}{len(json)}"
        is_safe("kafka", "build-index", hostile_logs, target, "--header", f"name{_ESCAPES}", *json)
        is_safe("info", target, *json)
        for key in (f"key{_ESCAPES}", "absent"):
            is_safe("kafka", "find", hostile_logs, topic, key, "--body", "--index", target, *json)
        is_safe("kafka", "find", hostile_logs, "t", f"of{_ESCAPES}", "--header", f"name{_ESCAPES}", "--body", *json)
        is_safe("kafka", "find", hostile_logs, f"absent{_ESCAPES}", "k", *json)
        is_safe("kafka", "rebuild-index", partition, "--to", tmp_path / f"i{_ESCAPES}{len(json)}", *json)


@pytest.mark.parametrize(
    "words",
    [
        (f"bogus{_ESCAPES}",),
        ("cat", "store", f"--bogus{_ESCAPES}"),
        ("cat", "store", "--begin", f"x{_ESCAPES}"),
        ("cat", "store", "--limit", f"1{_ESCAPES}"),
        ("find", "store", "T", "k", "--scan", _ESCAPES),
        ("kafka", f"bogus{_ESCAPES}"),
        ("info", f"absent{_NAME}"),
    ],
)
def test_wrong_arguments_are_repeated_safely(words: tuple[str, ...], logdex_command: Callable[..., Any]) -> None:
    result = logdex_command(*words)
    assert result.code == 2
    assert "logdex" in result.err
    assert all(c.isprintable() for c in result.err.replace("\n", "")), result.err


def test_every_command_was_run(ran: set[str]) -> None:
    """A new command that needs more than a path must be added above."""
    if not ran:
        pytest.skip("only this test was chosen")
    commands = set()
    for name, found in _subparsers(parser()).items():
        below = _subparsers(found)
        commands |= {f"{name} {each}" for each in below} if below else {name}
    assert ran == commands - _ENDLESS


def _subparsers(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    actions = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    return dict(actions[0].choices) if actions else {}
