"""Seed the corpora of the fuzz targets from the golden stores: `python fuzz/seed.py`."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

HOME = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(HOME / "tests" / "python"))

import golden  # noqa: E402 -- found by the line above

_MOST = 65_536


def main() -> None:
    """Write one file of the log, one text of properties and one queue file of each store."""
    for case in ("basic", "ipv6", "v5-basic"):
        with tempfile.TemporaryDirectory() as scratch:
            root = golden.unpack(case, Path(scratch))
            _seed("frames", case, next(iter(sorted((root / "commitlog").iterdir()))).read_bytes()[:_MOST])
            queue = max((root / "consumequeue").glob("*/*/*"), key=lambda file: file.stat().st_mtime_ns)
            _seed("queue_units", case, queue.read_bytes())
        for number, row in enumerate(golden.rows(case, "messages")[:20]):
            text = "\x02".join(f"{name}\x01{value}" for name, value in row["properties"].items())
            _seed("properties", f"{case}-{number}", text.encode("utf-8", "replace"))


def _seed(target: str, name: str, content: bytes) -> None:
    corpus = HOME / "fuzz" / "corpus" / target
    corpus.mkdir(parents=True, exist_ok=True)
    (corpus / name).write_bytes(content)


if __name__ == "__main__":
    main()
