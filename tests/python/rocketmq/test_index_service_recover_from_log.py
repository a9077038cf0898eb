"""A power loss with any pages of the index unwritten, and a whole log: each message is found again, and none twice."""

from __future__ import annotations

import random
import shutil
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

import golden
from logdex import _core
from logdex.rocketmq import CommitLog, IndexService

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

SEED = 20261121
IMAGES = 12


def indexed_keys(root: Path) -> tuple[list[str], list[str]]:
    """Return all topics and keys that the log's messages are indexed by."""
    keys: dict[tuple[str, str], None] = {}
    with CommitLog.open(root / "commitlog") as log:
        for messages in log.scan():
            entries = _core.index_entries(messages, end_phy_offset=0)
            keys |= dict.fromkeys(zip(entries["topic"].to_pylist(), entries["key"].to_pylist(), strict=True))
    return [topic for topic, _ in keys], [key for _, key in keys]


def tear(directory: Path, chance: random.Random) -> None:
    """Lose pages of some of the files, as if they had never been written."""
    paths = sorted(directory.iterdir())
    page = chance.choice([512, 4096])
    for path in chance.sample(paths, chance.randint(1, 3)):
        content = bytearray(path.read_bytes())
        for at in range(0, len(content), page):
            if chance.random() < chance.choice([0.1, 0.5, 1.0]):
                content[at : at + page] = bytes(len(content[at : at + page]))
        path.write_bytes(content)


@pytest.mark.parametrize("case", ["basic", "killed", "rolled-killed", "v5-3-3", "v5-basic"])
def test_a_torn_index_is_whole_again(case: str, store: Callable[[str], Path], tmp_path: Path) -> None:
    root = store(case)
    shutil.copytree(root / "index", tmp_path / "sound")
    topics, keys = indexed_keys(root)
    hash_slots, max_entries = golden.geometry(case)
    with IndexService.open(tmp_path / "sound") as index:
        truth = index.query_batch(topics, keys).to_pylist()
    assert sum(map(len, truth)) > len(keys) / 2
    chance = random.Random(f"{SEED} {case}")
    for image in range(IMAGES):
        shutil.rmtree(root / "index")
        shutil.copytree(tmp_path / "sound", root / "index")
        tear(root / "index", chance)
        with IndexService.open(
            root / "index", mode="a", hash_slots=hash_slots, max_entries=max_entries, last_exit_ok=False
        ) as index:
            found = index.query_batch(topics, keys).to_pylist()
            assert index.verify().ok
        for topic, key, offsets, expected in zip(topics, keys, found, truth, strict=True):
            # A torn entry may add one more candidate, which the check of its message rejects.
            assert Counter(offsets) & Counter(expected) == Counter(expected), (SEED, image, topic, key)
            assert {offset: offsets.count(offset) for offset in expected} == Counter(expected), (
                SEED,
                image,
                topic,
                key,
            )


def test_a_crash_while_it_is_made_again_costs_nothing(store: Callable[[str], Path]) -> None:
    root = store("basic")
    topics, keys = indexed_keys(root)
    with IndexService.open(root / "index") as index:
        truth = index.query_batch(topics, keys).to_pylist()
    newest = sorted((root / "index").iterdir())[3:]
    for path in newest:
        path.unlink()
    hash_slots, max_entries = golden.geometry("basic")
    geometry: dict[str, Any] = {"hash_slots": hash_slots, "max_entries": max_entries}
    with CommitLog.open(root / "commitlog") as log, IndexService.open(root / "index", mode="a", **geometry) as index:
        end = max(file.header.end_phy_offset for file in index.files)
        # Half way, in the middle of a message: its first key only.
        for messages in log.scan(begin_phy_offset=end, batch_size=200):
            entries = _core.index_entries(messages, end_phy_offset=end)
            rows = [
                row
                for row in range(1, entries.num_rows)
                if entries["row"][row].as_py() == entries["row"][row - 1].as_py()
            ]
            index.put_batch(entries.slice(0, rows[-1]))
            break
    with IndexService.open(root / "index", mode="a", last_exit_ok=False, **geometry) as index:
        found = index.query_batch(topics, keys).to_pylist()
    for offsets, expected in zip(found, truth, strict=True):
        # The message at the survivors' end was indexed once more by the interrupted run, as a broker does.
        assert set(offsets) == set(expected)
        assert len(offsets) - len(expected) in (0, 1)


def test_a_hole_that_the_log_cannot_fill_stays(store: Callable[[str], Path]) -> None:
    root = store("basic")
    paths = sorted((root / "index").iterdir())
    paths[2].write_bytes(bytes(paths[2].stat().st_size))
    for path in sorted((root / "commitlog").iterdir())[-2:]:
        path.unlink()
    topics, keys = indexed_keys(root)
    with IndexService.open(root / "index", mode="a", last_exit_ok=False) as index:
        kept = [file.path for file in index.files]
        assert set(paths[3:]) <= set(kept)
        found = index.query_batch(topics, keys).to_pylist()
    assert sum(map(len, found)) > 0
