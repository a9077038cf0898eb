"""An index file of the default geometry with 3,000,000 puts: the real class's bytes and 20,000 answers.

Puts and questions follow from a rule (tests/golden/README.md, "large.json"), so only digests are stored.
"""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest

import golden
from logdex.rocketmq import IndexFile

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_NO_END = 2**63 - 1
_BATCH_ROWS = 1 << 17
_Words = np.ndarray[Any, np.dtype[np.uint64]]


def _mix(z: _Words) -> _Words:
    """Return one step of splitmix64 for each word."""
    z = z + np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed: _Words = z ^ (z >> np.uint64(31))
    return mixed


class Large:
    """The rule of large.json."""

    def __init__(self) -> None:
        self.data: dict[str, Any] = json.loads((golden.path("indexfile") / "large.json").read_bytes())
        self.puts: int = self.data["puts"]
        self.seed: int = self.data["seed"]
        self.begin = 1_700_000_000_000 + (self.seed & 0xFFFF)

    def _keys(self, words: _Words) -> list[str]:
        return [f"{self.data['topic']}#{word:x}" for word in _mix(words).tolist()]

    def batches(self) -> Iterator[tuple[pa.Array, pa.Array, pa.Array]]:
        """Return keys, offsets and times of all puts. Three puts in a row carry one key and one offset."""
        thirds = np.arange((self.puts + 2) // 3, dtype=np.uint64)
        steps = 100 + (_mix(np.uint64(self.seed) ^ thirds) >> np.uint64(56)).astype(np.int64)
        offsets = (self.seed & 0xFFFFF) + np.concatenate([np.zeros(1, np.int64), np.cumsum(steps)[:-1]])
        keys = pa.array(self._keys(np.uint64(self.seed) + thirds), pa.utf8())
        for first in range(0, self.puts, _BATCH_ROWS):
            rows = np.arange(first, min(first + _BATCH_ROWS, self.puts))
            yield keys.take(pa.array(rows // 3)), pa.array(offsets[rows // 3]), pa.array(self.begin + 7 * rows)

    def questions(self) -> Iterator[tuple[str, int, int, int]]:
        """Return key, most answers, begin and end of each question; one in ten asks for a key that was never put."""
        k = np.arange(self.data["selects"], dtype=np.uint64)
        asked = _mix(np.uint64(31 * self.seed) + k) % np.uint64(self.puts)
        absent = np.where(k % np.uint64(10) == np.uint64(9), np.uint64(self.puts), np.uint64(0))
        keys = self._keys(np.uint64(self.seed) + absent + asked // np.uint64(3))
        for i, (key, j) in enumerate(zip(keys, asked.tolist(), strict=True)):
            begin = self.begin + 7 * j - 5000 if i % 4 == 1 else 0
            end = self.begin + 7 * j if i % 4 == 2 else _NO_END
            yield key, 2 if i % 5 == 4 else 64, begin, end


def _digests(path: Path, slots_end: int) -> dict[str, Any]:
    """Return the digests of the file and its parts, read in pieces."""
    whole, size = hashlib.sha256(), path.stat().st_size
    result: dict[str, Any] = {"size": size}
    with path.open("rb") as file:
        for name, end in (("header", 40), ("slots", slots_end), ("entries", size)):
            part = hashlib.sha256()
            while piece := file.read(min(1 << 22, end - file.tell())):
                part.update(piece)
                whole.update(piece)
            result[name] = part.hexdigest()
    return result | {"file": whole.hexdigest()}


@pytest.mark.large
def test_default_geometry_gives_the_bytes_and_answers(tmp_path: Path) -> None:
    large = Large()
    data, path = large.data, tmp_path / "20231114221320000"
    assert (data["hashSlotNum"], data["indexNum"]) == (5_000_000, 20_000_000)
    with IndexFile.create(path, compat="4.9.3") as file:
        taken = sum(file.put_batch(*batch) for batch in large.batches())
        assert taken == data["accepted"] == 3_000_000
        assert (file.header.index_count, file.header.hash_slot_count) == (
            data["headerInMemory"]["indexCount"],
            data["headerInMemory"]["hashSlotCount"],
        )
    assert _digests(path, 40 + 4 * data["hashSlotNum"]) == data["sha256"]

    lines: list[str] = []
    returned = 0
    with IndexFile.open(path, hash_slots=data["hashSlotNum"], max_entries=data["indexNum"], compat="4.9.3") as file:
        for key, max_num, begin, end in large.questions():
            offsets = file.select_phy_offset(key, max_num, begin, end)
            returned += len(offsets)
            lines.append(f"{key} {begin} {end}:" + "".join(f" {offset}" for offset in offsets))
    assert lines[: len(data["firstAnswers"])] == data["firstAnswers"]
    assert (len(lines), returned) == (data["selects"], data["offsetsReturned"]) == (20_000, 51_980)
    assert hashlib.sha256("".join(f"{line}\n" for line in lines).encode()).hexdigest() == data["answersSha256"]
    path.unlink()
