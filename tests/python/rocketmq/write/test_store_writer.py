"""StoreWriter: puts, concurrent readers, its end, and the arguments that it refuses."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from logdex.errors import LockedError
from logdex.rocketmq import CommitLog, IndexService, MessageStore, PutResult, StoreCheckpoint, StoreWriter, WriterState

SMALL: dict[str, Any] = {"file_size": 16_384, "queue_file_size": 400, "hash_slots": 20, "max_entries": 50}


def open_small(root: Path, **options: Any) -> StoreWriter:
    return StoreWriter.open(root, **{**SMALL, "services": False, "zone": "UTC", **options})


def names(root: Path) -> set[str]:
    return {path.name for path in root.iterdir()}


def test_a_message_is_put_and_found(tmp_path: Path) -> None:
    root = tmp_path / "new" / "store"
    with open_small(root) as writer:
        first = writer.put_message(
            "Orders",
            b"two shirts",
            queue_id=3,
            tags="new",
            keys=["a", "b"],
            uniq_key="U1",
            properties={"colour": "blue"},
            flag=7,
            born_timestamp=1_700_000_000_000,
            born_host="10.1.2.3:4660",
        )
        second = writer.put_message("Orders", queue_id=3, store_host="[::1]:10911")
        assert (first.topic, first.queue_id, first.queue_offset, first.phy_offset) == ("Orders", 3, 0, 0)
        assert second == PutResult(
            "Orders", 3, 1, first.store_size, second.store_timestamp, second.msg_id, second.store_size
        )
        assert writer.max_offset == first.store_size + second.store_size
        assert "abort" in names(root)
    assert names(root) == {"checkpoint", "commitlog", "consumequeue", "index", "lock"}
    with MessageStore.open(root) as store:
        assert store.verify().ok
        (message,) = store.find("Orders", "b")
        assert store.find("Orders", "U1")[0] == message
        assert (message.msg_id, message.body, message.properties["colour"]) == (first.msg_id, b"two shirts", "blue")
        assert (message.tags, message.keys, message.flag) == ("new", "a b", 7)
        assert (message.born_timestamp, message.born_host) == (1_700_000_000_000, "10.1.2.3:4660")
        last = store.message(second.msg_id)
        assert last is not None
        assert (last.body, last.store_host, last.queue_offset) == (b"", "[::1]:10911", 1)


def test_statistics_count_puts_and_what_is_to_do(tmp_path: Path) -> None:
    with open_small(tmp_path / "store") as writer:
        begin = writer.statistics()
        assert (begin.put_messages, begin.put_bytes, begin.put_rates, begin.longest_put_ms) == (0, 0, (0.0,) * 3, 0.0)
        writer.put_message("T")
        writer.put_messages({"topic": ["T", "U", "T"]})
        with pytest.raises(ValueError, match="topic"):
            writer.put_message("")
        now = writer.statistics()
        assert (now.put_messages, now.put_bytes) == (4, writer.max_offset)
        assert sum(now.put_times.values()) == 4
        assert [*now.put_times][:2] == ["[<=0ms]", "[0~10ms]"]
        assert now.longest_put_ms > 0
        assert now.dispatch_behind_bytes == writer.max_offset
        assert 0 < now.disk_ratio <= 1
        writer.dispatch()
        assert writer.statistics().dispatch_behind_bytes == 0
    with pytest.raises(ValueError, match="closed"):
        writer.statistics()


def test_batches_fill_files_and_keep_their_order(tmp_path: Path) -> None:
    count = 2_000
    table = pa.table(
        {
            "topic": pa.array(["A", "B"] * (count // 2)).dictionary_encode(),
            "queue_id": [row % 3 for row in range(count)],
            "keys": [f"k{row}" for row in range(count)],
            "body": [bytes([row % 256]) * (row % 50) for row in range(count)],
            "store_timestamp": pa.array(range(count), pa.int64()),
        }
    )
    with open_small(tmp_path) as writer:
        placed = pa.table(writer.put_messages(pa.Table.from_batches(table.to_batches(max_chunksize=300))))
        assert placed.column_names == [
            "topic",
            "queue_id",
            "queue_offset",
            "phy_offset",
            "store_timestamp",
            "msg_id",
            "store_size",
        ]
        assert writer.dispatch() == count
        assert writer.dispatch() == 0
    assert placed["queue_offset"].to_pylist() == [row // 6 for row in range(count)]
    with MessageStore.open(tmp_path) as store:
        report = store.verify()
        assert report.ok, report
        assert report.checked["messages"] == count
        read = pa.table(store.messages(columns=["phy_offset", "keys", "body", "store_timestamp"]))
        assert read["phy_offset"].to_pylist() == placed["phy_offset"].to_pylist()
        assert read["keys"].to_pylist() == table["keys"].to_pylist()
        assert read["body"].to_pylist() == table["body"].to_pylist()
        assert read["store_timestamp"].cast(pa.int64()).to_pylist() == list(range(count))
        assert [message.phy_offset for message in store.find("A", "k1998")] == [placed["phy_offset"][1_998].as_py()]
    checkpoint = StoreCheckpoint.open(tmp_path / "checkpoint")
    assert (checkpoint.physic_msg_timestamp, checkpoint.logics_msg_timestamp) == (count - 1, count - 1)
    assert checkpoint.index_msg_timestamp > 0


def test_columns_come_as_sequences_too(tmp_path: Path) -> None:
    with open_small(tmp_path) as writer:
        placed = writer.put_messages(
            {
                "topic": ["T", "T"],
                "properties": [{"a": "1", "TAGS": "x"}, None],
                "body": [b"1", b"2"],
                "born_timestamp": [5, 6],
            }
        )
        assert placed.column("queue_offset").to_pylist() == [0, 1]
        assert writer.put_messages({"topic": []}).num_rows == 0
        assert writer.put_messages(pa.schema([("topic", pa.string())]).empty_table()).num_rows == 0
        with pytest.raises(ValueError, match="no column of a message that is put: 'colour'"):
            writer.put_messages({"topic": ["T"], "colour": ["blue"]})
        with pytest.raises(ValueError, match="differ in length"):
            writer.put_messages({"topic": ["T"], "body": []})
        with pytest.raises(TypeError, match="Arrow data or a mapping"):
            writer.put_messages([b"1"])
    with CommitLog.open(tmp_path / "commitlog") as log:
        (first, second) = (log.message(offset) for offset in placed.column("phy_offset").to_pylist())
        assert first is not None
        assert second is not None
        assert (first.properties, first.tags, first.born_timestamp) == ({"a": "1", "TAGS": "x"}, "x", 5)
        assert (second.properties, second.body) == ({}, b"2")


def test_what_is_no_message_is_refused_and_nothing_is_written(tmp_path: Path) -> None:
    with open_small(tmp_path) as writer:
        writer.put_message("T")
        end = writer.max_offset
        for wrong in (
            {"topic": ""},
            {"topic": "../T"},
            {"topic": "T", "queue_id": -1},
            {"topic": "T", "delay_level": -1},
            {"topic": "T", "properties": {"": "x"}},
            {"topic": "T", "properties": {"x": "y" * 40_000}},
            {"topic": "T", "body": bytes(20_000)},
            {"topic": "T", "born_host": "nowhere"},
        ):
            with pytest.raises(ValueError, match=r"."):
                writer.put_message(**wrong)
        with pytest.raises(ValueError, match="row 1"):
            writer.put_messages({"topic": ["T", None]})
        assert writer.max_offset == end
        assert writer.put_message("T").queue_offset == 1


def test_it_goes_on_where_it_ended(tmp_path: Path) -> None:
    for round_ in range(4):
        with open_small(tmp_path, **({} if round_ == 0 else dict.fromkeys(SMALL))) as writer:
            assert writer.recovered.ok
            assert writer.recovered.checked["messages_dispatched"] == 0
            for number in range(30):
                placed = writer.put_message("T", bytes(100), queue_id=number % 2, keys=f"{round_}-{number}")
                assert placed.queue_offset == 15 * round_ + number // 2
    with MessageStore.open(tmp_path) as store:
        assert store.verify().ok
        assert store.queue("T", 0).max_offset == 60
        assert store.commit_log.file_size == SMALL["file_size"]
        assert len(store.find("T", "0-0")) == len(store.find("T", "3-29")) == 1


def test_sizes_of_the_store_cannot_be_changed(tmp_path: Path) -> None:
    with open_small(tmp_path) as writer:
        for number in range(30):
            writer.put_message("T", keys=str(number))
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    with pytest.raises(ValueError, match="file_size=32768: the files of this log have 16384 bytes"):
        StoreWriter.open(tmp_path, file_size=32_768)
    with pytest.raises(ValueError, match="400"):
        StoreWriter.open(tmp_path, queue_file_size=800)
    with pytest.raises(ValueError, match="hash_slots, max_entries: expected both"):
        StoreWriter.open(tmp_path, hash_slots=5)
    with pytest.raises(ValueError, match="compat"):
        StoreWriter.open(tmp_path, compat="1.0")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="flush"):
        StoreWriter.open(tmp_path, flush="never")  # type: ignore[arg-type]
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


def test_what_is_no_store_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine", encoding="utf-8")
    with pytest.raises(FileExistsError, match="notes"):
        open_small(tmp_path)
    assert names(tmp_path) == {"notes.txt"}
    with pytest.raises(NotADirectoryError):
        open_small(tmp_path / "notes.txt")
    (tmp_path / "notes.txt").unlink()
    queue = tmp_path / "consumequeue" / "T" / "0"
    queue.mkdir(parents=True)
    open_small(tmp_path).close()
    (queue / "00000000000000000000").write_bytes(bytes(400))
    with pytest.raises(FileExistsError, match="consumequeue"):
        open_small(tmp_path)


def test_a_log_by_itself_is_no_store(tmp_path: Path) -> None:
    with open_small(tmp_path) as writer:
        writer.put_message("T")
    with pytest.raises(FileExistsError, match="expected a store with a commitlog"):
        open_small(tmp_path / "commitlog")


def test_a_store_has_one_writer(tmp_path: Path) -> None:
    with open_small(tmp_path) as writer:
        writer.put_message("T", keys="k")
        with pytest.raises(LockedError) as caught:
            open_small(tmp_path)
        assert caught.value.pid == os.getpid()
        program = f"""
            from logdex.errors import LockedError
            from logdex.rocketmq import IndexService, StoreWriter
            def index():
                IndexService.open({str(tmp_path / "index")!r}, mode="a")
            def store():
                StoreWriter.open({str(tmp_path)!r})
            for opening in (index, store):
                try:
                    opening()
                except LockedError as error:
                    print(error.pid)
        """
        done = subprocess.run(
            [sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, check=True, timeout=60
        )
        assert done.stdout.split() == [str(os.getpid())] * 2
    open_small(tmp_path).close()


def test_readers_see_what_was_put_at_once(tmp_path: Path) -> None:
    with open_small(tmp_path) as writer, MessageStore.open(tmp_path) as store:
        for number in range(300):
            placed = writer.put_message(f"T{number % 7}", bytes(number % 90), queue_id=number % 3, keys=f"k{number}")
            if number % 4 == 1:
                writer.dispatch()
            if number % 16 == 5:
                writer.flush()
            found = store.find(placed.topic, f"k{number}")
            assert [message.phy_offset for message in found] == [placed.phy_offset]
            topic = pa.table(store.messages(placed.topic, columns=["keys"], scan=False))
            assert topic["keys"].to_pylist() == [f"k{n}" for n in range(number % 7, number + 1, 7)]
            assert pa.table(store.messages(columns=["keys"])).num_rows == number + 1


@pytest.mark.filterwarnings("ignore::logdex.UnknownTopicWarning")
def test_readers_beside_the_services_are_never_told_what_is_not(tmp_path: Path) -> None:
    count = 3_000
    with open_small(tmp_path, services=True) as writer:
        stop = threading.Event()
        wrong: list[object] = []

        def read() -> None:
            # The first few entries of so small a file may match several geometries.
            with MessageStore.open(tmp_path, hash_slots=20, max_entries=50) as store:
                seen = 0
                while not stop.is_set():
                    keys = pa.table(store.messages("T", columns=["keys"], scan=False))["keys"].to_pylist()
                    if len(keys) < seen or keys != [f"k{number}" for number in range(len(keys))]:
                        wrong.append((seen, keys[:3], keys[-3:], len(keys)))
                        return
                    seen = len(keys)
                    if keys and len(store.find("T", keys[-1])) != 1:
                        wrong.append(keys[-1])

        reader = threading.Thread(target=read)
        reader.start()
        for first in range(0, count, 10):
            writer.put_messages(
                {
                    "topic": ["T"] * 10,
                    "queue_id": [number % 2 for number in range(10)],
                    "keys": [f"k{first + number}" for number in range(10)],
                }
            )
        stop.set()
        reader.join()
        assert not wrong
    with MessageStore.open(tmp_path) as store:
        assert store.verify().ok


def test_readers_do_not_mind_a_new_index_without_entries(tmp_path: Path) -> None:
    with open_small(tmp_path) as writer, MessageStore.open(tmp_path) as store:
        (tmp_path / "index").mkdir(exist_ok=True)
        assert list(store.find("T", "k")) == []
        # A message without keys creates the index file, and nothing shows its geometry.
        writer.put_message("T")
        writer.flush()
        assert any((tmp_path / "index").iterdir())
        assert list(store.find("T", "k")) == []
        writer.put_message("T", keys="k")
        assert len(store.find("T", "k")) == 1
        writer.put_messages({"topic": ["T"] * 40, "keys": [f"k{number}" for number in range(40)]})
        writer.flush()
        assert len(store.find("T", "k39", scan=False)) == 1


def test_many_threads_put(tmp_path: Path) -> None:
    with open_small(tmp_path, services=True) as writer:

        def put(thread: int) -> None:
            for number in range(50):
                writer.put_message("T", queue_id=thread, keys=f"{thread}-{number}")

        threads = [threading.Thread(target=put, args=(thread,)) for thread in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    with MessageStore.open(tmp_path) as store:
        report = store.verify()
        assert report.ok, report
        assert report.checked["messages"] == 200
        keys = pa.table(store.messages("T", queue_id=2, columns=["keys"]))["keys"].to_pylist()
        assert keys == [f"2-{number}" for number in range(50)]


def test_after_close_nothing_goes(tmp_path: Path) -> None:
    writer = open_small(tmp_path, services=True)
    writer.put_message("T")
    writer.close()
    writer.close()
    assert writer.closed
    for call in (writer.flush, writer.dispatch, writer.deliver_due, lambda: writer.put_message("T")):
        with pytest.raises(ValueError, match="closed"):
            call()
    assert [thread for thread in threading.enumerate() if thread.name == "logdex-store"] == []
    with pytest.raises(TypeError, match="cannot be pickled"):
        pickle.dumps(writer)


def test_a_writer_that_is_forgotten_ends_its_thread(tmp_path: Path) -> None:
    writer = open_small(tmp_path, services=True)
    writer.put_message("T", keys="k")
    # The finalizer waits for nothing; opening does.
    del writer
    with open_small(tmp_path) as writer:
        assert [thread for thread in threading.enumerate() if thread.name == "logdex-store"] == []
        assert writer.put_message("T").queue_offset == 1


def wait_for(writer: StoreWriter, status: str) -> None:
    deadline = time.monotonic() + 60
    while writer.state.status != status:
        assert time.monotonic() < deadline, writer.state
        time.sleep(0.01)


@pytest.mark.parametrize("error", [OSError(24, "Too many open files"), OSError(28, "No space left"), MemoryError()])
def test_the_services_retry_what_may_pass(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, error: Exception
) -> None:
    def fail(*_: object, **__: object) -> int:
        raise error

    with open_small(tmp_path, services=True) as writer:
        assert writer.state == WriterState("open")
        with monkeypatch.context() as patch:
            patch.setattr(IndexService, "index_once", fail)
            writer.put_message("T", keys="k0")
            wait_for(writer, "retrying")
            assert writer.state.error is error
            assert writer.state.since is not None
            # Puts go on.
            writer.put_message("T", keys="k1")
            with pytest.raises(type(error)):
                writer.flush()
        wait_for(writer, "open")
        writer.put_message("T", keys="k2")
    assert writer.state == WriterState("closed")
    assert [record.levelname for record in caplog.records if "tried again" in record.getMessage()] == ["WARNING"]
    with MessageStore.open(tmp_path) as store:
        assert store.verify().ok
        assert all(len(store.find("T", f"k{number}", scan=False)) == 1 for number in range(3))


def test_an_error_of_close_leaves_the_store_as_after_a_crash(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> int:
        raise OSError(28, "No space left on device")

    writer = open_small(tmp_path, services=True)
    with monkeypatch.context() as patch:
        patch.setattr(IndexService, "index_once", fail)
        writer.put_message("T", keys="k")
        with pytest.raises(OSError, match="No space left"):
            writer.close()
        writer.close()
    assert "abort" in names(tmp_path)
    with open_small(tmp_path) as writer:
        assert writer.recovered.checked["messages_dispatched"] == 1
    with MessageStore.open(tmp_path) as store:
        assert store.verify().ok
        assert len(store.find("T", "k", scan=False)) == 1


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_close_closes_every_file(tmp_path: Path) -> None:
    def held() -> list[str]:
        links = [str(path.readlink()) for path in Path("/proc/self/fd").iterdir() if path.is_symlink()]
        maps = Path("/proc/self/maps").read_text(encoding="utf-8").splitlines()
        return [name for name in links + maps if str(tmp_path) in name]

    writer = open_small(tmp_path)
    for number in range(100):
        writer.put_message("T", bytes(1_000), keys=str(number), delay_level=number % 2)
    writer.deliver_due(0)
    assert held()
    writer.close()
    assert held() == []


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
@pytest.mark.parametrize("append", ["write", "mapped", "pool"])
def test_a_forked_child_cannot_write(tmp_path: Path, append: str) -> None:
    program = f"""
        import os, sys
        from logdex.rocketmq import StoreWriter
        writer = StoreWriter.open({str(tmp_path)!r}, file_size=16384, hash_slots=20, max_entries=50, append={append!r})
        writer.put_message("T", keys="k")
        child = os.fork()
        if not child:
            try:
                writer.put_message("T")
            except ValueError as error:
                print(error, flush=True)
            writer.close()
            sys.exit(0)
        os.waitpid(child, 0)
        writer.put_message("T", keys="k")
        writer.close()
    """
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", textwrap.dedent(program)],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert "belongs to the process" in done.stdout
    with MessageStore.open(tmp_path) as store:
        assert len(store.find("T", "k")) == 2
        assert "abort" not in names(tmp_path)


@pytest.mark.parametrize("append", ["write", "mapped", "pool"])
def test_the_end_of_the_interpreter_is_like_a_crash(tmp_path: Path, append: str) -> None:
    program = f"""
        from logdex.rocketmq import StoreWriter
        writer = StoreWriter.open({str(tmp_path)!r}, file_size=16384, hash_slots=20, max_entries=50, append={append!r})
        for number in range(100):
            writer.put_message("T", keys=f"k{{number}}")
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stderr == ""
    assert "abort" in names(tmp_path)
    with open_small(tmp_path) as writer:
        assert writer.put_message("T").queue_offset == 100
    with MessageStore.open(tmp_path) as store:
        assert store.verify().ok


def put_with_queues(root: Path, **options: Any) -> dict[tuple[str, int], int]:
    """Put a message that names other queues, then one for such a queue; return the number of messages in each queue."""
    with open_small(root, **options) as writer:
        writer.put_message("Evil", b"evil", queue_id=2, keys="a b", properties={"INNER_MULTI_DISPATCH": "T,%LMQ%a"})
        # A producer can also set the offsets.
        forged = {"INNER_MULTI_DISPATCH": "T", "INNER_MULTI_QUEUE_OFFSET": "0"}
        writer.put_message("Evil", b"evil", properties=forged)
        offsets = [writer.put_message("T", b"own", queue_id=queue_id).queue_offset for queue_id in (0, 2)]
    with MessageStore.open(root, hash_slots=20, max_entries=50) as store:
        assert store.verify().ok
        found = {place: store.queue(*place).max_offset for place in store.queues()}
    assert offsets == [found["T", 0] - 1, found["T", 2] - 1]
    return found


def test_a_message_goes_to_other_queues_only_on_request(tmp_path: Path) -> None:
    alone = {("Evil", 0): 1, ("Evil", 2): 1, ("T", 0): 1, ("T", 2): 1}
    assert put_with_queues(tmp_path / "default") == alone
    everywhere = alone | {("T", 0): 2, ("T", 2): 2, ("%LMQ%a", 0): 1}
    assert put_with_queues(tmp_path / "asked", multi_dispatch=True) == everywhere


def test_a_message_goes_to_other_queues_if_the_store_is_that_of_such_a_broker(tmp_path: Path) -> None:
    for name, options, queues in (("light", {}, 5), ("off", {"multi_dispatch": False}, 4)):
        config = tmp_path / name / "config"
        open_small(tmp_path / name).close()
        config.mkdir(exist_ok=True)
        (config / "lmqConsumerOffset.json").write_text('{"lmqOffsetTable":{},"offsetTable":{}}')
        assert len(put_with_queues(tmp_path / name, **options)) == queues
