"""File systems that callers bring: through fsspec, pyarrow.fs and obstore the answers are those of the disk."""

from __future__ import annotations

import os
import pickle
import threading
import warnings
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pyarrow as pa
import pyarrow.fs as pafs
import pytest

import golden
import golden_kafka
import store_answers
from logdex.kafka import Log, LogDir
from logdex.rocketmq import CommitLog, IndexService, MessageStore, StoreWriter

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

KINDS = ("pyarrow", "subtree", "fsspec", "memory", "obstore")


def opened_as(kind: str, root: Path) -> tuple[str, Any]:
    """Return a path and the file system that it is in, for a directory."""
    if kind == "pyarrow":
        return str(root), pafs.LocalFileSystem()
    if kind == "subtree":
        return root.name, pafs.SubTreeFileSystem(str(root.parent), pafs.LocalFileSystem())
    if kind == "obstore":
        obstore = pytest.importorskip("obstore.store", reason="obstore needs Python 3.11")
        return root.name, obstore.LocalStore(str(root.parent))
    fsspec = pytest.importorskip("fsspec", reason="fsspec is not installed")
    if kind == "fsspec":
        return str(root), fsspec.filesystem("file")
    memory = fsspec.filesystem("memory")
    # All of the process share it.
    path = f"/{uuid4().hex}"
    memory.put(str(root), path, recursive=True)
    return path, memory


def of_store(store: MessageStore) -> dict[str, Any]:
    with store:
        return store_answers.of_store(store)


def of_log_dir(logs: LogDir) -> dict[str, Any]:
    with logs:
        return store_answers.of_log_dir(logs)


def differences(here: dict[str, Any], there: dict[str, Any]) -> list[str]:
    """Return the names of answers that differ."""
    assert list(here) == list(there)
    return [name for name, answer in here.items() if there[name] != answer]


@pytest.mark.parametrize("case", golden.STORES)
def test_a_golden_store_answers_alike(store: Callable[[str], Path], case: str) -> None:
    root = store(case)
    path, files = opened_as("pyarrow", root)
    here, there = of_store(MessageStore.open(root)), of_store(MessageStore.open(path, filesystem=files))
    assert differences(here, there) == []
    assert len(there["messages"]) > 200
    assert len(there["finds"]) >= 200


@pytest.mark.parametrize("kind", KINDS[1:])
def test_each_kind_answers_alike(store: Callable[[str], Path], kind: str) -> None:
    root = store("basic")
    path, files = opened_as(kind, root)
    here, there = of_store(MessageStore.open(root)), of_store(MessageStore.open(path, filesystem=files))
    assert differences(here, there) == []
    assert len(there["messages"]) == 553


@pytest.mark.parametrize("kind", KINDS)
def test_a_kafka_log_directory_answers_alike(tmp_path: Path, kind: str) -> None:
    root = golden_kafka.unpack("transactions", tmp_path / "logs")
    path, files = opened_as(kind, root)
    here, there = of_log_dir(LogDir.open(root)), of_log_dir(LogDir.open(path, filesystem=files))
    assert differences(here, there) == []
    assert len(there["records"]) == 1086
    with Log.open(f"{path}/{next(root.glob('*-0')).name}", filesystem=files) as log:
        assert pa.table(log.records()).num_rows > 0


@pytest.mark.parametrize("kind", KINDS)
def test_log_and_index_are_opened_by_themselves(store: Callable[[str], Path], kind: str) -> None:
    root = store("rolled")
    path, files = opened_as(kind, root)
    keys = [row["key"] for row in golden.rows("rolled", "queries")][:100]
    answers = []
    for place, options in ((str(root), {}), (path, {"filesystem": files})):
        with (
            IndexService.open(f"{place}/index", **options) as index,
            CommitLog.open(f"{place}/commitlog", **options) as log,
        ):
            found = index.query_batch("TopicTest", keys).to_pylist()
            messages = pa.table(log.scan()).to_pylist()
            answers.append((found, index.verify().ok, messages, log.min_offset, log.max_offset))
    assert answers[0] == answers[1]
    assert sum(map(len, answers[1][0])) > 50
    assert len(answers[1][2]) > 2000
    with MessageStore.open(path, commit_log=f"{path}/commitlog", filesystem=files) as opened:
        assert pa.table(opened.messages()).num_rows == len(answers[1][2])


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_not_there_or_changed_is_an_error(tmp_path: Path, store: Callable[[str], Path], kind: str) -> None:
    path, files = opened_as(kind, tmp_path)
    for name in ("nothing", "no/thing"):
        with pytest.raises(FileNotFoundError):
            MessageStore.open(f"{path}/{name}", filesystem=files)
    if kind == "memory":
        return
    root = store("basic")
    path, files = opened_as(kind, root)
    newest = max((root / "commitlog").iterdir())
    with CommitLog.open(f"{path}/commitlog", filesystem=files) as log:
        assert len(log.files) > 0
        newest.write_bytes(newest.read_bytes()[:-4096])
        with pytest.raises(OSError, match="as it was when it was opened"):
            list(log.scan(stop="salvage"))


class Counted(pafs.FileSystemHandler):  # type: ignore[misc]  # untyped
    """A file system of Python that counts what is asked, and may fail."""

    def __init__(self, root: Path) -> None:
        self._files = pafs.LocalFileSystem()
        self._root = root
        self.listed: list[str] = []
        self.opened: list[str] = []
        self.error: Exception | None = None
        self.slow = ""
        self.waits, self.answers = threading.Event(), threading.Event()

    def get_file_info(self, paths: list[str]) -> list[pafs.FileInfo]:
        return [self._files.get_file_info(path) for path in paths]

    def get_file_info_selector(self, selector: pafs.FileSelector) -> list[pafs.FileInfo]:
        self.listed.append(selector.base_dir)
        found: list[pafs.FileInfo] = self._files.get_file_info(selector)
        return found

    def open_input_file(self, path: str) -> Any:
        if (error := self.error) is not None:
            if self.slow and path.endswith(self.slow):
                self.waits.set()
                assert self.answers.wait(60)
            raise error
        self.opened.append(path)
        return self._files.open_input_file(path)

    def get_type_name(self) -> str:
        return "counted"

    def normalize_path(self, path: str) -> str:
        return path

    def _refuse(self, *_: Any, **__: Any) -> Any:
        raise NotImplementedError

    copy_file = create_dir = delete_dir = delete_dir_contents = delete_file = delete_root_dir_contents = _refuse
    move = open_append_stream = open_input_stream = open_output_stream = _refuse


def test_an_error_of_the_file_system_is_an_error_with_the_path(store: Callable[[str], Path]) -> None:
    root = store("basic")
    handler = Counted(root)
    with MessageStore.open(str(root), filesystem=pafs.PyFileSystem(handler)) as opened:
        handler.error = PermissionError("no entry for you")
        with pytest.raises(PermissionError, match="no entry for you"):
            list(opened.messages(scan=True))
        handler.error = None
        assert pa.table(opened.messages()).num_rows == 553
    assert handler.opened
    assert all(path.startswith(str(root)) for path in (*handler.opened, *handler.listed))


def test_an_error_of_an_earlier_read_is_not_the_next_reads(store: Callable[[str], Path]) -> None:
    root = store("basic")
    handler = Counted(root)
    with MessageStore.open(str(root), filesystem=pafs.PyFileSystem(handler)) as opened:
        handler.error = PermissionError("no entry for you")
        handler.slow = "commitlog/00000000000000131072"
        with pytest.raises(PermissionError, match="00000000000000065536"):
            list(opened.commit_log.scan(threads=4))
        # This file was requested ahead, and is refused while the next read waits for it.
        assert handler.waits.wait(60)
        handler.error = None
        threading.Timer(0.5, handler.answers.set).start()
        assert pa.table(opened.messages(scan=True)).num_rows == 553


def test_pages_of_a_quiet_topic_read_all_queues_once(tmp_path: Path) -> None:
    """Other queues determine up to which offset the queues are reliable. A store may have 100,000 of them."""

    def put(first: int) -> None:
        with StoreWriter.open(tmp_path, file_size=32 << 20, max_message_size=2 << 20, services=False) as writer:
            writer.put_message("quiet", b"quiet %d" % first)
            for _ in range(6):
                writer.put_message("busy", bytes(1 << 20))

    put(0)
    handler = Counted(tmp_path)
    with MessageStore.open(str(tmp_path), filesystem=pafs.PyFileSystem(handler)) as store:

        def reads() -> int:
            return sum(directory.endswith("consumequeue/busy/0") for directory in handler.listed)

        assert store.page(topic="quiet").batch.column("body").to_pylist() == [b"quiet 0"]
        before = reads()
        for _ in range(3):
            store.page(topic="quiet")
        assert 0 < before == reads()


def test_pickle_and_fork_are_refused(store: Callable[[str], Path]) -> None:
    root = store("basic")
    path, files = opened_as("pyarrow", root)
    with MessageStore.open(path, filesystem=files) as opened:
        for handle in (opened, opened.commit_log, opened.index):
            with pytest.raises(TypeError, match="not pickled"):
                pickle.dumps(handle)
        place = opened.root
        reader, writer = os.pipe()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            child = os.fork()
        if child == 0:
            text = "nothing"
            try:
                opened.commit_log.message(0)
            except OSError as error:
                text = str(error)
            finally:
                os.write(writer, text.encode())
                os._exit(0)
        os.close(writer)
        with os.fdopen(reader, "rb") as answer:
            assert b"open it again with filesystem=" in answer.read()
        os.waitpid(child, 0)
    with pytest.raises(ValueError, match="it is not pickled: open it again"):
        MessageStore.open("filesystem://999999/store")
    with MessageStore.open(place) as again:
        assert pa.table(again.messages()).num_rows == 553


def test_wrong_arguments_are_refused(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match=r"expected a file system of fsspec or pyarrow\.fs, or a store of obstore"):
        MessageStore.open(tmp_path, filesystem=object())
    files = pafs.LocalFileSystem()
    with pytest.raises(ValueError, match="found a URL"):
        LogDir.open("s3://bucket/logs", filesystem=files)
    with pytest.raises(ValueError, match="storage_options"):
        IndexService.open(tmp_path, filesystem=files, storage_options={"aws_region": "x"})


def test_a_sealed_index_is_used_and_none_is_written(store: Callable[[str], Path], tmp_path: Path) -> None:
    root = store("basic")
    with MessageStore.open(root) as local:
        local.seal()
        keys = store_answers.keys_of(pa.table(local.messages()))[::5]
        expected = [[message.phy_offset for message in local.find(*each)] for each in keys]
    path, files = opened_as("pyarrow", root)
    with MessageStore.open(path, filesystem=files) as opened:
        assert "index files" in str(opened.sealed)
        assert [[message.phy_offset for message in opened.find(*each)] for each in keys] == expected
        with pytest.raises(OSError, match="not written"):
            opened.seal()
        assert opened.seal(tmp_path / "out").ok
