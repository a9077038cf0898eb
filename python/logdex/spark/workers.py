"""Spark's Python workers: their interpreter, the functions they call, and the files they keep open between tasks.

Spark unpickles a function for every task and keeps its workers alive between tasks. Handles therefore live in this module: each
worker opens a directory once. A handle is used again only while the directory and the files in it (name, device, inode, size)
are unchanged. Handles do not cross a fork: a child process opens its own.
"""

from __future__ import annotations

import errno
import os
import pickle
import shutil
import socket
import subprocess
import sys
import threading
from collections import OrderedDict
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.types import BinaryType, LongType, StructField, StructType

from logdex._core import RemotePath, commit_log_directories, directory_stamp, expect_lists, locate, plan_files
from logdex.errors import LogdexError
from logdex.rocketmq import CommitLog, IndexService, MessageStore
from logdex.spark.index.job import finish_commits, index_files

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence

_Argument = TypeVar("_Argument")
_Handle = TypeVar("_Handle")

_ANSWER = StructType([StructField("number", LongType()), StructField("answer", BinaryType())])
_PROBE = "import logdex._core, pyarrow, pyspark, sys; sys.stdout.write('%d.%d' % sys.version_info[:2])"
_PROBE_SECONDS = 60
_HIDDEN = "spark.sql.redaction.options.regex"
_STORAGE_PATTERN = "(?i:^storage[.]|^decode$)"
_MAX_OPEN = 16
"""Directories that one worker keeps open; the least recently used one is dropped."""

_opened: OrderedDict[Hashable, tuple[list[str], Any]] = OrderedDict()
_lock = threading.RLock()


def check_worker_python(spark: SparkSession) -> None:
    """Check that the Python of the session's workers can run logdex.

    Workers run the value of `PYSPARK_PYTHON` at the start of the session, otherwise `python3` from the path. If this is not the
    driver's Python, it is started once to check whether it has logdex.

    Raises:
        LogdexError: It cannot run logdex; the message names it and the setting to change.
    """
    if is_connect(spark):
        # The server starts the workers, and reports its own errors.
        return
    worker = str(spark.sparkContext.pythonExec)
    found = shutil.which(worker)
    # Not resolved: a virtual environment's python is a link to a python without its packages.
    if found is not None and Path(found).absolute().parent == Path(sys.executable).absolute().parent:
        return
    # A worker on another machine may have a path that is missing here.
    if found is None and not str(spark.sparkContext.master).startswith("local"):
        return
    problem = f"there is no {worker} on the path" if found is None else _python_problem(found)
    if problem:
        raise LogdexError(
            f"Spark starts its Python workers with {found or worker}, which cannot run logdex ({problem}): set the "
            f"environment variable PYSPARK_PYTHON={sys.executable} before the Spark session is created"
        )


def hide_storage_options(spark: SparkSession) -> None:
    """Redact the options `storage.*` and `decode` in plans, pages and event logs of a session. By default Spark hides few."""
    hidden = spark.conf.get(_HIDDEN, None) or "(?i)url"
    if _STORAGE_PATTERN not in hidden:
        spark.conf.set(_HIDDEN, f"{hidden}|{_STORAGE_PATTERN}")


@lru_cache(maxsize=8)
def _python_problem(python: str) -> str:
    """Start a Python and return why it cannot run logdex; empty if it can."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONHOME"}
    try:
        done = subprocess.run(  # noqa: S603 - the command is the one that Spark itself is about to start
            [python, "-c", _PROBE], capture_output=True, text=True, timeout=_PROBE_SECONDS, check=False, env=environment
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"it does not start: {error}"
    if done.returncode:
        return (done.stderr.strip().splitlines() or [f"it exited with status {done.returncode}"])[-1]
    driver = f"{sys.version_info[0]}.{sys.version_info[1]}"
    return "" if done.stdout == driver else f"it is Python {done.stdout} and the driver is Python {driver}"


def is_connect(spark: SparkSession) -> bool:
    """Return whether a session is a client of Spark Connect: the driver, with its files, is the server's."""
    try:
        return spark.sparkContext is None
    except PySparkException:
        return True


def driver_path(
    path: str | os.PathLike[str],
    spark: SparkSession | None = None,
    storage_options: Mapping[str, str] | None = None,
) -> Path:
    """Return a path of a function's argument, absolute. A relative one means the same as in the formats, and as in Spark itself.

    Formats are planned by processes of the driver's JVM, so the JVM's directory counts, not where this process moved to since.
    """
    place = locate(path, storage_options or {})
    spark = spark or SparkSession.getActiveSession()
    if spark is None or place.is_absolute():
        return place.absolute()
    if is_connect(spark):
        raise ValueError(
            f"{path}: expected an absolute path: a Connect session has no access to the driver's directory"
        )
    jvm: Any = spark.sparkContext._jvm  # noqa: SLF001 -- no public call returns the directory
    return Path(jvm.System.getProperty("user.dir")) / place


def call_in_tasks(
    spark: SparkSession, function: Callable[[_Argument], Any], arguments: Sequence[_Argument]
) -> list[Any]:
    """Call a function once for each argument, each call in a task of its own, and return the answers in their order.

    The function is pickled into every task, together with all arguments, and its answers are pickled, too.
    """
    if not arguments:
        return []

    def answers(batches: Iterator[Any]) -> Iterator[Any]:
        for batch in batches:
            numbers = batch.column(0)
            made = [pickle.dumps(function(arguments[number])) for number in numbers.to_pylist()]
            yield pa.RecordBatch.from_arrays([numbers, pa.array(made, pa.binary())], names=_ANSWER.names)

    rows = spark.range(0, len(arguments), 1, len(arguments)).mapInArrow(answers, _ANSWER).collect()
    return [pickle.loads(row.answer) for row in sorted(rows)]  # noqa: S301 -- of this session's workers, as in Spark's collect


def call_beside(spark: SparkSession | None, directory: Path, function: Callable[..., Any], *arguments: Any) -> Any:
    """Call a function that reads or writes files where a directory is: here, or in a task if this machine does not see it.

    The client of a Connect session never counts: its disk and its network are not the cluster's. Errors of logdex, of the system
    and of arguments come back from a task as they were raised.
    """
    if spark is None or (not is_connect(spark) and (isinstance(directory, RemotePath) or directory.is_dir())):
        return function(*arguments)

    def answer(given: Sequence[Any]) -> Any:
        try:
            return function(*given), None
        except (LogdexError, OSError, ValueError) as error:
            return None, error

    result, error = call_in_tasks(spark, answer, [arguments])[0]
    if error is not None:
        raise error
    return result


def index_service(directory: Path, **options: Any) -> IndexService:
    """Return the open index service of a directory."""
    return _cached(IndexService.open, directory, options, files=[directory])


def commit_log(directory: Path, **options: Any) -> CommitLog:
    """Return the open commit log of a directory, or of several directories that are one path."""
    return _cached(CommitLog.open, directory, options, names=commit_log_directories(directory))


def message_store(root: Path, **options: Any) -> MessageStore:
    """Return the open store at a root directory."""
    return _cached(MessageStore.open, root, options, names=[root, root / "commitlog"], files=[root / "index"])


def require_directory(directory: Path) -> None:
    """Raise FileNotFoundError, with the name of this machine, if it has no such directory. A URL is not checked."""
    if not isinstance(directory, RemotePath) and not directory.is_dir():
        what = f"no such directory on {socket.gethostname()} (driver and workers must see the same files)"
        raise FileNotFoundError(errno.ENOENT, what, str(directory))


def known_geometry(index_dir: Path, hash_slots: int | None, max_entries: int | None) -> tuple[int | None, int | None]:
    """Return slots and entries of a directory's index files: inferred, or those given.

    Raises:
        FileNotFoundError: There is no such directory.
        GeometryError: They cannot be inferred from the files.
        ValueError: The files have other slots and entries than those given.
    """
    require_directory(index_dir)
    finish_commits(index_dir)
    with IndexService.open(index_dir, hash_slots=hash_slots, max_entries=max_entries) as service:
        files = service.files
        if hash_slots is None and files:
            return files[-1].hash_slots, files[-1].max_entries
    return hash_slots, max_entries


def planned_index(
    index_dir: Path, hash_slots: int | None, max_entries: int | None
) -> tuple[int | None, int | None, list[tuple[Path, int, str | None]]]:
    """Return slots and entries as `known_geometry` does, and for `planned_file_faults` the files that every worker must have."""
    geometry = known_geometry(index_dir, hash_slots, max_entries)
    return *geometry, plan_files(index_files(index_dir))


def _cached(
    open_handle: Callable[..., _Handle],
    path: Path,
    options: dict[str, Any],
    names: Sequence[Path] = (),
    files: Sequence[Path] = (),
) -> _Handle:
    """Return the handle of a path: the open one, or a new one if the names in some directories, or the files in others, changed.

    A log has many files, and its handle sees when they change.
    """
    key = (open_handle, path, *sorted(options.items()))
    expect_lists([*names, *files])
    stamps = [directory_stamp(each) for each in names] + [directory_stamp(each, files=True) for each in files]
    with _lock:
        known = _opened.get(key)
        if known is None or known[0] != stamps:
            require_directory([*names, *files][0])
            # The older handle is dropped, not closed: one of its streams may still be in use.
            known = _opened[key] = (stamps, open_handle(path, **options))
        _opened.move_to_end(key)
        while len(_opened) > _MAX_OPEN:
            _opened.popitem(last=False)
        handle: _Handle = known[1]
        return handle


def _forget_after_fork() -> None:
    global _lock  # noqa: PLW0603 - another thread of the parent may have held it
    _lock = threading.RLock()
    _opened.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_after_fork)
