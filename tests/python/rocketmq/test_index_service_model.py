"""The index service beside a plain list: after any puts, rolls, expiry and reopening, the answers match the list."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from index_inputs import T0
from logdex.rocketmq import IndexService, index_key, key_hash

# Few keys, some of them with the same hash: Aa and BB collide, and so do the two of the topic T.
KEYS = st.sampled_from(["a", "b", "Aa", "BB", "AaAa", "BBBB", "", "tzhulrtb", "\u6d88\u606f", "\U0001f600"])
TOPICS = st.sampled_from(["T", "TopicTest", "AaTopic", "BBTopic"])
# Mostly forward in time, with steps back and long pauses.
STEPS = st.one_of(st.integers(0, 3_000), st.integers(-5_000, 0), st.just(4_000_000))


@dataclass(frozen=True)
class Row:
    topic: str
    key: str
    phy_offset: int
    store_timestamp: int

    @property
    def hash(self) -> int:
        return key_hash(index_key(self.topic, self.key))


@st.composite
def runs(draw: st.DrawFn) -> list[list[Row]]:
    """Batches of entries at rising offsets."""
    offset, time = draw(st.sampled_from([0, 1000, 5 << 32])), T0
    batches = []
    for size in draw(st.lists(st.integers(1, 12), min_size=1, max_size=8)):
        batch = []
        for _ in range(size):
            time += draw(STEPS)
            batch.append(Row(draw(TOPICS), draw(KEYS), offset, time))
            offset += draw(st.integers(0, 300))
        batches.append(batch)
    return batches


def columns(rows: list[Row]) -> dict[str, list[Any]]:
    return {name: [getattr(row, name) for row in rows] for name in ("topic", "key", "phy_offset", "store_timestamp")}


def check(index: IndexService, held: list[Row], asked: list[tuple[str, str]], *, begin: int, end: int) -> None:
    for topic, key in asked:
        wanted = key_hash(index_key(topic, key))
        same = [row.phy_offset for row in reversed(held) if row.hash == wanted]
        assert index.query_offset(topic, key).phy_offsets == same
        for max_num in (0, 1, 3):
            result = index.query_offset(topic, key, max_num)
            assert (result.phy_offsets, result.truncated) == (same[:max_num], len(same) > max_num)
        ranged = index.query_offset(topic, key, begin=begin, end=end).phy_offsets
        inside = [row.phy_offset for row in held if row.hash == wanted and begin <= row.store_timestamp <= end]
        assert set(inside) <= set(ranged) <= set(same)
    topics, keys = [topic for topic, _ in asked], [key for _, key in asked]
    assert index.query_batch(topics, keys).to_pylist() == [index.query_offset(*pair).phy_offsets for pair in asked]


@settings(max_examples=60)
@given(
    batches=runs(),
    hash_slots=st.integers(1, 9),
    max_entries=st.integers(2, 14),
    reopen=st.booleans(),
    expire=st.one_of(st.none(), st.floats(0, 1)),
    window=st.tuples(st.integers(-6_000, 40_000), st.integers(0, 20_000)),
    access=st.sampled_from(["mmap", "pread"]),
)
def test_answers_are_those_of_a_list(
    *,
    batches: list[list[Row]],
    hash_slots: int,
    max_entries: int,
    reopen: bool,
    expire: float | None,
    window: tuple[int, int],
    access: Any,
) -> None:
    geometry: dict[str, Any] = {"hash_slots": hash_slots, "max_entries": max_entries, "access": access}
    rows = [row for batch in batches for row in batch]
    asked = sorted({(row.topic, row.key) for row in rows} | {("T", "none")})
    begin, end = T0 + window[0], T0 + window[0] + window[1]
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name) / "index"
        index = IndexService.open(directory, mode="a", **geometry)
        for batch in batches:
            if reopen:
                index.close()
                index = IndexService.open(directory, mode="a", **geometry)
            assert index.put_batch(columns(batch)) == len(batch)
        held = rows
        check(index, held, asked, begin=begin, end=end)
        if expire is not None:
            limit = rows[int(expire * (len(rows) - 1))].phy_offset
            removed = len(index.delete_expired_files(limit))
            held = rows[removed * (max_entries - 1) :]
            check(index, held, asked, begin=begin, end=end)
        assert index.verify().ok
        index.close()
        with IndexService.open(directory, last_exit_ok=False, **geometry) as reader:
            assert sum(len(file) for file in reader.files) == len(held)
            for topic, key in asked:
                wanted = key_hash(index_key(topic, key))
                found = reader.query_offset(topic, key).phy_offsets
                assert sorted(found) == sorted(row.phy_offset for row in held if row.hash == wanted)
