"""After a failed write or fsync a writer is over: later calls raise the first error, and opening again recovers.

The disk fails in a separate process, with a library that is loaded before the system's (support/failing_disk.c).
"""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from failing_disk import NEEDS, compile_library, run_program
from logdex.rocketmq import MessageStore, StoreWriter

if TYPE_CHECKING:
    from pathlib import Path

SIZES: dict[str, Any] = {
    "file_size": 65_536,
    "queue_file_size": 400,
    "hash_slots": 50,
    "max_entries": 120,
    "zone": "UTC",
}

APPENDS = ("write", "mapped", "pool")

pytestmark = NEEDS

BEGIN = f"""
    from logdex._core import CommitLogWriter
    from logdex.rocketmq import IndexFile, IndexService, MessageStore, StoreWriter
    SIZES = {SIZES!r}
    def well_while_others_run():
        # Once a call waits, the disk continues only after another thread ran twenty times.
        faulthandler.dump_traceback_later(30, exit=True)
        while not os.path.exists(os.environ["FAILING_DISK"] + ".waits"):
            time.sleep(0.001)
        def run():
            for _ in range(20):
                time.sleep(0.001)
            well()
        threading.Thread(target=run).start()
    def ten(name, writer):
        writer.put_messages({{"topic": ["T"] * 10, "keys": [f"{{name}}{{i}}" for i in range(10)], "body": [b"r" * 100] * 10}})
    def later(writer):
        told("put", lambda: writer.put_message("T", keys="later"))
        told("puts", lambda: ten("later", writer))
        told("flush", writer.flush)
        told("dispatch", writer.dispatch)
        print(writer.state.status, writer.state.error.errno, writer.state.since is not None)
        told("close", writer.close)
        print("abort", os.path.exists(root + "/abort"))
"""


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compile_library(tmp_path_factory.mktemp("disk"))


def run(library: Path, root: Path, program: str) -> list[str]:
    return run_program(library, root, textwrap.dedent(BEGIN) + textwrap.dedent(program))


def refused(path: Path | str, status: str = "failed 5 True") -> list[str]:
    """Return what `later` prints after a failure at a path."""
    calls = [f"{call} 5 {path}" for call in ("put", "puts", "flush", "dispatch")]
    return [*calls, status, f"close 5 {path}", "abort True"]


def keys(root: Path) -> list[str]:
    """Recover a store, check it, and return the keys of its messages."""
    with StoreWriter.open(root, **SIZES, services=False) as writer:
        assert writer.recovered.ok, writer.recovered
    with MessageStore.open(root) as store:
        report = store.verify()
        assert report.ok, report
        found = [message["keys"] for message in pa.table(store.messages(columns=["keys"])).to_pylist()]
        assert all(len(store.find("T", key, scan=False)) == 1 for key in found)
    return found


@pytest.mark.parametrize("append", APPENDS)
@pytest.mark.parametrize("flush", ["sync", "async", "none"])
@pytest.mark.parametrize("services", [False, True])
def test_after_a_failed_fsync_of_the_log_nothing_is_acknowledged(
    library: Path, tmp_path: Path, flush: str, services: bool, append: str
) -> None:
    root = tmp_path / "store"
    lines = run(
        library,
        root,
        f"""
        writer = StoreWriter.open(root, flush={flush!r}, services={services}, append={append!r}, **SIZES)
        writer.put_message("T", keys="before")
        writer.flush()
        fail(*{("msync", "any") if append == "mapped" else ("fdatasync", "commitlog")})
        def put():
            writer.put_message("T", bytes(30_000), keys="A")
            writer.flush()
        told("A", put)
        well()
        later(writer)
        """,
    )
    log = root / "commitlog" / f"{0:020}"
    assert lines == [f"A 5 {log}", *refused(log)]
    # As after a crash: a message without an acknowledgement may be there.
    assert keys(root) in (["before"], ["before", "A"])


@pytest.mark.parametrize("append", ["write", "pool"])
@pytest.mark.parametrize("written", [0, 8, 100, 500, 900, 1_900])
def test_a_batch_that_was_refused_never_comes_back(library: Path, tmp_path: Path, written: int, append: str) -> None:
    root = tmp_path / "store"
    lines = run(
        library,
        root,
        f"""
        writer = StoreWriter.open(root, flush="sync", services=False, append={append!r}, **SIZES)
        writer.put_message("T", b"first", keys="first")
        fail("pwrite", "commitlog", {written})
        told("refused", lambda: ten("refused", writer))
        well()
        later(writer)
        with MessageStore.open(root) as store:
            print([key.as_py() for batch in store.messages(columns=["keys"]) for key in batch.column("keys")])
        """,
    )
    log = root / "commitlog" / f"{0:020}"
    assert lines == [f"refused 5 {log}", *refused(log), "['first']"]
    assert keys(root) == ["first"]


@pytest.mark.parametrize("append", ["write", "pool"])
def test_a_refused_batch_over_two_files_never_comes_back(library: Path, tmp_path: Path, append: str) -> None:
    root = tmp_path / "store"
    lines = run(
        library,
        root,
        f"""
        writer = StoreWriter.open(root, flush="sync", services=False, append={append!r}, **SIZES)
        writer.put_message("T", bytes(64_000), keys="first")
        fail("pwrite", "commitlog", 1_900)
        told("refused", lambda: ten("refused", writer))
        """,
    )
    assert len(lines) == 1
    assert lines[0].startswith("refused 5")
    assert keys(root) == ["first"]


@pytest.mark.parametrize("services", [False, True])
@pytest.mark.parametrize("calls", ["fsync", "pwrite"])
def test_after_a_failed_write_of_a_queue_the_writer_is_over(
    library: Path, tmp_path: Path, calls: str, services: bool
) -> None:
    root = tmp_path / "store"
    lines = run(
        library,
        root,
        f"""
        writer = StoreWriter.open(root, services={services}, **SIZES)
        fail("{calls}", "consumequeue/T/0")
        writer.put_message("T", keys="A")
        told("A", writer.flush)
        well()
        later(writer)
        """,
    )
    queue = root / "consumequeue" / "T" / "0" / f"{0:020}"
    assert lines == [f"A 5 {queue}", *refused(queue)]
    assert keys(root) == ["A"]


def test_after_a_failed_msync_of_the_index_the_writer_is_over(library: Path, tmp_path: Path) -> None:
    root = tmp_path / "store"
    lines = run(
        library,
        root,
        """
        writer = StoreWriter.open(root, services=False, **SIZES)
        writer.put_message("T", keys="A")
        fail("msync", "any")
        told("A", writer.flush)
        well()
        later(writer)
        """,
    )
    (index,) = (root / "index").iterdir()
    assert lines == [f"A 5 {index}", *refused(index)]
    assert keys(root) == ["A"]


@pytest.mark.parametrize("calls", ["fdatasync", "pwrite"])
def test_after_a_failed_write_of_the_checkpoint_the_writer_is_over(library: Path, tmp_path: Path, calls: str) -> None:
    root = tmp_path / "store"
    lines = run(
        library,
        root,
        f"""
        writer = StoreWriter.open(root, services=False, **SIZES)
        writer.put_message("T", keys="A")
        writer.flush()
        fail("{calls}", "checkpoint")
        writer.put_message("T", keys="B", store_timestamp=4_000_000_000_000)
        told("flush", writer.flush)
        well()
        later(writer)
        """,
    )
    path = root / "checkpoint"
    assert lines == [f"flush 5 {path}", *refused(path)]
    assert keys(root) == ["A", "B"]


def test_an_index_alone_is_over_too(library: Path, tmp_path: Path) -> None:
    lines = run(
        library,
        tmp_path / "index",
        """
        index = IndexService.open(root, mode="a", hash_slots=10, max_entries=100)
        entry = {"topic": ["T"], "key": ["k"], "phy_offset": [7], "store_timestamp": [1_700_000_000_000]}
        index.put_batch(entry)
        fail("msync", "any")
        told("flush", index.flush)
        well()
        told("put", lambda: index.put_batch(entry))
        told("flush", index.flush)
        told("close", index.close)
        """,
    )
    (path,) = (tmp_path / "index").iterdir()
    assert lines == [f"{call} 5 {path}" for call in ("flush", "put", "flush", "close")]


@pytest.mark.parametrize("append", APPENDS)
def test_a_failed_fsync_of_a_new_name_is_final(library: Path, tmp_path: Path, append: str) -> None:
    """Otherwise the next put would find the file, and never sync its name."""
    root = tmp_path / "store"
    lines = run(
        library,
        root,
        f"""
        writer = StoreWriter.open(root, services=False, append={append!r}, **SIZES)
        fail("fsync", "commitlog")
        told("A", lambda: writer.put_message("T", keys="A"))
        well()
        later(writer)
        """,
    )
    assert lines == [f"A 5 {root / 'commitlog'}", *refused(root / "commitlog")]
    assert keys(root) == []


@pytest.mark.parametrize("append", ["mapped", "pool"])
def test_a_failed_fsync_of_a_name_that_is_prepared_is_final(library: Path, tmp_path: Path, append: str) -> None:
    root = tmp_path / "store"
    lines = run(
        library,
        root,
        f"""
        begun = time.monotonic()
        writer = StoreWriter.open(root, services=False, append={append!r}, **SIZES)
        writer.put_message("T", bytes(40_000), keys="A")
        while not os.path.exists(root + "/commitlog/{65_536:020}"):
            assert time.monotonic() < begun + 60
        writer.flush()
        fail("fsync", "commitlog")
        # The second file was prepared; with it the third one is.
        writer.put_message("T", bytes(40_000), keys="B")
        while not os.path.exists(root + "/commitlog/{131_072:020}"):
            assert time.monotonic() < begun + 60
        time.sleep(0.1)
        well()
        told("C", lambda: writer.put_message("T", bytes(40_000), keys="C"))
        later(writer)
        """,
    )
    assert lines == [f"C 5 {root / 'commitlog'}", *refused(root / "commitlog")]
    # What a pool has not committed is lost.
    assert keys(root) in ([["A", "B"], ["A"]] if append == "pool" else [["A", "B"]])


@pytest.mark.parametrize("append", ["mapped", "pool"])
def test_memory_that_cannot_be_locked_refuses_the_put_and_later_ones_pass(
    library: Path, tmp_path: Path, append: str
) -> None:
    lines = run(
        library,
        tmp_path / "store",
        f"""
        writer = StoreWriter.open(root, services=False, append={append!r}, lock_memory=True, **SIZES)
        fail("mlock", "any")
        try:
            writer.put_message("T", keys="A")
        except OSError as error:
            print(error)
        well()
        print(writer.state.status, writer.put_message("T", keys="B").queue_offset)
        writer.close()
        """,
    )
    (error, state) = lines
    assert "cannot lock 65536 bytes in memory" in error
    assert "RLIMIT_MEMLOCK" in error
    assert state == "open 0"
    assert keys(tmp_path / "store") == ["B"]


@pytest.mark.parametrize("name", ["", "/outer", "/outer/inner"])
def test_the_name_of_a_new_store_is_synced(library: Path, tmp_path: Path, name: str) -> None:
    """Each directory that is created has its name in the one above, from the first that exists on."""
    (tmp_path / "first").mkdir()
    lines = run(
        library,
        tmp_path / "first" / "outer" / "inner" / "store",
        f"""
        os.environ["FAILING_DISK"] = {str(tmp_path / "fails")!r}
        import ctypes
        ctypes.CDLL(None).setenv(b"FAILING_DISK", {str(tmp_path / "fails").encode()!r}, 1)
        fail("fsync", "first{name}$")
        told("open", lambda: StoreWriter.open(root, services=False, **SIZES))
        """,
    )
    assert lines == [f"open 5 {tmp_path / 'first'}{name}"]


def test_a_put_that_waits_for_the_batch_of_another_thread_lets_all_threads_run(library: Path, tmp_path: Path) -> None:
    lines = run(
        library,
        tmp_path / "20260101000000000",
        """
        file = IndexFile.create(root, hash_slots=50, max_entries=120, access="pread")
        fail("pwrite", "/", -1)
        rows = []
        keys = [f"T#{i}" for i in range(100)]
        batch = threading.Thread(target=lambda: rows.append(file.put_batch(keys, [1] * 100, [1] * 100)))
        batch.start()
        well_while_others_run()
        told("key", lambda: file.put_key("T#later", 2, 2))
        batch.join()
        print(*rows)
        print(len(file))
        """,
    )
    assert sorted(lines) == ["100", "101", "key passed True"]


@pytest.mark.parametrize("append", ["write", "pool"])
def test_dropping_an_open_log_lets_all_threads_run(library: Path, tmp_path: Path, append: str) -> None:
    lines = run(
        library,
        tmp_path / "commitlog",
        f"""
        writer = CommitLogWriter.open(root, end_phy_offset=0, file_size=65_536, append={append!r})
        fail("fdatasync", "commitlog", -1)
        writer.put_message("T", bytes(30_000), [])
        well_while_others_run()
        del writer
        print("dropped", os.path.exists(os.environ["FAILING_DISK"]))
        """,
    )
    assert lines == ["dropped False"]


@pytest.mark.parametrize("append", ["mapped", "pool"])
@pytest.mark.parametrize("holder", ["itself", "another thread"])
def test_a_put_that_waits_for_a_file_looks_for_signals(library: Path, tmp_path: Path, append: str, holder: str) -> None:
    """The thread that prepares the first file waits for the disk, and the put waits for it, or for a put that does."""
    lines = run(
        library,
        tmp_path / "store",
        f"""
        import signal
        writer = StoreWriter.open(root, flush="none", services=False, append={append!r}, **SIZES)
        fail("fsync", "commitlog", -1)
        faulthandler.dump_traceback_later(30, exit=True)
        def put():
            print("put", writer.put_message("T", keys="A").queue_offset)
        other = threading.Thread(target=put)
        if {holder!r} != "itself":
            other.start()
            while not os.path.exists(os.environ["FAILING_DISK"] + ".waits"):
                time.sleep(0.001)
        signal.signal(signal.SIGALRM, signal.default_int_handler)
        signal.setitimer(signal.ITIMER_REAL, 0.2)
        begun = time.monotonic()
        try:
            writer.put_message("T", keys="B")
        except KeyboardInterrupt:
            print("interrupted", time.monotonic() - begun < 5)
        well()
        if {holder!r} != "itself":
            other.join()
        print(writer.put_message("T", keys="C").queue_offset)
        writer.close()
        """,
    )
    assert lines == (["interrupted True", "0"] if holder == "itself" else ["interrupted True", "put 0", "1"])
    assert keys(tmp_path / "store") == (["C"] if holder == "itself" else ["A", "C"])
