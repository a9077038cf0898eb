"""Ask both sides the same questions and count them, so that a passing run reports how much it compared."""

from __future__ import annotations

import dataclasses
import time
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from logdex.rocketmq import IndexFile, IndexService
from rocketmq_driver import FOREVER, index_config

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from rocketmq_driver import Driver, Question
    from traffic import Put
    from traffic_messages import Message

SERVICE_CAP = 64
"""The real service's own limit of one answer (maxMsgsNumBatch)."""


@dataclasses.dataclass
class Tally:
    """Number of questions by kind; a question may have several kinds."""

    asked: int = 0
    hits: int = 0
    misses: int = 0
    collisions: int = 0
    ranges: int = 0
    capped: int = 0

    def count(self, question: Question, answer: list[int], owners: dict[tuple[str, str], set[int]]) -> None:
        """Count one question by the real service's answer to it."""
        topic, key, max_num, begin, end = question
        self.asked += 1
        self.hits += bool(answer)
        self.misses += not answer
        # An offset that this key was never put with: another key of the same hash.
        self.collisions += not owners.get((topic, key), set()).issuperset(answer)
        self.ranges += (begin, end) != (0, FOREVER)
        self.capped += bool(answer) and len(answer) == min(max_num, SERVICE_CAP)

    def kinds(self) -> dict[str, int]:
        """Count by kind."""
        return {name: count for name, count in dataclasses.asdict(self).items() if name != "asked"}

    def __add__(self, other: Tally) -> Tally:
        return Tally(
            *(mine + its for mine, its in zip(dataclasses.astuple(self), dataclasses.astuple(other), strict=True))
        )

    def __str__(self) -> str:
        shares = ", ".join(f"{kind} {100 * count / max(self.asked, 1):.1f} %" for kind, count in self.kinds().items())
        return f"{self.asked:,} questions ({shares})"


class Comparison:
    """Opens index directories on both sides, asks the same questions and counts them."""

    def __init__(self, driver: Driver, say: Callable[[str], None]) -> None:
        self._driver, self._say = driver, say
        self.total = Tally()
        self.ways: list[str] = []

    def compare(self, way: str, root: Path, rows: list[Put], asked: list[Question], geometry: tuple[int, int]) -> None:
        """Load root/index with the real service and with logdex in compat mode, and ask both.

        Args:
            way: How the index was made, for the report.
            root: The folder over the index directory.
            rows: All entries, so that answers with another key's offsets can be counted.
            asked: The questions.
            geometry: Hash slots and maximum entries of the files.
        """
        before = index_contents(root)
        loaded = self._driver.ask("index_load", root=root, config=index_config(*geometry))
        assert loaded["ok"]
        theirs = self._driver.query("index_query", asked)
        # The real class extends a file that is too short: it found nothing to do.
        assert first_difference(index_contents(root), before) is None

        hash_slots, max_entries = geometry
        with closing(
            IndexService.open(root / "index", hash_slots=hash_slots, max_entries=max_entries, compat="4.9.3")
        ) as ours:
            assert [_header(file) for file in ours.files] == loaded["files"]
            _same_answers(ours, asked, theirs)
            _same_batch(ours, asked, theirs)

        tally, owners = Tally(), _owners(rows)
        for question, answer in zip(asked, theirs["phy_offsets"], strict=True):
            tally.count(question, answer, owners)
        self.total += tally
        self.ways.append(way)
        self._say(f"{way}, {len(loaded['files'])} files: {tally}")


def build_with_the_real_service(driver: Driver, root: Path, made: list[Message], geometry: tuple[int, int]) -> None:
    """Dispatch messages to the real index service at a root, new or existing."""
    root.mkdir(exist_ok=True)
    assert driver.ask("store_load", root=root, config=index_config(*geometry))["ok"]
    # The real service names a file by the millisecond and writes over one that has the name already:
    # no batch may roll twice.
    batch = geometry[1] // 6
    for first in range(0, len(made), batch):
        topics, phy_offsets, store_timestamps, sys_flags, uniq_keys, keys = zip(
            *made[first : first + batch], strict=True
        )
        driver.ask(
            "index_build",
            topics=topics,
            keys=keys,
            uniq_keys=uniq_keys,
            phy_offsets=phy_offsets,
            store_timestamps=store_timestamps,
            sys_flags=sys_flags,
        )
        time.sleep(0.002)


def index_contents(root: Path) -> list[bytes]:
    """Read the index files in root/index, oldest first, without names, which depend on the time."""
    return [file.read_bytes() for file in sorted((root / "index").iterdir()) if file.name.isdigit()]


def first_difference(ours: list[bytes], theirs: list[bytes]) -> str | None:
    """Return where two lists of files first differ; None if they are equal. pytest takes minutes to compare long bytes."""
    if len(ours) != len(theirs):
        return f"{len(ours)} files and {len(theirs)}"
    for number, (mine, its) in enumerate(zip(ours, theirs, strict=True)):
        if mine != its:
            at = next(
                (place for place, (one, other) in enumerate(zip(mine, its, strict=False)) if one != other), len(mine)
            )
            sizes = f"{len(mine)} bytes and {len(its)}"
            return f"file {number} ({sizes}) at {at}: {mine[at : at + 20].hex()} and {its[at : at + 20].hex()}"
    return None


def _same_answers(ours: IndexService, asked: list[Question], theirs: dict[str, Any]) -> None:
    last = (theirs["index_last_update_timestamp"], theirs["index_last_update_phyoffset"])
    different = []
    for question, expected in zip(asked, theirs["phy_offsets"], strict=True):
        topic, key, max_num, begin, end = question
        result = ours.query_offset(topic, key, max_num, begin, end)
        updated = (result.index_last_update_timestamp, result.index_last_update_phyoffset)
        if list(result.phy_offsets) != expected or updated != last:
            different.append((question, expected, result))
    assert not different, f"{len(different)} of {len(asked)} answers differ; the first: {different[0]}"


def _same_batch(ours: IndexService, asked: list[Question], theirs: dict[str, Any]) -> None:
    whole = [
        (topic, key, expected)
        for (topic, key, *rest), expected in zip(asked, theirs["phy_offsets"], strict=True)
        if rest == [SERVICE_CAP, 0, FOREVER]
    ]
    topics, keys, expected = zip(*whole, strict=True)
    lists = pa.array(ours.query_batch(topics, keys, max_num=SERVICE_CAP))
    assert lists.to_pylist() == list(expected)


def _header(file: IndexFile) -> dict[str, Any]:
    header = file.header
    return {
        "name": file.path.name,
        "begin_timestamp": header.begin_timestamp,
        "end_timestamp": header.end_timestamp,
        "begin_phy_offset": header.begin_phy_offset,
        "end_phy_offset": header.end_phy_offset,
        "hash_slot_count": header.hash_slot_count,
        "index_count": header.index_count,
        "full": file.is_full,
    }


def _owners(rows: list[Put]) -> dict[tuple[str, str], set[int]]:
    owners: dict[tuple[str, str], set[int]] = {}
    for row in rows:
        owners.setdefault((row.topic, row.key), set()).add(row.phy_offset)
    return owners
