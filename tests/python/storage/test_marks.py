"""A second set of options for a bucket: the store is another one, and users see the URL that they gave."""

from __future__ import annotations

import os
import pickle
import re
import subprocess
import sys
import zlib
from typing import TYPE_CHECKING

import pytest

import golden
import golden_kafka
from logdex._core import locate, storage_options
from logdex.kafka import LogDir, LogSegment
from logdex.rocketmq import CommitLog, IndexFile, IndexService, MessageStore

if TYPE_CHECKING:
    from pathlib import Path

    import object_store

MARK = re.compile(r"\+[0-9a-f]{8}:")


def test_users_see_no_marks(server: object_store.ObjectStore, tmp_path: Path) -> None:
    root = golden.unpack("rolled", tmp_path / "rolled")
    (newest,) = sorted((root / "index").iterdir())[-1:]
    newest.write_bytes(newest.read_bytes()[:-30])
    url = server.put("marked", root)
    logs = server.put("marked-logs", golden_kafka.unpack("damaged-crc", tmp_path / "logs"))
    said: list[str] = []
    answers = []
    # With several sets of options for one bucket.
    for number in range(3):
        options = {**server.options, "retry_timeout": f"{20 + number}s"}
        with MessageStore.open(url, storage_options=options) as store:
            answers.append(store.find(store.topics[0], "no such key").complete)
            index, log, queue = store.index, store.commit_log, store.queue(store.topics[0], 0)
            assert index is not None
            parts = [store, index, log, queue, *index.files, *log.files]
            said += map(repr, parts)
            said += [str(store.root), str(index.directory), *map(str, log.files), f"{queue.path}"]
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
    assert [text for text in said if MARK.search(text)] == []
    assert sum("s3://stores/marked" in text for text in said) > 100


def test_stores_of_other_options_are_others(server: object_store.ObjectStore, tmp_path: Path) -> None:
    url = server.put("marked-two", golden.unpack("basic", tmp_path / "basic"))
    opened = [
        MessageStore.open(url, storage_options={**server.options, "retry_timeout": timeout})
        for timeout in ("31s", "32s")
    ]
    roots = [store.root for store in opened]
    assert str(roots[0]) == str(roots[1]) == url
    assert roots[0] != roots[1]
    assert len({*roots}) == len({os.fspath(root) for root in roots}) == 2
    assert [pickle.loads(pickle.dumps(root)) for root in roots] == roots  # noqa: S301 -- our own
    for store in opened:
        store.close()


def test_options_are_compared_and_not_only_a_checksum_of_them() -> None:
    first = {"aws_secret_access_key": "alice-secret", "aws_region": "x"}
    second = {"aws_secret_access_key": forged(first, "mallory-"), "aws_region": "x"}
    assert checksum(first) == checksum(second)
    places = [locate("s3://forged/x", options) for options in (first, second)]
    assert [storage_options(place) for place in places] == [first, second]
    for options, place in zip((first, second), places, strict=True):
        assert f"{checksum(options):08x}" not in os.fspath(place)
        assert f"{checksum(options):08x}".encode() not in pickle.dumps(place)
        assert locate("s3://forged/x", dict(reversed(options.items()))) == place


def checksum(options: dict[str, str]) -> int:
    """Return the CRC-32 of options."""
    words = (f"{len(name)}:{name}{len(value)}:{value}" for name, value in sorted(options.items()))
    return zlib.crc32("".join(words).encode())


def forged(options: dict[str, str], begin: str) -> str:
    """Return another secret with the same checksum: letters that differ in one bit, chosen by elimination."""

    def of(chosen: int) -> str:
        return begin + "".join("ac"[chosen >> place & 1] for place in range(40))

    def checked(chosen: int) -> int:
        return checksum({**options, "aws_secret_access_key": of(chosen)})

    def reduced(rest: int) -> tuple[int, int]:
        chosen = 0
        while rest and rest.bit_length() in basis:
            value, places = basis[rest.bit_length()]
            rest, chosen = rest ^ value, chosen ^ places
        return rest, chosen

    basis: dict[int, tuple[int, int]] = {}
    for place in range(40):
        rest, chosen = reduced(checked(1 << place) ^ checked(0))
        if rest:
            basis[rest.bit_length()] = (rest, chosen ^ 1 << place)
    rest, chosen = reduced(checksum(options) ^ checked(0))
    assert rest == 0
    return of(chosen)


def test_a_mark_of_another_process_is_refused() -> None:
    command = "import os; from logdex._core import locate; print(os.fspath(locate('s3://b/x', {'aws_region': 'y'})))"
    given = subprocess.run([sys.executable, "-c", command], capture_output=True, text=True, check=True).stdout.strip()
    assert MARK.search(given)
    with pytest.raises(ValueError, match="expected a URL without a mark"):
        locate(given)
    assert storage_options(locate(given, {"aws_region": "z"})) == {"aws_region": "z"}


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
