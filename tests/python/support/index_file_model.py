"""A plain model of the broker's index file: bytes in a bytearray, one `struct` call a field, nothing clever.

docs/formats/rocketmq-index.md has the rules. The model is checked against the real class's files and answers, and then
stands in for it where tests make up their own puts and questions.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field

HEADER = struct.Struct(">qqqqii")
SLOT = struct.Struct(">i")
ENTRY = struct.Struct(">iqii")


def key_hash(key: str) -> int:
    """Hash a key as `IndexFile#indexKeyHashMethod` does; lone surrogates are units like any other."""
    h = 0
    for (unit,) in struct.iter_unpack(">H", key.encode("utf-16-be", "surrogatepass")):
        h = (31 * h + unit) & 0xFFFFFFFF
    h = h - (1 << 32) if h >= 1 << 31 else h
    return 0 if h == -(1 << 31) else abs(h)


def _wrap(value: int) -> int:
    """Cut to a signed number of 64 bits."""
    return (value + (1 << 63)) % (1 << 64) - (1 << 63)


@dataclass
class IndexFileModel:
    """An index file in memory."""

    hash_slots: int
    max_entries: int
    seed_timestamp: int = 0
    seed_phy_offset: int = 0
    content: bytearray = field(init=False)

    def __post_init__(self) -> None:
        """Lay out an empty file with its seeds."""
        self.content = bytearray(HEADER.size + SLOT.size * self.hash_slots + ENTRY.size * self.max_entries)
        timestamp, offset = max(self.seed_timestamp, 0), max(self.seed_phy_offset, 0)
        HEADER.pack_into(self.content, 0, timestamp, timestamp, offset, offset, 0, 0)

    @property
    def header(self) -> tuple[int, int, int, int, int, int]:
        """Begin and end timestamp, begin and end offset, used slots, index count (at least 1)."""
        begin, end, begin_phy, end_phy, slots, count = HEADER.unpack_from(self.content)
        return begin, end, begin_phy, end_phy, slots, max(count, 1)

    def _slot_at(self, h: int) -> int:
        return HEADER.size + SLOT.size * (h % self.hash_slots)

    def _entry_at(self, position: int) -> int:
        return HEADER.size + SLOT.size * self.hash_slots + ENTRY.size * position

    def flush(self) -> None:
        """Store the header, which only shows in a file without entries."""
        HEADER.pack_into(self.content, 0, *self.header)

    def put_key(self, key: str, phy_offset: int, store_timestamp: int) -> bool:
        """Do what `IndexFile#putKey` does."""
        begin, _, begin_phy, _, slots, count = self.header
        if count >= self.max_entries:
            return False
        h = key_hash(key)
        (head,) = SLOT.unpack_from(self.content, self._slot_at(h))
        prev = head if 0 < head <= count else 0
        seconds = 0
        if begin > 0:
            difference = _wrap(store_timestamp - begin)
            seconds = abs(difference) // 1000 * (1 if difference >= 0 else -1)
            seconds = min(max(seconds, 0), (1 << 31) - 1)
        ENTRY.pack_into(self.content, self._entry_at(count), h, phy_offset, seconds, prev)
        SLOT.pack_into(self.content, self._slot_at(h), count)
        if count == 1:
            begin, begin_phy = store_timestamp, phy_offset
        slots += prev == 0
        HEADER.pack_into(self.content, 0, begin, store_timestamp, begin_phy, phy_offset, slots, count + 1)
        return True

    def select(self, key: str, max_num: int, begin: int, end: int) -> list[int]:
        """Answer as `IndexFile#selectPhyOffset` does, faults included."""
        file_begin, *_, count = self.header
        h = key_hash(key)
        (position,) = SLOT.unpack_from(self.content, self._slot_at(h))
        found: list[int] = []
        if count <= 1 or not 0 < position <= count:
            return found
        while len(found) < max_num:
            entry_hash, phy_offset, seconds, prev = ENTRY.unpack_from(self.content, self._entry_at(position))
            time = file_begin + 1000 * seconds
            if seconds < 0:
                break
            if entry_hash == h and begin <= time <= end:
                found.append(phy_offset)
            if not 0 < prev <= count or prev == position or time < begin:
                break
            position = prev
        return found

    def is_time_matched(self, begin: int, end: int) -> bool:
        """Answer as `IndexFile#isTimeMatched` does."""
        first, last, *_ = self.header
        return (begin < first and end > last) or first <= begin <= last or first <= end <= last
