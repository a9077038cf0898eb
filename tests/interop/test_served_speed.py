"""`logdex serve` and a real broker over one store, asked by one Java client in turns: figures are printed, none decides.

A third server knows every answer after the first turn: what it reaches beside this client is the limit of the machine.

LOGDEX_INTEROP_MESSAGES, _SECONDS and _TURNS (environment) change the sizes.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

import wire
from logdex._core import CommitLogWriter
from logdex.rocketmq import MessageStore, StoreWriter
from wire_programs import Program, start_broker

if TYPE_CHECKING:
    from collections.abc import Callable

MESSAGES = int(os.environ.get("LOGDEX_INTEROP_MESSAGES", "100000"))
SECONDS = int(os.environ.get("LOGDEX_INTEROP_SECONDS", "5"))
TURNS = int(os.environ.get("LOGDEX_INTEROP_TURNS", "3"))
QUEUES = 4
BODY = b"x" * 1024
GIB = 1 << 30
SPARSE_FILES = 20

_REMEMBERING = """
import sys
from logdex.__main__ import main
from logdex.broker.rocketmq import service

look, known = service.answer, {}

def answer(broker, request):
    if request.command.code not in (11, 12):
        return look(broker, request)
    asked = (request.command.code, *request.command.ext.items())
    if asked not in known:
        known[asked] = look(broker, request)
    return known[asked]

service.answer = answer
sys.exit(main())
"""
"""The same server, which looks up each pull and each query once."""


def _columns(first: int, count: int) -> dict[str, Any]:
    serials = range(first, first + count)
    return {
        "topic": ["Speed"] * count,
        "queue_id": [serial % QUEUES for serial in serials],
        "body": [BODY] * count,
        "properties": [{"KEYS": f"k{serial}", "UNIQ_KEY": f"{serial:032X}", "WAIT": "true"} for serial in serials],
    }


def _topics(root: Path) -> None:
    (root / "config").mkdir(exist_ok=True)
    config = {"perm": 6, "readQueueNums": QUEUES, "writeQueueNums": QUEUES, "topicName": "Speed"}
    table = {"dataVersion": {"counter": 1, "timestamp": 1}, "topicConfigTable": {"Speed": config}}
    (root / "config" / "topics.json").write_text(json.dumps(table))


def _serve(root: Path, *, remembers: bool = False) -> tuple[subprocess.Popen[bytes], str]:
    how = ["-c", _REMEMBERING] if remembers else ["-m", "logdex"]
    program = [sys.executable, *how, "serve", str(root), "--port", "0", "--json"]
    server = subprocess.Popen(program, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    assert server.stdout is not None
    return server, json.loads(server.stdout.readline())["address"]


def _stop(server: subprocess.Popen[bytes]) -> None:
    server.terminate()
    server.communicate(timeout=20)


def _memory_mib(pid: int) -> float:
    (line,) = [line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("VmRSS")]
    return int(line.split()[1]) / 1024


def test_pulls_and_queries_beside_a_real_broker(tmp_path: Path, say: Callable[[str], None]) -> None:
    root = tmp_path / "store"
    with StoreWriter.open(root, services=False) as writer:
        for first in range(0, MESSAGES, 10_000):
            writer.put_messages(_columns(first, min(10_000, MESSAGES - first)))
    _topics(root)
    keys = [f"k{serial}" for serial in range(0, MESSAGES, max(1, MESSAGES // 10_000))]
    pulls: dict[str, list[float]] = {"logdex": [], "broker": [], "limit": []}
    queries: dict[str, list[float]] = {"logdex": [], "broker": [], "limit": []}
    server, address = _serve(root)
    remembering, its_address = _serve(root, remembers=True)
    broker, names, _ = start_broker(tmp_path / "broker", root)
    with broker:
        with (
            Program("Clients", tmp_path / "ours", address) as ours,
            Program("Clients", tmp_path / "theirs", names) as theirs,
            Program("Clients", tmp_path / "its", its_address) as its,
        ):
            for _ in range(TURNS):
                for who, client in (("logdex", ours), ("broker", theirs), ("limit", its)):
                    found = client.ask({"op": "measurePulls", "topic": "Speed", "group": "speed", "seconds": SECONDS})
                    messages, seconds = found["result"]
                    pulls[who].append(messages / seconds)
                    question = {"op": "measureQueries", "topic": "Speed", "keys": keys, "threads": 4}
                    found = client.ask({**question, "seconds": SECONDS})
                    asked, got, seconds = found["result"]
                    assert asked - 4 <= got <= asked
                    queries[who].append(asked / seconds)
        memory = _memory_mib(server.pid), _memory_mib(broker.pid)
    _stop(server)
    _stop(remembering)
    for what, rates in (("messages pulled, 32 a pull, 1 KiB", pulls), ("queries by key", queries)):
        own, real, limit = (median(rates[who]) for who in ("logdex", "broker", "limit"))
        known = f"every answer known: {limit / real:.2f}x"
        say(f"serve: {what}: {own:,.0f}/s, real broker {real:,.0f}/s: {own / real:.2f}x; {known}")
    say(f"serve: memory {memory[0]:.0f} MiB, real broker {memory[1]:.0f} MiB")


def test_start_over_a_large_store(tmp_path: Path, say: Callable[[str], None]) -> None:
    root = tmp_path / "store"
    log = root / "commitlog"
    for number in range(SPARSE_FILES):
        begin = number * GIB
        writer = CommitLogWriter.open(log, end_phy_offset=begin, file_size=GIB)
        for queue_id in range(QUEUES):
            writer.set_queue_offset("Speed", queue_id, number * 250)
        placed = writer.put_messages(_columns(number * 1_000, 1_000))
        writer.close()
        end = placed.column("phy_offset").to_pylist()[-1] + placed.column("store_size").to_pylist()[-1] - begin
        # The rest of the file is filling, which a broker does not read.
        with (log / f"{begin:020}").open("r+b") as file:
            file.truncate(end)
            file.seek(end)
            file.write((GIB - end).to_bytes(4, "big") + b"\xcb\xd4\x31\x94")
            file.truncate(GIB)
    with MessageStore.open(root) as store:
        store.build_queues(root)
        store.build_index(root / "index", hash_slots=100_000, max_entries=400_000)
    times, memory = [], 0.0
    for _ in range(TURNS):
        begin_s = time.perf_counter()
        server, address = _serve(root)
        host, _, port = address.rpartition(":")
        fields = {"consumerGroup": "g", "topic": "Speed", "queueId": "0", "queueOffset": "4000", "maxMsgNums": "32"}
        fields |= {"sysFlag": "4", "commitOffset": "0", "suspendTimeoutMillis": "0", "subVersion": "0"}
        with socket.create_connection((host, int(port))) as client, client.makefile("rb") as answers:
            client.sendall(wire.request(11, fields))
            head = answers.read(4)
            header, body = wire.split(head + answers.read(int.from_bytes(head, "big")))
        times.append(time.perf_counter() - begin_s)
        assert (header["code"], len(wire.frames(body))) == (0, 32)
        memory = _memory_mib(server.pid)
        _stop(server)
    say(f"serve: from the start to the first pull over {SPARSE_FILES} GiB: {median(times):.2f} s, {memory:.0f} MiB")
