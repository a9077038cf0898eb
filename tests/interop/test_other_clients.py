"""The Go client, and the Python client over the C++ one, against `logdex serve` and `logdex serve --write`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import golden
from logdex.rocketmq import MessageStore
from test_served_stores import served
from test_written_by_clients import new_store, taking
from wire_programs import FOLDER, Lines

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

TOPIC = "BBTopic"
NAMES = ["go", "python"]
_PYTHON = Path(__file__).parent / "wire" / "python" / "clients.py"


def start(name: str, home: Path, address: str) -> Lines:
    """Start a client, or skip the test if it is not built."""
    if name == "go":
        program = FOLDER / "go-client"
        if not program.exists():
            pytest.skip(f"{program} is missing: `make interop` builds it if Go is there")
        return Lines(name, home, [str(program), address], ROCKETMQ_GO_LOG_LEVEL="error")
    if not (FOLDER / "python" / "rocketmq").exists():
        pytest.skip(f"{FOLDER / 'python'} is missing: `make interop` fills it where the package has a wheel")
    return Lines(name, home, [sys.executable, str(_PYTHON), address], PYTHONPATH=str(FOLDER / "python"))


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with served(golden.unpack("basic", tmp_path_factory.mktemp("served"))) as found:
        yield found


@pytest.fixture(scope="module", params=NAMES)
def client(request: pytest.FixtureRequest, address: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lines]:
    with start(request.param, tmp_path_factory.mktemp("client"), address) as program:
        yield program


def _places(topic: str = TOPIC, **where: object) -> list[int]:
    rows = golden.rows("basic", "messages")
    chosen = [row for row in rows if row["topic"] == topic and all(row[name] == value for name, value in where.items())]
    return [row["physicalOffset"] for row in chosen]


def _push(client: Lines, wanted: Sequence[object], **options: object) -> list[int]:
    question = {"op": "push", "want": len(wanted), "seconds": 60, "linger": 1000, **options}
    (got,) = client.ask(question)["result"]
    return got  # type: ignore[no-any-return]


@pytest.mark.parametrize("topic", [TOPIC, "order_events"])
def test_a_push_consumer_gets_every_message_once(topic: str, client: Lines, say: Callable[[str], None]) -> None:
    wanted = _places(topic)
    assert sorted(_push(client, wanted, topic=topic, group=f"{client.name}-{topic}")) == wanted
    say(f"serve: the {client.name} push consumer got the {len(wanted)} messages of {topic}, each once")


def test_an_ordered_consumer_gets_each_queue_in_order(client: Lines) -> None:
    wanted = _places("order_events")
    got = _push(client, wanted, topic="order_events", group=f"{client.name}-ordered", orderly=True)
    assert sorted(got) == wanted
    for queue_id in range(4):
        of_queue = _places("order_events", queueId=queue_id)
        assert [place for place in got if place in {*of_queue}] == of_queue


def test_tags_choose(client: Lines) -> None:
    wanted = sorted(_places(tags="TagB") + _places(tags="TagF"))
    assert wanted
    assert sorted(_push(client, wanted, topic=TOPIC, group=f"{client.name}-tags", tags="TagB || TagF")) == wanted


def test_what_was_consumed_does_not_come_again(client: Lines) -> None:
    wanted = _places("AaTopic")
    assert sorted(_push(client, wanted, topic="AaTopic", group=f"{client.name}-again")) == wanted
    assert _push(client, [0], topic="AaTopic", group=f"{client.name}-again", seconds=3) == []


def test_a_pull_consumer_pulls(client: Lines) -> None:
    if client.name == "python":
        # It walks through the queues by itself.
        assert sorted(client.ask({"op": "pull_all", "topic": TOPIC, "group": "python-pull"})["result"]) == _places()
        return
    queue = {"op": "pull", "topic": TOPIC, "group": "go-pull", "broker": "broker-a", "queueId": 1}
    wanted = _places(queueId=1)
    pulled = client.ask({**queue, "offset": 0})["result"]
    assert pulled == {"status": "FOUND", "next": 32, "messages": wanted[:32]}
    pulled = client.ask({**queue, "offset": 32})["result"]
    assert pulled == {"status": "FOUND", "next": 41, "messages": wanted[32:]}
    assert client.ask({**queue, "offset": 99})["result"]["status"] == "OFFSET_ILLEGAL"


def test_a_broadcast_and_the_list_of_topics_in_go(address: str, tmp_path: Path) -> None:
    with start("go", tmp_path, address) as client:
        wanted = _places()
        # The other client begins a broadcast at the end of the queues, and has no setting for it.
        assert sorted(_push(client, wanted, topic=TOPIC, group="go-broadcast", broadcast=True)) == wanted
        assert {row["topic"] for row in golden.rows("basic", "messages")} <= {*client.ask({"op": "topics"})["result"]}


def test_a_producer_fails_before_it_sends(client: Lines) -> None:
    refused = client.ask({"op": "send", "topic": TOPIC, "body": "b", "key": "k", "tags": "t", "n": 1})
    assert "route info" in refused["text"]


@pytest.mark.parametrize("name", NAMES)
def test_what_a_producer_sends_is_stored_and_consumed(name: str, tmp_path: Path, say: Callable[[str], None]) -> None:
    root = new_store(tmp_path / "store")
    # Any broker stores a batch of the C++ client as one message: its `batch` is "1", not "true".
    operations = {"send": 20, "oneway": 10} | ({"async": 30, "batch": 10} if name == "go" else {})
    wanted = [f"{operation}-{n}" for operation, count in operations.items() for n in range(count)]
    sent: dict[str, Any] = {}
    with taking(root, "--flush", "sync") as address, start(name, tmp_path / "client", address) as client:
        for operation, count in operations.items():
            message = {"topic": "Written", "tags": "TagA", "key": f"key-{operation}", "body": operation}
            said = client.ask({"op": operation, "n": count, **message})
            assert "result" in said, said
            sent[operation] = said["result"]
        if name == "go":
            for state, body in (("COMMIT_MESSAGE", "kept"), ("ROLLBACK_MESSAGE", "dropped")):
                message = {"topic": "Written", "tags": "TagA", "key": body, "body": body}
                assert client.ask({"op": "transaction", "state": state, **message})["result"][0] == 0
            wanted.append("kept-0")
        consumed = _push(client, wanted, topic="Written", group=f"{name}-written")
    with MessageStore.open(root) as store:
        rows = store.messages("Written").read_all()
        assert sorted(body.decode() for body in rows.column("body").to_pylist()) == sorted(wanted)
        assert sorted(consumed) == rows.column("phy_offset").to_pylist()
        assert {*rows.column("tags").to_pylist()} == {"TagA"}
        stored = {each.body: each for each in store.find("Written", "key-send")}
        for number, told in enumerate(sent["send"]):
            found = stored[f"send-{number}".encode()]
            if name == "go":
                assert told == [0, found.queue_id, found.queue_offset, found.msg_id, found.uniq_key]
            else:
                assert told == [0, found.uniq_key, found.queue_offset]
        assert len(sent["send"]) == 20
        assert store.verify().findings == []
    say(f"serve --write: {len(wanted)} messages of the {name} producer are stored, and consumed by its consumer")
