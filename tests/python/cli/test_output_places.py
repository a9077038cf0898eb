"""No command writes into a directory in which a broker reads every entry."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import golden
import golden_kafka
from logdex.kafka import LogDir, build_key_index
from logdex.rocketmq import MessageStore, StoreWriter

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

_COMMANDS: dict[str, Callable[[Path, Path, Path], list[object]]] = {
    "build-index": lambda store, _, at: ["build-index", store, at / "x"],
    "build-queues": lambda store, _, at: ["build-queues", store, at / "x"],
    "export": lambda store, _, at: ["export", store, at / "x.json"],
    "copy": lambda store, _, at: ["copy", store, at / "x"],
    "seal": lambda store, _, at: ["seal", store, "--out", at / "x"],
    "stats": lambda store, _, at: ["stats", store, "--plot", at / "x.png"],
    "kafka build-index": lambda _, logs, at: ["kafka", "build-index", logs, at / "x"],
    "kafka rebuild-index": lambda _, logs, at: ["kafka", "rebuild-index", logs / "plain-0", "--to", at / "x"],
    "kafka export": lambda _, logs, at: ["export", logs, at / "x.json"],
    "kafka seal": lambda _, logs, at: ["seal", logs, "--out", at / "x"],
}
_PLACES = ("store/commitlog", "store/consumequeue/T/0", "store/index", "linked", "logs", "logs/plain-0", "bare")


@pytest.fixture
def places(tmp_path: Path) -> Path:
    """A store and a log directory of a broker, a link to the log, and log files without a store."""
    with StoreWriter.open(
        tmp_path / "store", file_size=65_536, hash_slots=10, max_entries=20, services=False
    ) as writer:
        writer.put_message("T", b"x", keys="k")
    (tmp_path / "linked").symlink_to(tmp_path / "store" / "commitlog")
    logs = golden_kafka.unpack("codecs", tmp_path / "logs")
    next(path for path in sorted(logs.iterdir()) if any(path.glob("*.log"))).rename(logs / "plain-0")
    (logs / "meta.properties").write_bytes(b"version=1\n")
    (tmp_path / "bare").mkdir()
    (tmp_path / "bare" / f"{0:020}").write_bytes((tmp_path / "store" / "commitlog" / f"{0:020}").read_bytes())
    return tmp_path


@pytest.mark.parametrize("place", _PLACES)
@pytest.mark.parametrize("name", _COMMANDS)
def test_a_command_writes_nothing_there(
    name: str, place: str, places: Path, logdex_command: Callable[..., Any]
) -> None:
    before = sorted(places.rglob("*"))
    ran = logdex_command(*_COMMANDS[name](places / "store", places / "logs", places / place))
    assert ran.code == 2
    assert "expected a path outside of a broker's directories" in ran.err or "outside of the store" in ran.err
    assert sorted(places.rglob("*")) == before


def test_the_interfaces_write_nothing_there(places: Path) -> None:
    inside = places / "store" / "commitlog" / "x"
    with MessageStore.open(places / "store") as store:
        for call in (store.build_index, store.build_queues, store.seal):
            with pytest.raises(ValueError, match="outside of"):
                call(inside)
    with pytest.raises(ValueError, match="a log directory of Kafka"):
        build_key_index(places / "logs", places / "logs" / "x")
    with pytest.raises(ValueError, match="a part of a RocketMQ store"):
        StoreWriter.open(inside)
    with LogDir.open(places / "logs") as logs, pytest.raises(ValueError, match="a log directory of Kafka"):
        logs.log("plain", 0).rebuild_indexes(places / "logs" / "x")
    assert not inside.exists()


def test_a_directory_next_to_log_files_is_allowed(places: Path, logdex_command: Callable[..., Any]) -> None:
    (places / "bare" / "exports").mkdir()
    assert logdex_command("export", places / "store", places / "bare" / "exports" / "x.json").code == 0
    ran = logdex_command("seal", places / "store", "--out", places / "bare" / "new" / "x")
    assert (ran.code, "which holds a log" in ran.err) == (2, True)
    assert not (places / "bare" / "new").exists()


def test_a_place_of_its_own_is_allowed(places: Path, logdex_command: Callable[..., Any]) -> None:
    """The index and queues of a stopped broker and the missing index files of a partition are written into their directories."""
    store = places / "store"
    for path in (store / "index").iterdir():
        path.unlink()
    assert logdex_command("build-index", store, store / "index", "--hash-slots", 10, "--max-entries", 20).code == 0
    (store / "consumequeue").rename(places / "former")
    assert logdex_command("build-queues", store, store).code == 0
    assert logdex_command("verify", store).code == 0
    assert logdex_command("export", store, store / "x.json").code == 0
    assert logdex_command("seal", store).code == 0
    partition = places / "logs" / "plain-0"
    for path in [*partition.glob("*.index"), *partition.glob("*.timeindex")]:
        path.unlink()
    assert logdex_command("kafka", "rebuild-index", partition, "--to", partition).code == 0


def test_a_hint_names_what_is_there_instead(tmp_path: Path, logdex_command: Callable[..., Any]) -> None:
    golden.unpack("basic", tmp_path / "up")
    logs = golden_kafka.unpack("codecs", tmp_path / "logs")
    for words in (
        ("info", tmp_path / "up"),
        ("find", tmp_path / "up", "T", "k"),
        ("stats", tmp_path / "up"),
        ("recover", tmp_path / "up"),
        ("build-queues", tmp_path / "up", tmp_path / "new"),
        ("build-index", tmp_path / "up", tmp_path / "new"),
        ("serve", tmp_path / "up"),
        ("seal", tmp_path / "up"),
    ):
        ran = logdex_command(*words)
        assert (ran.code, ran.out) == (2, ""), words
        assert f"there is a store in {tmp_path / 'up' / 'store'}\n" in ran.err, words
    for words, found in (
        (("build-queues", logs, tmp_path / "new"), "this is a Kafka log directory, which `logdex info`, "),
        (("serve", logs), "this is a Kafka log directory, which `logdex info`, "),
        (("build-queues", logs / "cod-none-0", tmp_path / "new"), "this is the directory of a Kafka partition, which "),
        (("recover", logs / "cod-none-0"), "this is the directory of a Kafka partition, which "),
        (("stats", logs), "found a Kafka log directory"),
    ):
        ran = logdex_command(*words)
        assert (ran.code, ran.out) == (2, ""), words
        assert found in ran.err, words
    assert not (tmp_path / "new").exists()


def test_commands_that_write_name_the_place(tmp_path: Path, logdex_command: Callable[..., Any]) -> None:
    root = golden.unpack("basic", tmp_path)
    logs = golden_kafka.unpack("codecs", tmp_path / "logs")
    for number, words in enumerate(
        (
            ("build-index", root),
            ("build-queues", root),
            ("copy", root),
            ("export", root),
            ("build-index", logs),
            ("copy", logs),
            ("kafka", "build-index", logs),
            ("kafka", "rebuild-index", logs / "cod-none-0", "--to"),
        )
    ):
        new = tmp_path / f"new-{number}{'.json' if words[0] == 'export' else ''}"
        ran = logdex_command(*words, new)
        assert ran.code == 0, ran.err
        assert ran.out.startswith(f"{new}: "), words
