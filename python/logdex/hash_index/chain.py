"""One chain of an index file as the bytes have it, link by link, for who wants to see why a key is found or not.

Look-ups are Rust's; this reads a handful of entries and repairs nothing. docs/formats/rocketmq-index.md has the layout.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from logdex._core import IndexFile

_HEADER_SIZE = 40
_SLOT = struct.Struct(">i")
_ENTRY = struct.Struct(">iqii")


@dataclass(frozen=True, slots=True)
class Link:
    """An entry of a chain.

    Attributes:
        position: Its number in the file, from 1.
        key_hash: The hash of its key.
        phy_offset: Where its message begins in the log.
        time_diff: Seconds since the header's begin, as stored.
        prev_index: Number of the next older entry; 0: none.
    """

    position: int
    key_hash: int
    phy_offset: int
    time_diff: int
    prev_index: int


@dataclass(frozen=True, slots=True)
class Chain:
    """What a slot leads to.

    Attributes:
        slot: Number of the slot.
        slot_value: Number of its newest entry, as stored.
        links: The entries, newest first; no more than asked for.
        length: How many entries there are.
        broken_by: What ends the chain other than its end, in words; None where nothing does.
    """

    slot: int
    slot_value: int
    links: tuple[Link, ...]
    length: int
    broken_by: str | None


def read_chain(file: IndexFile, key_hash: int, max_links: int) -> Chain:
    """Follow the chain of a hash; ends after as many steps as there are entries, whatever the file holds.

    Args:
        file: The index file.
        key_hash: Hash of the index key.
        max_links: The most entries to keep.
    """
    count, slots = file.header.index_count, file.hash_slots
    slot = key_hash % slots
    links: list[Link] = []
    length = 0
    broken_by = None
    with file.path.open("rb", buffering=0) as stream:

        def read(form: struct.Struct, at: int) -> tuple[int, ...] | None:
            stream.seek(at)
            content = stream.read(form.size)
            return form.unpack(content) if len(content) == form.size else None

        found = read(_SLOT, _HEADER_SIZE + _SLOT.size * slot)
        value = found[0] if found else 0
        position = value
        while position:
            if not 0 < position < count:
                broken_by = f"a link to entry {position}, of {count - 1}"
                break
            fields = read(_ENTRY, _HEADER_SIZE + _SLOT.size * slots + _ENTRY.size * position)
            if fields is None:
                broken_by = f"the end of the file before entry {position}"
                break
            link = Link(position, *fields)
            length += 1
            if len(links) < max_links:
                links.append(link)
            if link.prev_index >= position:
                broken_by = f"entry {position}, which links to {link.prev_index}, not to an older one"
                break
            position = link.prev_index
    return Chain(slot, value, tuple(links), length, broken_by)
