"""One parser of paths and URLs: calls that write take `file:` URLs, calls that read take those of object stores, too.

A refusal comes before anything is created.
"""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING, Any

import pytest

import logdex
from logdex import kafka, rocketmq
from logdex._core import RemotePath, local_path, locate
from logdex.cli import commands, main
from logdex.hash_index import IndexDirectory

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

URL = "s3n://bucket/x"

OPENERS: dict[str, Callable[[Any], Any]] = {
    "logdex.open": logdex.open,
    "MessageStore.open": rocketmq.MessageStore.open,
    "MessageStore.open commit_log": lambda url: rocketmq.MessageStore.open(".", commit_log=url),
    "MessageStore.open commit_logs": lambda url: rocketmq.MessageStore.open(".", commit_log=f"/a,{url}"),
    "CommitLog.open": rocketmq.CommitLog.open,
    "IndexFile.open": rocketmq.IndexFile.open,
    "IndexFile.create": lambda url: rocketmq.IndexFile.create(url, hash_slots=4, max_entries=8),
    "IndexService.open": rocketmq.IndexService.open,
    "IndexService.open a": lambda url: rocketmq.IndexService.open(url, mode="a", hash_slots=4, max_entries=8),
    "IndexService.open checkpoint": lambda url: rocketmq.IndexService.open(".", checkpoint=url),
    "IndexDirectory.open a": lambda url: IndexDirectory.open(url, mode="a", hash_slots=4, max_entries=8),
    "ConsumeQueue.open": rocketmq.ConsumeQueue.open,
    "ConsumeQueue.open extension": lambda url: rocketmq.ConsumeQueue.open(".", extension=url),
    "StoreCheckpoint.open": rocketmq.StoreCheckpoint.open,
    "StoreWriter.open": rocketmq.StoreWriter.open,
    "LogDir.open": kafka.LogDir.open,
    "Log.open": kafka.Log.open,
    "LogSegment.open": kafka.LogSegment.open,
    "OffsetIndex.open": kafka.OffsetIndex.open,
    "OffsetIndex.create": lambda url: kafka.OffsetIndex.create(url, 0),
    "TimeIndex.open": kafka.TimeIndex.open,
    "TimeIndex.create": lambda url: kafka.TimeIndex.create(url, 0),
    "kafka.build_key_index": lambda url: kafka.build_key_index(url, "index"),
    "kafka.LogDir.find": lambda url: kafka.LogDir.open(url).find("orders", "key"),
}


@pytest.fixture
def empty_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the current directory, which has nothing in it."""
    place = tmp_path / "empty"
    place.mkdir()
    monkeypatch.chdir(place)
    return place


@pytest.mark.parametrize("name", OPENERS)
def test_another_scheme_is_refused_before_anything_is_created(empty_directory: Path, name: str) -> None:
    with pytest.raises(ValueError, match=f'^{URL}: expected a local path.* found the scheme "s3n"'):
        OPENERS[name](URL)
    assert list(empty_directory.iterdir()) == []


@pytest.mark.parametrize("name", [name for name in OPENERS if name.endswith((" a", "create")) or "Writer" in name])
def test_a_call_that_writes_takes_no_object_store(empty_directory: Path, name: str) -> None:
    with pytest.raises(
        ValueError, match=r'^s3://bucket/x: expected a local path or a file: URL, found the scheme "s3"'
    ):
        OPENERS[name]("s3://bucket/x")
    assert list(empty_directory.iterdir()) == []


def test_a_path_in_an_object_store_keeps_its_slashes() -> None:
    for url in ("s3://bucket/x", "S3://bucket//x/", "s3:/bucket/x", "s3://bucket/./x"):
        assert str(locate(url)) == "s3://bucket/x"
    path = locate("hdfs://host:8020/a b") / "%RETRY%g"
    assert (str(path), path.name, str(path.parent)) == (
        "hdfs://host:8020/a b/%RETRY%g",
        "%RETRY%g",
        "hdfs://host:8020/a b",
    )
    for url, expected in (("s3://", "a bucket, container or host"), ("s3://b/../x", r"a path without \.\.")):
        with pytest.raises(ValueError, match=f"expected {expected}"):
            locate(url)


def test_other_options_for_a_bucket_are_another_place() -> None:
    options = {"aws_region": "x", "aws_secret_access_key": "never shown"}
    first, second = locate("s3://two/x", options), locate("s3://two/x", {**options, "aws_region": "y"})
    assert first != second
    # Users see no difference; what is pickled has it.
    assert str(first) == str(second) == "s3://two/x"
    # No caller gets the options of another caller.
    assert locate(str(first)) not in (first, second)
    assert isinstance(first, RemotePath)
    assert first.storage_options == options
    assert locate(first) == locate(first, options) == first
    assert pickle.loads(pickle.dumps(second)) == second  # noqa: S301 -- our own bytes
    assert "never shown" not in repr([first, second])


def test_targets_of_a_store_are_refused(store: Callable[[str], Path], empty_directory: Path) -> None:
    with rocketmq.MessageStore.open(store("basic")) as opened:
        for call in (opened.build_index, opened.build_queues, lambda url: rocketmq.copy_messages(opened, url)):
            with pytest.raises(ValueError, match='found the scheme "hdfs"'):
                call("hdfs://host/x")
    assert list(empty_directory.iterdir()) == []


def test_targets_of_kafka_are_refused(kafka_log: Path, empty_directory: Path) -> None:
    partition = next(kafka_log.glob("*-0"))
    with pytest.raises(ValueError, match='found the scheme "hdfs"'):
        kafka.build_key_index(kafka_log, "hdfs://host/x")
    with pytest.raises(ValueError, match='found the scheme "s3n"'):
        kafka.LogDir.open(kafka_log).find(partition.name[:-2], "key", index=URL)
    with kafka.Log.open(partition) as log, pytest.raises(ValueError, match='found the scheme "hdfs"'):
        log.rebuild_indexes("hdfs://host/x")
    assert list(empty_directory.iterdir()) == []


@pytest.fixture
def kafka_log(tmp_path: Path) -> Path:
    """Return a log directory of a real broker."""
    import golden_kafka  # noqa: PLC0415 -- unpacks

    return golden_kafka.unpack("codecs", tmp_path / "logs")


COMMANDS = (
    ("info", URL),
    ("browse", URL, "--no-open"),
    ("du", URL),
    ("groups", URL),
    ("replicate", "127.0.0.1:1", URL, "--once"),
    ("seal", URL),
    ("serve", URL),
    ("verify", URL),
    ("cat", URL),
    ("grep", "x", URL),
    ("sql", URL, "SELECT 1"),
    ("find", URL, "T", "k"),
    ("explain", URL, "T", "k"),
    ("stats", URL),
    ("recover", URL),
    ("export", URL, "x.parquet"),
    ("export", ".", "s3a://bucket/x.parquet"),
    ("info", ".", "--commit-log", URL),
    ("build-index", URL, "x"),
    ("build-queues", URL, "x"),
    ("copy", URL, "x"),
    ("kafka", "dump", URL),
    ("kafka", "find", URL, "T", "k"),
    ("kafka", "verify", URL),
    ("kafka", "rebuild-index", URL, "--to", "x"),
    ("kafka", "build-index", URL, "x"),
)


def test_every_command_is_in_the_list() -> None:
    assert {words[0] for words in COMMANDS} == set(commands.names())


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_commands_refuse_another_scheme(
    empty_directory: Path, capsys: pytest.CaptureFixture[str], words: tuple[str, ...]
) -> None:
    assert main(words) == 2
    assert 'found the scheme "s3' in capsys.readouterr().err
    assert list(empty_directory.iterdir()) == []


@pytest.mark.parametrize("command", ["build-index", "build-queues", "copy"])
def test_commands_refuse_a_target_with_another_scheme(
    store: Callable[[str], Path], empty_directory: Path, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    assert main([command, str(store("basic")), URL]) == 2
    assert 'found the scheme "s3n"' in capsys.readouterr().err
    assert list(empty_directory.iterdir()) == []


@pytest.mark.parametrize("url", ["file:{}", "file://{}", "FILE://{}", "file://localhost{}", "{}"])
def test_every_form_of_a_file_url_opens_the_same_store(store: Callable[[str], Path], tmp_path: Path, url: str) -> None:
    place = tmp_path / "a store#1"
    store("basic").rename(place)
    given = url.format(place if url == "{}" else str(place).replace(" ", "%20").replace("#", "%23"))
    with rocketmq.MessageStore.open(given) as opened:
        assert opened.root == place
    assert main(["info", given]) == 0
    log_url = given + "/commitlog"
    with rocketmq.CommitLog.open(log_url) as log:
        assert log.path == place / "commitlog"
    with rocketmq.MessageStore.open(given, commit_log=f"{log_url},{log_url}") as opened:
        assert str(opened.layout.commit_log) == f"{place}/commitlog,{place}/commitlog"


def test_a_path_object_that_lost_a_slash_is_refused_too() -> None:
    from pathlib import Path  # noqa: PLC0415 -- as a user writes it

    with pytest.raises(ValueError, match='found the scheme "s3a"'):
        local_path(Path("s3a://bucket/x"))
    with pytest.raises(ValueError, match="found a path with ://"):
        local_path("./s3a://bucket/x")
    with pytest.raises(ValueError, match='found the host "server"'):
        local_path("file://server/x")
    assert local_path("orders:1") == Path("orders:1")
