"""Stores that come from elsewhere: pipes, sockets, devices, directories and links in the place of their files."""

from __future__ import annotations

import os
import shutil
import socket
import stat
import sys
from typing import TYPE_CHECKING, Any

import pytest

from kafka_batches import Row, batch, write_segment
from logdex import _core
from logdex.kafka import Log, build_key_index
from logdex.rocketmq import IndexFile, IndexService, MessageStore, StoreWriter, copy_messages

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytestmark = [
    pytest.mark.skipif(sys.platform == "win32", reason="no pipes with names, and links need rights"),
    pytest.mark.timeout(120),
]

_SIZES = {"file_size": 65536, "queue_file_size": 400, "hash_slots": 50, "max_entries": 120, "zone": "UTC"}
_LAST_LOG, _NEXT_LOG = "commitlog/00000000000000065536", "commitlog/00000000000000131072"
_FILES = (
    *("abort", "checkpoint", "lock", "config/delayOffset.json", "config/topics.json"),
    *("commitlog/00000000000000000000", _LAST_LOG, _NEXT_LOG),
    *(
        "consumequeue/T/0/00000000000000001600",
        "consumequeue/T/0/00000000000000002000",
        "index/INDEX",
        "index/99991231235959999",
    ),
)
_DIRECTORIES = ("config", "commitlog", "consumequeue", "consumequeue/T", "consumequeue/T/0", "index")
_PRECIOUS = b"precious data of somebody else\n" * 40


@pytest.fixture(scope="module")
def healthy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("healthy") / "store"
    with StoreWriter.open(root, services=False, **_SIZES) as writer:  # type: ignore[arg-type]
        for number in range(100):
            writer.put_message("T", b"x" * 1000, keys=f"k{number}", delay_level=1 if number == 50 else 0)
        writer.deliver_due(2**62)
    (root / "config" / "topics.json").write_text('{"topicConfigTable":{"T":{}}}', encoding="utf-8")
    return root


@pytest.fixture
def root(healthy: Path, tmp_path: Path) -> Path:
    return shutil.copytree(healthy, tmp_path / "store")


def _place(root: Path, name: str) -> Path:
    return root / name.replace("INDEX", min(path.name for path in (root / "index").iterdir()))


def _put(path: Path, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    path.unlink(missing_ok=True)
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "directory":
        path.mkdir()
    else:
        # The name of a socket is short, so it is bound from its directory.
        monkeypatch.chdir(path.parent)
        with socket.socket(socket.AF_UNIX) as bound:
            bound.bind(path.name)


def _tree(root: Path) -> dict[str, object]:
    """Return what a directory holds, without following links."""
    return {
        str(path): path.read_bytes() if stat.S_ISREG(path.lstat().st_mode) else path.lstat().st_mode
        for path in root.rglob("*")
    }


@pytest.mark.filterwarnings("ignore::logdex.DamageWarning")
@pytest.mark.parametrize("kind", ["pipe", "socket", "directory"])
@pytest.mark.parametrize("name", _FILES)
def test_no_command_waits_for_what_is_no_file(  # noqa: PLR0917 -- fixtures
    root: Path,
    name: str,
    kind: str,
    tmp_path: Path,
    logdex_command: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    place = _place(root, name)
    _put(place, kind, monkeypatch)
    before = _tree(root)
    for words in (
        *(("info", root), ("verify", root), ("stats", root), ("cat", root, "--body"), ("cat", root, "--topic", "T")),
        *(("find", root, "T", "k7"), ("explain", root, "T", "k7"), ("export", root, tmp_path / "x.parquet")),
        *((command, root, tmp_path / command) for command in ("copy", "build-index", "build-queues")),
        *(("info", place), ("verify", place)),
    ):
        result = logdex_command(*words)
        assert result.code in (0, 1, 2), words
        assert "bug in logdex" not in result.err, (words, result.err)
    assert _tree(root) == before, "reading changed the store"
    result = logdex_command("recover", root)
    if kind == "directory" and name.startswith(("index/", "config/topics")):
        assert result.code in (0, 2), result.err
        return
    assert result.code == 2
    assert f"{place}: expected a regular file, found a {kind}" in result.err
    assert _tree(root) == before, "recover changed the store before it refused"


def test_a_file_that_is_none_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "20261121000000000"
    _put(path, "pipe", monkeypatch)
    for call in (IndexFile.open, _core.read_file, _core.sync_file, _core.StoreCheckpoint.open, _core.StoreLock.take):
        with pytest.raises(OSError, match="expected a regular file, found a pipe") as raised:
            call(path)
        assert raised.value.filename == str(path)


@pytest.fixture
def victim(tmp_path: Path) -> Path:
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    (folder / "file").write_bytes(_PRECIOUS)
    return folder


def _refused(call: Callable[[], object], link: Path) -> None:
    with pytest.raises(OSError, match="found a symbolic link") as raised:
        call()
    assert raised.value.filename == str(link)


def _writes(root: Path) -> list[Callable[[], object]]:
    """Return the calls that write a store."""

    def opened() -> None:
        StoreWriter.open(root, services=False, **_SIZES).close()  # type: ignore[arg-type]

    def crashed() -> None:
        StoreWriter.open(root, services=False, last_exit_ok=False, truncate=True, **_SIZES).close()  # type: ignore[arg-type]

    return [opened, crashed]


@pytest.mark.parametrize("crashed", [False, True])
@pytest.mark.parametrize("target", ["file", "none", "log"])
@pytest.mark.parametrize("name", _FILES)
def test_no_file_of_a_store_is_written_through_a_link(  # noqa: PLR0917 -- fixtures
    root: Path, victim: Path, name: str, target: str, crashed: bool, logdex_command: Callable[..., Any]
) -> None:
    link = _place(root, name)
    if target == "log" and link.exists():
        shutil.copy(link, victim / "log")
    link.unlink(missing_ok=True)
    link.symlink_to(victim / target)
    if crashed and name != "abort":
        (root / "abort").touch()
    before, outside = _tree(root), _tree(victim)
    for call in _writes(root):
        _refused(call, link)
    result = logdex_command("recover", root, "--truncate")
    assert result.code == 2
    assert str(link) in result.err
    assert (_tree(root), _tree(victim)) == (before, outside)


@pytest.mark.parametrize("name", _DIRECTORIES)
def test_no_directory_of_a_store_is_written_through_a_link(root: Path, victim: Path, name: str) -> None:
    (root / "abort").touch()
    (root / name).rename(victim / "moved")
    (root / name).symlink_to(victim / "moved")
    before, outside = _tree(root), _tree(victim)
    for call in _writes(root):
        _refused(call, root / name)
    assert (_tree(root), _tree(victim)) == (before, outside)
    # Reading follows links.
    with MessageStore.open(root) as store:
        assert len(store.find("T", "k7")) == 1


def test_the_root_of_a_store_may_be_a_link(root: Path, tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(root)
    with StoreWriter.open(link, services=False, **_SIZES) as writer:  # type: ignore[arg-type]
        writer.put_message("T", b"new", keys="new")
    with MessageStore.open(root) as store:
        assert len(store.find("T", "new")) == 1


@pytest.mark.parametrize("name", ["abort", "checkpoint", "lock", "config", "commitlog", "consumequeue", "index"])
def test_a_copy_is_not_written_through_links(root: Path, victim: Path, tmp_path: Path, name: str) -> None:
    target = tmp_path / "copy"
    target.mkdir()
    (target / name).symlink_to(victim if name in _DIRECTORIES else victim / "file")
    outside = _tree(victim)
    with MessageStore.open(root) as store:
        with pytest.raises(OSError, match="found") as raised:
            copy_messages(store, target)
        # A directory with a part of a store is not empty.
        assert raised.value.filename == str(target if name in ("commitlog", "consumequeue", "index") else target / name)
        if name == "consumequeue":
            with pytest.raises(FileExistsError):
                store.build_queues(target)
    assert _tree(victim) == outside
    assert [path.name for path in target.iterdir()] == [name]


@pytest.mark.parametrize("name", ["20261121193006197", "link"])
def test_no_index_is_written_through_a_link(root: Path, victim: Path, name: str) -> None:
    index = root / "index"
    own = min(index.iterdir())
    own.rename(victim / "index")
    (index / name).symlink_to(victim / "index")
    outside = _tree(victim)
    for last_exit_ok in (True, False):
        _refused(lambda ok=last_exit_ok: IndexService.open(index, mode="a", last_exit_ok=ok), index / name)  # type: ignore[misc]
    _refused(lambda: IndexFile.open(index / name, mode="r+"), index / name)
    assert _tree(victim) == outside
    with IndexService.open(index) as reader:
        assert len(reader.files) == (name != "link")


def test_the_checkpoint_of_an_index_is_no_link(root: Path, victim: Path) -> None:
    link = root / "checkpoint"
    link.unlink()
    link.symlink_to(victim / "file")
    _refused(lambda: _core.StoreCheckpoint.open(link, mode="r+"), link)
    entries = {"topic": ["T"] * 200, "key": [f"n{i}" for i in range(200)], "phy_offset": [*range(200)]}

    def put() -> None:
        with IndexService.open(root / "index", mode="a") as index:
            index.put_batch({**entries, "store_timestamp": [4_000_000_000_000] * 200})

    _refused(put, link)
    assert (victim / "file").read_bytes() == _PRECIOUS


def test_kafka_indexes_are_not_written_through_links(victim: Path, tmp_path: Path) -> None:
    logs, target = tmp_path / "logs", tmp_path / "index"
    write_segment(logs / "t-0", 0, batch([Row(0, key=b"k")]))
    (target / "t-0").mkdir(parents=True)
    for link, to in ((target / "t-0" / "settings", victim / "file"), (target / "u-0", victim)):
        link.symlink_to(to)
        _refused(lambda: build_key_index(logs, target), link)
        link.unlink()
    indexes = tmp_path / "rebuilt"
    indexes.mkdir()
    for suffix in ("index", "timeindex"):
        (indexes / f"{0:020}.{suffix}").symlink_to(victim / "file")
    with Log.open(logs / "t-0") as log:
        # Each file is written anew and takes the name of the link.
        log.rebuild_indexes(indexes, overwrite=True)
    assert not any(path.is_symlink() for path in indexes.iterdir())
    assert _tree(victim) == {str(victim / "file"): _PRECIOUS}


@pytest.mark.skipif(sys.platform == "darwin", reason="names are Unicode there")
def test_paths_need_not_be_utf_8(root: Path, tmp_path: Path, logdex_command: Callable[..., Any]) -> None:
    place = tmp_path / os.fsdecode(b"\xff\xfe")
    shutil.copytree(root, place / "store")
    write_segment(place / "logs" / "orders-0", 0, batch([Row(0, 0, b"k")]))
    store, logs = place / "store", place / "logs"
    commands: list[tuple[object, ...]] = [
        *((command, store) for command in ("info", "verify", "du", "cat")),
        ("info", store / "commitlog" / ("0" * 20)),
        ("stats", store / "index"),
        ("find", store, "T", "k1"),
        ("explain", store, "T", "k1"),
        ("export", store, place / "out.jsonl"),
        ("copy", store, place / "copy"),
        ("build-index", store, place / "built"),
        ("build-queues", store, place / "queues"),
        ("recover", store, "--dry-run"),
        ("seal", store),
        ("info", store),
        ("recover", store),
        *((command, logs) for command in ("info", "du", "cat")),
        ("find", logs, "orders", "k"),
        ("explain", logs, "orders", "k"),
        ("kafka", "dump", logs / "orders-0"),
        ("kafka", "rebuild-index", logs / "orders-0", "--to", place / "indexes"),
        ("build-index", logs, place / "keys"),
        ("find", logs, "orders", "k", "--index", place / "keys"),
        ("seal", logs, "--out", place / "sealed"),
        ("find", logs, "orders", "k", "--sealed", place / "sealed"),
    ]
    ran = {words: logdex_command(*words) for words in commands}
    failed = {words: each.err for words, each in ran.items() if each.code}
    assert not failed
    assert all("\udcff" not in each.out for each in ran.values())
