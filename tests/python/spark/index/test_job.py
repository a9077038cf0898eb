"""The commit protocol by itself: all files or none, never over a file that is there, nothing left behind."""

from __future__ import annotations

from pathlib import Path

import pytest

from logdex.errors import LockedError
from logdex.hash_index.directory import DirectoryLock
from logdex.spark.index.job import Job, WrittenFile, index_files, log_reserved_space


def written(job: Job, *contents: str) -> list[WrittenFile]:
    """Make files as an attempt of a task does."""
    directory = job.start_attempt()
    files = []
    for number, content in enumerate(contents):
        (directory / str(number)).write_text(content)
        files.append(WrittenFile(f"{directory.name}/{number}", entries=1, reserved_bytes=len(content)))
    return files


def held(directory: Path) -> list[str]:
    return [path.read_text() for path in index_files(directory)]


def names(directory: Path) -> set[str]:
    return {path.name for path in directory.iterdir()}


def test_commit_keeps_the_order_and_leaves_a_mark(tmp_path: Path) -> None:
    job = Job.start(tmp_path / "index", "UTC")
    placed = job.commit(written(job, "a", "b", "c"), overwrite=False)
    assert [path.read_text() for path in placed] == held(tmp_path / "index") == ["a", "b", "c"]
    assert names(tmp_path / "index") == {path.name for path in placed} | {"_SUCCESS"}


def test_commit_takes_names_after_those_there(tmp_path: Path) -> None:
    (tmp_path / "29990101000000000").write_text("future")
    job = Job.start(tmp_path, "UTC")
    job.commit(written(job, "a", "b"), overwrite=False)
    assert held(tmp_path) == ["future", "a", "b"]


def test_a_failing_commit_takes_everything_back(tmp_path: Path) -> None:
    (tmp_path / "20200101000000000").write_text("former")
    (tmp_path / "_SUCCESS").touch()
    for overwrite in (False, True):
        job = Job.start(tmp_path, "UTC")
        files = [*written(job, "a"), WrittenFile("gone/0", 1, 1)]
        with pytest.raises(FileNotFoundError):
            job.commit(files, overwrite=overwrite)
        job.abort()
        assert names(tmp_path) == {"20200101000000000", "_SUCCESS"}
        assert held(tmp_path) == ["former"]


def test_overwrite_replaces_the_former_files(tmp_path: Path) -> None:
    (tmp_path / "20200101000000000").write_text("former")
    (tmp_path / "notes").write_text("mine")
    job = Job.start(tmp_path, "UTC")
    job.commit(written(job, "new"), overwrite=True)
    assert held(tmp_path) == ["new"]
    assert "notes" in names(tmp_path)
    assert "_temporary" not in names(tmp_path)


def test_abort_leaves_another_jobs_files(tmp_path: Path) -> None:
    one, other = Job.start(tmp_path / "index", None), Job.start(tmp_path / "index", None)
    files = written(other, "b")
    written(one, "a")
    one.abort()
    other.commit(files, overwrite=False)
    assert held(tmp_path / "index") == ["b"]
    assert "_temporary" not in names(tmp_path / "index")


def test_abort_removes_only_a_directory_that_the_job_made(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    for name in ("there", "new"):
        Job.start(tmp_path / name, None).abort()
    assert names(tmp_path) == {"there"}


def test_an_attempt_that_outlives_its_job_fails_and_leaves_nothing(tmp_path: Path) -> None:
    job = Job.start(tmp_path, None)
    job.commit(written(job, "a"), overwrite=False)
    with pytest.raises(FileNotFoundError, match="job has ended"):
        job.start_attempt()
    assert "_temporary" not in names(tmp_path)


def test_a_file_system_without_hard_links_is_served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: Path, target: Path) -> None:
        raise PermissionError(1, "not permitted", str(self), None, str(target))

    monkeypatch.setattr(Path, "hardlink_to", refuse)
    job = Job.start(tmp_path, "UTC")
    job.commit(written(job, "a", "b"), overwrite=False)
    assert held(tmp_path) == ["a", "b"]


def test_a_directory_that_another_writer_holds_is_refused(tmp_path: Path) -> None:
    job = Job.start(tmp_path, None)
    files = written(job, "a")
    lock = DirectoryLock(tmp_path)
    try:
        with pytest.raises(BlockingIOError):
            job.commit(files, overwrite=False)
    finally:
        lock.release()
    job.abort()
    assert not names(tmp_path)


def test_the_index_of_a_running_broker_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "commitlog").mkdir()
    (tmp_path / "lock").touch()
    monkeypatch.setattr("logdex.hash_index.directory.broker_lock_holder", lambda _: 4711)
    with pytest.raises(LockedError, match="4711"):
        Job.start(tmp_path / "index", None)
    assert not (tmp_path / "index").exists()


def test_much_empty_space_is_said_aloud(caplog: pytest.LogCaptureFixture) -> None:
    files = [WrittenFile(f"0/{n}", entries=10, reserved_bytes=420_000_040) for n in range(3)]
    with caplog.at_level("INFO", "logdex.spark"):
        log_reserved_space(files[:1], "index", 100)
        log_reserved_space(files, "index", 100)
    assert [record.levelname for record in caplog.records] == ["INFO", "WARNING"]
    assert "3 index files with 30 entries reserve 1260000120 bytes" in caplog.text
