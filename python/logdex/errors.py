"""The exceptions and warnings of logdex, and text that is safe to print. They pickle, so they pass through Spark unchanged."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

_SHOWN_FINDINGS = 3


def printable(text: str) -> str:
    """Escape control characters, line breaks among them, and characters that reverse or hide text.

    Names of files, keys and bodies come from others, and a terminal would obey them.
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)


class LogdexError(Exception):
    """Base class of errors about broker files."""


class CorruptFileError(LogdexError, ValueError):
    """A file holds invalid bytes at the byte `offset`: what the format requires there, and what the file holds."""

    def __init__(self, path: str, offset: int, expected: str, found: str) -> None:
        super().__init__(path, offset, expected, found)
        self.path = path
        self.offset = offset
        self.expected = expected
        self.found = found

    def __str__(self) -> str:
        return printable(f"{self.path} at byte {self.offset}: expected {self.expected}, found {self.found}")


class GeometryError(LogdexError, ValueError):
    """The number of slots and entries of an index file cannot be inferred from its content.

    `fits` has the first 16 of the `count` geometries that fit, as (hash_slots, max_entries). `size` is that of the file in bytes.
    """

    def __init__(self, path: str, fits: list[tuple[int, int]], count: int, size: int) -> None:
        super().__init__(path, fits, count, size)
        self.path = path
        self.fits = fits
        self.count = count
        self.size = size

    def __str__(self) -> str:
        fits = "no geometry fits its content"
        if self.count:
            shown = ", ".join(f"({slots}, {entries})" for slots, entries in self.fits)
            more = ", ..." if self.count > len(self.fits) else ""
            fits = f"{self.count} geometries (hash_slots, max_entries) fit its content: {shown}{more}"
        return (
            f"{printable(self.path)} ({self.size} bytes): {fits}; "
            "give hash_slots and max_entries (the broker's maxHashSlotNum and maxIndexNum)"
        )


class IndexFullError(LogdexError):
    """An append to a full index."""


class KafkaError(LogdexError):
    """A Kafka broker would refuse the operation: `error` is the name of Kafka's class, `code` its number in Kafka's protocol.

    Errors that have no number there have the code -1 (UNKNOWN_SERVER_ERROR).
    """

    def __init__(self, error: str, code: int, text: str) -> None:
        super().__init__(error, code, text)
        self.error = error
        self.code = code
        self.text = text

    def __str__(self) -> str:
        return printable(f"{self.error}: {self.text}")


class LockedError(LogdexError):
    """A running broker, or another writer, holds a store, an index directory or a file; `pid` is 0 if it is unknown."""

    def __init__(self, path: str, pid: int) -> None:
        super().__init__(path, pid)
        self.path = path
        self.pid = pid

    def __str__(self) -> str:
        holder = f"process {self.pid}" if self.pid else "another process"
        return f"{printable(self.path)} is held by {holder}: stop this broker or writer before writing to its files"


class WriteFailedError(LogdexError, OSError):
    """A write or an fsync failed, so what the disk holds is unknown. Every later put, flush and close raises it again."""

    def __str__(self) -> str:
        return f"{super().__str__()}; nothing more is written: close and open again, which recovers what the disk holds"


class DamageWarning(UserWarning):
    """A call passed over missing or damaged data; `findings` names each place. There is at most one warning a call."""

    def __init__(self, findings: Sequence[Any]) -> None:
        super().__init__(findings)
        self.findings = tuple(findings)

    def __str__(self) -> str:
        text = "; ".join(map(str, self.findings[:_SHOWN_FINDINGS]))
        rest = len(self.findings) - _SHOWN_FINDINGS
        return f"{text}; and {rest:,} more" if rest > 0 else text


class UnknownTopicWarning(UserWarning):
    """A call named an unknown topic. The text lists topics with similar names."""


__all__: list[str] = [
    "CorruptFileError",
    "DamageWarning",
    "GeometryError",
    "IndexFullError",
    "KafkaError",
    "LockedError",
    "LogdexError",
    "UnknownTopicWarning",
    "WriteFailedError",
]
