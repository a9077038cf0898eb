"""The exceptions of logdex. All of them pickle, so they pass through Spark unchanged."""

from __future__ import annotations


class LogdexError(Exception):
    """Base class of errors about broker files."""


class CorruptFileError(LogdexError, ValueError):
    """A file holds invalid bytes.

    Attributes:
        path: The file, as a string.
        offset: Byte offset of the fault in the file.
        expected: What the format requires, in words.
        found: What the file holds, in words.
    """

    def __init__(self, path: str, offset: int, expected: str, found: str) -> None:
        """Keep path, offset, expected and found."""
        super().__init__(path, offset, expected, found)
        self.path = path
        self.offset = offset
        self.expected = expected
        self.found = found

    def __str__(self) -> str:
        """Return the file, the offset, what was expected and what was found."""
        return f"{self.path} at byte {self.offset}: expected {self.expected}, found {self.found}"


class GeometryError(LogdexError, ValueError):
    """The number of slots and entries of an index file cannot be inferred from its content.

    Attributes:
        path: The file, as a string.
        fits: The geometries that fit, as (hash_slots, max_entries); at most the first 16.
        count: The number of geometries that fit.
    """

    def __init__(self, path: str, fits: list[tuple[int, int]], count: int, size: int) -> None:
        """Keep path, fits, their number and the size of the file."""
        super().__init__(path, fits, count, size)
        self.path = path
        self.fits = fits
        self.count = count
        self.size = size

    def __str__(self) -> str:
        """Return the fits and what to do."""
        if not self.count:
            fits = "no geometry fits its content"
        else:
            shown = ", ".join(f"({slots}, {entries})" for slots, entries in self.fits)
            more = ", ..." if self.count > len(self.fits) else ""
            fits = f"{self.count} geometries (hash_slots, max_entries) fit its content: {shown}{more}"
        return (
            f"{self.path} ({self.size} bytes): {fits}; "
            "give hash_slots and max_entries (the broker's maxHashSlotNum and maxIndexNum)"
        )


class IndexFullError(LogdexError):
    """An append to a full index."""


class LockedError(LogdexError):
    """A running broker, or another writer, holds the lock of the store.

    Attributes:
        path: The lock file, as a string.
        pid: The process that holds it; 0 if it is unknown.
    """

    def __init__(self, path: str, pid: int) -> None:
        """Keep path and process id."""
        super().__init__(path, pid)
        self.path = path
        self.pid = pid

    def __str__(self) -> str:
        """Return the lock, its holder and what to do."""
        holder = f"process {self.pid}" if self.pid else "another process"
        return f"{self.path} is held by {holder}: stop the broker before writing to its store"


__all__: list[str] = ["CorruptFileError", "GeometryError", "IndexFullError", "LockedError", "LogdexError"]
