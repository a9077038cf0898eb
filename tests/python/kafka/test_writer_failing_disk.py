"""After a failed write or fsync a log that is written is over, and opening the directory again recovers what was acknowledged."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from failing_disk import NEEDS, compile_library, run_program
from logdex.kafka import LogDir, LogDirWriter

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = NEEDS

BEGIN = """
    from logdex.kafka import LogDirWriter
    def append(writer, partition, *values):
        return writer.append("orders", partition, {"value": [value.encode() for value in values]}).last_offset
    def begun(**options):
        writer = LogDirWriter.open(root, **options)
        writer.create_topic("orders", 2)
        append(writer, 0, "before")
        return writer
    def later(writer):
        told("append", lambda: append(writer, 0, "later"))
        told("flush", lambda: writer.log("orders", 0).flush())
        print(writer.state.status, writer.state.error.errno)
        told("close", writer.close)
        print("clean", os.path.exists(root + "/.kafka_cleanshutdown"))
"""


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compile_library(tmp_path_factory.mktemp("disk"))


def run(library: Path, root: Path, program: str) -> list[str]:
    return run_program(library, root, textwrap.dedent(BEGIN) + textwrap.dedent(program))


def refused(path: Path) -> list[str]:
    """Return what `later` prints after a failure at a path."""
    return [f"append 5 {path}", f"flush 5 {path}", "failed 5", f"close 5 {path}", "clean False"]


def values(root: Path, partition: int = 0) -> list[bytes]:
    """Recover a directory, check it, and return the values of a partition."""
    with LogDirWriter.open(root) as writer:
        writer.create_topic("orders", 2)
    with LogDir.open(root) as logs:
        assert logs.verify().ok
        rows = pa.table(logs.log("orders", partition).records(columns=["value"]))
    found: list[bytes] = rows.column("value").to_pylist()
    return found


@pytest.mark.parametrize("calls", ["fdatasync", "pwrite"])
def test_after_a_failure_nothing_is_acknowledged(library: Path, tmp_path: Path, calls: str) -> None:
    root = tmp_path / "logs"
    lines = run(
        library,
        root,
        f"""
        writer = begun(flush="sync")
        fail({calls!r}, "orders-0")
        told("A", lambda: append(writer, 0, "A"))
        well()
        # The other partition is on another file, and goes on.
        told("B", lambda: append(writer, 1, "B"))
        later(writer)
        """,
    )
    log = root / "orders-0" / f"{0:020}.log"
    assert lines == [f"A 5 {log}", "B passed 0", *refused(log)]
    assert values(root) in ([b"before"], [b"before", b"A"])
    assert values(root, 1) == [b"B"]


def test_no_waiting_thread_takes_a_failed_fsync_for_its_own_success(library: Path, tmp_path: Path) -> None:
    root = tmp_path / "logs"
    lines = run(
        library,
        root,
        """
        writer = begun(flush="sync")
        passed = []
        fail("fdatasync", "orders-0")
        def put(number):
            told("put", lambda: append(writer, 0, str(number)))
        threads = [threading.Thread(target=put, args=(number,)) for number in range(8)]
        [thread.start() for thread in threads]
        [thread.join() for thread in threads]
        well()
        """,
    )
    assert lines == [f"put 5 {root / 'orders-0' / f'{0:020}.log'}"] * 8


@pytest.mark.parametrize("rolled", [False, True])
def test_the_name_of_a_segment_is_synced_before_its_first_record_is_acknowledged(
    library: Path, tmp_path: Path, rolled: bool
) -> None:
    root = tmp_path / "logs"
    lines = run(
        library,
        root,
        f"""
        writer = begun(flush="sync", clock=lambda: 1_700_000_000_000)
        if {rolled!r}:
            writer.log("orders", 0).roll()
        partition = 0 if {rolled!r} else 1
        # Of the directory alone: the logs are synced by fdatasync.
        fail("fsync", f"orders-{{partition}}$")
        told("A", lambda: append(writer, partition, "A"))
        """,
    )
    assert lines == [f"A 5 {root / ('orders-0' if rolled else 'orders-1')}"]


def test_an_append_that_waits_for_the_disk_looks_for_signals(library: Path, tmp_path: Path) -> None:
    root = tmp_path / "logs"
    lines = run(
        library,
        root,
        """
        import signal
        writer = begun(flush="sync")
        fail("fdatasync", "orders-0", -1)
        faulthandler.dump_traceback_later(30, exit=True)
        other = threading.Thread(target=append, args=(writer, 0, "A"))
        other.start()
        while not os.path.exists(os.environ["FAILING_DISK"] + ".waits"):
            time.sleep(0.001)
        signal.signal(signal.SIGALRM, signal.default_int_handler)
        signal.setitimer(signal.ITIMER_REAL, 0.2)
        try:
            append(writer, 0, "B")
        except KeyboardInterrupt:
            print("interrupted")
        well()
        other.join()
        print(append(writer, 0, "C"))
        writer.close()
        """,
    )
    assert lines == ["interrupted", "3"]
    assert values(root) == [b"before", b"A", b"B", b"C"]
