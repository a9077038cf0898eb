"""MessageStore.messages: by topic, queue and time, exactly what the log holds, from the log and from the queues."""

from __future__ import annotations

import logging
import random
import shutil
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest

import golden
from logdex._core import QueueReader
from logdex.rocketmq import CommitLog, ConsumeQueue, MessageStore, StoreWriter

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

SEED = 20261121
_IN_QUEUES = (0, 8)


def offsets(stream: Any) -> list[int]:
    return pa.table(stream).column("phy_offset").to_pylist() if stream is not None else []


def passing(
    rows: list[dict[str, Any]], topic: str | None, queue: int | None, times: tuple[Any, Any]
) -> list[dict[str, Any]]:
    begin, end = times
    return [
        row
        for row in rows
        if topic in (None, row["topic"])
        and queue in (None, row["queueId"])
        and (begin is None or row["storeTimestamp"] >= begin)
        and (end is None or row["storeTimestamp"] <= end)
    ]


def questions(rows: list[dict[str, Any]], chance: random.Random) -> list[tuple[Any, Any, tuple[Any, Any]]]:
    times = [row["storeTimestamp"] for row in rows]
    asked: list[tuple[Any, Any, tuple[Any, Any]]] = []
    for topic in (None, *sorted({row["topic"] for row in rows}), "nobody's"):
        for queue in (None, *sorted({row["queueId"] for row in rows if row["topic"] == topic})):
            first, second = sorted(chance.choices(times, k=2))
            exact = chance.choice(times)
            ranges = (
                (None, None),
                (first, second),
                (first, None),
                (None, second),
                (exact, exact),
                (second + 1, first - 1),
            )
            asked += [(topic, queue, times) for times in ranges]
    return asked


@pytest.mark.filterwarnings("ignore::logdex.UnknownTopicWarning")
@pytest.mark.parametrize("case", golden.STORES)
def test_messages_are_those_of_the_log(case: str, store: Callable[[str], Path]) -> None:
    rows = golden.rows(case, "messages")
    compared = 0
    with MessageStore.open(store(case)) as opened:
        for topic, queue, times in questions(rows, random.Random(f"{SEED} {case}")):
            expected = [row["physicalOffset"] for row in passing(rows, topic, queue, times)]
            found = offsets(opened.messages(topic, queue, *times, columns=["phy_offset"]))
            assert found == expected, (SEED, topic, queue, times)
            compared += 1
    assert compared > 40


@pytest.mark.filterwarnings("ignore::logdex.UnknownTopicWarning")
@pytest.mark.parametrize("case", golden.STORES)
def test_queues_lead_to_the_same_messages(
    case: str, store: Callable[[str], Path], caplog: pytest.LogCaptureFixture
) -> None:
    """Without reading the log, except for messages of the raw transaction types, which no queue has units of."""
    rows = golden.rows(case, "messages")
    with MessageStore.open(store(case)) as opened:
        for topic, queue, times in questions(rows, random.Random(f"{SEED} {case}")):
            if topic is None:
                continue
            all_rows = passing(rows, topic, queue, times)
            found = offsets(opened.messages(topic, queue, *times, columns=["phy_offset"], scan=False))
            in_queues = [row["physicalOffset"] for row in all_rows if row["sysFlag"] & 12 in _IN_QUEUES]
            assert set(in_queues) <= set(found) <= {row["physicalOffset"] for row in all_rows}, (
                SEED,
                topic,
                queue,
                times,
            )
            assert found == sorted(found)
    # No unit was found wrong.
    assert {record.getMessage().split(";")[0] for record in caplog.records} <= {'topic "nobody\'s" has no queue'}


@pytest.mark.filterwarnings("ignore::logdex.UnknownTopicWarning")
def test_columns_are_as_in_a_scan(store: Callable[[str], Path]) -> None:
    with MessageStore.open(store("basic")) as opened:
        whole = pa.table(opened.commit_log.scan())
        assert pa.table(opened.messages()).equals(whole)
        topic = pa.table(opened.messages("order_events", scan=False))
        assert topic.equals(whole.filter(pa.compute.equal(whole["topic"], "order_events")))
        assert pa.table(opened.messages("order_events", columns=["keys", "body"])).column_names == ["keys", "body"]
        assert pa.table(opened.messages("nobody's")).schema == whole.schema
        with pytest.raises(ValueError, match="nonsense"):
            opened.messages(columns=["nonsense"])
        with pytest.raises(ValueError, match="scan"):
            opened.messages(scan="all")  # type: ignore[arg-type]


def test_what_is_dispatched_while_the_queues_are_read_is_not_passed_over(tmp_path: Path) -> None:
    with StoreWriter.open(tmp_path, file_size=65_536, hash_slots=10, max_entries=100, services=False) as writer:
        for number in range(8):
            writer.put_message("T", keys=f"k{number}")
            if number == 4:
                writer.flush()
        # A logdex writer marks the store. Its queues are not trusted until it ends; a broker's are.
        (tmp_path / "abort").unlink()
        with MessageStore.open(tmp_path) as opened:
            stream = iter(opened.messages("T", columns=["keys"], scan=False))
            found = next(stream)["keys"].to_pylist()
            assert found == ["k0", "k1", "k2", "k3", "k4"]
            writer.flush()
            assert [keys for batch in stream for keys in batch["keys"].to_pylist()] == ["k5", "k6", "k7"]


def test_other_queues_are_read_only_if_the_topic_is_idle(tmp_path: Path) -> None:
    with StoreWriter.open(tmp_path, file_size=16 << 20, hash_slots=10, max_entries=100) as writer:
        for topic in "TUTTU":
            writer.put_message(topic, keys="k")
    other = tmp_path / "consumequeue" / "U" / "0"
    link = other / f"{1 << 40:020}"
    link.symlink_to(link)
    with MessageStore.open(tmp_path) as opened:
        assert len(offsets(opened.messages("T", scan=False))) == 3
    link.unlink()
    with StoreWriter.open(tmp_path, hash_slots=10, max_entries=100) as writer:
        for _ in range(5):
            writer.put_message("U", body=b"x" * (1 << 20))
    with MessageStore.open(tmp_path) as opened:
        assert len(offsets(opened.messages("T", scan=False))) == 3
        link.symlink_to(link)
        with pytest.raises(OSError, match=str(link)):
            list(opened.messages("T", scan=False))


@pytest.mark.parametrize("queue", ["T/0", "T/1", "U/0"])
@pytest.mark.parametrize("unit", [0, 3, 9])
@pytest.mark.parametrize(
    ("phy_offset", "size"), [(1 << 60, None), (2_000, None), (5, None), (None, 1 << 30), (None, 1), (900, 7)]
)
def test_a_unit_that_leads_elsewhere_hides_no_message(
    tmp_path: Path, queue: str, unit: int, phy_offset: int | None, size: int | None
) -> None:
    with StoreWriter.open(tmp_path, file_size=65_536, hash_slots=10, max_entries=100, services=False) as writer:
        put = [
            writer.put_message("TU"[number % 3 == 2], keys="k", queue_id=number % 3 % 2).phy_offset
            for number in range(30)
        ]
        writer.flush()
        put += [
            writer.put_message("TU"[number % 3 == 2], keys="k", queue_id=number % 3 % 2).phy_offset
            for number in range(6)
        ]
        # A broker that crashed, and whose abort file was deleted: the queues lack the end of the log.
        (tmp_path / "abort").unlink()
        file = min((tmp_path / "consumequeue" / queue).iterdir())
        with file.open("r+b") as units:
            for at, value, length in ((0, phy_offset, 8), (8, size, 4)):
                units.seek(unit * 20 + at)
                units.write(b"" if value is None else value.to_bytes(length, "big"))
        with MessageStore.open(tmp_path) as opened:
            found = {topic: offsets(opened.messages(topic, scan=False)) for topic in "TU"}
            assert sorted(found["T"] + found["U"]) == put
            assert found == {topic: offsets(opened.messages(topic, scan=True)) for topic in "TU"}


@pytest.fixture(scope="module")
def two_steps(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[int]]:
    root = tmp_path_factory.mktemp("two-steps")
    count = 9_000
    with StoreWriter.open(root, hash_slots=10, max_entries=100, services=False) as writer:
        put = writer.put_messages(
            {"topic": ["T"] * count, "queue_id": pa.array([n % 2 for n in range(count)], pa.int32())}
        )
        return root, pa.table(put).column("phy_offset").to_pylist()


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("batch_size", [7, 1_000, 8_192, 20_000])
@pytest.mark.parametrize("message", [100, 4_500, 8_192, 8_700])
def test_messages_of_one_step_end_before_a_wrong_unit(
    two_steps: tuple[Path, list[int]], message: int, batch_size: int, threads: int
) -> None:
    root, put = two_steps
    file = next((root / "consumequeue" / "T" / str(message % 2)).iterdir())
    with file.open("r+b") as units, CommitLog.open(root / "commitlog") as log:
        units.seek(message // 2 * 20)
        right = units.read(8)
        units.seek(message // 2 * 20)
        units.write((put[message] + 8).to_bytes(8, "big"))
        units.flush()
        parts = [("T", n, ConsumeQueue.open(root / "consumequeue" / "T" / str(n)), None, None) for n in range(2)]
        reader = QueueReader(log, parts, batch_size=batch_size, threads=threads)
        batches = [batch["phy_offset"].to_pylist() for batch in reader]
        units.seek(message // 2 * 20)
        units.write(right)
    # The queue of the wrong unit is checked up to the message two before it.
    assert [offset for batch in batches for offset in batch] == put[: message - 1]
    assert reader.position == put[message - 1]
    assert "does not begin" in str(reader.fault)
    assert all(0 < len(batch) <= batch_size for batch in batches)


@pytest.mark.parametrize("name", ["cq-zero-unit", "cq-truncated"])
def test_a_damaged_queue_is_not_believed(
    name: str, damaged_store: Callable[[str], Path], caplog: pytest.LogCaptureFixture
) -> None:
    rows = golden.rows("basic", "messages")
    with MessageStore.open(damaged_store(name)) as opened, caplog.at_level(logging.WARNING):
        found = offsets(opened.messages("TopicTest", scan=False))
    in_queue = {
        row["physicalOffset"] for row in rows if row["topic"] == "TopicTest" and row["sysFlag"] & 12 in _IN_QUEUES
    }
    assert in_queue <= set(found) <= {row["physicalOffset"] for row in rows if row["topic"] == "TopicTest"}
    assert len(found) == len(set(found))
    assert any("the log is read instead" in record.getMessage() for record in caplog.records)


@pytest.mark.parametrize(
    "missing", [("index",), ("consumequeue", "batchconsumequeue"), ("index", "consumequeue", "checkpoint", "config")]
)
def test_a_store_works_without_its_other_parts(missing: tuple[str, ...], store: Callable[[str], Path]) -> None:
    root = store("basic")
    for part in missing:
        path = root / part
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
    rows = golden.rows("basic", "messages")
    with MessageStore.open(root) as opened:
        assert offsets(opened.messages()) == [row["physicalOffset"] for row in rows]
        assert {row["topic"] for row in rows} <= set(opened.topics) | {"%LMQ%a", "%LMQ%b"}
        for row in rows[::40]:
            if row["uniqKey"] and row["sysFlag"] & 12 != 12:
                for topic in (row["topic"], None):
                    found = [message.phy_offset for message in opened.find(topic, row["uniqKey"])]
                    assert row["physicalOffset"] in found
            asked = offsets(opened.messages(row["topic"], scan=False))
            assert row["physicalOffset"] in asked or row["sysFlag"] & 12 not in _IN_QUEUES
        report = opened.verify()
        assert report.ok, report


def test_a_single_log_file_is_a_store(store: Callable[[str], Path], tmp_path: Path) -> None:
    root = store("basic")
    rows = golden.rows("basic", "messages")
    for number, path in enumerate(sorted((root / "commitlog").iterdir())):
        alone = tmp_path / f"alone-{number}"
        alone.mkdir()
        shutil.copy(path, alone)
        begin = int(path.name)
        expected = [row["physicalOffset"] for row in rows if begin <= row["physicalOffset"] < begin + 65_536]
        with MessageStore.open(alone) as opened:
            assert offsets(opened.messages()) == expected
            row = next(row for row in rows if row["physicalOffset"] in expected and row["uniqKey"])
            assert row["physicalOffset"] in [message.phy_offset for message in opened.find(None, row["uniqKey"])]
            assert opened.message(row["msgId"]) is not None


def test_the_log_may_lie_elsewhere(store: Callable[[str], Path], tmp_path: Path) -> None:
    root = store("basic")
    (root / "commitlog").rename(tmp_path / "far")
    with pytest.raises(FileNotFoundError, match="storePathCommitLog"):
        MessageStore.open(root)
    with MessageStore.open(root, commit_log=tmp_path / "far") as opened:
        assert len(offsets(opened.messages())) == 553
        assert len(opened.find("AaTopic", "BB")) == 16
        assert opened.verify().ok


def test_a_unique_key_is_found_under_every_topic(store: Callable[[str], Path]) -> None:
    compared = 0
    for case in ("basic", "v5-basic", "rolled"):
        truth: dict[str, list[int]] = {}
        for row in golden.rows(case, "messages"):
            if row["uniqKey"] and row["sysFlag"] & 12 != 12:
                truth.setdefault(row["uniqKey"], []).append(row["physicalOffset"])
        with MessageStore.open(store(case)) as opened:
            for key, expected in list(truth.items())[::3]:
                found = opened.find(None, key)
                assert [message.phy_offset for message in found] == sorted(expected, reverse=True)
                compared += 1
    assert compared > 600


def test_tags_lead_to_messages_where_a_broker_indexed_them(store: Callable[[str], Path]) -> None:
    with MessageStore.open(store("v5-basic")) as opened:
        assert opened.indexes_tags
        truth: dict[tuple[str, str], list[int]] = {}
        for row in golden.rows("v5-basic", "messages"):
            if row["tags"] and row["sysFlag"] & 12 != 12:
                truth.setdefault((row["topic"], row["tags"]), []).append(row["physicalOffset"])
        for (topic, tags), expected in truth.items():
            found = [message.phy_offset for message in opened.find(topic, f"T#{tags}")]
            assert found == sorted(expected, reverse=True), (topic, tags)
        assert len(truth) > 20
    with MessageStore.open(store("basic")) as opened:
        assert not opened.indexes_tags
        assert not opened.find("t", "T#TagA")


def test_what_is_not_indexed_is_read(store: Callable[[str], Path]) -> None:
    """Messages that are not indexed are read from the log; the result says how many bytes."""
    root = store("basic")
    shutil.rmtree(root / "index")
    with MessageStore.open(root) as opened:
        result = opened.find("AaTopic", "BB")
        assert (len(result), result.complete, result.scanned_bytes) == (16, True, 313_165)
        assert opened.find("AaTopic", "BB").scanned_bytes == 0


def test_a_filter_of_another_type_is_no_filter_that_nothing_passes(store: Callable[[str], Path]) -> None:
    with MessageStore.open(store("basic")) as opened:
        for topic, queue_id in ((b"TopicTest", 0), (5, 0), ("TopicTest", "0"), ("TopicTest", 0.0)):
            with pytest.raises(TypeError, match=r"topic|integer"):
                opened.messages(topic, queue_id)  # type: ignore[arg-type]
        assert offsets(opened.messages("TopicTest", np.int32(0))) == offsets(opened.messages("TopicTest", 0)) != []


@pytest.mark.parametrize("call", ["messages", "queues", "find_batch"])
def test_a_log_file_that_expires_during_a_read_is_read_or_an_error(tmp_path: Path, call: str) -> None:
    root = golden.unpack("basic", tmp_path)
    asked = [row for row in golden.rows("basic", "messages") if row.get("uniqKey")]
    topics = [row["topic"] for row in asked]
    with MessageStore.open(root, access="pread") as store:

        def stream() -> Any:
            if call == "find_batch":
                return store.find_batch(topics, [row["uniqKey"] for row in asked])
            return store.messages(max(topics, key=topics.count), scan=False) if call == "queues" else store.messages()

        whole, planned = offsets(stream()), stream()
        first = min((root / "commitlog").iterdir())
        first.unlink()
        assert min(whole) < 65_536
        try:
            # An open file can still be read.
            assert offsets(planned) == whole
        except (OSError, pa.ArrowInvalid) as error:
            assert first.name in str(error)  # noqa: PT017 -- one of the two
        rest = offsets(stream())
        assert set(rest) < set(whole)


@pytest.mark.parametrize("case", ["magic-last", "crc-early-clean"])
def test_a_range_behind_damage_holds_its_own_messages(tmp_path: Path, case: str) -> None:
    root = golden.unpack_damaged(case, tmp_path)
    with CommitLog.open(root / "commitlog") as log:
        whole = offsets(log.scan(columns=["phy_offset"], stop="valid"))
        cuts = whole[::29]
        assert len(cuts) > 15
        for begin in cuts:
            for end in (*cuts[::5], None):
                found = log.scan(begin_phy_offset=begin, end_phy_offset=end, columns=["phy_offset"], stop="valid")
                assert offsets(found) == [at for at in whole if begin <= at and (end is None or at < end)], (begin, end)
