"""The commit of a job: all files or none, no file replaced, nothing left behind."""

from __future__ import annotations

import contextlib
import os
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from logdex._core import DirectoryLock
from logdex.errors import CorruptFileError, LockedError
from logdex.spark.index.job import Job, WrittenFile, finish_commits, index_files

if TYPE_CHECKING:
    from collections.abc import Callable


def written(job: Job, *contents: str) -> list[WrittenFile]:
    """Make files as an attempt of a task does."""
    directory = job.start_attempt()
    files = []
    for number, content in enumerate(contents):
        (directory / str(number)).write_text(content)
        files.append(WrittenFile(f"{directory.name}/{number}", entries=1, reserved_bytes=len(content)))
    return files


def started(directory: Path, *, overwrite: bool = False) -> Job:
    job = Job(str(directory), hash_slots=100, max_entries=1000, zone="UTC", overwrite=overwrite)
    job.start()
    return job


def held(directory: Path) -> list[str]:
    return [path.read_text() for path in index_files(directory)]


def names(directory: Path) -> set[str]:
    return {path.name for path in directory.iterdir()}


def test_commit_keeps_the_order_and_leaves_a_mark(tmp_path: Path) -> None:
    job = started(tmp_path / "index")
    placed = job.commit(written(job, "a", "b", "c"))
    assert [path.read_text() for path in placed] == held(tmp_path / "index") == ["a", "b", "c"]
    assert names(tmp_path / "index") == {path.name for path in placed} | {"_SUCCESS"}


def test_commit_takes_names_after_those_there(tmp_path: Path) -> None:
    (tmp_path / "29990101000000000").write_text("future")
    job = started(tmp_path)
    job.commit(written(job, "a", "b"))
    assert held(tmp_path) == ["future", "a", "b"]


def test_a_failing_commit_takes_everything_back(tmp_path: Path) -> None:
    (tmp_path / "20200101000000000").write_text("former")
    (tmp_path / "_SUCCESS").touch()
    for overwrite in (False, True):
        job = started(tmp_path, overwrite=overwrite)
        files = [*written(job, "a"), WrittenFile("gone/0", 1, 1)]
        with pytest.raises(FileNotFoundError):
            job.commit(files)
        job.abort()
        assert names(tmp_path) == {"20200101000000000", "_SUCCESS"}
        assert held(tmp_path) == ["former"]


def test_overwrite_replaces_the_former_files(tmp_path: Path) -> None:
    (tmp_path / "20200101000000000").write_text("former")
    (tmp_path / "notes").write_text("mine")
    job = started(tmp_path, overwrite=True)
    job.commit(written(job, "new"))
    assert held(tmp_path) == ["new"]
    assert "notes" in names(tmp_path)
    assert "_temporary" not in names(tmp_path)


def test_abort_leaves_another_jobs_files(tmp_path: Path) -> None:
    one, other = started(tmp_path / "index"), started(tmp_path / "index")
    files = written(other, "b")
    written(one, "a")
    one.abort()
    other.commit(files)
    assert held(tmp_path / "index") == ["b"]
    assert "_temporary" not in names(tmp_path / "index")


def test_abort_removes_only_a_directory_that_the_job_made(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    for name in ("there", "new"):
        started(tmp_path / name).abort()
    assert names(tmp_path) == {"there"}


def test_an_attempt_that_outlives_its_job_fails_and_leaves_nothing(tmp_path: Path) -> None:
    job = started(tmp_path)
    job.commit(written(job, "a"))
    with pytest.raises(FileNotFoundError, match="job has ended"):
        job.start_attempt()
    assert "_temporary" not in names(tmp_path)


def test_a_file_system_without_hard_links_is_served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: Path, target: Path) -> None:
        raise PermissionError(1, "not permitted", str(self), None, str(target))

    monkeypatch.setattr(Path, "hardlink_to", refuse)
    job = started(tmp_path)
    job.commit(written(job, "a", "b"))
    assert held(tmp_path) == ["a", "b"]


def test_a_directory_that_another_writer_holds_is_refused(tmp_path: Path) -> None:
    job = started(tmp_path)
    files = written(job, "a")
    lock = DirectoryLock(tmp_path)
    try:
        with pytest.raises(LockedError):
            job.commit(files)
    finally:
        lock.release()
    job.abort()
    assert not names(tmp_path)


def test_the_index_of_a_running_broker_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "commitlog").mkdir()
    (tmp_path / "lock").touch()
    monkeypatch.setattr("logdex.rocketmq.index_service.broker_lock_holder", lambda _: 4711)
    with pytest.raises(LockedError, match="4711"):
        started(tmp_path / "index")
    assert not (tmp_path / "index").exists()


def test_a_large_and_mostly_empty_reservation_is_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("INFO", "logdex.spark"):
        for contents in ("a", "abc"):
            job = started(tmp_path / contents)
            job.commit([file._replace(entries=10, reserved_bytes=420_000_040) for file in written(job, *contents)])
    assert [record.levelname for record in caplog.records] == ["INFO", "WARNING"]
    assert "3 index files with 30 entries reserve 1260000120 bytes" in caplog.text


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.parametrize("overwrite", [True, False])
def test_a_commit_whose_driver_was_killed_is_finished(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, overwrite: bool
) -> None:
    """The driver is killed before each change of a name, in turn; afterwards there are old files or new ones, never both."""
    former = [f"2020010100000000{number}" for number in range(3)]
    whole = ["a", "b", "c"] if overwrite else [*former, "a", "b", "c"]
    interrupted = step = 0
    while True:
        step += 1
        directory = tmp_path / str(step)
        directory.mkdir()
        for name in former:
            (directory / name).write_text(name)
        (directory / "_SUCCESS").touch()
        job = started(directory, overwrite=overwrite)
        files = written(job, "a", "b", "c")
        child = os.fork()
        if not child:
            _die_at(step)
            job.commit(files)
            os._exit(0)
        is_killed = os.waitpid(child, 0)[1] != 0
        if list(directory.glob("_temporary/*/commit")):
            interrupted += 1
            with pytest.raises(CorruptFileError, match="interrupted"):
                index_files(directory)
            caplog.clear()
            finish_commits(directory)
            assert "3 new index files" in caplog.text
            assert held(directory) == whole
            assert (directory / "_SUCCESS").exists()
        else:
            assert held(directory) in (former, whole)
        finish_commits(directory)
        started(directory).abort()
        if not is_killed:
            break
    assert interrupted >= (8 if overwrite else 5)
    assert held(directory) == whole
    assert names(directory) == {path.name for path in index_files(directory)} | {"_SUCCESS"}


def _die_at(step: int) -> None:
    """End this process before the call with this number that changes a name."""
    count = 0

    def dying(call: Callable[..., object]) -> Callable[..., object]:
        def count_and_call(*args: object, **options: object) -> object:
            nonlocal count
            count += 1
            if count == step:
                os._exit(9)
            return call(*args, **options)

        return count_and_call

    for name in ("rename", "replace", "hardlink_to", "unlink", "touch", "mkdir"):
        setattr(Path, name, dying(getattr(Path, name)))


def test_nothing_stays_of_a_job_whose_attempts_still_write(tmp_path: Path) -> None:
    job = started(tmp_path / "index")
    directory = job.start_attempt()
    first = threading.Event()

    def write() -> None:
        with contextlib.suppress(FileNotFoundError):
            for number in range(50_000):
                (directory / str(number)).touch()
                if number == 1_000:
                    first.set()

    writing = threading.Thread(target=write)
    writing.start()
    first.wait(20)
    job.abort()
    writing.join(20)
    assert not writing.is_alive()
    assert not (tmp_path / "index").exists()
