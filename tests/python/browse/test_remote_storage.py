"""Pages of what is not a directory on the disk: remote storage of Kafka, a file system in memory."""

from __future__ import annotations

import html
import json
import re
import shlex
from typing import TYPE_CHECKING
from uuid import uuid4

import fsspec
import pytest

import golden
import golden_tiered
from browsing import STORE, answers, serve
from logdex._filesystem import in_filesystem
from logdex.cli import main

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("case", golden_tiered.CASES)
def test_records_in_remote_storage_are_those_of_one_log(
    case: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = golden_tiered.unpack(case, tmp_path)
    keys = [f"--tiered-key={name}={path}" for name, path in (golden_tiered.keys(case) or {}).items()]
    records = golden_tiered.records(case, committed=True)
    topic = records[0]["topic"]
    wanted = [each for each in records if (each["topic"], each["partition"]) == (topic, 0)][:20]
    list_words = f"topic={topic}&partition=0&order=oldest&rows=20&isolation=read_committed"
    for place, words in ((root / "after", [f"--tiered={root / 'remote'}"]), (root / "remote", [])):
        with serve(place, *words, *keys) as site:
            offsets = [row["offset"] for row in site.json(f"/records.json?{list_words}")]
            assert offsets == [each["offset"] for each in wanted]
            value = site.ask(f"/value?topic={topic}&partition=0&offset={offsets[0]}")
            assert value.body == wanted[0]["value"]
            for path in (
                "/", "/partitions", f"/partition?topic={topic}&partition=0", f"/search?topic={topic}&grep=a", "/records?counts=1",
                "/records/tail", "/groups", "/verify",
            ):  # fmt: skip
                assert site.ask(path).status == 200, path
            found = re.search(
                r'id="as-command".*?<code>(.*?)</code>', site.ask(f"/records?{list_words}").text, re.DOTALL
            )
            assert found is not None
            # The command names the remote storage, but no key.
            command = [*shlex.split(html.unescape(found[1]))[1:], "--json", *keys]
        capsys.readouterr()
        assert main(command) == 0
        assert [json.loads(line)["offset"] for line in capsys.readouterr().out.splitlines()] == offsets


def test_pages_of_a_file_system_in_memory_are_those_of_the_disk(tmp_path: Path) -> None:
    root = golden.unpack("basic", tmp_path)
    memory = fsspec.filesystem("memory")
    # All of the process share it.
    place = f"/{uuid4().hex}"
    memory.put(str(root), place, recursive=True)
    paths = [path.replace("?", ".json?") for path in STORE if path.startswith(("/messages?", "/search?", "/queue?"))]
    assert len(paths) > 4
    here, there = answers(root, *paths), answers(in_filesystem(place, memory), *paths)
    assert [answer.status for answer in there] == [200] * len(paths)
    assert [answer.body for answer in there] == [answer.body for answer in here]
