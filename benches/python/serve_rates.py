"""Pulls, queries by key and sends: `logdex serve` and a real broker, asked by one Java client in turns.

    python benches/python/serve_rates.py [--rounds 7] [--seconds 5] [--messages 100000] [--json] [--short]

`mvn -f tests/interop/wire/pom.xml package` builds the client and the broker first. A third server knows every answer after its
first turn: what it reaches beside this client is the limit of the machine. The last figure is the time from the start of the
server to its first answer over a log of 20 GiB, which is sparse.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from logdex._core import CommitLogWriter
from logdex.rocketmq import MessageStore, StoreWriter

sys.path.append(str(Path(__file__).parents[2] / "tests" / "interop"))
sys.path.append(str(Path(__file__).parents[2] / "tests" / "python" / "support"))
import wire
from wire_programs import Program, start_broker

if TYPE_CHECKING:
    from collections.abc import Iterator

TOPIC = "Speed"
QUEUES = 4
BODY = b"x" * 1024
ASKED_KEYS = 10_000
GIB = 1 << 30
SPARSE_FILES = 20
SYNC = {"op": "measureSync", "threads": 64}
ASYNC = {"op": "measureAsync", "under_way": 1_000}

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


class Figure(NamedTuple):
    """Figures of `logdex serve` by round, those of the real broker, and those of the server that knows all answers."""

    what: str
    unit: str
    rounds: list[float]
    broker: list[float] | None = None
    limit: list[float] | None = None


def columns(first: int, count: int) -> dict[str, Any]:
    """Return messages to put."""
    serials = range(first, first + count)
    return {
        "topic": [TOPIC] * count,
        "queue_id": [serial % QUEUES for serial in serials],
        "body": [BODY] * count,
        "properties": [{"KEYS": f"k{serial}", "UNIQ_KEY": f"{serial:032X}", "WAIT": "true"} for serial in serials],
    }


def make_store(root: Path, messages: int) -> None:
    """Write a store, and the table with its topic, for the broker."""
    with StoreWriter.open(root, services=False) as writer:
        for first in range(0, messages, 10_000):
            writer.put_messages(columns(first, min(10_000, messages - first)))
    (root / "config").mkdir(exist_ok=True)
    config = {"perm": 6, "readQueueNums": QUEUES, "writeQueueNums": QUEUES, "topicName": TOPIC}
    table = {"dataVersion": {"counter": 1, "timestamp": 1}, "topicConfigTable": {TOPIC: config}}
    (root / "config" / "topics.json").write_text(json.dumps(table), encoding="ascii")


def make_sparse_store(root: Path) -> None:
    """Write a log of 20 files of 1 GiB, each with 1,000 messages, their queues and their index."""
    log = root / "commitlog"
    for number in range(SPARSE_FILES):
        begin = number * GIB
        writer = CommitLogWriter.open(log, end_phy_offset=begin, file_size=GIB)
        for queue_id in range(QUEUES):
            writer.set_queue_offset(TOPIC, queue_id, number * 250)
        placed = writer.put_messages(columns(number * 1_000, 1_000))
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


@contextmanager
def serving(root: Path, *options: str, remembers: bool = False) -> Iterator[tuple[int, str]]:
    """Run `logdex serve`, and return its process id and its address."""
    how = ["-c", _REMEMBERING] if remembers else ["-m", "logdex"]
    command = [sys.executable, *how, "serve", str(root), "--port", "0", "--json", *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as server:
        assert server.stdout is not None
        try:
            yield server.pid, json.loads(server.stdout.readline())["address"]
        finally:
            server.terminate()


def processor_seconds(pid: int) -> float:
    """Return the seconds of a process on the processors."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def memory_mib(pid: int) -> float:
    """Return the memory of a process."""
    (line,) = [line for line in Path(f"/proc/{pid}/status").read_text("ascii").splitlines() if line.startswith("VmRSS")]
    return int(line.split()[1]) / 1024


def pulls_and_queries(folder: Path, messages: int, seconds: int, rounds: int) -> Iterator[Figure]:
    """Read all queues from their beginning, 32 messages a pull; then query by key, from 4 threads."""
    root = folder / "store"
    make_store(root, messages)
    keys = [f"k{serial}" for serial in range(0, messages, max(1, messages // ASKED_KEYS))]
    pulls = {"op": "measurePulls", "topic": TOPIC, "group": "speed"}
    queries = {"op": "measureQueries", "topic": TOPIC, "keys": keys, "threads": 4}
    sides = ("logdex", "broker", "limit")
    pulled, spent, asked = ({side: list[float]() for side in sides} for _ in range(3))
    with ExitStack() as stack:
        own, address = stack.enter_context(serving(root))
        remembering, its_address = stack.enter_context(serving(root, remembers=True))
        broker, names, _ = start_broker(folder / "broker", root)
        stack.enter_context(broker)
        pids = dict(zip(sides, (own, broker.pid, remembering), strict=True))
        clients = {
            side: stack.enter_context(Program("Clients", folder / side, at))
            for side, at in zip(sides, (address, names, its_address), strict=True)
        }
        for number in range(-1, rounds):
            for side in sides[:: -1 if number % 2 else 1]:
                begun = processor_seconds(pids[side])
                count, passed = clients[side].ask({**pulls, "seconds": seconds})["result"]
                on_processor = processor_seconds(pids[side]) - begun
                sent, got, lasted = clients[side].ask({**queries, "seconds": seconds})["result"]
                if not sent - 4 <= got <= sent:
                    raise SystemExit(f"{side}: {sent} queries, {got} messages")
                # The first round only warms up: Java compiles.
                if number >= 0:
                    pulled[side].append(count / passed / 1e3)
                    spent[side].append(on_processor / (count / 32) * 1e6)
                    asked[side].append(sent / lasted / 1e3)
        memory = memory_mib(own), memory_mib(broker.pid)
    yield Figure("messages of 1 KiB pulled, 32 a pull", "thousand/s", *pulled.values())
    yield Figure("processor time of the server, a pull", "us", *spent.values())
    yield Figure("queries by key, 4 threads", "thousand/s", *asked.values())
    yield Figure("memory of the server", "MiB", [memory[0]], [memory[1]])


def sends(folder: Path, flush: str, seconds: int, rounds: int) -> Iterator[Figure]:
    """Send messages, and count those that are acknowledged. A broker refuses some if it is busy."""
    broker, names, _ = start_broker(folder / "broker", folder / "real", flushDiskType=f"{flush.upper()}_FLUSH")
    with (
        broker,
        serving(folder / "own", "--write", "--flush", flush) as (_, address),
        Program("Producers", folder / "ours", address) as ours,
        Program("Producers", folder / "theirs", names) as theirs,
    ):
        for what, how in (("synchronous sends, 64 producers", SYNC), ("asynchronous sends", ASYNC)):
            rates: tuple[list[float], list[float]] = ([], [])
            for number in range(-1, rounds):
                for side, producers in [*enumerate((ours, theirs))][:: -1 if number % 2 else 1]:
                    question = {"topic": TOPIC, "key": "k", "body": "b", "size": len(BODY), "seconds": seconds, **how}
                    sent, _, passed = producers.ask(question)["result"]
                    if number >= 0:
                        rates[side].append(sent / passed / 1e3)
            yield Figure(f"{what}, flush {flush}", "thousand/s", *rates)


def starts(folder: Path, rounds: int) -> Iterator[Figure]:
    """Start the server and pull from the end of the log."""
    root = folder / "sparse"
    make_sparse_store(root)
    fields = {"consumerGroup": "g", "topic": TOPIC, "queueId": "0", "queueOffset": "4000", "maxMsgNums": "32"}
    fields |= {"sysFlag": "4", "commitOffset": "0", "suspendTimeoutMillis": "0", "subVersion": "0"}
    times = []
    for _ in range(rounds):
        begun = time.perf_counter()
        with serving(root) as (_, address):
            host, _, port = address.rpartition(":")
            with socket.create_connection((host, int(port))) as client, client.makefile("rb") as answers:
                client.sendall(wire.request(11, fields))
                head = answers.read(4)
                header, body = wire.split(head + answers.read(int.from_bytes(head, "big")))
            times.append(time.perf_counter() - begun)
        if (header["code"], len(wire.frames(body))) != (0, 32):
            raise SystemExit(f"a pull over the sparse log: {header}")
    yield Figure(f"from the start to the first pull, {SPARSE_FILES} GiB", "s", times)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=int, default=5, help="of a turn")
    parser.add_argument("--messages", type=int, default=100_000)
    parser.add_argument("--dir", type=Path, help="where the stores are made meanwhile (default: the system's place)")
    parser.add_argument("--json", action="store_true", help="print one JSON object a line")
    parser.add_argument("--short", action="store_true", help="small and once, to see that it runs")
    given = parser.parse_args()
    if given.short:
        given.rounds, given.seconds, given.messages = 1, 1, 4_000
    with tempfile.TemporaryDirectory(prefix="logdex-serve-", dir=given.dir) as scratch:
        folder = Path(scratch)
        figures = [*pulls_and_queries(folder / "read", given.messages, given.seconds, given.rounds)]
        for flush in ("sync", "async"):
            figures += sends(folder / flush, flush, given.seconds, given.rounds)
        figures += starts(folder, given.rounds)
    for each in figures:
        if given.json:
            print(json.dumps(each._asdict()))
            continue
        line = f"{each.what}: {statistics.median(each.rounds):,.3g} {each.unit}"
        for name, others in (("broker", each.broker), ("every answer known", each.limit)):
            if others:
                times = statistics.median(own / other for own, other in zip(each.rounds, others, strict=True))
                line += f"; {name} {statistics.median(others):,.3g}: {times:.2f}x"
        print(line)


if __name__ == "__main__":
    main()
