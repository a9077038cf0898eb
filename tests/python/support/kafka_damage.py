"""Random damages of Kafka log directories, and the records that they may cost.

Nothing here imports logdex: what a test compares with must not pass through the code under test.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import random
    from pathlib import Path

_INDEXES = (".index", ".timeindex", ".txnindex", ".snapshot")


def damage_directory(rng: random.Random, log_dir: Path, healthy: Path) -> tuple[set[tuple[str, int, int]], list[str]]:
    """Damage one to three files of a copy of a healthy log directory.

    Return topic, partition and offset of the records in batches that were touched, and the kinds of the files: log, index, text.
    """
    lost: set[tuple[str, int, int]] = set()
    kinds = []
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        kind = rng.choice(("log", "log", "log", "index", "text"))
        files = [path for path in sorted(log_dir.rglob("*")) if path.is_file() and path.stat().st_size > 0]
        path = rng.choice([path for path in files if _kind(path) == kind])
        whole = (healthy / path.relative_to(log_dir)).read_bytes()
        if path.read_bytes() != whole:
            continue
        kinds.append(kind)
        if kind == "text":
            cut = whole[: rng.randrange(len(whole) + 1)]
            path.write_bytes(rng.choice((bytes(len(whole)), cut, b"", rng.randbytes(20))))
        elif kind == "index" and rng.randrange(4) == 0:
            path.unlink()
        else:
            begin, end = _change(rng, path)
            topic, _, partition = path.parent.name.rpartition("-")
            for base, last in _touched(whole, begin, end) if kind == "log" else ():
                lost |= {(topic, int(partition), offset) for offset in range(base, last + 1)}
    return lost, kinds


def _kind(path: Path) -> str | None:
    if path.name.endswith("checkpoint") or path.name == "partition.metadata":
        return "text"
    return "log" if path.suffix == ".log" else "index" if path.suffix in _INDEXES else None


def _change(rng: random.Random, path: Path) -> tuple[int, int]:
    """Damage a file, and return the part of it that was touched."""
    content = path.read_bytes()
    size = len(content)
    at = rng.randrange(size)
    length = min(rng.choice((1, 4, 61, 600)), size - at)
    before, part, after = content[:at], content[at : at + length], content[at + length :]
    flipped = bytes([part[0] ^ (1 << rng.randrange(8))]) + part[1:]
    end = at + length
    new, begin, end = rng.choice(
        (
            (before + flipped + after, at, at + 1),
            (before + flipped + after, at, at + 1),
            (before + flipped + after, at, at + 1),
            (before + bytes(length) + after, at, end),
            (before + rng.randbytes(length) + after, at, end),
            (before, at, size),
            (before + rng.randbytes(length) + part + after, at, at + 1),
            (before + after, at, end),
            (content + rng.choice((bytes(length), rng.randbytes(length), content[:length])), size, size + 1),
        )
    )
    path.write_bytes(new)
    return begin, end


def _touched(log: bytes, begin: int, end: int) -> list[tuple[int, int]]:
    """Return the offsets of the batches of a log that a change of these bytes touches."""
    at, found = 0, []
    while at < len(log):
        base, size = int.from_bytes(log[at : at + 8], "big"), int.from_bytes(log[at + 8 : at + 12], "big")
        last = base if log[at + 16] < 2 else base + int.from_bytes(log[at + 23 : at + 27], "big")
        if at < end and begin < at + 12 + size:
            found.append((base, last))
        at += 12 + size
    return found
