"""logdex puts a broker's messages with the same store times, and writes the same files."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest

from comparison import first_difference, index_contents
from logdex.rocketmq import CommitLog, StoreCheckpoint, StoreWriter
from traffic_store import mixture
from written_store import CONFIG, SIZES, broker_puts, log_rows

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from rocketmq_driver import Driver

MESSAGES = 700
EXTENSION_FILE_SIZE = 4_000
WAYS: dict[str, dict[str, Any]] = {
    "plain": {},
    "multi-dispatch": {"enableMultiDispatch": True, "enableLmq": True},
    "extension": {"enableConsumeQueueExt": True, "mappedFileSizeConsumeQueueExt": EXTENSION_FILE_SIZE},
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("batch_size", [1, 64, 8_192])
def test_whole_store(driver: Driver, tmp_path: Path, way: str, batch_size: int, say: Callable[[str], None]) -> None:
    theirs, ours = tmp_path / "theirs", tmp_path / "ours"
    assert driver.ask("store_load", root=theirs, config=CONFIG | WAYS[way])["ok"]
    driver.ask("store_start")
    broker_puts(driver, _messages(way))
    driver.ask("store_put_batch", messages=mixture(9, 30, batchable=True))
    driver.ask("store_stop")
    extension = EXTENSION_FILE_SIZE if way == "extension" else None
    with (
        closing(CommitLog.open(theirs / "commitlog")) as log,
        StoreWriter.open(
            ours,
            services=False,
            extension_file_size=extension,
            multi_dispatch="enableMultiDispatch" in WAYS[way],
            **SIZES,
        ) as writer,
    ):
        for batch in log.scan(body="stored", batch_size=batch_size):
            writer.put_messages(batch, body="stored", park=False)

    for part in ("commitlog", "consumequeue", "consumequeue_ext"):
        mine, its = _files(ours / part), _files(theirs / part)
        assert list(mine) == list(its)
        assert first_difference(list(mine.values()), list(its.values())) is None, part
    # Names say when a file was made.
    assert first_difference(index_contents(ours), index_contents(theirs)) is None
    assert len(index_contents(ours)) > 3
    _same_checkpoint(ours, theirs)
    say(
        f"a store put again, {way}, {batch_size:,} at once: {len(_files(ours / 'commitlog'))} files of log, all files alike"
    )


def _messages(way: str) -> list[dict[str, Any]]:
    messages = mixture(10, MESSAGES)
    if way == "multi-dispatch":
        for number, message in enumerate(messages):
            if number % 3 == 0 and message["sys_flag"] == 0:
                queues = ("%LMQ%a", "%LMQ%a,%LMQ%b", "other,%LMQ%b")[number % 9 // 3]
                message["properties"]["INNER_MULTI_DISPATCH"] = queues
    return messages


def _files(folder: Path) -> dict[str, bytes]:
    return {str(file.relative_to(folder)): file.read_bytes() for file in sorted(folder.rglob("*")) if file.is_file()}


def _same_checkpoint(ours: Path, theirs: Path) -> None:
    (physic, *mine), (its_physic, *its) = _times(ours), _times(theirs)
    assert mine == its
    # The broker writes down the time of the log in its loop, not when it is shut down: of what its last messages were flushed
    # with, it says nothing. Where the log is flushed in whole, the time is that of the last message.
    assert its_physic <= physic == _last_store_timestamp(theirs)


def _last_store_timestamp(root: Path) -> int:
    return int(log_rows(root)[-1]["store_timestamp"])


def _times(root: Path) -> tuple[int, int, int]:
    with closing(StoreCheckpoint.open(root / "checkpoint")) as checkpoint:
        return checkpoint.physic_msg_timestamp, checkpoint.logics_msg_timestamp, checkpoint.index_msg_timestamp
