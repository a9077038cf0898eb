"""A batch of messages ends at a number of bytes in every read: compressed bodies become far larger than the log."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

import golden
from logdex.rocketmq import CommitLog, MessageStore, StoreWriter
from message_frames import frame_with_body

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

_BODY_BYTES = 30 << 20
_COUNT = 5
_TWO_A_BATCH = [2, 2, 1]


@pytest.fixture
def large(store: Callable[[str], Path], tmp_path: Path) -> Path:
    """A store of five messages with bodies of 30 MiB, with its queue; they all have one key."""
    one = frame_with_body(store("basic"), zlib.compress(bytes(_BODY_BYTES)), 1)
    root = tmp_path / "large"
    (root / "commitlog").mkdir(parents=True)
    log = b"".join(
        one[:20] + n.to_bytes(8, "big") + (n * len(one)).to_bytes(8, "big") + one[36:] for n in range(_COUNT)
    )
    (root / "commitlog" / ("0" * 20)).write_bytes(log)
    with MessageStore.open(root) as opened:
        assert opened.build_queues(root).ok
    return root


def sizes(stream: object) -> list[int]:
    batches: Iterable[pa.RecordBatch] = pa.RecordBatchReader.from_stream(stream)
    rows = []
    for batch in batches:
        lengths = [len(body.as_py()) for body in batch.column("body")]
        assert lengths == [_BODY_BYTES] * batch.num_rows
        rows.append(batch.num_rows)
    return rows


def test_a_batch_ends_at_64_mib(large: Path) -> None:
    first = golden.rows("basic", "messages")[0]
    topic, key = first["topic"], first["uniqKey"]
    with MessageStore.open(large) as opened:
        assert sizes(opened.commit_log.scan(batch_size=8_192)) == _TWO_A_BATCH
        assert sizes(opened.find_batch(topic, [key])) == _TWO_A_BATCH
        assert sizes(opened.find_batch(topic, [key], batch_size=1)) == [1] * _COUNT


def test_a_batch_ends_at_3_mib_unless_its_rows_are_given(large: Path) -> None:
    with MessageStore.open(large) as opened:
        for scan in (True, False):
            assert sizes(opened.messages(golden.rows("basic", "messages")[0]["topic"], scan=scan)) == [1] * _COUNT
        assert sizes(opened.commit_log.scan()) == [1] * _COUNT


@pytest.mark.parametrize("scan", [True, False])
def test_a_batch_has_more_rows_if_they_are_short(tmp_path: Path, *, scan: bool) -> None:
    with StoreWriter.open(tmp_path, services=False) as writer:
        for _ in range(4):
            writer.put_messages(
                {"topic": ["T"] * 10_000, "body": [bytes(1_000)] * 10_000, "properties": [{"KEYS": "k"}] * 10_000}
            )
    with MessageStore.open(tmp_path) as opened:
        batches = [batch.num_rows for batch in opened.messages("T", scan=scan)]
        assert all(1_000 < rows < 3_000 for rows in batches[:-1])
        assert sum(batches) == 40_000
        short = [batch.num_rows for batch in opened.messages("T", scan=scan, columns=["phy_offset"])]
        assert (max(short) > 3_500, sum(short)) == (True, 40_000)


def test_messages_in_batches(large: Path) -> None:
    with CommitLog.open(large / "commitlog") as log:
        size = log.max_offset // _COUNT
        asked = [0, 1, size, 2 * size, -1]
        batches = list(log.message_batches(asked, columns=("body", "phy_offset")))
        rows = [pair for batch in batches for pair in zip(*(c.to_pylist() for c in batch.columns), strict=True)]
        assert [batch.num_rows for batch in batches] == [3, 2]
        assert [offset for _, offset in rows] == asked
        assert [body and len(body) for body, _ in rows] == [_BODY_BYTES, None, _BODY_BYTES, _BODY_BYTES, None]
        assert list(log.message_batches([])) == []
        with pytest.raises(ValueError, match="no message column"):
            list(log.message_batches([0], columns=["nobody"]))
