"""A power loss keeps any subset of the pages written since the last flush; flushed data is never lost."""

from __future__ import annotations

import random
import shutil
from typing import TYPE_CHECKING, Any

import pytest

from logdex.rocketmq import MessageStore, StoreWriter

if TYPE_CHECKING:
    from pathlib import Path

    from logdex._types import Append

SIZES: dict[str, Any] = {"file_size": 65_536, "queue_file_size": 400, "hash_slots": 20, "max_entries": 50}
PAGE = 4096


def put_some(writer: StoreWriter, choice: random.Random, first: int, end: int) -> None:
    """Put messages in a few batches and dispatch some of them."""
    while first < end:
        last = min(end, first + choice.randrange(1, 60))
        for number in range(first, last):
            writer.put_message(f"T{number % 5}", bytes(number % 300), queue_id=number % 3, keys=f"k{number}")
        first = last
        if choice.random() < 0.5:
            writer.dispatch()


def lose_pages(flushed: Path, written: Path, left: Path, choice: random.Random) -> None:
    """Make the result: each page is as flushed or as written since; a file without a flush may be missing."""
    shutil.copytree(flushed, left)
    kept = choice.random()
    whole = choice.choice(["", "commitlog", "consumequeue", "index"])
    for path in sorted(written.rglob("*")):
        name = path.relative_to(written)
        if path.is_dir():
            (left / name).mkdir(exist_ok=True)
            continue
        new = path.read_bytes()
        if (left / name).exists():
            old = (left / name).read_bytes().ljust(len(new), b"\0")
        elif name.parts[0] != "commitlog" and choice.random() < 0.3:
            continue
        else:
            old = bytes(len(new))
        pages = [
            new[at : at + PAGE] if name.parts[0] == whole or choice.random() < kept else old[at : at + PAGE]
            for at in range(0, len(new), PAGE)
        ]
        (left / name).write_bytes(b"".join(pages))


@pytest.mark.parametrize("append", ["write", "mapped", "pool"])
@pytest.mark.parametrize("seed", range(24))
def test_what_was_flushed_is_there_after_a_power_loss(seed: int, append: Append, tmp_path: Path) -> None:
    choice = random.Random(seed)
    flushed, more = choice.randrange(300), choice.randrange(1, 300)
    root = tmp_path / "store"
    with StoreWriter.open(root, **SIZES, services=False, zone="UTC", append=append) as writer:
        put_some(writer, choice, 0, flushed)
        writer.flush()
        shutil.copytree(root, tmp_path / "flushed")
        put_some(writer, choice, flushed, flushed + more)
        shutil.copytree(root, tmp_path / "written")
    left = tmp_path / "left"
    lose_pages(tmp_path / "flushed", tmp_path / "written", left, choice)
    with StoreWriter.open(left, **SIZES, services=False, truncate=True, zone="UTC") as writer:
        writer.put_message("New", b"new", keys="new")
    with MessageStore.open(left, hash_slots=SIZES["hash_slots"], max_entries=SIZES["max_entries"]) as store:
        report = store.verify()
        assert report.ok, report
        assert report.checked["messages"] > flushed
        for number in range(flushed):
            assert len(store.find(f"T{number % 5}", f"k{number}", scan=False)) == 1, number
        assert len(store.find("New", "new", scan=False)) == 1
