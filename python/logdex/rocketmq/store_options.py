"""How a store is written."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

from logdex._types import check_int64
from logdex.hash_index.rolling import resolve_zone
from logdex.rocketmq.queues import UNIT_BYTES

if TYPE_CHECKING:
    from datetime import tzinfo

    from logdex._types import Compat, Flush

DEFAULT_DELAY_LEVELS = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"
"""messageDelayLevel."""

DEFAULT_FILE_SIZE = 1 << 30
"""mappedFileSizeCommitLog."""

_LEAST_SIZES = {
    "file_size": 1,
    "queue_file_size": 1,
    "batch_queue_file_size": UNIT_BYTES["batch"],
    "extension_file_size": 24,
}
"""Bytes of the shortest files; queue files are rounded up to a unit, and one of extensions holds a unit and 4 bytes behind it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreOptions:
    """The options of `StoreWriter.open`, by the same names."""

    file_size: int | None = None
    queue_file_size: int | None = None
    batch_queue_file_size: int | None = None
    extension_file_size: int | None = None
    hash_slots: int | None = None
    max_entries: int | None = None
    zone: str | tzinfo | None = None
    store_host: str = "127.0.0.1:10911"
    delay_levels: str = DEFAULT_DELAY_LEVELS
    flush: Flush = "async"
    last_exit_ok: bool | None = None
    truncate: bool = False
    begin_phy_offset: int = 0
    compat: Compat | None = None

    def __post_init__(self) -> None:
        """Refuse what cannot be, before anything is touched.

        Raises:
            ValueError: An option of no sense.
        """
        numbers = (field.name for field in fields(self) if field.type in ("int", "int | None"))
        check_int64(**{name: getattr(self, name) for name in numbers})
        for name, least in _LEAST_SIZES.items():
            size = getattr(self, name)
            if size is not None and size < least:
                raise ValueError(f"{name} is {least} or more, not {size}")
        if (self.hash_slots is None) != (self.max_entries is None):
            raise ValueError("give both hash_slots and max_entries, or neither")
        if self.hash_slots is not None and self.max_entries is not None:
            if min(self.hash_slots, self.max_entries) < 1:
                raise ValueError(f"an index cannot have {self.hash_slots} slots and {self.max_entries} entries")
            if self.max_entries == 1:
                raise ValueError("max_entries is 2 or more, not 1: an index file holds one entry less")
        resolve_zone(self.zone)
        if self.compat not in (None, "4.9.3", "5.3.3", "5.5.0"):
            raise ValueError(f'compat is None, "4.9.3", "5.3.3" or "5.5.0", not {self.compat!r}')
        if self.flush not in ("async", "sync", "none"):
            raise ValueError(f'flush is "async", "sync" or "none", not {self.flush!r}')
        if self.begin_phy_offset < 0 or self.begin_phy_offset % (self.file_size or DEFAULT_FILE_SIZE):
            raise ValueError(f"begin_phy_offset is the first byte of a file, not {self.begin_phy_offset}")

    @property
    def queue_files(self) -> dict[str, Any]:
        """Sizes of queue files that are given, as `ConsumeQueueWriter.open` takes them."""
        unit = UNIT_BYTES["plain"]
        sizes = {
            # Rounded up to whole units, as a broker does.
            "file_size": None if self.queue_file_size is None else -(-self.queue_file_size // unit) * unit,
            "batch_file_size": self.batch_queue_file_size,
            "extension_file_size": self.extension_file_size,
        }
        return {name: size for name, size in sizes.items() if size is not None}
