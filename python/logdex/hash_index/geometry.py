"""Slots and entries of index files, and what follows from them."""

from __future__ import annotations

DEFAULT_HASH_SLOTS = 5_000_000
DEFAULT_MAX_ENTRIES = 20_000_000

_HEADER_SIZE = 40
_SLOT_SIZE = 4
_ENTRY_SIZE = 20


def file_size(geometry: tuple[int, int]) -> int:
    """Return the size in bytes of an index file of (hash_slots, max_entries)."""
    return entry_offset(*geometry)


def entry_offset(hash_slots: int, position: int) -> int:
    """Return the byte of an index file at which the entry of a position begins (docs/formats/rocketmq-index.md)."""
    return _HEADER_SIZE + _SLOT_SIZE * hash_slots + _ENTRY_SIZE * position
