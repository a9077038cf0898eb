"""Copies of real 4.9.3 masters by `logdex replicate`: under load, killed again and again; and what a SYNC_MASTER answers."""

from __future__ import annotations

import json
import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

import wire
from logdex.rocketmq import MessageStore, StoreWriter
from wire_programs import free_ports, start_broker

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from typing_extensions import Self

    from wire_programs import Program

KILLS = int(os.environ.get("LOGDEX_KILLS", "6"))
"""How often the copier is killed while the broker is under load."""
SLAVE_KILLS = int(os.environ.get("LOGDEX_SLAVE_KILLS", "2"))
"""How often a real slave of `logdex serve` is killed."""
PRODUCERS = 4
SMALL = {
    "mappedFileSizeCommitLog": 1 << 20,
    "mappedFileSizeConsumeQueue": 20_000,
    "maxHashSlotNum": 5_000,
    "maxIndexNum": 20_000,
}
OK, NO_SLAVE, SLAVE_TIMEOUT = 0, 11, 12


class Producer:
    """Sends messages to a broker, one after the other, without a client library."""

    def __init__(self, address: str) -> None:
        host, port = address.split(":")
        self._wire = socket.create_connection((host, int(port)), timeout=60)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._wire.close()

    def send(self, topic: str, body: bytes, **properties: str) -> tuple[int, int]:
        """Return the code of the answer, and the offset of the message in the log."""
        text = "".join(f"{name}\x01{value}\x02" for name, value in properties.items())
        ext = {
            "producerGroup": "replicas",
            "topic": topic,
            "defaultTopic": "TBW102",
            "defaultTopicQueueNums": "4",
            "queueId": str(len(body) % 4),
            "sysFlag": "0",
            "bornTimestamp": str(time.time_ns() // 1_000_000),
            "flag": "0",
            "properties": text,
            "reconsumeTimes": "0",
            "unitMode": "false",
            "batch": "false",
        }
        self._wire.sendall(wire.request(10, ext, body))
        header = self._read(4)
        members, _ = wire.split(header + self._read(int.from_bytes(header, "big")))
        code = members["code"]
        assert code in (OK, NO_SLAVE, SLAVE_TIMEOUT), members
        return code, int(members["extFields"]["msgId"][16:], 16)

    def ask(self, code: int, **fields: str) -> tuple[dict[str, str], bytes]:
        """Return the fields and the body of an answer."""
        self._wire.sendall(wire.request(code, fields))
        header = self._read(4)
        members, body = wire.split(header + self._read(int.from_bytes(header, "big")))
        assert members["code"] == OK, members
        return members.get("extFields") or {}, body

    def log_end(self) -> int:
        """Return the end of the broker's log; -1 in its first seconds, when it refuses to say."""
        self._wire.sendall(wire.request(28, {}))
        header = self._read(4)
        members, body = wire.split(header + self._read(int.from_bytes(header, "big")))
        return int(json.loads(body)["table"]["commitLogMaxOffset"]) if members["code"] == OK else -1

    def _read(self, count: int) -> bytes:
        data = b""
        while len(data) < count:
            piece = self._wire.recv(count - len(data))
            assert piece, "the broker closed the connection"
            data += piece
        return data


class Load:
    """Producers that send until the end of the block."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._ended = threading.Event()
        self.answers: list[tuple[int, int]] = []
        self.pause_s = 0.002
        self._threads = [threading.Thread(target=self._send, args=(number,)) for number in range(PRODUCERS)]

    def _send(self, seed: int) -> None:
        chance, number = random.Random(seed), 0
        with Producer(self._address) as producer:
            while not self._ended.is_set():
                number += 1
                body = chance.randbytes(chance.choice((0, 10, 300, 2_000, 20_000, 90_000)))
                self.answers.append(producer.send("Load", body, KEYS=f"k-{seed}-{number}", TAGS=f"t{number % 3}"))
                time.sleep(self.pause_s)

    def __enter__(self) -> Load:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        for thread in self._threads:
            thread.join()


@contextmanager
def broker(home: Path, root: Path, **properties: object) -> Iterator[str]:
    """Run a real master; yield its address."""
    program, _, address = start_broker(home, root, **{**SMALL, **properties})
    with program:
        yield address


@contextmanager
def copier(address: str, copy: Path, *, wait: bool = True) -> Iterator[subprocess.Popen[str]]:
    """Run `logdex replicate` until the end of the block."""
    words = [sys.executable, "-m", "logdex", "replicate", address, str(copy)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as program:
        assert program.stdout is not None
        try:
            if wait:
                assert "follows" in program.stdout.readline()
            yield program
        finally:
            program.send_signal(signal.SIGCONT)
            program.terminate()
            program.communicate(timeout=60)


def copy_once(address: str, copy: Path) -> dict[str, Any]:
    """Run `logdex replicate --once`; return what it counted."""
    words = [sys.executable, "-m", "logdex", "replicate", address, str(copy), "--once", "--json"]
    done = subprocess.run(words, check=False, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    counts: dict[str, Any] = json.loads(done.stdout)["checked"]
    return counts


def log_files(root: Path) -> dict[str, bytes]:
    """Return the files of a log that are not empty; a broker prepares the next one ahead."""
    files = {file.name: file.read_bytes() for file in sorted((root / "commitlog").iterdir())}
    return {name: content for name, content in files.items() if any(content)}


def check(root: Path, copy: Path, messages: int) -> None:
    """Check that a copy has the log byte for byte, and queues and index of all messages."""
    wanted, copied = log_files(root), log_files(copy)
    assert [*copied] == [*wanted]
    assert [name for name in wanted if copied[name] != wanted[name]] == []
    with MessageStore.open(copy) as store:
        report = store.verify()
        assert report.ok, report
        assert report.checked["messages"] == messages


@pytest.mark.parametrize("role", ["ASYNC_MASTER", "SYNC_MASTER"])
def test_a_copy_that_is_killed_under_load_is_the_master_s_log(
    role: str, tmp_path: Path, say: Callable[[str], None]
) -> None:
    root, copy = tmp_path / "master", tmp_path / "copy"
    chance = random.Random(493)
    in_doubt = acknowledged = 0
    with broker(tmp_path / "home", root, role=role, slaveTimeout=400) as address:
        with Load(address) as load:
            for _ in range(KILLS):
                first = len(load.answers)
                with copier(address, copy) as program:
                    time.sleep(chance.uniform(0.2, 2.5))
                    program.kill()
                    program.wait()
                    answers = load.answers[first:]
                copied = log_files(copy)
                if role == "SYNC_MASTER":
                    # PUT_OK says that the copy has it on its disk.
                    for code, offset in answers:
                        start = offset - offset % SMALL["mappedFileSizeCommitLog"]
                        there = copied.get(f"{start:020}", b"")[offset - start :][28:36] == offset.to_bytes(8, "big")
                        assert there or code != OK
                        acknowledged += code == OK
                        in_doubt += code != OK
        time.sleep(0.5)
        counts = copy_once(address, copy)
        check(root, copy, len(load.answers))
        assert counts["end_phy_offset"] == counts["master_end"] > 5 << 20
        assert copy_once(address, copy)["log_bytes"] == 0
    if role == "SYNC_MASTER":
        assert acknowledged > 10 * KILLS
    told = f", {acknowledged} PUT_OK all in the copy, {in_doubt} others" if role == "SYNC_MASTER" else ""
    size = counts["end_phy_offset"] >> 20
    say(f"replicate: {role}, {KILLS} kills, {len(load.answers)} messages, {size} MiB byte-equal{told}")


def test_a_synchronous_master_answers_as_beside_its_own_slave(tmp_path: Path, say: Callable[[str], None]) -> None:
    root, copy = tmp_path / "master", tmp_path / "copy"
    with (
        broker(tmp_path / "home", root, role="SYNC_MASTER", slaveTimeout=1_000) as address,
        Producer(address) as producer,
    ):
        assert producer.send("Sync", b"nobody")[0] == NO_SLAVE
        assert producer.send("Sync", b"nobody, and no matter", WAIT="false")[0] == OK
        with copier(address, copy) as program:
            _until(lambda: producer.send("Sync", b"come")[0] == OK)
            begun = time.monotonic()
            codes = {producer.send("Sync", b"x" * number)[0] for number in range(200)}
            each_ms = (time.monotonic() - begun) / 200 * 1_000
            assert codes == {OK}
            program.send_signal(signal.SIGSTOP)
            assert producer.send("Sync", b"asleep")[0] == SLAVE_TIMEOUT
            program.send_signal(signal.SIGCONT)
            _until(lambda: producer.send("Sync", b"awake")[0] == OK)
        _until(lambda: producer.send("Sync", b"gone")[0] == NO_SLAVE)
        copy_once(address, copy)
        wanted = log_files(root)
        assert log_files(copy) == wanted
    say(f"replicate: SYNC_MASTER answers 11, 0, 0, 12, 0, 11; a synchronous send takes {each_ms:.1f} ms with the copy")


def _until(condition: Callable[[], bool], seconds: float = 30) -> None:
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, "it never came"
        time.sleep(0.05)


def test_a_broker_starts_on_a_copy_and_has_its_topics_groups_and_messages(tmp_path: Path) -> None:
    root, copy = tmp_path / "master", tmp_path / "copy"
    with broker(tmp_path / "home", root, role="ASYNC_MASTER") as address, Producer(address) as producer:
        offsets = [producer.send("Moved", b"body" * number, KEYS=f"m-{number}")[1] for number in range(100)]
        copy_once(address, copy)
        topics = json.loads((copy / "config" / "topics.json").read_bytes())["topicConfigTable"]
    assert topics["Moved"]["readQueueNums"] == 4
    before = log_files(copy)
    with broker(tmp_path / "second", copy, role="ASYNC_MASTER") as address, Producer(address) as producer:
        _, offset = producer.send("Moved", b"the next one")
        assert offset > offsets[-1]
        second = tmp_path / "copy-of-copy"
        copy_once(address, second)
        assert next(iter(log_files(second).values()))[:offset] == next(iter(before.values()))[:offset]
        check(copy, second, 101)


@contextmanager
def served(root: Path, *options: str) -> Iterator[str]:
    """Run `logdex serve --write` with a log stream for slaves; yield its address."""
    (port,) = free_ports(1)
    words = [sys.executable, "-m", "logdex", "serve", str(root), "--write", "--port", str(port)]
    with subprocess.Popen([*words, "--ha-port", str(port + 1), "--json", *options], stdout=subprocess.PIPE) as server:
        assert server.stdout is not None
        try:
            yield json.loads(server.stdout.readline())["address"]
        finally:
            server.terminate()
        assert server.wait(30) == 0


@contextmanager
def real_slave(home: Path, root: Path, master: str) -> Iterator[tuple[Program, Producer]]:
    """Run a real slave that registers with a master as its name server."""
    properties = {"role": "SLAVE", "brokerId": 1, "namesrvAddr": master}
    program, _, address = start_broker(home, root, **SMALL, **properties)
    with program, Producer(address) as asker:
        yield program, asker


def test_a_real_slave_follows_a_served_store_under_load(tmp_path: Path, say: Callable[[str], None]) -> None:
    root, copy = tmp_path / "master", tmp_path / "slave"
    with StoreWriter.open(
        root,
        file_size=SMALL["mappedFileSizeCommitLog"],
        queue_file_size=SMALL["mappedFileSizeConsumeQueue"],
        hash_slots=SMALL["maxHashSlotNum"],
        max_entries=SMALL["maxIndexNum"],
    ) as writer:
        # The first message makes the files, which keep their sizes.
        writer.put_message("First", keys="first")
    sizes = ("--hash-slots", str(SMALL["maxHashSlotNum"]), "--max-entries", str(SMALL["maxIndexNum"]))
    with served(root, *sizes) as address:
        with Load(address) as load:
            load.pause_s = 0.02
            for number in range(SLAVE_KILLS):
                with real_slave(tmp_path / f"home-{number}", copy, address) as (_, slave):
                    _until(lambda: slave.log_end() >= 0)
                    before = slave.log_end()
                    _until(lambda: slave.log_end() > before, 60)  # noqa: B023 -- as above
                    time.sleep(1.0)
        with real_slave(tmp_path / "home", copy, address) as (_, slave), Producer(address) as producer:
            _until(lambda: slave.log_end() == producer.log_end(), 60)
            wanted, copied = log_files(root), log_files(copy)
            assert [name for name in wanted if copied[name] != wanted[name]] == []
            # Its tables came over codes 21, 43, 45 and 201.
            _until(lambda: b'"Load"' in slave.ask(21)[1])
            ends = [producer.ask(30, topic="Load", queueId=str(queue))[0]["offset"] for queue in range(4)]
            _until(lambda: [slave.ask(30, topic="Load", queueId=str(queue))[0]["offset"] for queue in range(4)] == ends)
            assert sum(map(int, ends)) == len(load.answers)
            with MessageStore.open(copy) as store:
                # A killed broker of 4.9.3 may lose index files of messages that it had indexed.
                assert {finding.kind for finding in store.verify().findings} <= {"index-hole"}
            size = producer.log_end() >> 20
    say(f"serve: a real slave, killed {SLAVE_KILLS} times, has the {len(load.answers)} messages, {size} MiB byte-equal")
