"""Topics and group offsets of killed brokers are copied as of a moment, and real brokers of two releases load the copy."""

from __future__ import annotations

import io
import json
import lzma
import shlex
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from kafka_broker import RELEASES, Broker
from kafka_classes import Classes
from test_written_kafka import BROKER, ask, read, served, wait_for_ends

if TYPE_CHECKING:
    from collections.abc import Callable

GOLDEN = Path(__file__).parents[1] / "golden" / "kafka-restore"
TOPICS = ("audit.log", "orders")
SETTINGS = {**BROKER, "offsets_topic_num_partitions": 4}


def _unpack(release: str, home: Path) -> tuple[Path, dict[str, Any]]:
    dead = home / "dead"
    with tarfile.open(fileobj=io.BytesIO(lzma.decompress((GOLDEN / f"dead-{release}.tar.xz").read_bytes()))) as tar:
        tar.extractall(dead, filter="data")
    facts: dict[str, Any] = json.loads((GOLDEN / f"dead-{release}.json").read_text())
    return dead, facts


def _copy(dead: Path, new: Path, *options: str) -> list[str]:
    """Copy as a user does, and return the commands of the steps."""
    command: list[str | Path] = [sys.executable, "-m", "logdex", "copy", dead, new, "--groups", *options]
    subprocess.run(command, check=True, capture_output=True)
    lines = new.with_name(f"{new.name}.steps.txt").read_text().splitlines()
    return [line.strip() for line in lines if line.startswith("     ")]


def _follow(commands: list[str], broker: Broker, release: str) -> None:
    """Run the commands of the steps in their order."""
    tool = shlex.join(["java", "-cp", f"{RELEASES[release]}/*", "org.apache.kafka.tools.TopicCommand"])
    for command in commands:
        line = command.replace("kafka-topics.sh", tool).replace("HOST:9092", broker.address)
        line = line.replace("LOG_DIR", str(broker.log_dir))
        subprocess.run(line, shell=True, check=True, capture_output=True)  # noqa: S602 - the commands are ours


def _groups_of(facts: dict[str, Any]) -> list[list[Any]]:
    return sorted(
        # The epochs of the dead cluster's leaders mean nothing in another one.
        [group, *place.rsplit("-", 1), offset, text]
        for group, offsets in facts["groups"].items()
        for place, (offset, _, text) in offsets.items()
    )


def _check(client: Classes, broker: Broker, new: Path, facts: dict[str, Any]) -> dict[str, int]:
    """Compare what clients get with the copy, and the copy with what was noted of the killed broker."""
    wait_for_ends(client, broker, new, TOPICS)
    rows = served(client, broker, TOPICS)
    assert rows == read(new, TOPICS)
    found: dict[str, list[int]] = {place: [] for place in facts["readCommitted"]}
    for topic, partition, offset, *_ in rows["read_committed"]:
        found.setdefault(f"{topic}-{partition}", []).append(offset)
    assert {place: offsets for place, offsets in found.items() if offsets} == {
        place: offsets for place, offsets in facts["readCommitted"].items() if offsets
    }
    offsets = ask(client, "groups", broker)["offsets"]
    assert sorted([group, topic, str(place), offset, text] for group, topic, place, offset, _, text in offsets) == (
        _groups_of(facts)
    )
    assert {epoch for *_, epoch, _ in offsets} == {-1}
    return {level: len(each) for level, each in rows.items()}


def _check_use(client: Classes, broker: Broker, facts: dict[str, Any]) -> None:
    """Let a group go on where it was, and a new producer write, whose id an old one may have had."""
    joined = ask(client, "join", broker, group="group-0", topic="orders")["records"]
    after = {each["partition"]: each["offset"] for each in reversed(joined)}
    assert all(offset >= facts["groups"]["group-0"][f"orders-{partition}"][0] for partition, offset in after.items())
    before = served(client, broker, ["orders"])["read_committed"]
    for number in range(2):
        place = {"topic": "orders", "partitions": 2, "first": 1000, "count": 10, "seed": number}
        ask(client, "produce", broker, **place, config={"acks": "all", "enable.idempotence": "true"})
    assert len(served(client, broker, ["orders"])["read_committed"]) == len(before) + 20


@pytest.mark.timeout(400)
@pytest.mark.parametrize("source", RELEASES)
@pytest.mark.parametrize("release", RELEASES)
def test_a_running_broker_loads_a_copy(release: str, source: str, tmp_path: Path, say: Callable[[str], None]) -> None:
    dead, facts = _unpack(source, tmp_path)
    commands = _copy(dead, tmp_path / "new", "--as-of", str(facts["moment"]))
    with Classes(tmp_path) as client:
        with Broker(tmp_path, release, **SETTINGS) as broker:
            # A directory that comes before the broker runs is one of an unknown topic.
            ask(client, "create_topics", broker, topics={"first": {"partitions": 1, "settings": {}}})
            _follow(commands, broker, release)
            counts = _check(client, broker, tmp_path / "new", facts)
            _check_use(client, broker, facts)
            longer = served(client, broker, TOPICS)
        with Broker(tmp_path, release, **SETTINGS) as broker:
            wait_for_ends(client, broker, broker.log_dir, TOPICS)
            assert served(client, broker, TOPICS) == longer
    say(f"{counts} records and all group offsets of a killed {source} broker, restored to a running {release} broker")


@pytest.mark.timeout(400)
@pytest.mark.parametrize("source", RELEASES)
@pytest.mark.parametrize("release", RELEASES)
def test_a_new_broker_starts_on_a_copy(release: str, source: str, tmp_path: Path, say: Callable[[str], None]) -> None:
    dead, facts = _unpack(source, tmp_path)

    def prepare(log_dir: Path) -> None:
        _copy(dead, log_dir, "--as-of", str(facts["moment"]))
        shutil.copytree(log_dir, tmp_path / "new")

    with Classes(tmp_path) as client:
        with Broker(tmp_path, release, prepare, **BROKER) as broker:
            counts = _check(client, broker, tmp_path / "new", facts)
            _check_use(client, broker, facts)
            longer = served(client, broker, TOPICS)
        with Broker(tmp_path, release, **BROKER) as broker:
            wait_for_ends(client, broker, broker.log_dir, TOPICS)
            assert served(client, broker, TOPICS) == longer
        for topic in TOPICS:
            places = [directory.glob(f"{topic}-0/partition.metadata") for directory in (dead, broker.log_dir)]
            assert len({path.read_text() for [path] in places}) == 1
    say(f"{counts} records and all group offsets of a killed {source} broker, with which a {release} broker started")


@pytest.mark.timeout(400)
@pytest.mark.parametrize("release", RELEASES)
def test_a_stopped_broker_loads_a_copy(release: str, tmp_path: Path, say: Callable[[str], None]) -> None:
    dead, facts = _unpack("3.9.2", tmp_path)
    new = tmp_path / "new"
    commands = _copy(dead, new, "--as-of", str(facts["moment"]))
    with Classes(tmp_path) as client:
        with Broker(tmp_path, release, **SETTINGS) as broker:
            _follow(commands[1:], broker, release)
            ask(client, "offsets", broker, topics=list(TOPICS))
        for directory in new.glob("*-*[0-9]"):
            served_dir = broker.log_dir / directory.name
            for path in served_dir.iterdir():
                if path.name != "partition.metadata":
                    path.unlink()
            shutil.copytree(directory, served_dir, dirs_exist_ok=True)
        with Broker(tmp_path, release, **SETTINGS) as broker:
            counts = _check(client, broker, new, facts)
            _check_use(client, broker, facts)
    say(f"{counts} records and all group offsets, restored to a stopped {release} broker")
