"""Every public call through a Python file system while other threads run: no call waits with the interpreter lock held.

A read waits for a file system call in another thread, which needs the interpreter lock. A call that keeps the lock would
wait forever. Each call gets its own file system, so that nothing is cached.
"""

from __future__ import annotations

import struct
import subprocess
import sys
import textwrap
from typing import TYPE_CHECKING

import pyarrow as pa

import golden_kafka
from logdex.rocketmq import IndexFile, MessageStore

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

SLOTS, ENTRIES = 5_000_000, 20_000_000
"""Default geometry of a broker's index files."""

PROGRAM = """
    import faulthandler, sys, tempfile, threading, time
    from pathlib import Path
    import arro3.core, pyarrow as pa
    from pyarrow.fs import LocalFileSystem
    from logdex._core import IndexCrossCheck, ProducerState
    from logdex.errors import LogdexError
    from logdex.kafka import Log, LogDir, LogSegment, OffsetIndex, TimeIndex
    from logdex.rocketmq import CommitLog, ConsumeQueue, IndexFile, IndexService, MessageStore

    faulthandler.dump_traceback_later(100, exit=True)
    # Otherwise a thread that needs the interpreter lock gets it after 5 ms.
    sys.setswitchinterval(1e-5)
    root, logs, key, queue_id, phy_offset = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]), int(sys.argv[5])
    topic = key.split("#")[0]
    out = tempfile.mkdtemp()

    def store():
        return MessageStore.open(root, filesystem=LocalFileSystem())
    def log():
        return LogDir.open(logs, filesystem=LocalFileSystem()).log("cod-none", 0)
    def index(kind, suffix):
        return kind.open(log().segments[0].path.with_suffix(suffix))
    HANDLES = {
        MessageStore: store,
        IndexService: lambda: store().index,
        IndexFile: lambda: store().index.files[0],
        CommitLog: lambda: store().commit_log,
        ConsumeQueue: lambda: store().queue(topic, queue_id),
        LogDir: lambda: LogDir.open(logs, filesystem=LocalFileSystem()),
        Log: log,
        LogSegment: lambda: log().segments[0],
        OffsetIndex: lambda: index(OffsetIndex, ".index"),
        TimeIndex: lambda: index(TimeIndex, ".timeindex"),
    }
    span = {"begin": 0, "end": 4_000_000_000_000}
    ARGUMENTS = {
        "MessageStore.ask_sealed": None,  # for the package itself
        "MessageStore.build_index": (out + "/index",),
        "MessageStore.build_queues": (out + "/queues",),
        "MessageStore.explain": (topic, "none"),
        "MessageStore.find": (topic, key.split("#")[1]),
        "MessageStore.find_batch": ([topic], [key.split("#")[1]]),
        "MessageStore.indexed_offsets": ([topic], [key.split("#")[1]]),
        "MessageStore.is_msg_id": ("x",),
        "MessageStore.exists_at": (Path(root),),
        "MessageStore.message": ("7F00000100002A9F0000000000000000",),
        "MessageStore.queue": (topic, queue_id),
        "MessageStore.queue_ids": (topic,),
        "MessageStore.seal": (out + "/sealed",),
        "MessageStore.start_of_last": (3,),
        "IndexService.build_index": ([],),
        "IndexService.delete_expired_files": (0,),
        "IndexService.explain": (topic, "none"),
        "IndexService.find": (topic, "none"),
        "IndexService.index_once": ([],),
        "IndexService.put_batch": ([key], [1], [1]),
        "IndexService.put_key": (key, 1, 1),
        "IndexService.query_batch": ([topic], [key.split("#")[1]]),
        "IndexService.query_offset": (topic, key.split("#")[1]),
        "IndexService.recover": None,  # of a writer
        "IndexFile.is_time_matched": (1, 2),
        "IndexFile.put_batch": ([key], [1], [1]),
        "IndexFile.put_key": (key, 1, 1),
        "IndexFile.select_batch": ([key, "T#none"],),
        "IndexFile.select_phy_offset": (key,),
        "CommitLog.batch_end": (0, 1 << 20),
        "CommitLog.damage": ([phy_offset, 5],),
        "CommitLog.is_cut_off": (phy_offset,),
        "CommitLog.is_cut_short": (phy_offset,),
        "CommitLog.is_uncommitted": (phy_offset,),
        "CommitLog.message": (phy_offset,),
        "CommitLog.message_batches": ([phy_offset],),
        "CommitLog.messages": ([phy_offset],),
        "CommitLog.missing": (0, 1 << 20),
        "CommitLog.place": (phy_offset,),
        "CommitLog.recovery": {"last_exit_ok": True},
        "CommitLog.stored_frames": ([phy_offset], 1 << 20),
        "CommitLog.topics": {"salvage": True},
        "ConsumeQueue.due_messages": (0,) + ({"now": 0, "delay_ms": 0},),
        "ConsumeQueue.extension_units": ([-(1 << 62)],),
        "ConsumeQueue.offset_by_time": (1_700_000_000_000,),
        "ConsumeQueue.offsets_near_times": ([1_700_000_000_000],),
        "ConsumeQueue.store_timestamp": (0,),
        "LogDir.attached": None,  # for the package itself
        "LogDir.exists_at": (Path(logs),),
        "LogDir.explain": ("cod-none", "none"),
        "LogDir.find": ("cod-none", "none"),
        "LogDir.log": ("cod-none", 0),
        "LogDir.named_topics": ("cod-*",),
        "LogDir.seal": (out + "/sealed-logs",),
        "Log.exists_at": (Path(logs),),
        "Log.explain": ("cod-none", "none"),
        "Log.find": ("cod-none", "none"),
        "Log.offset_for_timestamp": (1_700_000_000_000,),
        "Log.read": (0, 1 << 16),
        "Log.rebuild_indexes": (out + "/log-indexes",),
        "LogSegment.aborted_transactions": (ProducerState(),),
        "LogSegment.find_timestamp": (1_700_000_000_000,),
        "LogSegment.largest_data_timestamp": (-1,),
        "LogSegment.offset_for_timestamp": (1_700_000_000_000,),
        "LogSegment.read": (0, 1 << 16),
        "LogSegment.rebuild_indexes": (out,),
        "LogSegment.slice_bytes": (0, 100),
        "LogSegment.translate_offset": (0,),
        "LogSegment.verify_in_log": ([],),
        "OffsetIndex.append": (1, 1),
        "OffsetIndex.entry": (0,),
        "OffsetIndex.fetch_upper_bound_offset": (0, 100),
        "OffsetIndex.lookup": (5,),
        "OffsetIndex.lookup_batch": ([5],),
        "OffsetIndex.resize": (80,),
        "OffsetIndex.truncate_to": (5,),
        "TimeIndex.entry": (0,),
        "TimeIndex.lookup": (5,),
        "TimeIndex.lookup_batch": ([5],),
        "TimeIndex.maybe_append": (1, 1),
        "TimeIndex.resize": (80,),
        "TimeIndex.truncate_to": (5,),
    }
    # These open a handle by a path or bytes.
    NEVER = {"open", "open_to_recover", "create", "from_bytes"}

    def use(value):
        repr(value)
        if hasattr(value, "__len__"):
            len(value)
        if hasattr(value, "__arrow_c_stream__"):
            pa.table(value)
        elif hasattr(value, "__next__"):
            list(value)

    def call(kind, name):
        handle = HANDLES[kind]()
        shown.append(handle)
        given = ARGUMENTS.get(f"{kind.__name__}.{name}", ())
        keywords = given if isinstance(given, dict) else {}
        if isinstance(given, tuple) and given and isinstance(given[-1], dict):
            given, keywords = given[:-1], given[-1]
        try:
            value = getattr(handle, name)
            if callable(value):
                value = value(*(() if given is keywords else given), **keywords)
            use(value)
        except (LogdexError, ValueError, OSError, IndexError) as error:
            return f"{type(error).__name__}: {error}"
        return ""

    shown, stopped = [], False
    def others():
        while not stopped:
            for handle in shown[-1:]:
                repr(handle)
            time.sleep(0.001)
    thread = threading.Thread(target=others)
    thread.start()
    try:
        for kind in HANDLES:
            names = [name for name in dir(kind) if not name.startswith("_") and name not in NEVER]
            for name in [*names, "__repr__", *(["__len__"] if hasattr(kind, "__len__") else [])]:
                if ARGUMENTS.get(f"{kind.__name__}.{name}", ()) is not None:
                    print(f"{kind.__name__}.{name}", call(kind, name), flush=True)
        # Consumers that read a stream with the interpreter lock.
        for open_stream in (
            lambda: store().index.files[0].entries(), lambda: store().messages(scan=True), lambda: log().records(),
            lambda: log().segments[0].batches(),
        ):
            print("stream", arro3.core.Table.from_arrow(open_stream()).num_rows)
        files = store().index.files
        check = IndexCrossCheck(files, tags=False, log_begin=0)
        shown.append(check)
        for batch in store().commit_log.scan(batch_size=50):
            check.check(batch)
            assert check.missing_from(0) == len(check.missing_before(None))
        print("checked", check.followed)
    finally:
        stopped = True
        thread.join()
"""


def give_default_size(path: Path) -> None:
    """Extend an index file to the default geometry, mostly with holes."""
    with IndexFile.open(path) as file:
        header, rows = file.header, pa.table(file.entries()).to_pylist()
    heads: dict[int, int] = {}
    begin = header.begin_timestamp
    path.unlink()
    with path.open("wb") as out:
        out.truncate(40 + 4 * SLOTS + 20 * ENTRIES)
        for row in rows:
            slot = row["key_hash"] % SLOTS
            seconds = max(0, int(row["store_timestamp"].timestamp() * 1000) - begin) // 1000
            out.seek(40 + 4 * SLOTS + 20 * row["position"])
            out.write(struct.pack(">iqii", row["key_hash"], row["phy_offset"], seconds, heads.get(slot, 0)))
            heads[slot] = row["position"]
        for slot, head in heads.items():
            out.seek(40 + 4 * slot)
            out.write(struct.pack(">i", head))
        out.seek(0)
        offsets = (header.begin_phy_offset, header.end_phy_offset)
        out.write(struct.pack(">qqqqii", begin, header.end_timestamp, *offsets, len(heads), len(rows) + 1))


def test_no_call_waits_for_a_file_system_with_the_interpreter_lock(
    store: Callable[[str], Path], tmp_path: Path
) -> None:
    root = store("basic")
    golden_kafka.unpack("codecs", tmp_path)
    with MessageStore.open(root) as here:
        messages = pa.table(here.messages(columns=["topic", "keys", "queue_id", "phy_offset"])).to_pylist()
    message = next(message for message in messages if message["keys"])
    path, *others = sorted((root / "index").iterdir())
    for other in others:
        other.unlink()
    give_default_size(path)
    key = f"{message['topic']}#{message['keys'].split()[0]}"
    done = subprocess.run(
        [
            *(sys.executable, "-W", "ignore", "-c", textwrap.dedent(PROGRAM), str(root), str(tmp_path), key),
            *(str(message["queue_id"]), str(message["phy_offset"])),
        ],
        capture_output=True,
        text=True,
        timeout=150,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-300:] + done.stderr
    lines = [line.split() for line in done.stdout.splitlines()]
    assert len(lines) > 200
    rows = [int(line[1]) for line in lines if line[0] in ("stream", "checked")]
    assert len(rows) == 5
    assert min(rows) > 0
