"""The real 4.9.3 producers and consumers against `logdex serve --write`, and a real broker over the store that it leaves."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from logdex.rocketmq import MessageStore, StoreWriter
from wire_programs import Program, start_broker

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

TOPIC = "Written"
FILE_SIZE = 1 << 22


@contextmanager
def taking(root: Path, *options: str) -> Iterator[str]:
    """Run `logdex serve --write`; yield its address."""
    program = [sys.executable, "-m", "logdex", "serve", str(root), "--port", "0", "--json", "--write", *options]
    with subprocess.Popen(program, stdout=subprocess.PIPE) as server:
        assert server.stdout is not None
        try:
            yield json.loads(server.stdout.readline())["address"]
        finally:
            server.terminate()
        assert server.wait(30) == 0


def new_store(root: Path) -> Path:
    """Begin a store with small files."""
    with StoreWriter.open(root, file_size=FILE_SIZE, hash_slots=1_000, max_entries=4_000) as writer:
        for number in range(2):
            writer.put_message("Begin", keys=f"begin{number}")
    return root


def _bodies(root: Path, topic: str = TOPIC) -> list[str]:
    with MessageStore.open(root) as store:
        return sorted(body.decode() for body in store.messages(topic).read_all().column("body").to_pylist())


def _consume(clients: Program, want: int, **options: object) -> list[int]:
    """Return where the messages are in the log that a push consumer gets."""
    question = {"op": "push", "topic": TOPIC, "want": want, "seconds": 60, "linger": 1000, **options}
    got: list[list[int]] = clients.ask(question)["result"]
    return sorted(place for mine in got for place in mine)


def _places(root: Path, topic: str = TOPIC) -> list[int]:
    with MessageStore.open(root) as store:
        found: list[int] = sorted(store.messages(topic).read_all().column("phy_offset").to_pylist())
        return found


@pytest.fixture(scope="module")
def sent(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """A store that real clients wrote, which is closed, and what they were told."""
    root = new_store(tmp_path_factory.mktemp("taken") / "store")
    home = tmp_path_factory.mktemp("clients")
    found: dict[str, Any] = {"root": root}
    with (
        taking(root, "--flush", "sync", "--check-every", "0.5") as address,
        Program("Producers", home / "p", address) as producers,
        Program("Clients", home / "c", address) as clients,
    ):

        def ask(**question: object) -> Any:
            said = producers.ask({"topic": TOPIC, "tags": "TagA", "key": f"key-{question['body']}", **question})
            assert "result" in said, said
            return said["result"]

        found["single"] = ask(op="send", body="single", n=20)
        found["async"] = ask(op="async", body="async", n=50)
        found["batch"] = ask(op="batch", body="batch", n=10)
        found["oneway"] = ask(op="oneway", body="oneway", n=10)
        found["compressed"] = ask(op="send", body="compressed", size=8_000)
        found["delayed"] = ask(op="send", body="delayed", delay=1, n=3)
        found["commit"] = ask(op="transaction", body="commit", state="COMMIT_MESSAGE")
        found["rollback"] = ask(op="transaction", body="rollback", state="ROLLBACK_MESSAGE")
        found["later-commit"] = ask(op="transaction", body="later-commit", state="UNKNOW", later="COMMIT_MESSAGE")
        found["later-rollback"] = ask(op="transaction", body="later-rollback", state="UNKNOW", later="ROLLBACK_MESSAGE")
        for _ in range(300):
            found["checked"] = producers.ask({"op": "checked"})["result"]
            if len(found["checked"]) == 2:
                break
            time.sleep(0.1)
        # Everything but what was rolled back.
        found["consumed"] = _consume(clients, 96, group="all")
        found["retried"] = clients.ask(
            {"op": "push", "topic": TOPIC, "group": "retry", "want": 96, "seconds": 60, "linger": 500, "back": 1}
        )["result"]
        dead = {"op": "push", "topic": TOPIC, "group": "dead", "want": 1, "seconds": 8, "back": 99, "most": 1}
        found["dead"] = clients.ask(dead)["result"]
    return found


def test_what_producers_send_is_stored_and_consumed(sent: dict[str, Any], say: Callable[[str], None]) -> None:
    wanted = [f"{kind}-{n}" for kind, count in (("single", 20), ("async", 50), ("batch", 10)) for n in range(count)]
    wanted += [f"oneway-{n}" for n in range(10)] + [f"delayed-{n}" for n in range(3)]
    wanted += ["commit-0", "later-commit-0", "\0" * 8_000]
    assert _bodies(sent["root"]) == sorted(wanted)
    assert sent["consumed"] == _places(sent["root"])
    statuses = [place[0] for kind in ("single", "async", "compressed", "delayed") for place in sent[kind]]
    statuses += [sent[kind][0] for kind in ("batch", "commit", "rollback", "later-commit", "later-rollback")]
    assert {*statuses} == {"SEND_OK"}
    say(f"serve --write: {len(wanted)} messages of the Java producer are stored, and consumed by the Java consumer")


def test_producers_are_told_where_messages_are(sent: dict[str, Any]) -> None:
    with MessageStore.open(sent["root"]) as store:
        stored = {(message.queue_id, message.queue_offset): message for message in store.find(TOPIC, "key-async")}
        assert len(stored) == 50
        for _, queue_id, queue_offset, offset_id, unique in sent["async"]:
            message = stored[queue_id, queue_offset]
            assert (message.msg_id, message.uniq_key) == (offset_id, unique)
        _, _, first, offset_ids, uniques = sent["batch"]
        found = sorted(store.find(TOPIC, "key-batch"), key=lambda message: message.queue_offset)
        assert [message.msg_id for message in found] == offset_ids.split(",")
        assert [message.uniq_key for message in found] == uniques.split(",")
        assert [message.queue_offset for message in found] == [*range(first, first + 10)]


def test_open_transactions_are_asked_for(sent: dict[str, Any]) -> None:
    assert sent["checked"] == {"key-later-commit": 1, "key-later-rollback": 1}


def test_messages_that_are_given_back_come_again(sent: dict[str, Any]) -> None:
    (places,) = sent["retried"]
    assert sorted(places) == _places(sent["root"], "%RETRY%retry")
    assert len(places) == 96
    assert _bodies(sent["root"], "%RETRY%retry") == _bodies(sent["root"])
    assert sent["dead"] == [[]]
    assert _bodies(sent["root"], "%DLQ%dead") == _bodies(sent["root"])


def test_a_real_broker_serves_the_store(sent: dict[str, Any], tmp_path: Path, say: Callable[[str], None]) -> None:
    root = sent["root"]
    wanted = _places(root)
    sizes = {"mappedFileSizeCommitLog": FILE_SIZE, "maxHashSlotNum": 1_000, "maxIndexNum": 4_000}
    broker, names, _ = start_broker(tmp_path / "broker", root, **sizes)
    with (
        broker,
        Program("Clients", tmp_path / "c", names) as clients,
        Program("Producers", tmp_path / "p", names) as real,
    ):
        assert _consume(clients, len(wanted), group="new") == wanted
        # Offsets of a group are those that it committed to the other server.
        assert _consume(clients, 1, group="all", seconds=4) == []
        assert len(clients.ask({"op": "key", "topic": TOPIC, "key": "key-single"})["result"]) == 20
        (status, _, _, _, unique) = sent["single"][0]
        assert status == "SEND_OK"
        assert clients.ask({"op": "unique", "topic": TOPIC, "key": unique})["result"] in wanted
        assert real.ask({"op": "send", "topic": TOPIC, "body": "real", "n": 5})["result"][0][0] == "SEND_OK"
    say(f"serve --write: a real broker over the closed store serves the same {len(wanted)} messages, and goes on")
    # And the other way round: the broker was killed.
    with taking(root) as address, Program("Clients", tmp_path / "c2", address) as clients:
        assert _consume(clients, len(wanted) + 5, group="newest") == _places(root)
    assert len(_places(root)) == len(wanted) + 5


_VARYING = {"UNIQ_KEY", "ORIGIN_MESSAGE_ID", "__transactionId__"}


def _forms(root: Path) -> list[tuple[object, ...]]:
    """Return how messages are stored, without what differs from run to run, but with the order of their properties."""
    columns = ("topic", "flag", "sys_flag", "properties", "body", "reconsume_times", "prepared_transaction_offset")
    with MessageStore.open(root) as store:
        rows = store.commit_log.scan(columns=columns, body="stored").read_all()
    found = []
    for topic, flag, sys_flag, properties, body, times, prepared in zip(
        *(rows.column(name).to_pylist() for name in columns), strict=True
    ):
        named = tuple((name, "*" if name in _VARYING else value) for name, value in dict(properties).items())
        # The broker was started without the service that delivers what was delayed.
        is_delivered = "DELAY" in dict(named) and topic != "SCHEDULE_TOPIC_XXXX"
        if topic not in {"Begin", "OFFSET_MOVED_EVENT"} and not is_delivered and times <= 1:
            real = tuple(value for name, value in named if name != "REAL_QID")
            found.append((topic, flag, sys_flag, real, body, times, prepared > 0))
    return sorted(found, key=repr)


def test_messages_are_stored_as_a_real_broker_stores_them(tmp_path: Path, say: Callable[[str], None]) -> None:
    questions: list[dict[str, Any]] = [
        {"op": "send", "body": "single", "key": "a b", "tags": "TagA", "n": 3},
        {"op": "send", "body": "plain"},
        {"op": "send", "body": "big", "size": 8_000, "key": "big"},
        {"op": "oneway", "body": "oneway", "key": "o", "n": 2},
        {"op": "batch", "body": "batch", "key": "k", "tags": "TagB", "n": 3},
        {"op": "send", "body": "delayed", "key": "d", "delay": 2},
        {"op": "transaction", "body": "commit", "key": "c", "tags": "TagA", "state": "COMMIT_MESSAGE"},
        {"op": "transaction", "body": "rollback", "key": "r", "state": "ROLLBACK_MESSAGE"},
    ]
    back = {"op": "push", "topic": TOPIC, "group": "retry", "want": 99, "seconds": 5, "back": 99, "tags": "TagA"}

    def send(address: str, home: Path) -> None:
        with Program("Producers", home / "p", address) as producers, Program("Clients", home / "c", address) as clients:
            for question in questions:
                assert "result" in producers.ask({"topic": TOPIC, **question})
            assert clients.ask(back)["result"] == [[]]

    own, real = new_store(tmp_path / "own"), new_store(tmp_path / "real")
    with taking(own) as address:
        send(address, tmp_path / "ours")
    sizes = {"mappedFileSizeCommitLog": FILE_SIZE, "maxHashSlotNum": 1_000, "maxIndexNum": 4_000}
    broker, names, _ = start_broker(tmp_path / "broker", real, **sizes)
    with broker:
        send(names, tmp_path / "theirs")
        wanted = _forms(real)
    stored = _forms(own)
    assert stored == wanted
    # Singles, a batch, one delayed; two half messages, their ends, one committed; four given back.
    assert len(stored) >= 3 + 1 + 1 + 2 + 3 + 1 + 2 + 2 + 1 + 4
    say(
        f"serve --write: {len(stored)} messages have the flags, bodies and properties, in their order, of a real broker's"
    )


def test_mqadmin_lets_a_consumer_begin_again(tmp_path: Path, say: Callable[[str], None]) -> None:
    with (
        taking(new_store(tmp_path / "store")) as address,
        Program("Producers", tmp_path / "p", address) as producers,
        Program("Clients", tmp_path / "c", address) as clients,
        Program("Tools", tmp_path / "t") as tools,
        ThreadPoolExecutor(1) as consumes,
    ):
        producers.ask({"op": "send", "topic": TOPIC, "tags": "TagA", "key": "k", "body": "b", "n": 12})
        twice = consumes.submit(_consume, clients, want=24, group="again", linger=0)
        command = f"resetOffsetByTime -g again -t {TOPIC} -s 0 -f true -n {address}".split()
        # The consumer commits its offsets every 5 s.
        while "not exist" in (output := tools.ask(command)["output"]):
            assert not twice.done()
        assert [line.split()[1:] for line in sorted(output.splitlines()) if line.startswith("broker-a")] == [
            [str(queue_id), "0"] for queue_id in range(4)
        ]
        places = twice.result()
        assert places == sorted([*places[::2], *places[::2]])
        assert len(places) == 24
    say("serve --write: a Java consumer gets 12 messages again after mqadmin resetOffsetByTime")
