"""Handles of remote stores in other processes: pickled, forked, spawned."""

from __future__ import annotations

import multiprocessing
import pickle
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import golden
import golden_kafka
import object_store
import remote_reads
from logdex.kafka import LogDir
from logdex.rocketmq import CommitLog, ConsumeQueue, IndexService, MessageStore

if TYPE_CHECKING:
    from collections.abc import Callable

# Threads read while the process forks, so that a child finds locks as they are in the middle of a read. Started with a count of
# forks, two URLs and the storage options.
_FORKS = """
import os, signal, sys, threading, warnings
import remote_reads
from logdex.kafka import LogDir
from logdex.rocketmq import MessageStore

warnings.simplefilter("ignore", DeprecationWarning)
forks, store_url, logs_url, *words = sys.argv[1:]
options = dict(word.split("=", 1) for word in words)
store = MessageStore.open(store_url, storage_options=options)
logs = LogDir.open(logs_url, storage_options=options)
expected = remote_reads.look_up(store, logs)
ended, may_read, begun = threading.Event(), threading.Event(), threading.Semaphore(0)

def go_on():
    while may_read.wait() and not ended.is_set():
        begun.release()
        assert remote_reads.look_up(store, logs) == expected
        with MessageStore.open(store_url, storage_options=options) as opened:
            assert remote_reads.look_up(opened, logs) == expected

threads = [threading.Thread(target=go_on) for _ in range(4)]
for thread in threads:
    thread.start()
for number in range(int(forks)):
    may_read.set()
    for _ in range(1 + number % 5):
        begun.acquire()
    child = os.fork()
    if child == 0:
        # A child that waits for ever is killed.
        signal.alarm(30)
        os._exit(remote_reads.look_up(store, logs) != expected)
    # The threads end their reads and wait, so that the child has the server for itself.
    may_read.clear()
    assert os.waitpid(child, 0)[1] == 0
ended.set()
may_read.set()
for thread in threads:
    thread.join()
print(expected)
"""


@pytest.fixture(scope="module")
def url(server: object_store.ObjectStore, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return the URL of a store."""
    return server.put("rolled", golden.unpack("rolled", tmp_path_factory.mktemp("rolled")))


def handles(server: object_store.ObjectStore, url: str) -> list[remote_reads.Handle]:
    """Return an open handle of each kind."""
    with MessageStore.open(url, storage_options=server.options) as store:
        topic = store.topics[0]
        queue = store.queue(topic, 0).path
    return [
        MessageStore.open(url, storage_options=server.options),
        CommitLog.open(f"{url}/commitlog", storage_options=server.options),
        IndexService.open(f"{url}/index", storage_options=server.options),
        ConsumeQueue.open(queue),
    ]


def test_pickled_handles_read_in_another_process(server: object_store.ObjectStore, url: str, tmp_path: Path) -> None:
    logs = server.put("kafka-codecs", object_store.whole_seconds(golden_kafka.unpack("codecs", tmp_path / "logs")))
    opened = [*handles(server, url), LogDir.open(logs, storage_options=server.options)]
    expected = [remote_reads.read(handle) for handle in opened]
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        assert pool.map(remote_reads.read_pickled, [pickle.dumps(handle) for handle in opened]) == expected
    for handle in opened:
        handle.close()


def test_forked_processes_read_while_threads_do(
    server: object_store.ObjectStore, url: str, store: Callable[[str], Path], tmp_path: Path
) -> None:
    root = object_store.whole_seconds(golden_kafka.unpack("compacted", tmp_path / "logs"))
    logs = server.put("kafka-compacted", root)
    words = [sys.executable, "-c", _FORKS, "15", url, logs]
    words += [f"{name}={value}" for name, value in server.options.items()]
    support = str(Path(remote_reads.__file__).parent)
    ended = subprocess.run(
        words, capture_output=True, text=True, timeout=120, check=False, env={"PYTHONPATH": support, "PATH": ""}
    )
    assert ended.stderr == ""
    with MessageStore.open(store("rolled")) as local, LogDir.open(root) as local_logs:
        assert ended.stdout == f"{remote_reads.look_up(local, local_logs)}\n"
