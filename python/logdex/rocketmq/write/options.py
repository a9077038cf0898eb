"""The options of a store that is written."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

from logdex._core import DEFAULT_DELAY_LEVELS
from logdex._types import check_int64
from logdex.hash_index.files import resolve_zone

if TYPE_CHECKING:
    from datetime import tzinfo

    from logdex._types import Append, Compat, Flush
    from logdex.rocketmq.write.retention import Retention

DEFAULT_FILE_SIZE = 1 << 30
"""mappedFileSizeCommitLog."""


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
    max_message_size: int = 4 << 20
    retention: Retention | None = None
    multi_dispatch: bool | None = None
    append: Append = "write"
    warm: bool = False
    lock_memory: bool = False

    def __post_init__(self) -> None:
        """Check the options without reading the store.

        Raises:
            TypeError: A number is not an integer.
            ValueError: An option has a value that no store has.
        """
        numbers = [field.name for field in fields(self) if field.type in ("int", "int | None")]
        check_int64(**{name: getattr(self, name) for name in numbers})
        for name in numbers:
            number = getattr(self, name)
            if name.endswith("_size") and number is not None and number < 1:
                raise ValueError(f"{name}={number}: expected 1 or more")
        if (self.hash_slots is None) != (self.max_entries is None):
            raise ValueError("hash_slots, max_entries: expected both or neither")
        if self.hash_slots is not None and self.hash_slots < 1:
            raise ValueError(f"hash_slots={self.hash_slots}: expected 1 or more")
        if self.max_entries is not None and self.max_entries < 2:  # noqa: PLR2004 -- a file holds one entry less
            raise ValueError(f"max_entries={self.max_entries}: expected 2 or more; an index file holds one entry less")
        resolve_zone(self.zone)
        if self.compat not in (None, "4.9.3", "5.3.3", "5.5.0"):
            raise ValueError(f'compat={self.compat!r}: expected None, "4.9.3", "5.3.3" or "5.5.0"')
        if self.flush not in ("async", "sync", "none"):
            raise ValueError(f'flush={self.flush!r}: expected "async", "sync" or "none"')
        if self.begin_phy_offset < 0 or self.begin_phy_offset % (self.file_size or DEFAULT_FILE_SIZE):
            raise ValueError(
                f"begin_phy_offset={self.begin_phy_offset}: expected the offset of the first byte of a file"
            )

    @property
    def queue_files(self) -> dict[str, Any]:
        """The sizes of queue files, as `ConsumeQueueWriter` takes them."""
        return {
            "file_size": self.queue_file_size,
            "batch_file_size": self.batch_queue_file_size,
            "extension_file_size": self.extension_file_size,
        }
