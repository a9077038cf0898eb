"""Golden stores answer in HDFS as they do on the disk."""

from __future__ import annotations

import shutil
import time
from typing import TYPE_CHECKING

import pytest

import golden
import golden_answers
import golden_kafka
import store_answers
from logdex import _core
from logdex.kafka import LogDir
from logdex.rocketmq import IndexFile, MessageStore

if TYPE_CHECKING:
    from pathlib import Path

    from hdfs_server import Hdfs


@pytest.mark.parametrize("case", golden.STORES)
def test_a_golden_store_answers_alike(hdfs: Hdfs, tmp_path: Path, case: str) -> None:
    root = golden.unpack(case, tmp_path)
    golden_answers.compare_store(case, root, hdfs.put(case, root), hdfs.options)


@pytest.mark.parametrize("case", golden_kafka.CASES)
def test_a_golden_log_directory_answers_alike(hdfs: Hdfs, tmp_path: Path, case: str) -> None:
    root = golden_kafka.unpack(case, tmp_path)
    golden_answers.compare_log_dir(case, root, hdfs.put(f"kafka-{case}", root), hdfs.options)


def test_empty_directories_are_directories(hdfs: Hdfs, tmp_path: Path) -> None:
    root = golden.unpack("basic", tmp_path)
    shutil.rmtree(root / "index")
    (root / "index").mkdir()
    (root / "consumequeue" / "NoQueue").mkdir()
    (root / "consumequeue" / "NoFile" / "0").mkdir(parents=True)
    url = hdfs.put("empty-directories", root)
    with MessageStore.open(root) as local, MessageStore.open(url) as remote:
        assert store_answers.of_store(remote) == store_answers.of_store(local)
        assert remote.index.files == []
    logs = golden_kafka.unpack("codecs", tmp_path / "logs")
    (logs / "empty-0").mkdir()
    with LogDir.open(logs) as local, LogDir.open(hdfs.put("empty-partition", logs)) as remote:
        assert remote.topics == local.topics


def test_a_path_that_is_not_there_is_an_error(hdfs: Hdfs, tmp_path: Path) -> None:
    url = hdfs.put("alone", golden.unpack("basic", tmp_path))
    for missing in (f"{url}/nothing", f"{hdfs.url}/nothing"):
        with pytest.raises(FileNotFoundError) as error:
            MessageStore.open(missing)
        assert str(error.value.filename).startswith(missing)
        with pytest.raises(FileNotFoundError):
            LogDir.open(missing)
        with pytest.raises(FileNotFoundError):
            IndexFile.open(f"{missing}/20260101000000000")
    with pytest.raises(IsADirectoryError):
        IndexFile.open(f"{url}/index")


def test_a_file_that_changes_while_it_is_read_is_an_error(hdfs: Hdfs, tmp_path: Path) -> None:
    root = golden.unpack("rolled", tmp_path)
    first, second, *_ = sorted((root / "commitlog").iterdir())
    # Of the same length: its time tells.
    other = tmp_path / "other"
    other.write_bytes(second.read_bytes())
    url = hdfs.put("changed", root)
    with MessageStore.open(url) as store:
        assert store.commit_log.min_offset == int(first.name)
        hdfs.put(f"changed/commitlog/{second.name}", other)
        with pytest.raises(OSError, match="expected the object as it was when it was opened") as error:
            list(store.messages())
        assert str(error.value.filename) == f"{url}/commitlog/{second.name}"
    url = hdfs.put("deleted", root)
    with MessageStore.open(url) as store:
        hdfs.delete(f"deleted/commitlog/{second.name}")
        with pytest.raises(OSError, match="found none") as error:
            list(store.messages())
        assert str(error.value.filename) == f"{url}/commitlog/{second.name}"


def test_a_store_that_was_written_answers_alike(hdfs: Hdfs, tmp_path: Path) -> None:
    root = golden.unpack("ipv6", tmp_path)
    url = f"{hdfs.url}/written"
    for path in sorted(path for path in root.rglob("*") if path.is_file()):
        _core.upload_file(path, _core.locate(f"{url}/{path.relative_to(root).as_posix()}", {}))
    golden_answers.compare_store("ipv6", root, url, hdfs.options)


def test_a_name_node_that_does_not_answer_is_an_error_within_the_deadline(hdfs: Hdfs, tmp_path: Path) -> None:
    url = hdfs.put("silent", golden.unpack("ipv6", tmp_path))
    began = time.monotonic()
    with hdfs.paused(), pytest.raises(TimeoutError, match="expected the whole answer within 2 s") as error:
        MessageStore.open(url, storage_options={"retry_timeout": "500ms"})
    assert "/silent" in str(error.value.filename)
    assert time.monotonic() - began < 10
