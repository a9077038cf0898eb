"""The command line reads URLs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import golden
import golden_kafka
import object_store
from logdex.cli import main
from logdex.rocketmq import MessageStore

if TYPE_CHECKING:
    from pathlib import Path

_COMMANDS = (
    ("info", "STORE"),
    ("info", "STORE/index"),
    ("info", "STORE/commitlog"),
    ("find", "STORE", "TopicTest", "absent"),
    ("find", "STORE", "TopicTest", "KEY", "--body"),
    ("explain", "STORE", "TopicTest", "KEY"),
    ("cat", "STORE", "--topic", "TopicTest", "--limit", "40"),
    ("cat", "STORE"),
    ("verify", "STORE"),
    ("verify", "STORE/index"),
    ("stats", "STORE/index"),
    ("kafka", "verify", "LOGS"),
    ("kafka", "find", "LOGS", "cod-blocks", "absent"),
)


@pytest.fixture(scope="module")
def places(server: object_store.ObjectStore, tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[str, str]]:
    """Return the local path and the URL of a store and of a log directory."""
    store = object_store.whole_seconds(golden.unpack("basic", tmp_path_factory.mktemp("basic")))
    logs = object_store.whole_seconds(golden_kafka.unpack("codecs", tmp_path_factory.mktemp("logs")))
    return {"STORE": (str(store), server.put("basic", store)), "LOGS": (str(logs), server.put("kafka-codecs", logs))}


@pytest.mark.parametrize("json", [False, True], ids=["text", "json"])
@pytest.mark.parametrize("words", _COMMANDS, ids=" ".join)
def test_a_command_prints_the_same_for_a_url(
    server: object_store.ObjectStore,
    places: dict[str, tuple[str, str]],
    capsys: pytest.CaptureFixture[str],
    words: tuple[str, ...],
    json: bool,
) -> None:
    row = next(row for row in golden.rows("basic", "messages") if row["topic"] == "TopicTest" and row.get("uniqKey"))
    said = []
    for remote in (False, True):
        storage = [word for pair in server.options.items() for word in ("--storage", "=".join(pair))] if remote else []
        given = [*words, *storage, *(["--json"] if json else [])]
        for name, place in places.items():
            given = [word.replace(name, place[remote]) for word in given]
        code = main([{"KEY": row["uniqKey"]}.get(word, word) for word in given])
        out, err = capsys.readouterr()
        for name, place in places.items():
            out, err = out.replace(place[remote], name), err.replace(place[remote], name)
        said.append((code, out, err))
    assert said[1] == said[0]
    assert said[0][0] in (0, 1)
    assert said[0][1] + said[0][2]


def test_a_store_at_a_url_is_copied_and_indexed_into_local_directories(
    server: object_store.ObjectStore,
    places: dict[str, tuple[str, str]],
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    storage = [word for pair in server.options.items() for word in ("--storage", "=".join(pair))]
    for command in ("copy", "build-queues"):
        assert main([command, places["STORE"][1], str(tmp_path / command), *storage]) == 0
    assert main(["verify", str(tmp_path / "copy")]) == 0
    with MessageStore.open(tmp_path / "copy") as copied:
        assert copied.messages(columns=["phy_offset"]).read_all().num_rows == len(golden.rows("basic", "messages"))
    capsys.readouterr()
