"""A worker reads what the driver planned, or says what it lacks: files that expire, and copies that are empty or partial.

The readers are called as Spark's workers call them, with plans that went through pickle.
"""

from __future__ import annotations

import pickle
import shutil
import time
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark.sql.datasource import CaseInsensitiveDict

from logdex.errors import DamageWarning, LogdexError
from logdex.rocketmq import CommitLog, IndexService, StoreWriter
from logdex.spark.index.source import IndexSource
from logdex.spark.messages.source import MessagesSource
from opened import LISTED, Opened

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from logdex.report import Finding

FILE = 65_536
MESSAGES = 900


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a store of several log files and of queues, the last file half full."""
    root = tmp_path_factory.mktemp("written")
    with StoreWriter.open(root, file_size=FILE, hash_slots=100, max_entries=500, zone="UTC", services=False) as writer:
        for number in range(MESSAGES):
            writer.put_message("T" if number % 9 else "Rare", b"x" * 200, keys=f"k{number}", queue_id=number % 2)
    assert len(list((root / "commitlog").iterdir())) > 4
    return root


@pytest.fixture
def store(written: Path, tmp_path: Path) -> Path:
    return shutil.copytree(written, tmp_path / "store")


def planned(store: Path, **options: str) -> tuple[Any, list[Any]]:
    """Return a reader and its tasks, as a worker unpickles them."""
    source = MessagesSource(CaseInsensitiveDict({"path": str(store), "columns": "phy_offset", **options}))
    reader = source.reader(source.schema())
    return reader, pickle.loads(pickle.dumps(reader.partitions()))  # noqa: S301 -- as Spark does


def rows(reader: Any, tasks: Sequence[Any]) -> int:
    return sum(batch.num_rows for task in tasks for batch in reader.read(task))


def findings_of(caught: pytest.WarningsRecorder) -> list[Finding]:
    return [finding for each in caught for finding in each.message.findings]  # type: ignore[union-attr]


def log_files(store: Path) -> list[Path]:
    return sorted((store / "commitlog").iterdir())


def expire_first(store: Path) -> Path:
    log_files(store)[0].unlink()
    return log_files(store)[0].with_name("0" * 20)


def lose_middle(store: Path) -> Path:
    path = log_files(store)[2]
    path.unlink()
    return path


def empty(store: Path) -> Path:
    for path in log_files(store):
        path.unlink()
    return store / "commitlog" / ("0" * 20)


def truncate(store: Path) -> Path:
    path = log_files(store)[1]
    path.write_bytes(path.read_bytes()[: FILE // 2])
    return path


def another_store(store: Path) -> Path:
    path = log_files(store)[1]
    path.write_bytes(log_files(store)[2].read_bytes())
    return path


def older_copy(store: Path) -> Path:
    """A copy of the last file that was made when it had fewer messages."""
    path = max(file for file in log_files(store) if any(file.read_bytes()))
    content = path.read_bytes()
    kept = len(content.rstrip(b"\0")) // 2
    path.write_bytes(content[:kept] + bytes(FILE - kept))
    return path


LOSSES = [expire_first, lose_middle, empty, truncate, another_store, older_copy]


@pytest.mark.parametrize("lose", LOSSES)
@pytest.mark.parametrize("options", [{}, {"maxPartitionBytes": "20000"}, {"compat": "4.9.3"}])
def test_a_worker_that_lacks_a_planned_file_raises(
    store: Path, lose: Callable[[Path], Path], options: dict[str, str]
) -> None:
    reader, tasks = planned(store, **options)
    assert rows(reader, tasks) == MESSAGES
    path = lose(store)
    with pytest.raises(LogdexError, match=rf"{path}.* on \S+: .*failOnDataLoss=false"):
        rows(reader, tasks)


@pytest.mark.parametrize("lose", LOSSES)
def test_without_fail_on_data_loss_the_loss_is_counted(store: Path, lose: Callable[[Path], Path]) -> None:
    reader, tasks = planned(store, failOnDataLoss="false", maxPartitionBytes="1")
    path = lose(store)
    with pytest.warns(DamageWarning) as caught:
        left = rows(reader, tasks)
    assert str(path) in {finding.path for finding in findings_of(caught)}
    assert 0 <= left < MESSAGES
    assert (left > 0) == (lose is not empty)


@pytest.mark.parametrize("options", [{"topic": "Rare"}, {"keys": "k9"}])
@pytest.mark.parametrize("lose", [expire_first, lose_middle, empty])
def test_messages_chosen_by_queue_or_index_are_there_or_an_error(
    store: Path, lose: Callable[[Path], Path], options: dict[str, str]
) -> None:
    reader, tasks = planned(store, **options)
    whole = rows(reader, tasks)
    assert whole == (100 if "topic" in options else 1)
    lose(store)
    with pytest.raises(LogdexError, match="failOnDataLoss"):
        rows(reader, tasks)


def test_a_worker_without_the_queue_raises(store: Path) -> None:
    reader, tasks = planned(store, topic="Rare")
    shutil.rmtree(store / "consumequeue" / "Rare")
    with pytest.raises(LogdexError, match="consumequeue/Rare"):
        rows(reader, tasks)


def test_a_log_that_grows_is_read_as_planned(store: Path) -> None:
    reader, tasks = planned(store)
    with StoreWriter.open(store, file_size=FILE, zone="UTC", services=False) as writer:
        for _ in range(300):
            writer.put_message("T", b"x" * 200)
    assert rows(reader, tasks) >= MESSAGES


def test_a_stream_checks_in_its_workers(store: Path) -> None:
    source = MessagesSource(CaseInsensitiveDict({"path": str(store), "columns": "phy_offset"}))
    reader: Any = source.streamReader(source.schema())
    tasks = reader.partitions(reader.initialOffset(), reader.latestOffset())
    assert rows(reader, tasks) == MESSAGES
    expire_first(store)
    with pytest.raises(LogdexError, match="failOnDataLoss"):
        rows(reader, tasks)


def test_a_missing_log_file_is_a_warning_of_the_plan(store: Path) -> None:
    path = lose_middle(store)
    with pytest.warns(DamageWarning) as caught:
        reader, tasks = planned(store)
    (finding,) = findings_of(caught)
    assert finding.kind == "file-gap"
    assert path.name.lstrip("0") in str(finding)
    assert 0 < rows(reader, tasks) < MESSAGES


def test_damage_that_a_task_passes_over_is_its_warning(store: Path) -> None:
    path = log_files(store)[1]
    content = bytearray(path.read_bytes())
    content[FILE // 2 : FILE // 2 + 300] = b"\xff" * 300
    path.write_bytes(content)
    reader, tasks = planned(store)
    with pytest.warns(DamageWarning) as caught:
        left = rows(reader, tasks)
    assert MESSAGES - 4 < left < MESSAGES
    assert {finding.path for finding in findings_of(caught)} == {str(path)}


def test_unwritten_space_before_a_later_file_is_damage(store: Path) -> None:
    """Also in the last task of a file, which no message follows."""
    path = log_files(store)[1]
    with CommitLog.open(store / "commitlog") as log:
        offsets = pa.table(log.scan(columns=["phy_offset"])).column(0).to_pylist()
    end = next(offset for offset in offsets if offset > int(path.name) + FILE // 2) - int(path.name)
    path.write_bytes(path.read_bytes()[:end] + bytes(FILE - end))
    reader, tasks = planned(store, maxPartitionBytes="20000")
    with pytest.warns(DamageWarning) as caught:
        assert 0 < rows(reader, tasks) < MESSAGES
    (finding,) = findings_of(caught)
    assert (finding.path, finding.offset) == (str(path), end)
    assert "unwritten space" in finding.found


def test_entries_of_a_missing_index_file_are_an_error(store: Path) -> None:
    source = IndexSource(CaseInsensitiveDict({"path": str(store / "index"), "hashSlots": "100", "maxEntries": "500"}))
    reader = source.reader(source.schema())
    tasks = pickle.loads(pickle.dumps(reader.partitions()))  # noqa: S301 -- as Spark does
    with IndexService.open(store / "index", hash_slots=100, max_entries=500) as index:
        assert rows(reader, tasks) == sum(map(len, index.files))
        assert len(index.files) > 1
        path = index.files[0].path
    path.unlink()
    with pytest.raises(LogdexError, match=f"{path}.*no such file on"):
        rows(reader, tasks)


def test_a_plan_lists_the_log_for_no_piece_and_a_task_does_not_list_it(store: Path) -> None:
    with Opened(store / "commitlog") as opened:
        reader, tasks = planned(store, maxPartitionBytes="4096")
    assert len(tasks) > 10 * len(log_files(store))
    assert 1 <= opened.counts.pop(LISTED) <= 4
    assert set(opened.counts) == {path.name for path in log_files(store)}
    assert max(opened.counts.values()) <= 4
    (piece,) = tasks[20].pieces
    with Opened(store / "commitlog") as opened:
        assert rows(reader, tasks[20:21]) > 0
    assert set(opened.counts) == {max(path.name for path in log_files(store) if int(path.name) <= piece.begin)}


def test_a_plan_of_many_files_that_are_cut_is_linear(tmp_path: Path) -> None:
    """The log was listed for every cut and queue: 328 files took 101 s."""
    with StoreWriter.open(
        tmp_path, file_size=FILE, hash_slots=100, max_entries=5_000, zone="UTC", services=False
    ) as writer:
        columns = {"topic": ["T"] * 1_000, "body": [b"x" * 2_000] * 1_000}
        while writer.max_offset < 328 * FILE:
            writer.put_messages(pa.table(columns))
    begin = time.monotonic()
    _, tasks = planned(tmp_path, maxPartitionBytes="8192")
    assert time.monotonic() - begin < 10
    assert len(tasks) > 328 * 7
    assert sum(piece.size for task in tasks for piece in task.pieces) == sum(
        path.stat().st_size for path in log_files(tmp_path)
    )
