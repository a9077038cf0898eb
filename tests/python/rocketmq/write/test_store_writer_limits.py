"""Writers in a restricted process: a full disk, limits on files, descriptors and address space, and a fork."""

from __future__ import annotations

import shutil
import subprocess
import sys
import textwrap
from typing import TYPE_CHECKING

import pytest

from logdex.rocketmq import MessageStore

if TYPE_CHECKING:
    from pathlib import Path

SMALL = 'file_size=16384, hash_slots=20, max_entries=50, zone="UTC", services=False'


def run(program: str, *command: str) -> list[str]:
    """Run a program in a separate process; return the lines that it prints. A command before it prepares the process."""
    done = subprocess.run(
        [*command, sys.executable, "-W", "ignore", "-c", textwrap.dedent(program)],
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
        import faulthandler, os, signal, threading
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
                            "append_frames": [b""],
                            "delete_expired": [0],
                            "follow": [print],
                            "put_each": [[]],
                            "put_message": ["T", b"", []] if owner is log else ["T"],
                            "put_messages": [many],
                            "put_stored": [many],
                            "set_queue_offset": ["T", 0, 0],
                            "set_queue_offsets": [units],
                            "keep_checkpoint": ["checkpoint"],
                            "write_checkpoint": [0],
                        }}
                        if callable(value):
                            value(*arguments.get(name, []))
                            print(type(owner).__name__, name, flush=True)
                    except ValueError as error:
                        assert "to the process that opened" in str(error), error
                repr(owner)
        for _ in range(20):
            child = os.fork()
            if not child:
                faulthandler.dump_traceback_later(15)
                signal.alarm(20)
                ask()
                os._exit(0)
            status = os.waitpid(child, 0)[1]
            assert status == 0, status
        stopped = True
        for thread in threads:
            thread.join()
    """)
    # `with` blocks end in the child as well.
    assert set(lines) == {"StoreWriter close", "CommitLogWriter check"}


BEGIN = """
import os, resource, subprocess, sys, time
from logdex.rocketmq import MessageStore, StoreWriter
SIZES = dict(file_size=1 << 20, queue_file_size=20_000, hash_slots=2_000, max_entries=500, zone="UTC")
acknowledged, errors = [], []
def put(writer, numbers, topics=5, size=500):
    for number in numbers:
        try:
            writer.put_message(f"T{number % topics}", bytes(size), keys=f"k{number}")
            acknowledged.append((f"T{number % topics}", f"k{number}"))
        except (OSError, MemoryError) as error:
            errors.append(error)
def attempt(call):
    try:
        call()
    except (OSError, MemoryError) as error:
        errors.append(error)
def limit(kind, soft):
    resource.setrlimit(kind, (soft, resource.getrlimit(kind)[1]))
def end(root):
    with StoreWriter.open(root, services=False, **SIZES):
        pass
    with MessageStore.open(root) as store:
        report = store.verify()
        lost = [key for key in acknowledged if len(store.find(*key, scan=False)) != 1]
        print(len(errors) > 0, len(acknowledged) > 20, len(lost), report.ok)
"""


def limited(program: str, *command: str) -> None:
    """Run a program under a limit: calls fail, and no acknowledged message is lost."""
    assert run(BEGIN + textwrap.dedent(program), *command)[-1] == "True True 0 True"


@pytest.mark.skipif(sys.platform == "win32", reason="no limits")
@pytest.mark.parametrize("services", [False, True])
def test_a_limit_on_the_length_of_files(tmp_path: Path, *, services: bool) -> None:
    limited(f"""
        writer = StoreWriter.open({str(tmp_path)!r}, services={services}, flush="sync", **SIZES)
        put(writer, range(20))
        writer.flush()
        limit(resource.RLIMIT_FSIZE, 300_000)
        put(writer, range(100, 1_000))
        limit(resource.RLIMIT_FSIZE, resource.RLIM_INFINITY)
        put(writer, range(2_000, 2_010))
        attempt(writer.close)
        end({str(tmp_path)!r})
    """)


@pytest.mark.skipif(sys.platform != "linux", reason="counts descriptors in /proc")
@pytest.mark.parametrize("more", [0, 1, 2, 4])
@pytest.mark.parametrize("services", [False, True])
def test_a_limit_on_descriptors_passes(tmp_path: Path, more: int, *, services: bool) -> None:
    """The writer goes on once there are descriptors again."""
    limited(f"""
        writer = StoreWriter.open({str(tmp_path)!r}, services={services}, flush="sync", **SIZES)
        put(writer, range(20))
        writer.flush()
        # The fewest of some moments: a service may hold a file or directory open, on a busy machine for some of them.
        counts = []
        for _ in range(100):
            counts.append(len(os.listdir("/proc/self/fd")))
            time.sleep(0.01)
        soft = min(counts) - 1 + {more}
        held = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        limit(resource.RLIMIT_NOFILE, soft)
        put(writer, range(100, 3_000), topics=100)
        attempt(writer.flush)
        # With some descriptors the services get through as long as few of them need one at the same time.
        deadline = time.monotonic() + {3 if more else 30}
        while {services} and writer.state.status != "retrying" and time.monotonic() < deadline:
            time.sleep(0.01)
        if {more == 0}:
            assert writer.state.status == ("retrying" if {services} else "open"), writer.state
        limit(resource.RLIMIT_NOFILE, held)
        put(writer, range(5_000, 5_010))
        writer.flush()
        deadline = time.monotonic() + 30
        while writer.state.status != "open" and time.monotonic() < deadline:
            time.sleep(0.01)
        assert writer.state == ("open", None, None), writer.state
        writer.close()
        assert not os.path.exists({str(tmp_path / "abort")!r})
        end({str(tmp_path)!r})
    """)


@pytest.mark.skipif(sys.platform != "linux", reason="reads the address space from /proc")
@pytest.mark.parametrize("mebibytes", [1, 8])
def test_a_limit_on_the_address_space(tmp_path: Path, mebibytes: int) -> None:
    limited(f"""
        writer = StoreWriter.open({str(tmp_path)!r}, services=False, flush="none", **SIZES)
        put(writer, range(30))
        pages = int(open("/proc/self/statm").read().split()[0])
        limit(resource.RLIMIT_AS, pages * resource.getpagesize() + ({mebibytes} << 20))
        attempt(lambda: put(writer, [40], size={mebibytes + 20} << 20))
        put(writer, range(100, 300))
        attempt(writer.dispatch)
        limit(resource.RLIMIT_AS, resource.RLIM_INFINITY)
        attempt(writer.close)
        end({str(tmp_path)!r})
    """)


def small_disk(folder: Path, mebibytes: int) -> tuple[str, ...]:
    """Return a command that runs another one with a small disk mounted at a folder, where the system lets it."""
    mount = f'mount -t tmpfs -o size={mebibytes}m none "$0" && exec "$@"'
    command = ("unshare", "--user", "--map-root-user", "--mount", "sh", "-c", mount, str(folder))
    if not shutil.which("unshare") or subprocess.run([*command, "true"], capture_output=True, check=False).returncode:
        pytest.skip("cannot mount a small disk here")
    return command


@pytest.mark.parametrize("append", ["write", "mapped", "pool"])
@pytest.mark.parametrize("services", [False, True])
@pytest.mark.parametrize("mebibytes", [2, 4])
def test_a_full_disk(tmp_path: Path, mebibytes: int, append: str, *, services: bool) -> None:
    limited(
        f"""
        root = {str(tmp_path)!r} + "/store"
        writer = StoreWriter.open(root, services={services}, flush="sync", append={append!r}, **SIZES)
        put(writer, range(8_000), size=900)
        attempt(writer.flush)
        attempt(writer.close)
        subprocess.run(["mount", "-o", "remount,size=64m", {str(tmp_path)!r}], check=True)
        end(root)
        """,
        *small_disk(tmp_path, mebibytes),
    )
