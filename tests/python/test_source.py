"""The one front door: what is at a path, what every source can do, and which modules a search loads."""

from __future__ import annotations

import inspect
import re
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

import golden
import golden_kafka
import logdex
from logdex import Source
from logdex._core import locate
from logdex.kafka import Log, LogDir
from logdex.rocketmq import IndexService, MessageStore
from logdex.source import Kind, detect, matching_topics

if TYPE_CHECKING:
    from pathlib import Path

KINDS = {MessageStore: Kind.STORE, IndexService: Kind.INDEX, LogDir: Kind.LOG_DIR, Log: Kind.PARTITION}


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Return paths of both brokers by name."""
    store = golden.unpack("basic", tmp_path_factory.mktemp("basic"))
    logs = golden_kafka.unpack("codecs", tmp_path_factory.mktemp("logs") / "logs")
    alone = tmp_path_factory.mktemp("alone") / "partition"
    shutil.copytree(logs / "cod-none-0", alone)
    empty = tmp_path_factory.mktemp("empty")
    return {
        "store": store,
        "commitlog": store / "commitlog",
        "index": store / "index",
        "index file": min((store / "index").iterdir()),
        "queue": next(path for path in (store / "consumequeue").glob("*/*") if any(path.iterdir())),
        "checkpoint": store / "checkpoint",
        "log dir": logs,
        "partition": logs / "cod-none-0",
        "renamed partition": alone,
        "segment": min((logs / "cod-none-0").glob("*.log")),
        "offset index": min((logs / "cod-none-0").glob("*.index")),
        "empty": empty,
        "none": empty / "none",
    }


EXPECTED = {
    "store": Kind.STORE,
    "commitlog": Kind.STORE,
    "index": Kind.INDEX,
    "index file": Kind.INDEX_FILE,
    "queue": None,
    "checkpoint": None,
    "log dir": Kind.LOG_DIR,
    "partition": Kind.PARTITION,
    "renamed partition": Kind.PARTITION,
    "segment": Kind.SEGMENT,
    "offset index": None,
    "empty": None,
    "none": None,
}


@pytest.mark.parametrize("name", EXPECTED)
def test_each_kind_of_path_is_recognised(name: str, places: dict[str, Path]) -> None:
    assert detect(locate(places[name])) is EXPECTED[name]


@pytest.mark.parametrize("name", [name for name, kind in EXPECTED.items() if kind in KINDS.values()])
def test_each_directory_is_opened_as_what_it_is(name: str, places: dict[str, Path]) -> None:
    with logdex.open(places[name]) as opened:
        assert isinstance(opened, Source)
        assert KINDS[type(opened)] is EXPECTED[name]
        assert opened.kind == KINDS[type(opened)].value
        info = opened.info()
        assert info.kind == opened.kind
        assert info.to_dict()["kind"] == opened.kind
        assert opened.verify().ok


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("index file", r"IndexFile\.open"),
        ("segment", r"LogSegment\.open"),
        ("queue", r"MessageStore\.queue"),
        ("checkpoint", "the store's root"),
        ("empty", "found none of them"),
    ],
)
def test_another_path_is_refused_with_what_to_call(name: str, words: str, places: dict[str, Path]) -> None:
    with pytest.raises(ValueError, match=rf"^{re.escape(str(places[name]))}: expected .*{words}"):
        logdex.open(places[name])


def test_a_store_above_is_named(tmp_path: Path) -> None:
    (tmp_path / "store" / "commitlog").mkdir(parents=True)
    with pytest.raises(ValueError, match=rf"there is a store in {re.escape(str(tmp_path))}/store$"):
        logdex.open(tmp_path)


def test_a_source_refuses_what_makes_no_sense(places: dict[str, Path]) -> None:
    with logdex.open(places["index"]) as index:
        for call in (index.find, index.explain):
            with pytest.raises(ValueError, match=r"^RocketMQ index directory: it has no messages; expected a store"):
                call("AaTopic", "BB")
        for other in (index.usage, index.groups, index.seal):
            with pytest.raises(ValueError, match=r"^RocketMQ index directory: expected a store"):
                other()
    with logdex.open(places["partition"]) as log:
        for other in (log.groups, log.seal):
            with pytest.raises(ValueError, match=r"^Kafka partition: expected a store, or a Kafka log directory"):
                other()


@pytest.mark.parametrize("kind", KINDS)
def test_each_source_takes_the_arguments_of_the_protocol(kind: type[Source]) -> None:
    for name, function in inspect.getmembers(Source, inspect.isfunction):
        if not name.startswith("_"):
            base, own = inspect.signature(function).parameters, inspect.signature(getattr(kind, name)).parameters
            assert base.keys() <= own.keys(), name


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("store", {"tiered": "x"}),
        ("index", {"commit_log": "x"}),
        ("log dir", {"hash_slots": 1}),
        ("partition", {"x": 1}),
    ],
)
def test_an_option_of_another_kind_is_refused(name: str, options: dict[str, Any], places: dict[str, Path]) -> None:
    with pytest.raises((TypeError, ValueError, OSError)):
        logdex.open(places[name], **options)


def test_a_file_system_of_the_caller_is_opened(places: dict[str, Path]) -> None:
    fsspec = pytest.importorskip("fsspec")
    files = fsspec.filesystem("file")
    for name in ("store", "log dir", "partition", "index"):
        with logdex.open(places[name], filesystem=files) as opened:
            assert KINDS[type(opened)] is EXPECTED[name]


_SEARCH = """
import sys
from logdex.cli import main
code = main({words!r})
print(code, *sorted(name for name in sys.modules if name.startswith("logdex.")))
"""
SEARCHES = {
    "find store": (["find", "store", "AaTopic", "BB"], "kafka"),
    "explain store": (["explain", "store", "AaTopic", "BB"], "kafka"),
    "info store": (["info", "store"], "kafka"),
    "info index": (["info", "index"], "kafka"),
    "verify queue": (["verify", "queue"], "kafka"),
    "cat store": (["cat", "store", "--limit", "1"], "kafka"),
    "find log dir": (["find", "log dir", "cod-none", "k"], "rocketmq"),
    "kafka find": (["kafka", "find", "log dir", "cod-none", "k"], "rocketmq"),
    "info partition": (["info", "partition"], "rocketmq"),
    "cat segment": (["cat", "segment", "--limit", "1"], "rocketmq"),
}


@pytest.mark.parametrize("name", SEARCHES)
def test_a_command_imports_the_modules_of_one_broker(name: str, places: dict[str, Path]) -> None:
    words, other = SEARCHES[name]
    program = _SEARCH.format(words=[str(places.get(word, word)) for word in words])
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    code, *loaded = done.stdout.splitlines()[-1].split()
    own = {"kafka": "rocketmq", "rocketmq": "kafka"}[other]
    assert code in ("0", "1"), done.stderr
    assert any(module.startswith(f"logdex.{own}.") for module in loaded)
    assert [module for module in loaded if module.startswith((f"logdex.{other}", f"logdex.cli.sources.{other}"))] == []


def test_a_search_imports_nothing_that_writes_or_explains(places: dict[str, Path]) -> None:
    program = _SEARCH.replace('if name.startswith("logdex.")', "").format(
        words=["find", str(places["store"]), "t", "k1"]
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    loaded = set(done.stdout.splitlines()[-1].split())
    assert "logdex.rocketmq.find" in loaded
    assert not {name for name in loaded if name.startswith(("logdex.rocketmq.write.", "logdex.broker"))}
    slow = {"logdex.rocketmq.copy", "logdex.rocketmq.explain", "asyncio", "difflib", "html", "random", "zoneinfo"}
    assert not slow & loaded


def test_the_package_itself_imports_no_broker() -> None:
    program = "import sys, logdex; print(*sorted(name for name in sys.modules if name.startswith('logdex.')))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert not {"logdex.rocketmq", "logdex.kafka", "logdex.hash_index"} & set(done.stdout.split())


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        (["orders"], ["orders"]),
        (["ord*"], ["orders", "orders-eu"]),
        (["ORD*"], ["ORD*"]),
        (["*-eu", "orders"], ["orders-eu", "orders"]),
        (["/.*e[a-z]s?/"], ["orders", "orders-eu"]),
        (["/rders/"], ["/rders/"]),
        (["[%p]*"], ["%RETRY%g", "pay"]),
        (["pa?"], ["pay"]),
        (["*", "orders"], ["%RETRY%g", "orders", "orders-eu", "pay"]),
    ],
)
def test_patterns_are_replaced_by_topics(wanted: list[str], found: list[str]) -> None:
    assert matching_topics(wanted, lambda: ["pay", "orders-eu", "orders", "%RETRY%g"]) == found


def test_topics_by_patterns(places: dict[str, Path]) -> None:
    with pytest.raises(ValueError, match="regular expression between slashes"):
        matching_topics(["/(/"], list)
    with MessageStore.open(places["store"]) as store:
        wanted = [topic for topic in store.topics if topic.startswith("t")]
        expected = store.messages(topics=wanted).read_all()
        assert expected.num_rows
        for how in ({"topic": "t*"}, {"topics": ["/t.*/"]}, {"topic": "*", "topics": "t*"}):
            assert store.messages(**how).read_all() == expected
        with pytest.warns(logdex.UnknownTopicWarning, match="no*"):
            assert store.messages("no*").read_all().num_rows == 0
    with LogDir.open(places["log dir"]) as logs:
        some = [each for each in logs.partitions() if each.topic.startswith("cod-n")]
        assert logs.partitions("cod-n*") == logs.partitions(["/cod-n.*/"]) == some
        assert 0 < logs.records("cod-n*").read_all().num_rows < logs.records().read_all().num_rows
