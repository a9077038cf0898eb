"""Copies of a master's store. The master is one in Python that speaks the protocol, over the logs that real brokers wrote."""

from __future__ import annotations

import json
import os
import random
import signal
import socket
import struct
import subprocess
import sys
import textwrap
import threading
import time
from collections import Counter
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

import pytest

import golden
from logdex.broker.replica import master as replica_master
from logdex.broker.replica import replication
from logdex.errors import CorruptFileError, LockedError
from logdex.rocketmq import MessageStore, Replication, StoreWriter, replicate
from master import Master, read_exactly, read_reports, send_log

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

FRAMES = {"basic": 32_768, "rolled": 1_009, "sync": 65_536, "v5-basic": 4_097}


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replication, "RETRY_S", 0.05)
    monkeypatch.setattr(replication, "TABLES_S", 0.1)
    monkeypatch.setattr(replica_master, "WAIT_S", 0.02)


@pytest.fixture
def master(store: Callable[[str], Path]) -> Iterator[Master]:
    """A master with the store `basic`."""
    with master_of(store, "basic") as found:
        yield found


def master_of(store: Callable[[str], Path], case: str) -> Master:
    properties = golden.info(case)["store"]
    return Master(store(case), **{name: _java(value) for name, value in properties.items()})


def _java(value: object) -> object:
    return str(value).lower() if isinstance(value, bool) else value


def log_bytes(root: Path) -> bytes:
    return b"".join(file.read_bytes() for file in sorted((root / "commitlog").iterdir()))


def check(copy: Path, master: Master, end: int | None = None) -> MessageStore:
    """Check that a copy is the master's log, byte for byte, and valid in itself; return it open."""
    end = master.end if end is None else end
    log = log_bytes(copy)
    assert len(log) % master.file_size == 0
    assert log[: end - master.begin] == master.log[: end - master.begin]
    assert not any(log[end - master.begin :])
    assert not (copy / "abort").exists()
    opened = MessageStore.open(copy)
    report = opened.verify()
    assert report.ok, report
    return opened


@contextmanager
def following(master: Master, copy: Path) -> Iterator[Replication]:
    """Follow a master in a thread, and stop at the end of the block."""
    run = Replication(master.address, copy)
    failures: list[BaseException] = []

    def work() -> None:
        try:
            run.run()
        except BaseException as error:  # noqa: BLE001 -- raised below
            failures.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield run
    finally:
        run.stop()
        thread.join(30)
    assert not thread.is_alive()
    if failures:
        raise failures[0]


def wait_for(condition: Callable[[], object], seconds: float = 20) -> None:
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, "it never came"
        time.sleep(0.01)


# Whole copies


@pytest.mark.parametrize("case", [case for case in golden.CLEAN_STORES if case != "v5-3-3"])
def test_a_copy_has_the_log_byte_for_byte_and_its_queues_and_index(
    case: str, store: Callable[[str], Path], tmp_path: Path
) -> None:
    with master_of(store, case) as master:
        master.frame_bytes = FRAMES.get(case, 5_000)
        report = replicate(master.address, tmp_path / "copy", once=True)
    rows = golden.rows(case, "messages")
    messages = report.checked.pop("messages")
    sizes = {"log_bytes": len(master.log), "end_phy_offset": master.end, "master_end": master.end}
    assert (report.ok, report.checked) == (True, sizes)
    assert messages >= len(rows) > 0
    with check(tmp_path / "copy", master) as copy:
        offsets = [
            offset for batch in copy.messages(columns=("phy_offset",)) for offset in batch["phy_offset"].to_pylist()
        ]
    assert len(offsets) == messages
    assert {row["physicalOffset"] for row in rows} <= {*offsets}


def test_queues_are_those_of_the_broker(store: Callable[[str], Path], tmp_path: Path) -> None:
    root = store("sync")
    with Master(root, **golden.info("sync")["store"]) as master:
        replicate(master.address, tmp_path / "copy", once=True)
    wanted = sorted(path.relative_to(root) for path in (root / "consumequeue").rglob("*") if path.is_file())
    copied = tmp_path / "copy"
    assert wanted == sorted(path.relative_to(copied) for path in (copied / "consumequeue").rglob("*") if path.is_file())
    assert [(root / path).read_bytes() for path in wanted] == [(copied / path).read_bytes() for path in wanted]
    assert len(wanted) > 5


def test_the_first_report_is_1_so_that_the_whole_log_comes(master: Master, tmp_path: Path) -> None:
    replicate(master.address, tmp_path / "copy", once=True)
    assert master.reports[0] == 1
    assert master.reports[-1] == master.end


def test_a_log_that_does_not_begin_with_0_is_copied_from_its_minimum(
    store: Callable[[str], Path], tmp_path: Path
) -> None:
    root = store("basic")
    (root / "commitlog" / f"{0:020}").unlink()
    with Master(root) as master:
        assert master.minimum == 65_536
        replicate(master.address, tmp_path / "copy", once=True)
        assert master.reports[0] == 65_536
    with check(tmp_path / "copy", master) as copy:
        assert copy.commit_log.min_offset == 65_536


def test_a_copy_goes_on_where_it_stopped(master: Master, tmp_path: Path) -> None:
    whole, master.end = master.end, 100_000
    master.end = _last_end(master, 100_000)
    first = replicate(master.address, tmp_path / "copy", once=True).checked
    check(tmp_path / "copy", master).close()
    (asked,) = {report for report in master.reports if report == master.end}
    master.end = whole
    second = replicate(master.address, tmp_path / "copy", once=True).checked
    assert (second["log_bytes"], second["end_phy_offset"]) == (whole - asked, whole)
    assert first["messages"] + second["messages"] == len(golden.rows("basic", "messages"))
    check(tmp_path / "copy", master).close()
    assert replicate(master.address, tmp_path / "copy", once=True).checked["log_bytes"] == 0


def _last_end(master: Master, limit: int) -> int:
    """Return the end of the last message before a limit."""
    at = end = master.begin
    while at <= limit:
        end = at
        length, magic = struct.unpack_from(">II", master.log, at - master.begin)
        at += master.file_size - at % master.file_size if magic == 0xCBD43194 else length
    return end


def test_a_master_without_messages_is_followed_from_its_first_one(master: Master, tmp_path: Path) -> None:
    whole, master.end = master.end, 0
    assert replicate(master.address, tmp_path / "copy", once=True).checked["log_bytes"] == 0
    with following(master, tmp_path / "copy"):
        wait_for(lambda: master.reports)
        assert master.reports[0] == 0
        master.end = whole
        wait_for(lambda: master.reports[-1] == whole)
    check(tmp_path / "copy", master).close()


def test_a_copy_without_keys_goes_on(tmp_path: Path) -> None:
    root = tmp_path / "master"
    with StoreWriter.open(root, file_size=65_536, hash_slots=50, max_entries=200) as writer:
        for number in range(50):
            writer.put_message("T", b"x" * number)
    with Master(root, maxHashSlotNum=50, maxIndexNum=200) as master:
        whole, master.end = master.end, _last_end(master, 2_000)
        replicate(master.address, tmp_path / "copy", once=True)
        master.end = whole
        replicate(master.address, tmp_path / "copy", once=True)
    assert log_bytes(tmp_path / "copy") == log_bytes(root)


# While it runs


def test_a_copy_can_be_read_while_it_grows(master: Master, tmp_path: Path) -> None:
    rows = [row for row in golden.rows("basic", "messages") if row["topic"] == "order_events" and row["keys"]]
    keys = Counter(word for row in rows for word in row["keys"].split())
    row = next(row for row in reversed(rows) if keys[row["keys"]] == 1)
    whole, master.end = master.end, _last_end(master, 50_000)
    with following(master, tmp_path / "copy"):
        wait_for(lambda: master.reports and master.reports[-1] == master.end)
        with MessageStore.open(tmp_path / "copy", hash_slots=64, max_entries=256) as copy:

            def found() -> list[int | None]:
                return [each.phy_offset for each in copy.find(row["topic"], row["keys"])]

            assert found() == []
            master.end = whole
            wait_for(found)
            assert found() == [row["physicalOffset"]]
            with pytest.raises(LockedError):
                StoreWriter.open(tmp_path / "copy")
            with pytest.raises(LockedError):
                replicate(master.address, tmp_path / "copy", once=True)
    check(tmp_path / "copy", master).close()


def test_only_what_is_on_the_disk_is_acknowledged(
    master: Master, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replica_master, "_RECEIVE_BYTES", 5_000)
    copies: list[replication.StoreCopy] = []
    seen: list[tuple[int, int, int]] = []
    begun, report = replication.StoreCopy.__init__, replica_master.LogStream.report

    def keep(copy: replication.StoreCopy, *arguments: Any) -> None:
        begun(copy, *arguments)
        copies.append(copy)

    def look(stream: replica_master.LogStream, offset: int) -> None:
        log = copies[0]._parts.log
        seen.append((offset, log.flushed_offset, len(log_bytes(tmp_path / "copy"))))
        report(stream, offset)

    monkeypatch.setattr(replication.StoreCopy, "__init__", keep)
    monkeypatch.setattr(replica_master.LogStream, "report", look)
    replicate(master.address, tmp_path / "copy", once=True)
    assert len(seen) > 20
    assert all(offset <= flushed <= written for offset, flushed, written in seen[1:])


def test_a_silent_master_is_dropped_and_connected_again(
    master: Master, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replica_master, "SILENT_S", 0.3)

    def fall_silent(master: Master, connection: socket.socket, begin: int) -> None:
        if master.connections > 2:
            send_log(master, connection, begin)
            return
        connection.sendall(struct.pack(">qi", begin, 30_000) + master.log[begin : begin + 30_000])
        read_reports(master, connection)

    master.behaviour = fall_silent
    replicate(master.address, tmp_path / "copy", once=True)
    assert master.connections == 3
    check(tmp_path / "copy", master).close()


def test_reports_come_without_data_too(master: Master, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replica_master, "REPORT_S", 0.05)
    with following(master, tmp_path / "copy"):
        wait_for(lambda: master.reports[-5:] == [master.end] * 5)
    assert master.connections == 1


def test_a_connection_that_breaks_anywhere_loses_nothing(master: Master, tmp_path: Path) -> None:
    lengths = random.Random(18)
    lines = []

    def break_off(master: Master, connection: socket.socket, begin: int) -> None:
        frame = master.piece(begin)
        sent = struct.pack(">qi", begin, len(frame)) + frame
        sent += struct.pack(">qi", begin + len(frame), 0)
        line = sent[: lengths.randrange(2 * len(sent))]
        lines.append(len(line))
        connection.sendall(line)
        connection.shutdown(socket.SHUT_WR)
        # Closing with unread reports would reset the connection, and lose what was sent.
        read_reports(master, connection)

    master.behaviour = break_off
    replicate(master.address, tmp_path / "copy", once=True)
    assert len(lines) > 10
    check(tmp_path / "copy", master).close()


# Tables


def test_the_tables_of_the_broker_are_copied(master: Master, tmp_path: Path) -> None:
    config = tmp_path / "copy" / "config"
    master.tables["consumerOffset.json"] = b'{"offsetTable":{"T@a":{0:3,1:4},"T@b":{0:1}}}'
    master.tables["delayOffset.json"] = b'{"offsetTable":{1:7}}'
    replicate(master.address, tmp_path / "copy", once=True)
    assert {path.name: path.read_bytes() for path in config.iterdir()} == master.tables
    # Groups that the master deleted stay.
    master.tables["consumerOffset.json"] = b'{"offsetTable":{"T@a":{0:5}}}'
    # What is no table does not replace one.
    master.tables["topics.json"] = b"[]"
    before = (config / "topics.json").read_bytes()
    replicate(master.address, tmp_path / "copy", once=True)
    assert (config / "consumerOffset.json").read_bytes() == b'{"offsetTable":{"T@a":{0:5},"T@b":{0:1}}}'
    assert (config / "consumerOffset.json.bak").read_bytes() == b'{"offsetTable":{"T@a":{0:3,1:4},"T@b":{0:1}}}'
    assert (config / "topics.json").read_bytes() == before


def test_tables_follow_the_broker(master: Master, tmp_path: Path) -> None:
    with following(master, tmp_path / "copy"):
        wait_for(lambda: master.reports)
        master.tables["delayOffset.json"] = b'{"offsetTable":{3:9}}'
        path = tmp_path / "copy" / "config" / "delayOffset.json"
        wait_for(lambda: path.read_bytes() == master.tables["delayOffset.json"])
        # A master that refuses is asked again; the log goes on.
        master.refused = {43}
        master.tables["delayOffset.json"] = b'{"offsetTable":{3:10}}'
        time.sleep(0.3)
        master.refused = set()
        wait_for(lambda: path.read_bytes() == master.tables["delayOffset.json"])


def test_a_synchronous_master_is_warned_about(master: Master, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    replicate(master.address, tmp_path / "first", once=True)
    assert not caplog.records
    master.role = "SYNC_MASTER"
    replicate(master.address, tmp_path / "second", once=True)
    assert "is a SYNC_MASTER: its sends wait" in caplog.text


# What does not fit


def error_of(master: Master, copy: Path, *, once: bool = True) -> CorruptFileError:
    with pytest.raises(CorruptFileError) as raised:
        replicate(master.address, copy, once=once)
    assert raised.value.path == master.address or raised.value.path.startswith("127.0.0.1:")
    return raised.value


@pytest.mark.parametrize(
    ("header", "expected", "found"),
    [
        ((70_001, 10), "the log from offset 65536 on", "offset 70001"),
        ((65_535, 10), "the log from offset 65536 on", "offset 65535"),
        ((65_536, -1), "0 to 65536 bytes", "-1 bytes"),
        ((65_536, 65_537), "0 to 65536 bytes", "65537 bytes"),
    ],
)
def test_a_frame_that_does_not_continue_the_copy_stops_it(
    header: tuple[int, int], expected: str, found: str, master: Master, tmp_path: Path
) -> None:
    def stray(master: Master, connection: socket.socket, begin: int) -> None:
        first = master.log[begin : master.file_size]
        connection.sendall(struct.pack(">qi", begin, len(first)) + first + struct.pack(">qi", *header))
        read_reports(master, connection)

    master.behaviour = stray
    error = error_of(master, tmp_path / "copy")
    assert error.offset == 65_536
    assert (expected in error.expected, found) == (True, error.found)
    assert master.connections == 1
    check(tmp_path / "copy", master, 65_536).close()


def test_bytes_that_are_no_log_stop_the_copy_where_they_begin(master: Master, tmp_path: Path) -> None:
    end = _last_end(master, 90_000)
    master.log = master.log[:end] + b"\x00\x00\x00\x64not a message" + master.log[end + 17 :]
    error = error_of(master, tmp_path / "copy")
    assert (error.path, error.offset) == (master.address, end)
    assert "magic 0x6e6f7420" in error.found
    check(tmp_path / "copy", master, end).close()


@pytest.mark.parametrize("seed", range(6))
def test_garbage_stops_the_copy_or_is_a_lost_connection(seed: int, master: Master, tmp_path: Path) -> None:
    garbage = random.Random(seed).randbytes(5_000)

    def babble(master: Master, connection: socket.socket, begin: int) -> None:
        connection.sendall((struct.pack(">qi", begin, 4_000) if seed % 2 else b"") + garbage)
        read_reports(master, connection)

    master.behaviour = babble
    error_of(master, tmp_path / "copy")
    assert not (tmp_path / "copy" / "abort").exists()
    master.behaviour = send_log
    replicate(master.address, tmp_path / "copy", once=True)
    check(tmp_path / "copy", master).close()


def test_a_master_whose_log_begins_behind_the_copy_is_refused(master: Master, tmp_path: Path) -> None:
    whole, master.end = master.end, _last_end(master, 50_000)
    replicate(master.address, tmp_path / "copy", once=True)
    copied, master.end, master.minimum = master.end, whole, 131_072
    error = error_of(master, tmp_path / "copy")
    assert (error.offset, "begins at offset 131072; begin a new copy" in error.found) == (copied, True)


def test_a_master_that_deletes_what_comes_next_is_noticed_while_it_is_idle(master: Master, tmp_path: Path) -> None:
    whole, master.end = master.end, _last_end(master, 50_000)

    def delete() -> None:
        with following(master, tmp_path / "copy"):
            wait_for(lambda: master.reports and master.reports[-1] == master.end)
            # As a master of 4.9.3, it only sends heartbeats from now on.
            master.minimum = 131_072
            master.end = whole
            wait_for(lambda: not (tmp_path / "copy" / "abort").exists())

    with pytest.raises(CorruptFileError, match="begin a new copy"):
        delete()


def test_a_master_that_lost_its_end_is_refused(master: Master, tmp_path: Path) -> None:
    replicate(master.address, tmp_path / "copy", once=True)
    whole, master.end = master.end, _last_end(master, 150_000)
    error = error_of(master, tmp_path / "copy")
    assert error.offset == master.end
    assert f"a log up to offset {whole}" in error.expected
    master.end = whole
    check(tmp_path / "copy", master).close()


def test_a_copy_whose_last_message_differs_is_refused(master: Master, tmp_path: Path) -> None:
    whole, master.end = master.end, _last_end(master, 90_000)
    replicate(master.address, tmp_path / "copy", once=True)
    copied, end = log_bytes(tmp_path / "copy"), master.end
    # The broker lost what it had not flushed, and wrote other messages there.
    master.log = master.log[: end - 1] + b"x" + master.log[end:]
    master.end = whole
    error = error_of(master, tmp_path / "copy")
    assert "another message: the copy is that of another log" in error.found
    assert error.offset < end
    assert log_bytes(tmp_path / "copy") == copied
    assert master.reports[-1] <= end


def test_a_message_with_another_checksum_is_not_acknowledged(master: Master, tmp_path: Path) -> None:
    row = next(row for row in golden.rows("basic", "messages") if row["physicalOffset"] > 90_000)
    at = row["physicalOffset"]
    # Change a byte of the body.
    whole, master.log = master.log, master.log[: at + 88] + bytes([master.log[at + 88] ^ 1]) + master.log[at + 89 :]
    error = error_of(master, tmp_path / "copy")
    assert (error.offset, "a body with checksum 0x" in error.expected) == (at, True)
    assert max(master.reports) <= at
    check(tmp_path / "copy", master, end=at).close()
    # Once the master's message is valid again, the copy continues.
    master.log = whole
    replicate(master.address, tmp_path / "copy", once=True)
    check(tmp_path / "copy", master).close()


def test_a_last_message_that_is_damaged_in_the_copy_is_not_that_of_another_log(
    master: Master, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, master.end = master.end, _last_end(master, 90_000)
    replicate(master.address, tmp_path / "copy", once=True)
    begin = max(row["physicalOffset"] for row in golden.rows("basic", "messages") if row["physicalOffset"] < master.end)
    opened = replication.StoreCopy.__init__

    def damaged(self: replication.StoreCopy, *arguments: Any) -> None:
        opened(self, *arguments)
        with (tmp_path / "copy" / "commitlog" / f"{begin // 65_536 * 65_536:020}").open("r+b") as file:
            file.seek(begin % 65_536 + 88)
            file.write(b"\xff\xfe\xfd")

    monkeypatch.setattr(replication.StoreCopy, "__init__", damaged)
    master.end = whole
    with pytest.raises(CorruptFileError, match="checksum") as raised:
        replicate(master.address, tmp_path / "copy", once=True)
    file = tmp_path / "copy" / "commitlog" / f"{begin // 65_536 * 65_536:020}"
    assert (raised.value.path, raised.value.offset) == (str(file), begin % 65_536)
    monkeypatch.undo()
    # The next start truncates it, and the master sends it again.
    replicate(master.address, tmp_path / "copy", once=True)
    check(tmp_path / "copy", master).close()


def test_files_of_another_size_are_refused(master: Master, tmp_path: Path) -> None:
    replicate(master.address, tmp_path / "copy", once=True)
    master.file_size = 32_768
    with pytest.raises(ValueError, match="file_size=32768: the files of this log have 65536 bytes"):
        replicate(master.address, tmp_path / "copy", once=True)


@pytest.mark.parametrize("address", ["broker", "broker:", ":1", "broker:x", "broker:0", "broker:65536"])
def test_an_address_that_is_none_is_refused(address: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="expected HOST:PORT"):
        replicate(address, tmp_path / "copy")
    assert not (tmp_path / "copy").exists()


def test_a_master_that_cannot_be_reached_is_an_error_and_creates_nothing(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(ConnectionRefusedError) as refused:
            replicate(address, tmp_path / "copy")
        assert refused.value.filename == address
    assert not (tmp_path / "copy").exists()


@contextmanager
def trickling() -> Iterator[str]:
    """Return the address of a master that sends its answer byte by byte without end."""
    ended = threading.Event()

    def trickle() -> None:
        connection, _ = server.accept()
        with connection, suppress(OSError):
            connection.sendall((1 << 20).to_bytes(4, "big"))
            while not ended.wait(0.02):
                connection.sendall(b"x")

    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=trickle)
        thread.start()
        yield f"127.0.0.1:{server.getsockname()[1]}"
        ended.set()
        thread.join()


def test_a_master_that_trickles_its_answer_gets_no_more_time(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(replica_master, "ANSWER_S", 0.3)
    with trickling() as address:
        with pytest.raises(TimeoutError) as late:
            replicate(address, tmp_path / "copy")
        assert late.value.filename == address


def test_a_copy_stops_while_its_master_trickles(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(replica_master, "ANSWER_S", 60.0)
    with trickling() as address:
        copy = Replication(address, tmp_path / "copy")
        thread = threading.Thread(target=copy.run)
        thread.start()
        thread.join(0.1)
        assert thread.is_alive()
        copy.stop()
        thread.join(5)
        assert not thread.is_alive()


def test_a_copy_that_is_to_end_gives_up_if_nothing_but_heartbeats_comes(
    master: Master, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(replication, "GIVE_UP_S", 0.3)

    def beat(master: Master, connection: socket.socket, begin: int) -> None:
        while not master.is_stopped:
            try:
                connection.sendall(struct.pack(">qi", begin, 0))
            except OSError:
                return
            time.sleep(0.02)

    master.behaviour = beat
    with pytest.raises(ConnectionError, match=f"expected the log up to offset {master.end}, found nothing after 0"):
        replicate(master.address, tmp_path / "copy", once=True)


@pytest.mark.parametrize(
    ("name", "value"),
    [("haListenPort", "0"), ("haListenPort", "99999"), ("haListenPort", "9" * 5_000), ("maxIndexNum", "9" * 20)],
)
def test_a_number_that_no_broker_has_is_refused_at_once(
    name: str, value: str, master: Master, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    answer = master.answer

    def with_number(code: int, ext: dict[str, str]) -> tuple[int, bytes]:
        status, body = answer(code, ext)
        return status, body + (f"{name}={value}\n".encode() if code == 26 else b"")

    monkeypatch.setattr(master, "answer", with_number)
    with pytest.raises(CorruptFileError, match=f"expected a broker's {name}") as refused:
        replicate(master.address, tmp_path / "copy")
    assert (refused.value.path, len(refused.value.found) < 50) == (master.address, True)
    assert not (tmp_path / "copy").exists()


@pytest.mark.parametrize("answer", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"\0\0\0\x08\0\0\0\x04abcd", b""])
def test_a_port_of_another_protocol_is_an_error(answer: bytes, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def babble() -> None:
            connection, _ = server.accept()
            with connection:
                read_exactly(connection, 4)
                connection.sendall(answer)

        thread = threading.Thread(target=babble)
        thread.start()
        with pytest.raises(ConnectionError):
            replicate(f"127.0.0.1:{server.getsockname()[1]}", tmp_path / "copy")
        thread.join()
    assert not (tmp_path / "copy").exists()


def test_damage_that_the_master_can_send_again_is_repaired(master: Master, tmp_path: Path) -> None:
    replicate(master.address, tmp_path / "copy", once=True)
    file = tmp_path / "copy" / "commitlog" / f"{262_144:020}"
    content = bytearray(file.read_bytes())
    content[5_000:5_400] = bytes(400)
    file.write_bytes(content)
    (tmp_path / "copy" / "abort").touch()
    replicate(master.address, tmp_path / "copy", once=True)
    check(tmp_path / "copy", master).close()


# Kills

_KILLED = """\
import os, sys
from logdex.rocketmq import replicate
from logdex.broker.replica import master, replication

calls = int(sys.argv[3])

def counted(kind, name):
    call = getattr(kind, name)

    def die_before(*arguments):
        global calls
        calls -= 1
        if not calls:
            os._exit(9)
        return call(*arguments)

    setattr(kind, name, die_before)

for name in ("append", "sync", "dispatch", "flush_queues", "write_checkpoint", "last_message", "close"):
    counted(replication.StoreCopy, name)
for name in ("receive", "report"):
    counted(master.LogStream, name)
replicate(sys.argv[1], sys.argv[2], once=True)
"""


def test_a_copy_that_is_killed_at_any_point_goes_on(master: Master, tmp_path: Path) -> None:
    master.frame_bytes = 7_001
    master.heartbeat_s = 5
    copy, kills = tmp_path / "copy", 0
    for calls in range(1, 400):
        words = [sys.executable, "-c", textwrap.dedent(_KILLED), master.address, str(copy), str(calls)]
        code = subprocess.run(words, check=False).returncode
        if not code:
            break
        assert code == 9
        kills += 1
        acknowledged = max((report for report in master.reports if report > 1), default=0)
        copied = log_bytes(copy) if (copy / "commitlog").is_dir() else b""
        assert copied[:acknowledged] == master.log[:acknowledged]
    assert kills >= 4
    check(copy, master).close()


# The command


def test_the_command_copies_once_and_follows(master: Master, tmp_path: Path) -> None:
    program = [sys.executable, "-m", "logdex", "replicate", master.address, str(tmp_path / "copy")]
    once = subprocess.run([*program, "--once", "--json"], check=True, capture_output=True, text=True)
    assert json.loads(once.stdout)["checked"]["end_phy_offset"] == master.end
    with subprocess.Popen(program, stdout=subprocess.PIPE, text=True) as follower:
        assert follower.stdout is not None
        assert "follows" in follower.stdout.readline()
        connections = master.connections
        wait_for(lambda: master.connections > connections)
        follower.send_signal(signal.SIGTERM)
        assert f"{master.end:,} end phy offset" in follower.stdout.read()
        assert follower.wait(20) == 0
    check(tmp_path / "copy", master).close()


def test_the_command_says_that_it_was_interrupted(master: Master, tmp_path: Path) -> None:
    def stall(master: Master, connection: socket.socket, begin: int) -> None:
        piece = master.piece(begin)
        connection.sendall(struct.pack(">qi", begin, len(piece)) + piece)
        read_reports(master, connection)

    master.behaviour = stall
    program = [sys.executable, "-m", "logdex", "replicate", master.address, str(tmp_path / "copy"), "--once"]
    with subprocess.Popen(program, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as copier:
        wait_for(lambda: master.reports)
        os.kill(copier.pid, signal.SIGINT)
        _, said = copier.communicate(timeout=30)
    assert copier.returncode == 130
    assert "interrupted before it had all" in said
