"""Messages that a broker truncated and left on the disk, in real stores: whole, but no longer part of the log.

After a crash, a broker that meets a damaged message truncates its log there, erases nothing, and continues to write. The tests do
the same to a store that a real broker wrote.
"""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import golden
from logdex.rocketmq import CommitLog, MessageStore

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Store = Callable[[str], Path]

pytestmark = pytest.mark.filterwarnings("ignore::logdex.DamageWarning")

FILE = 65_536
LAST = 4 * FILE
CUT = 278_675
"""Where the message begins that `crc-last-clean` damages; the broker's log ends there."""


def rows() -> list[dict[str, Any]]:
    return golden.rows("basic", "messages")


def write(root: Path, phy_offset: int, content: bytes) -> None:
    with (root / "commitlog" / f"{phy_offset // FILE * FILE:020}").open("r+b") as file:
        file.seek(phy_offset % FILE)
        file.write(content)


def read(root: Path, row: dict[str, Any]) -> bytearray:
    phy_offset = row["physicalOffset"]
    content = (root / "commitlog" / f"{phy_offset // FILE * FILE:020}").read_bytes()
    return bytearray(content[phy_offset % FILE :][: row["storeSize"]])


def written_after_the_cut(
    root: Path, phy_offset: int, source: dict[str, Any], *, queue_offset: int, body: bytes
) -> int:
    """Write a message as a broker would, a copy of another one with a new place, time and body; return its size."""
    frame = read(root, source)
    begin, end = 88, 88 + source["storedBodyLength"]
    frame[begin:end] = body
    for at, size, value in (
        (0, 4, len(frame)),
        (8, 4, zlib.crc32(body) & 0x7FFF_FFFF),
        (20, 8, queue_offset),
        (28, 8, phy_offset),
        (56, 8, rows()[-1]["storeTimestamp"] + 60_000),
        (84, 4, len(body)),
    ):
        frame[at : at + size] = value.to_bytes(size, "big")
    write(root, phy_offset, bytes(frame))
    return len(frame)


def offsets(opened: MessageStore) -> list[int]:
    found: list[int] = pa.table(opened.messages(columns=["phy_offset"])).column(0).to_pylist()
    return found


def cut_back(damaged_store: Store) -> tuple[Path, list[int], int]:
    """Truncate a log as a broker's start does, and write one message; return the truncated offsets, and the end of the log."""
    root = damaged_store("crc-last-clean")
    # Killed before its queues and its index had the message.
    (root / "abort").touch()
    row = next(row for row in rows() if row["topic"] == "TopicTest" and row["sysFlag"] == 0)
    last = max(r["queueOffset"] for r in rows() if (r["topic"], r["queueId"]) == (row["topic"], row["queueId"]))
    size = written_after_the_cut(root, CUT, row, queue_offset=last, body=b"written after the cut")
    left = [r["physicalOffset"] for r in rows() if r["physicalOffset"] >= CUT + size]
    assert CUT + size not in left
    assert len(left) > 100
    return root, left, CUT + size


@pytest.mark.parametrize("access", ["mmap", "pread"])
@pytest.mark.parametrize("compat", [None, "4.9.3"])
def test_no_call_answers_what_was_cut_off(access: Any, compat: Any, damaged_store: Store) -> None:
    root, left, end = cut_back(damaged_store)
    known = [r["physicalOffset"] for r in rows() if r["physicalOffset"] <= CUT]
    with MessageStore.open(root, access=access, compat=compat, hash_slots=64, max_entries=256) as opened:
        log = opened.commit_log
        assert log.max_offset == end
        assert offsets(opened) == known
        assert log.messages([*known, *left], columns=["topic"]).column("topic").null_count == len(left)
        for row in rows():
            offset = row["physicalOffset"]
            assert (opened.message(offset) is None) == (offset in left)
            assert log.is_cut_off(offset) == (offset in left)
            if offset in left and row["uniqKey"]:
                assert opened.message(row["msgId"]) is None
                assert offset not in [m.phy_offset for m in opened.find(row["topic"], row["uniqKey"])]
        batch = pa.table(opened.find_batch([r["topic"] for r in rows()], [r["uniqKey"] for r in rows()]))
        assert not set(batch["phy_offset"].to_pylist()) & set(left)
        message = opened.message(CUT)
        assert message is not None
        assert message.body == b"written after the cut"
        assert not any(map(log.is_cut_off, (-1, CUT + 1, end, end + 10**12, 2**70)))


def test_each_is_said_to_be_cut_off(damaged_store: Store) -> None:
    root, left, _ = cut_back(damaged_store)
    row = next(r for r in rows() if r["physicalOffset"] == left[50])
    assert row["uniqKey"]
    with MessageStore.open(root) as opened:
        report = opened.verify()
        ghosts = [LAST + f.offset for f in report.findings if f.kind == "log-ghost"]
        assert ghosts == left
        told = opened.explain(row["topic"], row["uniqKey"])
        assert left[50] in [each.phy_offset for each in told.candidates if each.verdict == "cut-off"]
        assert "cut-off" in [cause.kind for cause in told.causes]
        # A caller can still ask for them.
        table = pa.table(opened.commit_log.scan(columns=["phy_offset"], stop="salvage")).to_pylist()
        assert [each["phy_offset"] for each in table if "cut-off" in (each["suspect"] or "")] == left


def test_what_lies_behind_damage_that_no_broker_met_is_there(damaged_store: Store) -> None:
    """By default; a broker, and compat with it, reads nothing after the end of its log."""
    root = damaged_store("crc-last-clean")
    behind = [r["physicalOffset"] for r in rows() if r["physicalOffset"] > CUT]
    with CommitLog.open(root / "commitlog") as log:
        assert log.messages(behind, columns=["topic"]).column("topic").null_count == 0
        assert not any(map(log.is_cut_off, behind))
    with CommitLog.open(root / "commitlog", compat="4.9.3") as log:
        assert log.messages(behind, columns=["topic"]).column("topic").null_count == len(behind)


def test_a_clock_step_behind_damage_loses_nothing(store: Store) -> None:
    """A message after damage that is older than one before it was not truncated: a truncation deletes later files."""
    root = store("rolled")
    known = golden.rows("rolled", "messages")
    times = [row["storeTimestamp"] for row in known]
    assert times != sorted(times)
    path = min((root / "commitlog").iterdir())
    content = bytearray(path.read_bytes())
    row = known[3]
    content[row["physicalOffset"] - int(path.name) + 88] ^= 1
    path.write_bytes(content)
    with MessageStore.open(root) as opened:
        assert offsets(opened) == [r["physicalOffset"] for r in known if r is not row]
        assert [m is None for m in map(opened.message, (r["physicalOffset"] for r in known))].count(True) == 1
        assert "log-ghost" not in opened.verify().kinds


@pytest.mark.parametrize("access", ["mmap", "pread"])
def test_filling_hides_what_was_there_before(access: Any, store: Store) -> None:
    """Only the first bytes of the filling at a file's end are written; the broker itself returns the bytes below."""
    root = store("basic")
    *_, over, below = (r for r in rows() if r["physicalOffset"] < FILE)
    at = over["physicalOffset"]
    write(root, at, (FILE - at).to_bytes(4, "big") + bytes.fromhex("cbd43194"))
    with MessageStore.open(root, access=access) as opened:
        assert opened.message(below["physicalOffset"]) is None
        assert opened.commit_log.is_cut_off(below["physicalOffset"])
        assert offsets(opened) == [r["physicalOffset"] for r in rows() if r not in (over, below)]
        assert [r["physicalOffset"] for r in rows() if opened.message(r["physicalOffset"]) is None] == [
            over["physicalOffset"],
            below["physicalOffset"],
        ]
    with CommitLog.open(root / "commitlog", access=access, compat="4.9.3") as log:
        assert log.message(below["physicalOffset"]) is not None
