"""The logs of real brokers, put again message by message with their store times: the result is the broker's own bytes."""

from __future__ import annotations

import hashlib
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import golden
from logdex._core import CommitLogWriter
from logdex.rocketmq import CommitLog, StoreCheckpoint, StoreWriter

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from logdex._types import Append

    Store = Callable[[str], Path]

BLANK = bytes.fromhex("cbd43194")
SAME_BYTES = ("cqext", "ipv6", "pool", "rolled", "rolled-killed", "sync")
SAME_MESSAGES = tuple(case for case in golden.STORES if case not in SAME_BYTES)
"""Their logs hold texts of properties that are written in another way: with a separator at the end (from 5.2.0 on), with names
that come twice (elements of clients' batches), with empty values (5.5.0). Those are read as if they were not there."""
WHOLE = ("cqext", "ipv6", "pool", "sync")
"""Of those, the stores that hold their log from its first byte on, and whose broker ended as it should."""
PLACE = ("phy_offset", "msg_id", "store_size")
"""What depends on the sizes of all messages before."""
PREPARED, ROLLBACK = 4, 12


@pytest.mark.parametrize("append", ["write", "mapped", "pool"])
@pytest.mark.parametrize("batch_size", [1, 7, 8_192])
@pytest.mark.parametrize("case", SAME_BYTES)
def test_log_comes_out_byte_for_byte(store: Store, tmp_path: Path, case: str, batch_size: int, append: Append) -> None:
    root = store(case)
    _put_again(case, root, tmp_path / "commitlog", batch_size, append)
    theirs, ours = _frames(root / "commitlog"), _frames(tmp_path / "commitlog")
    assert ours.keys() == theirs.keys()
    # Digests are compared: pytest takes minutes to explain long bytes.
    different = [
        (at, theirs[at][:100].hex(), frame[:100].hex()) for at, frame in ours.items() if bytes(frame) != theirs[at]
    ]
    assert not different, different[0]


@pytest.mark.parametrize("case", SAME_MESSAGES)
def test_log_comes_out_message_for_message(store: Store, tmp_path: Path, case: str) -> None:
    root = store(case)
    put = _put_again(case, root, tmp_path / "commitlog", 8_192)
    ours, theirs = _rows(tmp_path / "commitlog"), _rows(root / "commitlog")
    assert len(theirs) == len(golden.rows(case, "messages"))
    for mine, its, answer in zip(ours, theirs, put, strict=True):
        assert all(mine[name] == answer[name] for name in answer)
        assert _without(mine, PLACE) == _without(its, PLACE)


@pytest.mark.parametrize("case", WHOLE)
def test_whole_store_comes_out_byte_for_byte(store: Store, tmp_path: Path, case: str) -> None:
    theirs, ours = store(case), tmp_path / "ours"
    given = golden.info(case)["store"]
    slots, entries = golden.geometry(case)
    with (
        closing(CommitLog.open(theirs / "commitlog")) as log,
        StoreWriter.open(
            ours,
            file_size=log.file_size,
            queue_file_size=given["mappedFileSizeConsumeQueue"],
            extension_file_size=given.get("mappedFileSizeConsumeQueueExt"),
            hash_slots=slots,
            max_entries=entries,
            zone="UTC",
            services=False,
        ) as writer,
    ):
        for batch in log.scan(body="stored", batch_size=100):
            writer.put_messages(batch, body="stored", park=False)
            writer.dispatch()
    assert _frames(ours / "commitlog") == _frames(theirs / "commitlog")
    for part in ("consumequeue", "consumequeue_ext"):
        assert _files(ours / part) == _files(theirs / part)
    # The name of an index file contains its creation time.
    assert list(_files(ours / "index").values()) == list(_files(theirs / "index").values())
    (physic, *others), (its_physic, *its) = _times(ours), _times(theirs)
    assert others == its
    # If a broker flushes in the background, its checkpoint may be older than its last message.
    last = golden.rows(case, "messages")[-1]["storeTimestamp"]
    assert physic == last >= its_physic
    assert (its_physic == last) == (given["flushDiskType"] == "SYNC_FLUSH")


def _files(folder: Path) -> dict[str, str]:
    """Return a digest of each file: pytest takes minutes to explain long bytes."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def _times(root: Path) -> tuple[int, int, int]:
    with closing(StoreCheckpoint.open(root / "checkpoint")) as checkpoint:
        return checkpoint.physic_msg_timestamp, checkpoint.logics_msg_timestamp, checkpoint.index_msg_timestamp


def _without(row: dict[str, Any], names: Iterable[str]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name not in names}


def _put_again(
    case: str, root: Path, directory: Path, batch_size: int, append: Append = "write"
) -> list[dict[str, Any]]:
    answers: list[dict[str, Any]] = []
    with closing(CommitLog.open(root / "commitlog")) as log:
        writer = CommitLogWriter.open(
            directory,
            end_phy_offset=log.min_offset,
            file_size=log.file_size,
            store_host="9.9.9.9:9",
            flush="none",
            compat=golden.info(case)["broker"],
            append=append,
        )
        for (topic, queue_id), first in _first_offsets(log).items():
            writer.set_queue_offset(topic, queue_id, first)
        for batch in log.scan(body="stored", batch_size=batch_size):
            answers += pa.record_batch(writer.put_messages(batch, body="stored", park=False)).to_pylist()
        writer.close()
    return answers


def _first_offsets(log: CommitLog) -> dict[tuple[str, int], int]:
    """Return where the queues begin in the log: in a log whose first files are gone, not at 0."""
    first: dict[tuple[str, int], int] = {}
    for row in pa.table(log.scan(columns=["topic", "queue_id", "queue_offset", "sys_flag"])).to_pylist():
        if row["sys_flag"] & ROLLBACK not in {PREPARED, ROLLBACK}:
            first.setdefault((row["topic"], row["queue_id"]), row["queue_offset"])
    return first


def _rows(directory: Path) -> list[dict[str, Any]]:
    with closing(CommitLog.open(directory)) as log:
        rows: list[dict[str, Any]] = pa.table(log.scan(body="stored")).to_pylist()
    return rows


def _frames(directory: Path) -> dict[int, memoryview]:
    """Return every frame by its offset, up to the end of the log; of a BLANK frame the 8 bytes with a meaning."""
    frames: dict[int, memoryview] = {}
    for file in sorted(directory.iterdir()):
        content = memoryview(file.read_bytes())
        for at in _starts(content):
            size = int.from_bytes(content[at : at + 4], "big")
            blank = bytes(content[at + 4 : at + 8]) == BLANK
            frames[int(file.name) + at] = content[at : at + (8 if blank else size)]
    return frames


def _starts(content: memoryview) -> Iterable[int]:
    at = 0
    while at + 8 <= len(content) and any(content[at : at + 8]):
        yield at
        at += int.from_bytes(content[at : at + 4], "big")
