"""Writers in a restricted process: a limit on the length of files, and a fork."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from typing import TYPE_CHECKING

import pytest

from logdex.rocketmq import MessageStore

if TYPE_CHECKING:
    from pathlib import Path

SMALL = 'file_size=16384, hash_slots=20, max_entries=50, zone="UTC", services=False'


def run(program: str) -> list[str]:
    """Run a program in a separate process; return the lines that it prints."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", textwrap.dedent(program)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.skipif(sys.platform == "win32", reason="no limits")
def test_a_queue_file_that_cannot_have_its_length_is_not_begun(tmp_path: Path) -> None:
    lines = run(f"""
        import os, resource
        from pathlib import Path
        from logdex.rocketmq import StoreWriter
        root = Path({str(tmp_path)!r})
        writer = StoreWriter.open(root, {SMALL}, extension_file_size=50000)
        for size in (1_000_000, 20_000):
            resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))
            writer.put_message("T", tags="t", keys="k")
            try:
                writer.flush()
            except OSError as error:
                print(error.filename)
        print([path for path in root.glob("consumequeue*/*/*/*") if path.stat().st_size not in (6_000_000, 50_000)])
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2)
        writer.close()
        print(*(path.stat().st_size for path in sorted(root.glob("consumequeue*/*/*/*"))))
    """)
    assert lines[2:] == ["[]", "6000000 50000"]
    assert lines[:2] == [str(tmp_path / "consumequeue/T/0/00000000000000000000")] * 2
    with MessageStore.open(tmp_path, hash_slots=20, max_entries=50) as store:
        assert store.verify().ok


@pytest.mark.skipif(sys.platform == "win32", reason="no fork")
def test_a_forked_child_never_waits_for_a_lock_of_its_parent(tmp_path: Path) -> None:
    """Threads of the parent hold the locks most of the time; the child has none of these threads."""
    lines = run(f"""
        import os, signal, threading
        import pyarrow as pa
        from logdex._core import CommitLogWriter, ConsumeQueueWriter
        from logdex.rocketmq import CommitLog, StoreWriter
        store = StoreWriter.open({str(tmp_path / "store")!r}, **dict({SMALL}) | dict(file_size=1 << 20))
        log = CommitLogWriter.open({str(tmp_path / "log")!r}, end_phy_offset=0, file_size=1 << 20, flush="none")
        queues = ConsumeQueueWriter.create({str(tmp_path / "queues")!r})
        many = pa.record_batch({{"topic": ["T"] * 2000}})
        store.put_messages(many)
        units = next(iter(CommitLog.open({str(tmp_path / "store/commitlog")!r}).scan(columns=queues.columns)))
        stopped = False
        def work(call):
            while not stopped:
                call()
        calls = [lambda: store.put_messages(many), lambda: log.put_messages(many), lambda: queues.append_batch(units)]
        threads = [threading.Thread(target=work, args=(call,), daemon=True) for call in calls]
        for thread in threads:
            thread.start()
        def ask():
            for owner in (store, log, queues):
                for name in sorted(set(dir(owner)) - {{"open", "create", "columns", "check_files"}}):
                    if name.startswith("_"):
                        continue
                    try:
                        value = getattr(owner, name)
                        arguments = {{
                            "append_batch": [units],
                            "put_message": ["T", b"", []] if owner is log else ["T"],
                            "put_messages": [many],
                            "set_queue_offset": ["T", 0, 0],
                            "set_queue_offsets": [units],
                            "keep_checkpoint": ["checkpoint"],
                            "write_checkpoint": [0],
                        }}
                        if callable(value):
                            value(*arguments.get(name, []))
                            print(type(owner).__name__, name)
                    except ValueError as error:
                        assert "to the process that opened" in str(error), error
                repr(owner)
        for _ in range(20):
            child = os.fork()
            if not child:
                signal.alarm(20)
                ask()
                os._exit(0)
            assert os.waitpid(child, 0)[1] == 0
        stopped = True
        for thread in threads:
            thread.join()
    """)
    # `with` blocks end in the child as well.
    assert set(lines) == {"StoreWriter close"}
