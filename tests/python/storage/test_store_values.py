"""A store is a value: two sets of options for a bucket never meet, and users see the URL that they gave."""

from __future__ import annotations

import os
import pickle
import re
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.fs as pafs
import pytest

import golden
import golden_kafka
from logdex._core import RemotePath, join_directories, locate
from logdex.kafka import LogDir, LogSegment
from logdex.rocketmq import CommitLog, IndexFile, IndexService, MessageStore
from slow_proxy import SlowProxy

if TYPE_CHECKING:
    import object_store

SECRET = "never-shown-secret"  # noqa: S105 -- of nobody


def test_users_see_no_options(server: object_store.ObjectStore, tmp_path: Path) -> None:
    root = golden.unpack("rolled", tmp_path / "rolled")
    (newest,) = sorted((root / "index").iterdir())[-1:]
    newest.write_bytes(newest.read_bytes()[:-30])
    url = server.put("marked", root)
    logs = server.put("marked-logs", golden_kafka.unpack("damaged-crc", tmp_path / "logs"))
    said: list[str] = []
    answers = []
    # With several sets of options for one bucket.
    for number in range(3):
        options = {**server.options, "retry_timeout": f"{20 + number}s", "aws_secret_access_key": f"{SECRET}-{number}"}
        with MessageStore.open(url, storage_options=options) as store:
            answers.append(store.find(store.topics[0], "no such key").complete)
            index, log, queue = store.index, store.commit_log, store.queue(store.topics[0], 0)
            assert index is not None
            parts = [store, index, log, queue, *index.files, *log.files, store.layout]
            said += map(repr, parts)
            said += [
                str(store.root),
                os.fspath(store.root),
                str(index.directory),
                *map(str, log.files),
                f"{queue.path}",
            ]
            said += [finding.path for finding in store.verify().findings] + [str(store.overview())]
            said += [repr(pickle.loads(pickle.dumps(store)))]  # noqa: S301 -- our own
        with LogDir.open(logs, storage_options=options) as opened:
            said += [repr(opened), *(finding.path for finding in opened.verify().findings)]
        for call in (
            lambda options: MessageStore.open(f"{url}/nothing", storage_options=options),
            lambda options: CommitLog.open(f"{url}/nothing", storage_options=options),
            lambda options: IndexService.open(f"{url}/commitlog", storage_options=options),
            lambda options: IndexFile.open(f"{url}/index", storage_options=options),
            lambda options: LogSegment.open(f"{url}/nothing/00000000000000000000.log", storage_options=options),
            lambda options: IndexFile.open(f"{url}/checkpoint", storage_options=options),
        ):
            with pytest.raises((OSError, ValueError)) as error:
                call(options)
            said += [str(error.value), repr(error.value), str(getattr(error.value, "filename", ""))]
    assert len(set(answers)) == 1
    assert len(said) > 100
    assert [text for text in said if SECRET in text or re.search(r"s3[^:]", text.replace("s3://", ""))] == []
    assert sum("s3://stores/marked" in text for text in said) > 100


def test_two_sets_of_credentials_never_meet(server: object_store.ObjectStore, tmp_path: Path) -> None:
    url = server.put("of-two", golden.unpack("basic", tmp_path / "basic"))
    keys = ("ALICE", "MALLORY")
    failures: list[str] = []
    with SlowProxy(server.port) as alices, SlowProxy(server.port) as mallorys:
        proxies = (alices, mallorys)

        def read(number: int) -> None:
            options = {**server.options, "aws_access_key_id": keys[number], "aws_endpoint": proxies[number].endpoint}
            for _ in range(3):
                with MessageStore.open(url, storage_options=options) as store:
                    again = pickle.loads(pickle.dumps(store.root))  # noqa: S301 -- our own
                    same = (str(store.root), again == store.root, again.storage_options == options)
                    if same != (url, True, True) or store.commit_log.message(0) is None:
                        failures.append(f"{keys[number]}: {same}")

        threads = [threading.Thread(target=read, args=(number,)) for number in (0, 1)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        signatures = [{each.signature for each in proxy.requests} for proxy in proxies]
    assert failures == []
    for key, other, signed in zip(keys, reversed(keys), signatures, strict=True):
        # The second one reads the same objects again: nothing that was read for the first is its.
        assert signed
        assert all(f"Credential={key}/" in str(each) and other not in str(each) for each in signed)


def test_equal_texts_of_other_options_are_other_places() -> None:
    first, second = ({"aws_secret_access_key": f"{SECRET}-{number}", "aws_region": "x"} for number in (1, 2))
    places = [locate("s3://two/x", options) for options in (first, second)]
    assert [str(place) for place in places] == [os.fspath(place) for place in places] == ["s3://two/x"] * 2
    assert len({*places, locate("s3://two/x")}) == 3
    for options, place in zip((first, second), places, strict=True):
        assert isinstance(place, RemotePath)
        assert [each.storage_options for each in (place, place.parent, place / "y")] == [options] * 3
        assert locate("s3://two/x", dict(reversed(options.items()))) == place
        assert SECRET not in f"{place!r} {place} {[place]} {vars(type(place))}"
    both = join_directories(places)
    assert (str(both), both) == ("s3://two/x,s3://two/x", pickle.loads(pickle.dumps(both)))  # noqa: S301 -- our own


def test_file_systems_of_equal_paths_are_other_places(tmp_path: Path) -> None:
    for case in ("basic", "rolled"):
        (tmp_path / case).mkdir()
        golden.unpack(case, tmp_path / case / "unpacked").rename(tmp_path / case / "store")
    files = [pafs.SubTreeFileSystem(str(tmp_path / case), pafs.LocalFileSystem()) for case in ("basic", "rolled")]
    stores = [MessageStore.open("store", filesystem=each) for each in files]
    ends = [store.commit_log.max_offset for store in stores]
    assert len({store.root for store in stores}) == len(set(ends)) == 2
    for store in stores:
        store.close()


_READ = """
import pickle, sys
print(pickle.loads(bytes.fromhex(sys.argv[1])).commit_log.max_offset)
"""


def test_a_pickled_store_opens_in_a_fresh_process(server: object_store.ObjectStore, tmp_path: Path) -> None:
    url = server.put("pickled", golden.unpack("basic", tmp_path / "basic"))
    with MessageStore.open(url, storage_options=server.options) as store:
        pickled, expected = pickle.dumps(store).hex(), store.commit_log.max_offset
    environment = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
    command = [sys.executable, "-c", _READ, pickled]
    answer = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    assert answer.stdout == f"{expected}\n"


def test_no_static_of_the_core_holds_stores_or_options() -> None:
    """The pool of connections and the cache of blocks, by store and options, are what one client of the process has."""
    sources = Path(__file__).parents[3] / "src"
    statics = [
        f"{path.relative_to(sources)}: {line.strip()}"
        for folder in (sources / "io", sources / "python")
        for path in folder.rglob("*.rs")
        for line in path.read_text().splitlines()
        if re.match(r"\s*(pub(\(.*\))? )?static ", line)
    ]
    assert len(statics) > 10
    held = re.compile(r"Options|Store\b|ObjectStore|Location|FileSystem|Objects|HashMap|Wait")
    assert [each for each in statics if held.search(each)] == []


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("AWS_ENDPOINT", "HIDDEN"),
        ("AWS_ENDPOINT_URL", "not a URL HIDDEN"),
        ("AWS_ENDPOINT_URL_S3", "http://HIDDEN:secret@"),
        ("AWS_ENDPOINT", "http://user:HIDDEN@127.0.0.1:1"),
        ("AWS_ENDPOINT", ""),
        ("AWS_ENDPOINT", "https://"),
    ],
)
def test_a_bad_endpoint_in_the_environment_is_an_error(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str, tmp_path: Path
) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(OSError, match=f'storage option "{name}": expected a URL such as https://host:9000') as error:
        MessageStore.open(f"s3://environment-{abs(hash((name, value)))}/x", storage_options={"skip_signature": "true"})
    assert "HIDDEN" not in str(error.value)
    assert list(tmp_path.iterdir()) == []


def test_an_endpoint_in_the_environment_is_used(
    monkeypatch: pytest.MonkeyPatch, server: object_store.ObjectStore, tmp_path: Path
) -> None:
    server.put("by-environment", golden.unpack("basic", tmp_path / "basic"))
    for name, value in server.options.items():
        monkeypatch.setenv(name.upper(), value)
    options = {"retry_timeout": "33s"}
    with MessageStore.open("s3://stores/by-environment", storage_options=options) as store:
        assert store.commit_log.max_offset > 0
