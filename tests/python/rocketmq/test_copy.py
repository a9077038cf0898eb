"""Copying messages into a new store."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import golden
from logdex.rocketmq import CommitLog, MessageStore, StoreWriter, copy_messages

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

PLACE = ("phy_offset", "msg_id")
KEPT = (
    "topic",
    "queue_id",
    "queue_offset",
    "store_timestamp",
    "born_timestamp",
    "uniq_key",
    "tags",
    "keys",
    "body",
    "properties",
    "flag",
    "sys_flag",
    "body_crc",
    "reconsume_times",
    "prepared_transaction_offset",
    "born_host",
    "store_host",
)


def read(root: Path, **filters: Any) -> pa.Table:
    with MessageStore.open(root) as store:
        return pa.table(store.messages(columns=KEPT, body="stored", **filters))


@pytest.mark.parametrize("case", golden.STORES)
def test_a_copy_has_the_same_messages_in_the_same_queues(
    case: str, store: Callable[[str], Path], tmp_path: Path
) -> None:
    root, target = store(case), tmp_path / "copy"
    with MessageStore.open(root) as opened:
        report = copy_messages(opened, target, zone="UTC", compat=golden.info(case)["broker"])
        sizes = opened.commit_log.file_size
    assert report.ok, report
    before, after = read(root), read(target)
    assert report.checked["messages"] == before.num_rows == after.num_rows
    for name in KEPT:
        assert after[name].to_pylist() == before[name].to_pylist(), name
    with MessageStore.open(target) as copied, MessageStore.open(root) as opened:
        verified = copied.verify()
        assert verified.ok, verified
        assert copied.commit_log.file_size == sizes
        for row in golden.rows(case, "messages")[::20]:
            if row["uniqKey"]:
                wanted, found = (one.find(row["topic"], row["uniqKey"]) for one in (opened, copied))
                assert [message.queue_offset for message in found] == [message.queue_offset for message in wanted]
    assert not (target / "abort").exists()
    table = root / "config" / "delayOffset.json"
    if table.exists():
        with StoreWriter.open(target, services=False) as writer, StoreWriter.open(root, services=False) as source:
            assert writer.deliver_due(1 << 62) == source.deliver_due(1 << 62)


def test_the_same_log_where_nothing_is_missing(store: Callable[[str], Path], tmp_path: Path) -> None:
    root = store("sync")
    with MessageStore.open(root) as opened:
        copy_messages(opened, tmp_path / "copy", zone="UTC")
    for path in sorted((root / "commitlog").iterdir()):
        assert (tmp_path / "copy" / "commitlog" / path.name).read_bytes() == path.read_bytes()


@pytest.mark.parametrize("case", ["basic", "rolled", "v5-basic"])
def test_a_topic_and_a_time_range(case: str, store: Callable[[str], Path], tmp_path: Path) -> None:
    root = store(case)
    every = read(root)
    topics = every["topic"].value_counts().to_pylist()
    topic = max(topics, key=lambda row: row["counts"])["values"]
    times = sorted(every.filter(pc.equal(every["topic"], topic))["store_timestamp"].cast(pa.int64()).to_pylist())
    begin, end = times[len(times) // 4], times[3 * len(times) // 4]
    with MessageStore.open(root) as opened:
        report = copy_messages(opened, tmp_path / "copy", topic=topic, begin=begin, end=end)
    assert report.ok, report
    expected, found = read(root, topic=topic, begin=begin, end=end), read(tmp_path / "copy")
    assert 0 < expected.num_rows < len(times)
    # If the clock was set back, a time range leaves out messages in the middle, and later messages get lower queue offsets.
    for name in set(KEPT) - ({"queue_offset"} if case == "rolled" else set()):
        assert found[name].to_pylist() == expected[name].to_pylist(), name
    with CommitLog.open(tmp_path / "copy" / "commitlog") as log:
        # If the log begins with byte 0, 4.9.3 reads filling as messages.
        assert log.min_offset > 0
    with MessageStore.open(tmp_path / "copy") as copied:
        verified = copied.verify()
        assert verified.ok, verified
        assert copied.topics == [topic]
    assert not (tmp_path / "copy" / "config").exists()


def test_damage_is_passed_over_and_named(damaged_store: Callable[[str], Path], tmp_path: Path) -> None:
    root = damaged_store("crc-early-unclean")
    with MessageStore.open(root) as opened:
        report = copy_messages(opened, tmp_path / "copy")
        assert [finding.kind for finding in report.findings] == ["log-frame"]
    assert read(tmp_path / "copy").num_rows == len(golden.rows("basic", "messages")) - 1
    with MessageStore.open(tmp_path / "copy") as copied:
        verified = copied.verify()
        assert verified.ok, verified


def test_it_goes_into_a_directory_of_its_own(store: Callable[[str], Path], tmp_path: Path) -> None:
    root = store("sync")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "notes.txt").write_text("mine", encoding="utf-8")
    with MessageStore.open(root) as opened:
        with pytest.raises(FileExistsError):
            copy_messages(opened, root)
        with pytest.raises(FileExistsError, match="notes"):
            copy_messages(opened, tmp_path / "full")
        copy_messages(opened, tmp_path / "copy")
        with pytest.raises(FileExistsError, match="expected a missing or empty directory"):
            copy_messages(opened, tmp_path / "copy")
        steps: list[tuple[int, int]] = []
        copy_messages(opened, tmp_path / "again", progress=lambda done, total: steps.append((done, total)))
        assert steps
        assert all(done <= total for done, total in steps)


def test_a_copy_that_fails_is_left_as_after_a_crash(
    store: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch, MessageStore.open(store("sync")) as opened:
        patch.setattr("logdex.hash_index.index_writer.create_next", full)
        with pytest.raises(OSError, match="No space left"):
            copy_messages(opened, tmp_path / "copy")
    assert (tmp_path / "copy" / "abort").exists()
    with StoreWriter.open(tmp_path / "copy", services=False) as writer:
        assert writer.recovered.ok
    with MessageStore.open(tmp_path / "copy") as copied:
        assert copied.verify().ok


@pytest.mark.parametrize("lost", [[2], [0], [5], [9], [1, 2, 7], list(range(10)), list(range(5))])
@pytest.mark.parametrize("topic", [None, "SCHEDULE_TOPIC_XXXX"])
def test_what_waits_is_delivered_from_a_copy_and_what_was_delivered_is_not(
    tmp_path: Path, lost: list[int], topic: str | None
) -> None:
    root, begin = tmp_path / "store", 1_700_000_000_000
    sizes: dict[str, Any] = {"file_size": 65_536, "hash_slots": 100, "max_entries": 1000, "services": False}
    with StoreWriter.open(root, **sizes) as writer:
        places = [
            writer.put_message("A", keys=f"k{i}", delay_level=1, store_timestamp=begin + i * 1000).phy_offset
            for i in range(10)
        ]
        assert writer.deliver_due(begin + 5500) == 5
    with (root / "commitlog" / "00000000000000000000").open("r+b") as log:
        for place in lost:
            log.seek(places[place] + 4)
            log.write(b"\xff")
    with MessageStore.open(root) as opened:
        copy_messages(opened, tmp_path / "copy", topic=topic)
    waiting = [f"k{i}" for i in range(5, 10) if i not in lost]
    with StoreWriter.open(tmp_path / "copy", services=False) as writer:
        assert writer.deliver_due(begin + 10**6) == len(waiting)
        writer.put_message("A", keys="new", delay_level=1, store_timestamp=begin + 10**6)
        assert writer.deliver_due(begin + 2 * 10**6) == 1
    assert read(tmp_path / "copy", topic="A")["keys"].to_pylist()[-len(waiting) - 1 :] == [*waiting, "new"]
