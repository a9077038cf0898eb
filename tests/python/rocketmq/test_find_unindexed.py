"""How much of the log is read to open a store and return the first answer: not all of a file of one gigabyte."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

from logdex.rocketmq import CommitLog, MessageStore

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

_BODY_CRC = 8


def _last_file(root: Path) -> Path:
    return max((root / "commitlog").iterdir())


def _last_indexed(root: Path) -> int:
    with MessageStore.open(root) as store:
        assert store.index is not None
        return max(file.header.end_phy_offset for file in store.index.files)


def _spoil_first_message(root: Path) -> int:
    """Damage the first message of the last log file; return its offset."""
    with _last_file(root).open("r+b") as file:
        file.seek(_BODY_CRC)
        file.write(b"\0\0\0\0")
    return int(_last_file(root).name)


def test_the_end_is_looked_for_from_the_last_indexed_message_on(store: Callable[[str], Path]) -> None:
    root = store("basic")
    with CommitLog.open(root / "commitlog") as log:
        end = log.max_offset
    begin = _spoil_first_message(root)
    assert begin < _last_indexed(root) < end
    with CommitLog.open(root / "commitlog") as log:
        assert log.max_offset == begin
    with MessageStore.open(root) as opened:
        assert opened.commit_log.max_offset == end


def test_an_index_proves_no_end_where_the_broker_was_killed(store: Callable[[str], Path]) -> None:
    root = store("basic")
    begin = _spoil_first_message(root)
    (root / "abort").touch()
    with MessageStore.open(root) as opened:
        assert opened.commit_log.max_offset == begin


def test_an_index_that_the_queues_do_not_confirm_proves_no_end(store: Callable[[str], Path]) -> None:
    root = store("basic")
    last = _last_indexed(root)
    begin = _spoil_first_message(root)
    with MessageStore.open(root) as opened:
        message = opened.message(last)
    assert message is not None
    shutil.rmtree(root / "consumequeue" / message.topic / str(message.queue_id))
    with MessageStore.open(root) as opened:
        assert opened.commit_log.max_offset == begin
        assert opened.find(message.topic, message.uniq_key or "")


def test_an_index_beyond_the_log_proves_no_end(store: Callable[[str], Path]) -> None:
    root = store("basic")
    _last_file(root).unlink()
    with CommitLog.open(root / "commitlog") as log, MessageStore.open(root) as opened:
        assert opened.commit_log.max_offset == log.max_offset < _last_indexed(root)


def test_what_the_index_leaves_open_is_not_read_from_the_beginning_of_a_file(store: Callable[[str], Path]) -> None:
    root = store("basic")
    with MessageStore.open(root) as opened:
        whole = [message.phy_offset for message in opened.find("order_events", "Aa")]
    spoilt = _spoil_first_message(root)
    with MessageStore.open(root) as opened:
        result = opened.find("order_events", "Aa")
    assert result.scanned_bytes > 0
    # A walk from the beginning of the file would meet the damaged message.
    assert result.complete
    assert [message.phy_offset for message in result] == [offset for offset in whole if offset != spoilt]


def test_a_range_with_damage_is_read_from_the_beginning_of_its_file(store: Callable[[str], Path]) -> None:
    root = store("basic")
    for file in (root / "index").iterdir():
        file.unlink()
    with MessageStore.open(root) as opened:
        whole = {message.phy_offset for message in opened.find("order_events", "Aa")}
        spoilt = min(whole)
    with (root / "commitlog" / f"{0:020d}").open("r+b") as log:
        log.seek(spoilt + _BODY_CRC)
        log.write(b"\0\0\0\0")
    with MessageStore.open(root) as opened:
        result = opened.find("order_events", "Aa")
    assert {message.phy_offset for message in result} == whole - {spoilt}
    assert not result.complete


def test_reading_what_is_not_indexed_tells_how_far_it_is(store: Callable[[str], Path]) -> None:
    root = store("basic")
    for file in (root / "index").iterdir():
        file.unlink()
    told: list[tuple[int, int]] = []
    with MessageStore.open(root) as opened:
        size = opened.commit_log.max_offset - opened.commit_log.min_offset
        result = opened.find("order_events", "Aa", progress=lambda done, total: told.append((done, total)))
        opened.find("order_events", "Aa", progress=lambda done, total: told.append((done, total)))
    assert result.scanned_bytes == size
    assert told
    assert told == sorted(told)
    assert told[-1] == (size, size)
