"""Seed the corpora of the fuzz targets from the golden files of real brokers: `python fuzz/seed.py [TARGET...]`.

Seeds are small: a few frames or batches, one index file, so that a run tries many changes of them.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

HOME = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(HOME / "tests" / "python" / "support"))

import golden  # noqa: E402 -- found by the line above
import golden_kafka  # noqa: E402
import wire  # noqa: E402

_MOST = 4096
"""Bytes of a seed."""
_STORES = ("basic", "ipv6", "v5-basic", "v5-3-3")
_LOGS = ("codecs", "codecs-4x", "compacted", "follower", "legacy", "timestamps", "transactions")
_TRAFFIC = ("remoting-read", "client-traffic", "acl")
_PER_CASE = 24
"""Seeds of one case and target."""
_STATED_OFFSET = 28
"""Position of a frame's own offset, which its checksum does not cover."""


def main(targets: list[str]) -> None:
    """Write the seeds of these targets, by default of all."""
    for target, seeds in _SEEDS.items():
        if not targets or target in targets:
            corpus = HOME / "fuzz" / "corpus" / target
            corpus.mkdir(parents=True, exist_ok=True)
            for name, content in seeds().items():
                (corpus / name).write_bytes(content)


def _frames() -> dict[str, bytes]:
    """Yield runs of frames that fit into a seed, each frame with its offset in the seed."""
    seeds = {}
    for case in _STORES:
        with tempfile.TemporaryDirectory() as scratch:
            files = sorted((golden.unpack(case, Path(scratch)) / "commitlog").iterdir())
            origin, log = int(files[0].name), b"".join(file.read_bytes() for file in files)
        runs = [bytearray()]
        for row in golden.rows(case, "messages"):
            at = row["physicalOffset"] - origin
            frame = log[at : at + row["storeSize"]]
            if len(frame) > _MOST:
                continue
            if len(runs[-1]) + len(frame) > _MOST:
                runs.append(bytearray())
            offset = len(runs[-1]).to_bytes(8, "big")
            runs[-1] += frame[:_STATED_OFFSET] + offset + frame[_STATED_OFFSET + 8 :]
        for number, run in enumerate(runs[:: max(1, len(runs) // _PER_CASE)]):
            seeds[f"{case}-{number}"] = bytes(run)
    return seeds


def _properties() -> dict[str, bytes]:
    """Yield the properties of messages."""
    seeds = {}
    for case in _STORES:
        for number, row in enumerate(golden.rows(case, "messages")[:_PER_CASE]):
            text = "\x02".join(f"{name}\x01{value}" for name, value in row["properties"].items())
            seeds[f"{case}-{number}"] = text.encode("utf-8", "replace")
    return seeds


def _queue_units() -> dict[str, bytes]:
    """Yield the newest queue file of each store."""
    seeds = {}
    for case in _STORES:
        with tempfile.TemporaryDirectory() as scratch:
            root = golden.unpack(case, Path(scratch))
            queue = max((root / "consumequeue").glob("*/*/*"), key=lambda file: file.stat().st_mtime_ns)
            seeds[case] = queue.read_bytes()[:_MOST]
    return seeds


def _index_file() -> dict[str, bytes]:
    """Yield index files of a geometry that the target uses: slots and entries, minus one, then the file."""
    seeds = {}
    for name in golden.INDEX_FILES:
        case = golden.index_file(name)
        slots, entries = case["hashSlotNum"], case["indexNum"]
        if slots <= 24 and entries <= 40:  # noqa: PLR2004 -- SLOTS and ENTRIES of the target
            seeds[name] = bytes([slots - 1, entries - 1]) + golden.index_file_bytes(name)
    return seeds


def _kafka_files(suffix: str) -> dict[str, bytes]:
    """Yield files of partitions, by case and position."""
    files = {}
    for case in (*_LOGS, *golden_kafka.DAMAGED):
        with tempfile.TemporaryDirectory() as scratch:
            root = golden_kafka.unpack(case, Path(scratch))
            found = [file for file in sorted(root.rglob(f"*{suffix}")) if file.stat().st_size]
            for number, file in enumerate(found[:: max(1, len(found) // _PER_CASE)]):
                files[f"{case}-{number}{suffix}"] = file.read_bytes()
    return files


def _kafka_batches() -> dict[str, bytes]:
    """Yield segments, truncated to the size of a seed."""
    return {name: content[:_MOST] for name, content in _kafka_files(".log").items()}


def _kafka_indexes() -> dict[str, bytes]:
    """Yield files of each kind, after the target's number of the kind and the position that separates two files."""
    seeds = {}
    for kind, suffix in ((0, ".index"), (1, ".timeindex"), (3, ".txnindex"), (4, ".snapshot")):
        for name, content in _kafka_files(suffix).items():
            seeds[name] = bytes([kind, 0]) + content[: _MOST // 4]
    # A log of twelve batches of 85 bytes and three records a batch is what the target holds indexes against.
    index = b"".join((3 * batch + 2).to_bytes(4, "big") + (85 * batch).to_bytes(4, "big") for batch in (2, 5, 8))
    times = b"".join(
        (1_700_000_000_002 + 3 * batch).to_bytes(8, "big") + (3 * batch + 2).to_bytes(4, "big") for batch in (2, 5, 8)
    )
    seeds["valid.index"] = bytes([0, 0]) + index
    seeds["valid.timeindex"] = bytes([1, 0]) + times
    seeds["valid.both"] = bytes([2, len(index)]) + index + times
    return seeds


def _remoting() -> dict[str, bytes]:
    """Yield recorded requests, and one with a binary header."""
    recorded = [bytes.fromhex(each["requestHex"]) for name in _TRAFFIC for each in wire.vectors(name)]
    seeds = [*recorded, wire.binary_request(11, {"topic": "T", "queueId": "1"}, opaque=7)]
    return {f"{number}": seed for number, seed in enumerate(seeds) if len(seed) <= _MOST}


_SEEDS = {
    "frames": _frames,
    "properties": _properties,
    "queue_units": _queue_units,
    "index_file": _index_file,
    "kafka_batches": _kafka_batches,
    "kafka_indexes": _kafka_indexes,
    "remoting": _remoting,
}


if __name__ == "__main__":
    main(sys.argv[1:])
