"""Parts of a golden store that are removed or damaged, and the message whose search notices it."""

from __future__ import annotations

import gzip
from typing import TYPE_CHECKING

import golden

if TYPE_CHECKING:
    from pathlib import Path

FILE = 65_536
GAP = (2 * FILE, 3 * FILE)
ROWS = golden.rows("basic", "messages")
TOPIC = "TopicTest"
IN_GAP = next(
    row
    for row in ROWS
    if row["topic"] == TOPIC
    and GAP[0] < row["physicalOffset"] < GAP[1]
    and row["uniqKey"]
    and row["storedBodyLength"] > 10
)
LAST = next(r for r in reversed(ROWS) if r["uniqKey"])
ASKED = {"log-file": IN_GAP, "last-log-file": LAST, "queue-file": IN_GAP, "index-file": IN_GAP, "frame": IN_GAP}
"""The message that is asked for, by what is missing."""


def log_file(root: Path, number: int) -> Path:
    return root / "commitlog" / f"{number * FILE:020}"


def take(root: Path, kind: str) -> None:
    """Remove or damage a part of the store."""
    if kind == "log-file":
        # Compressed in place, as people do.
        path = log_file(root, 2)
        path.with_suffix(".gz").write_bytes(gzip.compress(path.read_bytes()))
        path.unlink()
    elif kind == "first-log-file":
        path = log_file(root, 0)
        path.with_suffix(".gz").write_bytes(gzip.compress(path.read_bytes()))
        path.unlink()
    elif kind == "last-log-file":
        log_file(root, 4).unlink()
    elif kind == "queue-file":
        (root / "consumequeue" / TOPIC / "0" / f"{1000:020}").unlink()
    elif kind == "index-file":
        sorted((root / "index").iterdir())[2].unlink()
    else:
        path = log_file(root, 2)
        content = bytearray(path.read_bytes())
        # A byte of the body.
        content[IN_GAP["physicalOffset"] - GAP[0] + 90] ^= 1
        path.write_bytes(content)


def lost(kind: str) -> set[int]:
    """Return the offsets of the messages that are lost."""
    known = {row["physicalOffset"] for row in ROWS}
    if kind == "frame":
        return {IN_GAP["physicalOffset"]}
    begin, end = {"log-file": GAP, "last-log-file": (4 * FILE, 5 * FILE)}.get(kind, (0, 0))
    return {at for at in known if begin <= at < end}
