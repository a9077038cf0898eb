"""Loads the golden data under tests/golden/kafka-tiered: logs of real brokers before and after their segments were moved away.

tests/golden/kafka-tiered/README.md says where the data comes from. Nothing here imports logdex.
"""

from __future__ import annotations

import base64
import functools
import json
import lzma
from pathlib import Path
from typing import Any

import golden_kafka

ROOT = Path(__file__).resolve().parents[2] / "golden" / "kafka-tiered"

CASES = tuple(sorted(folder.name for folder in ROOT.iterdir() if folder.is_dir()))
"""All cases, by the name of their folder."""
ENCRYPTED = tuple(case for case in CASES if "encrypted" in case)
RECORDS = 540
"""Records of each case, without transaction markers."""
COMMITTED = 472
"""Those of no aborted transaction."""


def info(case: str) -> dict[str, Any]:
    """Read case.json."""
    value: dict[str, Any] = json.loads((ROOT / case / "case.json").read_text())
    return value


def keys(case: str) -> dict[str, Path] | None:
    """Return the private keys of a case by the names of their key pairs; None if it is not encrypted."""
    files = {path.stem: path for path in sorted((ROOT / case).glob("*.pem"))}
    return files or None


def unpack(case: str, directory: Path) -> Path:
    """Unpack the log directory `before` and `after`, and the `remote` storage, into directories of these names."""
    for name in ("before", "after", "remote"):
        golden_kafka.unpack_archive(ROOT / case / f"{name}.tar.xz", directory / name)
    return directory


@functools.lru_cache
def records(case: str, *, committed: bool = False) -> list[dict[str, Any]]:
    """Return what a consumer read before the segments were moved, in the order of partitions and offsets."""
    lines = lzma.decompress((ROOT / case / "records.jsonl.xz").read_bytes()).decode().splitlines()
    rows = [json.loads(line) for line in lines]
    kept = [row for row in rows if row.pop("readCommitted") or not committed]
    for row in kept:
        row["key"], row["value"] = _bytes(row["key"]), _bytes(row["value"])
        row["headers"] = [(name, _bytes(value)) for name, value in row["headers"]]
    return sorted(kept, key=lambda row: (row["topic"], row["partition"], row["offset"]))


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)
