"""Stores that a writer refuses to open, before anything is changed."""

from __future__ import annotations

import os
import re
import shutil
import socket
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from logdex.errors import CorruptFileError
from logdex.rocketmq import MessageStore, StoreWriter

if TYPE_CHECKING:
    from collections.abc import Callable

SMALL: dict[str, Any] = {"file_size": 65_536, "hash_slots": 100, "max_entries": 11, "zone": "UTC", "services": False}
QUEUE = "consumequeue/A/0"


def contents(root: Path) -> dict[str, bytes]:
    return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}


@pytest.fixture
def store(tmp_path: Path) -> Path:
    with StoreWriter.open(tmp_path, **SMALL, queue_file_size=200) as writer:
        for number in range(25):
            writer.put_message("A", b"x" * 2000, keys=f"k{number}")
    return tmp_path


def longer(root: Path) -> None:
    with (root / QUEUE / f"{200:020}").open("ab") as file:
        file.write(b"x")


def a_file(name: str) -> Callable[[Path], None]:
    def replace(root: Path) -> None:
        shutil.rmtree(root / name)
        (root / name).write_bytes(b"")

    return replace


@pytest.mark.parametrize(
    ("change", "error"),
    [
        (longer, CorruptFileError),
        (a_file("index"), NotADirectoryError),
        (a_file("consumequeue"), NotADirectoryError),
    ],
)
@pytest.mark.parametrize("damaged", [False, True])
def test_odd_parts_of_a_store(
    store: Path, change: Callable[[Path], None], error: type[Exception], damaged: bool
) -> None:
    change(store)
    if damaged:
        with (store / "commitlog" / f"{0:020}").open("r+b") as file:
            file.seek(20_000)
            file.write(b"\xff" * 50)
    before = contents(store)
    with pytest.raises(error):
        StoreWriter.open(store, **SMALL, truncate=True)
    assert contents(store) == before


def a_directory(path: Path) -> None:
    path.unlink(missing_ok=True)
    path.mkdir()


def a_socket(path: Path) -> None:
    path.unlink(missing_ok=True)
    # A path in a socket's address is short.
    descriptor = os.open(path.parent, os.O_RDONLY)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(f"/proc/self/fd/{descriptor}/{path.name}")
    os.close(descriptor)


def a_link(path: Path) -> None:
    path.unlink(missing_ok=True)
    path.symlink_to(path.parents[-1] / "nowhere")


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="needs /proc")
@pytest.mark.parametrize("replace", [a_directory, a_socket, a_link])
@pytest.mark.parametrize(
    "name",
    [f"{QUEUE}/{0:020}", f"{QUEUE}/{400:020}", f"{QUEUE}/{600:020}", f"commitlog/{65_536:020}", "abort", "checkpoint"],
)
def test_nothing_is_changed_if_something_else_is_in_the_place_of_a_file(
    store: Path, name: str, replace: Callable[[Path], None]
) -> None:
    (store / "lock").unlink()
    replace(store / name)
    before = contents(store)
    with pytest.raises(OSError, match=re.escape(str(store / name))):
        StoreWriter.open(store, **SMALL, last_exit_ok=False)
    assert contents(store) == before


@pytest.mark.parametrize(
    "options",
    [{"extension_file_size": 5}, {"batch_queue_file_size": 0}, {"queue_file_size": 400}, {"store_host": "nowhere"}],
)
def test_options_that_a_store_refuses(store: Path, options: dict[str, Any]) -> None:
    before = contents(store)
    with pytest.raises(ValueError, match=r"or more|have 200 bytes|expected ip:port"):
        StoreWriter.open(store, **SMALL | options)
    assert contents(store) == before


@pytest.mark.parametrize("options", [{"file_size": 1 << 31}, {"store_host": "nowhere"}, {"extension_file_size": 5}])
def test_options_that_a_new_store_refuses(tmp_path: Path, options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"expected (ip:port|\d+ )|or more"):
        StoreWriter.open(tmp_path / "new", **SMALL | options)
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("cut", [0, 5, 40])
def test_a_log_whose_only_file_was_cut_short(tmp_path: Path, cut: int) -> None:
    with StoreWriter.open(tmp_path, **SMALL) as writer:
        for number in range(10):
            writer.put_message("A", b"x", keys=f"k{number}")
        end = writer.max_offset
    only = tmp_path / "commitlog" / f"{0:020}"
    os.truncate(only, end - cut)
    before = contents(tmp_path)
    with pytest.raises(ValueError, match=f"cut short at {end - cut} bytes; give file_size"):
        StoreWriter.open(tmp_path, zone="UTC", services=False)
    assert contents(tmp_path) == before
    with StoreWriter.open(tmp_path, **SMALL) as writer:
        writer.put_message("A", b"y")
    assert only.stat().st_size == 65_536
    with MessageStore.open(tmp_path) as store:
        assert store.verify().ok
        assert sum(batch.num_rows for batch in store.messages()) == (11 if cut == 0 else 10)
