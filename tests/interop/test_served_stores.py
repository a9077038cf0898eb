"""The real clients and the real `mqadmin` of 4.9.3 over `logdex serve`, beside a real broker over the same store."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

import golden
from logdex.rocketmq import MessageStore
from wire_programs import Program, start_broker

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

ZONE = "Asia/Shanghai"
"""That of the clients that wrote the store: their unique ids count from the begin of a local month."""
GROUP = "grp-c"
OFFSET_ID = "7F00000100002A9F0000000000009F64"
UNIQUE_KEY = "7F00000102E64E0E2F2A6B2E71DB004F"


@contextmanager
def served(root: Path, *options: str) -> Iterator[str]:
    """Run `logdex serve`; yield its address."""
    program = [sys.executable, "-m", "logdex", "serve", str(root), "--port", "0", "--json", *options]
    with subprocess.Popen(program, stdout=subprocess.PIPE) as server:
        assert server.stdout is not None
        try:
            yield json.loads(server.stdout.readline())["address"]
        finally:
            server.terminate()
        assert server.wait(20) == 0


@pytest.fixture(scope="module")
def roots(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The store `basic` twice: the broker writes to its own."""
    return tuple(golden.unpack("basic", tmp_path_factory.mktemp("wire")) for _ in range(2))  # type: ignore[return-value]


@pytest.fixture(scope="module")
def address(roots: tuple[Path, Path]) -> Iterator[str]:
    with served(roots[0]) as found:
        yield found


@pytest.fixture(scope="module")
def clients(address: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Program]:
    with Program("Clients", tmp_path_factory.mktemp("clients"), address, zone=ZONE) as program:
        yield program


@pytest.fixture(scope="module")
def broker(roots: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    """The addresses of a real name server and a real broker."""
    config = golden.info("basic")["store"]
    offsets = json.loads(
        re.sub(r"([{,])(\d+):", r'\1"\2":', (roots[1] / "config" / "lmqConsumerOffset.json").read_text())
    )
    (roots[1] / "config" / "consumerOffset.json").write_text(json.dumps({"offsetTable": offsets["offsetTable"]}))
    given = {name: str(value).lower() if isinstance(value, bool) else value for name, value in config.items()}
    given |= {"enableLmq": "false", "enableMultiDispatch": "false", "autoCreateTopicEnable": "true"}
    home = tmp_path_factory.mktemp("broker")
    program, names, port = start_broker(home, roots[1], **given)
    with program:
        yield names, port


def _places(topic: str, **where: object) -> list[int]:
    rows = golden.rows("basic", "messages")
    chosen = [row for row in rows if row["topic"] == topic and all(row[name] == value for name, value in where.items())]
    return [row["physicalOffset"] for row in chosen]


def _push(clients: Program, topic: str, want: int, **options: object) -> list[list[int]]:
    question = {"op": "push", "topic": topic, "want": want, "seconds": 60, "linger": 1500, **options}
    got: list[list[int]] = clients.ask(question)["result"]
    return got


@pytest.mark.parametrize("topic", ["BBTopic", "order_events"])
def test_a_push_consumer_gets_every_message_once(topic: str, clients: Program, say: Callable[[str], None]) -> None:
    wanted = _places(topic)
    (got,) = _push(clients, topic, len(wanted), group=f"push-{topic}")
    assert sorted(got) == wanted
    say(f"serve: a Java push consumer got the {len(got)} messages of {topic}, each once")


def test_two_push_consumers_share_the_queues(clients: Program) -> None:
    wanted = _places("order_events")
    # Each message takes a while, so that the second one comes before the first is done.
    question = {"group": "push-two", "consumers": 2, "each": 400, "linger": 4000}
    first, second = _push(clients, "order_events", len(wanted), **question)
    # The first one had queues before it learned of the second.
    assert {*first, *second} == {*wanted}
    assert first
    assert second


def test_a_broadcast_reaches_every_consumer(clients: Program) -> None:
    wanted = _places("BBTopic")
    got = _push(clients, "BBTopic", 2 * len(wanted), group="push-broadcast", consumers=2, broadcast=True)
    assert [sorted(each) for each in got] == [wanted, wanted]


def test_an_ordered_consumer_gets_each_queue_in_order(clients: Program) -> None:
    wanted = _places("order_events")
    (got,) = _push(clients, "order_events", len(wanted), group="push-ordered", orderly=True)
    assert sorted(got) == wanted
    for queue_id in range(4):
        of_queue = _places("order_events", queueId=queue_id)
        assert [place for place in got if place in {*of_queue}] == of_queue


def test_tags_choose(clients: Program) -> None:
    wanted = sorted(_places("BBTopic", tags="TagB") + _places("BBTopic", tags="TagF"))
    assert wanted
    (got,) = _push(clients, "BBTopic", len(wanted), group="push-tags", tags="TagB || TagF")
    assert sorted(got) == wanted


def test_what_was_consumed_does_not_come_again(clients: Program) -> None:
    wanted = _places("AaTopic")
    (got,) = _push(clients, "AaTopic", len(wanted), group="push-again")
    assert sorted(got) == wanted
    assert _push(clients, "AaTopic", 1, group="push-again", seconds=3) == [[]]


@pytest.mark.parametrize("assign", [False, True])
def test_a_lite_pull_consumer_gets_every_message_once(assign: bool, clients: Program) -> None:
    wanted = _places("BBTopic")
    question = {"op": "lite", "topic": "BBTopic", "group": f"lite-{assign}", "want": len(wanted), "seconds": 60}
    assert sorted(clients.ask({**question, "assign": assign})["result"]) == wanted


def test_a_pull_consumer_pulls(clients: Program) -> None:
    queue = {"topic": "BBTopic", "broker": "broker-a", "queueId": 1, "group": "pull"}
    wanted = _places("BBTopic", queueId=1)
    assert clients.ask({"op": "queues", **queue})["result"] == [0, 1, 2]
    assert clients.ask({"op": "offsets", **queue, "time": 1795260606000})["result"] == [0, 41, 1795260605499, 9]
    pulled = clients.ask({"op": "pull", **queue, "offset": 0})["result"]
    assert pulled == {"status": "FOUND", "next": 32, "messages": wanted[:32]}
    statuses = [clients.ask({"op": "pull", **queue, "offset": offset})["result"]["status"] for offset in (41, 99)]
    assert statuses == ["NO_NEW_MSG", "OFFSET_ILLEGAL"]
    unmatched = clients.ask({"op": "pull", **queue, "offset": 0, "tags": "TagZ"})["result"]
    assert (unmatched["status"], unmatched["next"]) == ("NO_MATCHED_MSG", 41)
    assert clients.ask({"op": "commit", **queue, "offset": 7})["result"] == 7
    refused = clients.ask({"op": "pull", **queue, "queueId": 9, "offset": 0})
    assert (refused["code"], "queueId[9] is illegal" in refused["text"]) == (1, True)


def test_messages_are_found_by_key_and_by_ids(clients: Program, address: str) -> None:
    carry = [
        row["physicalOffset"]
        for row in golden.rows("basic", "messages")
        if row["topic"] == "BBTopic" and "BB" in (row["keys"] or "").split(" ")
    ]
    assert clients.ask({"op": "key", "topic": "BBTopic", "key": "BB"})["result"] == carry
    assert clients.ask({"op": "key", "topic": "BBTopic", "key": "absent"})["code"] == 208
    assert clients.ask({"op": "unique", "topic": "BBTopic", "key": UNIQUE_KEY})["result"] == 40804
    # Clients take the broker's address out of an offset id.
    host, _, port = address.rpartition(":")
    assert host == "127.0.0.1"
    here = f"7F000001{int(port):08X}{40804:016X}"
    assert clients.ask({"op": "id", "topic": "BBTopic", "key": here})["result"] == 40804


def test_a_producer_fails_before_it_sends(clients: Program) -> None:
    refused = clients.ask({"op": "send", "topic": "BBTopic"})
    assert refused["refused"] == "MQClientException"
    assert "No route info" in refused["text"]


def test_signed_requests_over_tls(roots: tuple[Path, Path], tmp_path: Path) -> None:
    certificate, key, keys = tmp_path / "cert.pem", tmp_path / "key.pem", tmp_path / "tools.yml"
    request = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=localhost"]
    subprocess.run([*request, "-keyout", key, "-out", certificate], check=True, capture_output=True)
    keys.write_text("accessKey: rocketmq2\nsecretKey: 12345678\n")
    wanted = _places("BBTopic")
    secured = ("--tls-cert", str(certificate), "--tls-key", str(key), "--access-key", str(keys))
    with served(roots[0], *secured) as address:
        signs = ("-Dtls=true", "-DaccessKey=rocketmq2", "-DsecretKey=12345678")
        with Program("Clients", tmp_path, address, options=signs, zone=ZONE) as clients:
            (got,) = _push(clients, "BBTopic", len(wanted), group="signed")
            assert sorted(got) == wanted
            assert clients.ask({"op": "unique", "topic": "BBTopic", "key": UNIQUE_KEY})["result"] == 40804
        with Program("Clients", tmp_path, address, options=("-Dtls=true",), zone=ZONE) as clients:
            assert "result" not in clients.ask({"op": "queues", "topic": "BBTopic", "group": "unsigned"})


@pytest.mark.parametrize("case", ["cqext", "rolled", "pool", "killed"])
def test_stores_of_other_brokers_are_consumed(
    case: str, store: Callable[[str], Path], tmp_path: Path, say: Callable[[str], None]
) -> None:
    root = store(case)
    with MessageStore.open(root) as opened:
        rows = {row["physicalOffset"] for row in golden.rows(case, "messages")}
        topics = [
            topic for topic in opened.topics if re.fullmatch(r"[\w|%-]+", topic) and not topic.startswith("SCHEDULE")
        ]
        queues = {place: opened.queue(*place) for place in opened.queues() if place[0] in topics}
        wanted = {
            place: queue.units(queue.min_offset, queue.max_offset).column("phy_offset").to_pylist()
            for place, queue in queues.items()
        }
    with served(root) as address, Program("Clients", tmp_path, address) as clients:
        compared = 0
        for (topic, queue_id), places in wanted.items():
            queue = {"op": "pull", "topic": topic, "broker": "broker-a", "queueId": queue_id, "group": "all"}
            got: list[int] = []
            offset = 0
            while len(got) < len(places):
                pulled = clients.ask({**queue, "offset": offset})["result"]
                got += pulled["messages"]
                offset = pulled["next"]
            assert got == places
            compared += len(got)
    assert compared > len(rows) // 2
    say(f"serve: a Java pull consumer got {compared} messages of {case}, queue by queue")


# Command of mqadmin -> patterns of what may differ from a real broker; they are cut out on both sides.
ONLY_ON_DISK = r"^.*(%LMQ%[ab]|RMQ_SYS_TRANS_OP_HALF_TOPIC)\s*$"
COMMANDS: dict[str, list[str]] = {
    # First: a broker also lists the groups of later commands.
    "consumerProgress": [],
    "consumerProgress -g grp-c": [],
    # Version, uptime and the disk.
    "clusterList": [r"V4_9_3|logdex-\S+", r" {2,}", r"\d+ [\d.]+ [\d.]+$"],
    # Queues without a configuration are topics of an archive.
    "topicList": [ONLY_ON_DISK],
    "topicList -c": [ONLY_ON_DISK],
    "topicClusterList -t BBTopic": [],
    # Nobody may write.
    "topicRoute -t BBTopic": [r'"perm":\d'],
    "topicStatus -t BBTopic": [],
    "topicStatus -t order_events": [],
    "queryMsgByUniqueKey -t BBTopic -i UNIQUE": [],
    "queryMsgByOffset -t BBTopic -b broker-a -i 1 -o 1": [],
    "printMsg -t BBTopic": [],
    "printMsgByQueue -t BBTopic -a broker-a -i 1 -p true": [],
    "consumeMessage -t BBTopic -b broker-a -i 1 -o 0 -c 2 -g grp-c": [],
    "queryCq -b BROKER -t BBTopic -q 1 -i 0 -c 3": [],
    "consumerConnection -g grp-c": [],
    "consumerStatus -g grp-c": [],
    "producerConnection -g nobody -t BBTopic": [],
    "brokerConsumeStats -b BROKER": [],
    "statsAll -t BBTopic": [],
    "allocateMQ -t BBTopic -i 127.0.0.1,127.0.0.2": [],
    "getConsumerConfig -g grp-c": [],
    "queryMsgTraceById -i UNIQUE": [],
}
# Command -> what its output says of an archive, where a broker's says something else.
OWN_OUTPUT = {
    "getNamesrvConfig": "listenPort",
    "getBrokerConfig -b BROKER": "brokerName",
    "brokerStatus -b BROKER": "brokerVersionDesc",
    "brokerStatus -c DefaultCluster": "commitLogMaxOffset",
    "exportMetadata -c DefaultCluster -f FOLDER": "export",
    "exportConfigs -c DefaultCluster -f FOLDER": "export",
}


@pytest.fixture(scope="module")
def fresh(roots: tuple[Path, Path]) -> Iterator[str]:
    """The address of a server that no consumer used."""
    with served(roots[0]) as found:
        yield found


@pytest.fixture(scope="module")
def tools(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Program, Program]]:
    """Two programs: a command keeps the address of its first call."""
    home = tmp_path_factory.mktemp("tools")
    with Program("Tools", home / "ours", zone=ZONE) as ours, Program("Tools", home / "theirs", zone=ZONE) as theirs:
        yield ours, theirs


def _output(program: Program, command: str, names: str, port: str, folder: Path) -> str:
    line = command.replace("BROKER", port).replace("UNIQUE", UNIQUE_KEY).replace("FOLDER", str(folder))
    output: str = program.ask([*line.split(), "-n", names])["output"]
    return re.sub(r"RocketMQLog:WARN.*\n", "", output).replace(names, "ADDRESS").replace(port, "ADDRESS")


@pytest.mark.parametrize("command", COMMANDS)
def test_mqadmin_says_what_it_says_of_a_real_broker(
    command: str, tools: tuple[Program, Program], fresh: str, broker: tuple[str, str], tmp_path: Path
) -> None:
    outputs = [_output(tools[0], command, fresh, fresh, tmp_path), _output(tools[1], command, *broker, tmp_path)]
    for pattern in COMMANDS[command]:
        outputs = [re.sub(pattern, " ... ", output, flags=re.MULTILINE) for output in outputs]
    ours, theirs = (
        sorted(line.rstrip() for line in output.splitlines() if line.strip() != "...") for output in outputs
    )
    assert ours == theirs
    assert any(ours)


@pytest.mark.parametrize("command", OWN_OUTPUT)
def test_mqadmin_describes_the_archive(
    command: str, tools: tuple[Program, Program], fresh: str, tmp_path: Path
) -> None:
    output = _output(tools[0], command, fresh, fresh, tmp_path)
    assert OWN_OUTPUT[command] in output
    assert "Exception" not in output


def test_mqadmin_finds_messages_by_key(tools: tuple[Program, Program], fresh: str, tmp_path: Path) -> None:
    output = _output(tools[0], "queryMsgByKey -t BBTopic -k BB", fresh, fresh, tmp_path)
    carry = [
        row["queueOffset"]
        for row in golden.rows("basic", "messages")
        if row["topic"] == "BBTopic" and "BB" in (row["keys"] or "").split(" ")
    ]
    found = [int(line.split()[-1]) for line in output.splitlines() if re.match(r"[0-9A-F]{32}", line)]
    assert sorted(found) == sorted(carry)
