"""Stores with wrong data, or that shrink or grow while they are read: a clear error or a right answer, never a crash."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
import threading
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import golden
import logdex
from logdex.rocketmq import CommitLog, IndexFile, IndexService, MessageStore
from message_frames import frame_with_body

if TYPE_CHECKING:
    from collections.abc import Callable

    Store = Callable[[str], Path]

pytestmark = pytest.mark.filterwarnings("ignore::logdex.DamageWarning")


def patch(path: Path, at: int, content: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        file.write(content)


def offsets(opened: MessageStore, **filters: Any) -> list[int]:
    found: list[int] = pa.table(opened.messages(columns=["phy_offset"], **filters)).column(0).to_pylist()
    return found


@pytest.mark.parametrize(
    ("what", "at", "content"),
    [
        ("total size of 2^31 - 1", 0, b"\x7f\xff\xff\xff"),
        ("negative total size", 0, b"\xff\xff\xff\xff"),
        ("body of 2^31 - 1 bytes", 84, b"\x7f\xff\xff\xff"),
        ("negative length of the body", 84, b"\x80\0\0\0"),
        ("topic of 127 bytes", "topic", b"\x7f"),
        ("negative length of the topic", "topic", b"\x80"),
        ("properties of 2^15 - 1 bytes", "properties", b"\x7f\xff"),
        ("negative length of the properties", "properties", b"\x80\0"),
    ],
)
@pytest.mark.parametrize("access", ["mmap", "pread"])
def test_a_length_that_lies_costs_one_message(
    what: str, at: int | str, content: bytes, access: Any, store: Store
) -> None:
    root = store("basic")
    rows = golden.rows("basic", "messages")
    row = rows[100]
    if isinstance(at, str):
        topic = 88 + row["storedBodyLength"]
        at = topic if at == "topic" else topic + 1 + len(row["topic"])
    file = row["physicalOffset"] // 65_536 * 65_536
    patch(root / "commitlog" / f"{file:020}", row["physicalOffset"] - file + at, content)
    with MessageStore.open(root, access=access) as opened:
        assert opened.message(row["physicalOffset"]) is None, what
        assert offsets(opened) == [r["physicalOffset"] for r in rows if r is not row]
        kinds = [(finding.kind, finding.offset) for finding in opened.verify().findings]
        assert ("log-frame", row["physicalOffset"] - file) in kinds


def test_properties_without_an_end_cost_no_other_message(store: Store) -> None:
    """No checksum covers the separators: the message stays, with the properties that can still be read."""
    root = store("basic")
    rows = golden.rows("basic", "messages")
    row = rows[50]
    path = root / "commitlog" / "00000000000000000000"
    content = path.read_bytes()
    begin, end = row["physicalOffset"], row["physicalOffset"] + row["storeSize"]
    frame = content[begin:end]
    tail = frame[-40:].replace(b"\x01", b"x").replace(b"\x02", b"y")
    patch(path, end - 40, tail)
    with MessageStore.open(root) as opened:
        assert offsets(opened) == [r["physicalOffset"] for r in rows]
        message = opened.message(begin)
        assert message is not None
        assert message.properties != row["properties"]


def test_an_index_that_points_past_the_log(store: Store) -> None:
    root = store("basic")
    path = max((root / "index").iterdir())
    row = golden.rows("basic", "messages")[-3]
    with IndexService.open(root / "index") as index:
        entries = [o for batch in index.files[-1].entries() for o in batch.column("phy_offset").to_pylist()]
    for position, offset in enumerate(entries, 1):
        if offset == row["physicalOffset"]:
            patch(path, 40 + 4 * 64 + 20 * position + 4, (1 << 62).to_bytes(8, "big"))
    with MessageStore.open(root) as opened:
        # If the index does not cover its true place, the message is read from the log. No other message is returned.
        assert {m.phy_offset for m in opened.find(row["topic"], row["uniqKey"])} <= {row["physicalOffset"]}
        kinds = opened.verify().kinds
        assert kinds["index-entry"] >= 1
        told = opened.explain(row["topic"], row["uniqKey"])
        assert "beyond-log" in {candidate.verdict for candidate in told.candidates}


def test_a_store_that_is_being_written(store: Store, tmp_path: Path) -> None:
    """A copy of a broker's store grows file by file and byte by byte while it is searched."""
    source, root = store("basic"), tmp_path / "growing"
    (root / "commitlog").mkdir(parents=True)
    rows = golden.rows("basic", "messages")
    known = {row["physicalOffset"] for row in rows}
    done = threading.Event()

    def write() -> None:
        try:
            for path in sorted((source / "commitlog").iterdir()):
                target = root / "commitlog" / path.name
                content = path.read_bytes()
                # A broker never shortens a file that it has begun.
                with target.open("r+b" if target.exists() else "wb") as file:
                    file.truncate(len(content))
                    for at in range(0, len(content), 1_000):
                        file.seek(at)
                        file.write(content[at : at + 1_000])
                        file.flush()
            shutil.copytree(source / "index", root / "index")
            shutil.copytree(source / "consumequeue", root / "consumequeue")
        finally:
            done.set()

    (root / "commitlog" / "00000000000000000000").write_bytes(bytes(65_536))
    with MessageStore.open(root, hash_slots=64, max_entries=256) as opened:
        writer = threading.Thread(target=write)
        writer.start()
        while not done.is_set():
            assert set(offsets(opened)) <= known
            for message in opened.find("AaTopic", "BB"):
                assert (message.topic, message.phy_offset in known) == ("AaTopic", True)
        writer.join()
        assert offsets(opened) == [row["physicalOffset"] for row in rows]
        assert len(opened.find("AaTopic", "BB")) == 16
        assert opened.verify().ok


def test_a_file_that_shrinks_is_no_fall(store: Store) -> None:
    root = store("basic")
    rows = golden.rows("basic", "messages")
    path = max((root / "commitlog").iterdir())
    with MessageStore.open(root, access="pread") as opened:
        opened.find("AaTopic", "BB")
        with path.open("r+b") as file:
            file.truncate(5_000)
        left = [row["physicalOffset"] for row in rows if row["physicalOffset"] + row["storeSize"] <= 262_144 + 5_000]
        assert offsets(opened) == left
        found = {message.phy_offset for message in opened.find("AaTopic", "BB")}
        assert found <= set(left)
        assert ("file-size", str(path)) in {(finding.kind, finding.path) for finding in opened.verify().findings}


def many_messages(root: Path, bytes_wanted: int) -> Path:
    """Make a log of one file that is larger than one read, with the messages of a real log."""
    row = golden.rows("basic", "messages")[0]
    frame = bytearray((root / "commitlog" / "00000000000000000000").read_bytes()[: row["storeSize"]])
    content = bytearray()
    while len(content) < bytes_wanted:
        frame[28:36] = len(content).to_bytes(8, "big")
        content += frame
    directory = root / "large"
    directory.mkdir()
    (directory / "00000000000000000000").write_bytes(content)
    return directory


@pytest.mark.parametrize("options", [{}, {"stop": "salvage"}])
def test_a_log_file_that_shrinks_under_a_scan_says_where(options: dict[str, Any], store: Store) -> None:
    directory = many_messages(store("basic"), 8_000_000)
    (path,) = directory.iterdir()
    whole = path.stat().st_size
    with CommitLog.open(directory, access="pread") as log:
        size = golden.rows("basic", "messages")[0]["storeSize"]
        far = whole - whole % size - size
        assert log.message(far) is not None
        reader = log.scan(columns=["phy_offset"], batch_size=10, **options)
        next(reader)
        with path.open("r+b") as file:
            file.truncate(2_000_000)
        with pytest.raises(OSError, match=r"expected \d+ bytes at byte \d+, found a file of 2000000 bytes") as caught:
            list(reader)
        assert caught.value.filename == str(path)
        # Later calls see the file as it is.
        assert log.message(far) is None
        assert log.max_offset == 2_000_000 // size * size
        assert sum(batch.num_rows for batch in log.scan(columns=["phy_offset"], **options)) == 2_000_000 // size


def test_a_queue_that_shrinks_is_no_fall(store: Store) -> None:
    root = store("basic")
    with MessageStore.open(root, access="pread") as opened:
        queue = opened.queue("TopicTest", 0)
        assert (queue.max_offset, queue.units().num_rows) == (129, 129)
        last = golden.rows("basic", "messages")[-1]["storeTimestamp"]
        path = queue.files[1]
        with path.open("r+b") as file:
            file.truncate(333)
        # A unit's place is its queue offset, so units after the gap keep their queue offsets.
        left = [*range(50 + 333 // 20), *range(100, 129)]
        assert queue.units().column("queue_offset").to_pylist() == left
        assert queue.offset_by_time(last + 1) == 129
        assert [(f.kind, f.path, f.offset) for f in queue.check_files().findings] == [("file-size", str(path), 333)]
        for each in queue.files:
            each.write_bytes(b"")
        assert (queue.min_offset, queue.max_offset, queue.units().num_rows, queue.offset_by_time(last)) == (0, 0, 0, 0)


_ASK = """
import errno, os, sys
from pathlib import Path
from logdex.rocketmq import CommitLog, MessageStore

root, refused = Path(sys.argv[1]), sys.argv[2]
# What Python itself loads late may lie where nobody else may read.
with MessageStore.open(root) as store:
    store.find("t", "k0"), store.queue("t", 0)
if not os.geteuid():
    os.setgroups([])
    os.setgid(65534)
    os.setuid(65534)
calls = {
    "commitlog": lambda: MessageStore.open(root),
    ".": lambda: MessageStore.open(root),
    "index": lambda: MessageStore.open(root),
    "commitlog/00000000000000000000": lambda: CommitLog.open(root / "commitlog").message(0),
    "consumequeue": lambda: MessageStore.open(root).topics,
    "consumequeue/TopicTest/0": lambda: MessageStore.open(root).queue("TopicTest", 0),
}
try:
    calls[refused]()
except PermissionError as error:
    assert error.errno == errno.EACCES, error
    print(error.filename)
"""


@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="this system has other permissions")
@pytest.mark.parametrize(
    "refused",
    ["commitlog", ".", "index", "commitlog/00000000000000000000", "consumequeue", "consumequeue/TopicTest/0"],
)
def test_what_may_not_be_read_is_named(refused: str, store: Store) -> None:
    """Run in a process without root's rights, because root may read everything."""
    root = store("basic")
    for path in (root, *root.parents):
        if path.owner() == Path(root).owner() and path.stat().st_mode & 0o005 != 0o005 and path != Path("/"):
            path.chmod(path.stat().st_mode | 0o005)
    (root / refused).chmod(0)
    try:
        ran = subprocess.run(
            [sys.executable, "-c", _ASK, str(root), refused], capture_output=True, text=True, timeout=60, check=False
        )
    finally:
        (root / refused).chmod(0o755)
    assert ran.stderr == ""
    assert Path(ran.stdout.strip()) == root / refused


@pytest.mark.parametrize(
    "name", ["index", "abort", "consumequeue", "batchconsumequeue", "consumequeue/Orders", "consumequeue/TopicTest/0"]
)
def test_what_cannot_be_looked_at_is_not_taken_for_absent(name: str, store: Store) -> None:
    root = store("basic")
    if (root / name).exists():
        shutil.rmtree(root / name)
    (root / name).symlink_to((root / name).name)
    with pytest.raises(OSError, match="symbolic links") as raised, MessageStore.open(root) as opened:
        assert opened.topics == []
    assert (raised.value.errno, raised.value.filename) == (errno.ELOOP, str(root / name))


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no pipes with names")
@pytest.mark.timeout(60)
def test_a_pipe_in_the_place_of_a_file_is_not_waited_for(store: Store) -> None:
    path = store("basic") / "commitlog" / "00000000000000000000"
    path.unlink()
    os.mkfifo(path)
    with CommitLog.open(path.parent) as log:
        assert log.message(0) is None
    index = path.parent / "20261121000000000"
    os.mkfifo(index)
    with pytest.raises(OSError, match="expected a regular file, found a pipe") as raised:
        IndexFile.open(index)
    assert (raised.value.errno, raised.value.filename) == (errno.ESPIPE, str(index))


@pytest.mark.parametrize("kind", ["zlib", "zstd"])
def test_a_body_that_inflates_without_end_takes_no_memory(kind: str, store: Store) -> None:
    """A body of 1 MB that would decompress to 1 GB: an error with path and offset, and no memory above the limit."""
    root = store("basic")
    zeros = bytes(1 << 20)
    if kind == "zlib":
        compress = zlib.compressobj(9)
        body = b"".join([*(compress.compress(zeros) for _ in range(1024)), compress.flush()])
    else:
        body = pa.compress(zeros, codec="zstd", asbytes=True) * 1024
    directory = root / "bomb"
    directory.mkdir()
    (directory / "00000000000000000000").write_bytes(frame_with_body(root, body, 1 | (0x200 if kind == "zstd" else 0)))
    ask = (
        "import resource, sys; from logdex.rocketmq import CommitLog\n"
        "log = CommitLog.open(sys.argv[1], max_body_bytes=1 << 20)\n"
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "message = log.message(0); rows = list(log.scan(columns=['body', 'body_error']))\n"
        "print(message.body, rows[0].column('body').to_pylist(), message.body_error)\n"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)\n"
    )
    ran = subprocess.run(
        [sys.executable, "-c", ask, str(directory)], capture_output=True, text=True, timeout=60, check=True
    )
    said, grown = ran.stdout.splitlines()
    assert said == f"None [None] {directory / ('0' * 20)} at byte 0: body of more than 1048576 bytes"
    assert int(grown) < 32 * 1024


def test_files_that_vanish_are_no_fall(store: Store) -> None:
    """A broker deletes the oldest files of all directories."""
    root = store("basic")
    rows = golden.rows("basic", "messages")
    with MessageStore.open(root) as opened:
        assert len(opened.find("AaTopic", "BB")) == 16
        for part in ("commitlog", "index"):
            min((root / part).iterdir()).unlink()
        left = [row["physicalOffset"] for row in rows if row["physicalOffset"] >= 65_536]
        assert offsets(opened) == left
        assert {message.phy_offset for message in opened.find("AaTopic", "BB")} <= set(left)
        report = opened.verify()
        assert report.ok, report


@pytest.mark.parametrize(
    ("make", "match"),
    [
        (lambda path: path / "nowhere", "nowhere"),
        (lambda path: (path / "file").write_text("x") and path / "file", "file"),
        (lambda path: path, "commitlog"),
        (lambda path: (path / "index").mkdir() or path, "storePathCommitLog"),
        (lambda path: (path / "store" / "commitlog").mkdir(parents=True) or path, "there is a store in"),
        (lambda path: (path / ("0" * 20)).write_bytes(bytes(64)) and path, "begin with no message"),
    ],
)
def test_a_path_that_is_no_store_says_what_it_would_be(
    make: Callable[[Path], Path], match: str, tmp_path: Path
) -> None:
    with pytest.raises(OSError, match=match) as caught:
        MessageStore.open(make(tmp_path))
    assert caught.value.errno
    assert caught.value.filename


def test_a_topic_cannot_lead_out_of_the_store(store: Store) -> None:
    with MessageStore.open(store("basic")) as opened:
        for topic in ("../commitlog", "..", ".", "", "a/b", "TopicTest\0"):
            with pytest.raises(FileNotFoundError, match="no files of queue"):
                opened.queue(topic, 0)
        with pytest.raises(FileNotFoundError, match="queue 77"):
            opened.queue("TopicTest", 77)


@pytest.mark.parametrize("queue_id", ["", "0", "../order_events/0", Path("/"), None, 0.0])
def test_the_number_of_a_queue_cannot_lead_elsewhere(store: Store, queue_id: Any) -> None:
    with MessageStore.open(store("basic")) as opened, pytest.raises(TypeError, match="integer"):
        opened.queue("TopicTest", queue_id)


@pytest.mark.parametrize("topic", [b"TopicTest", None, 7])
def test_a_topic_is_text(store: Store, topic: Any) -> None:
    with MessageStore.open(store("basic")) as opened, pytest.raises(TypeError, match="a topic is str"):
        opened.queue(topic, 0)


@pytest.mark.parametrize("slack", [-1, -(1 << 63)])
def test_a_slack_below_nothing_is_refused(store: Store, slack: int) -> None:
    root = store("basic")
    with pytest.raises(ValueError, match=f"clock_slack_ms must not be negative: {slack}"):
        MessageStore.open(root, clock_slack_ms=slack)
    with pytest.raises(ValueError, match=f"clock_slack_ms must not be negative: {slack}"):
        IndexService.open(root / "index", clock_slack_ms=slack)


def test_use_after_close_is_an_error(store: Store) -> None:
    opened = logdex.open(store("basic"))
    assert isinstance(opened, MessageStore)
    queue = opened.queue("t", 0)
    opened.close()
    opened.close()
    calls: tuple[Callable[[], object], ...] = (
        lambda: opened.find("t", "k0"),
        opened.messages,
        lambda: opened.topics,
        lambda: opened.queue("t", 0),
        lambda: opened.explain("t", "k0"),
        opened.verify,
        lambda: queue.max_offset,
    )
    for call in calls:
        with pytest.raises(ValueError, match="closed"):
            call()
