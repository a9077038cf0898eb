"""Which objects are the files of an index that a job wrote into an object store.

Nothing can be renamed there, so objects stay below the prefix of the job that wrote them, and the last write of a job is one
small object that names them. Without it the objects are nothing; with it they are the index, all of them and no others. See
docs/formats/rocketmq-index.md, "An index in an object store".
"""

from __future__ import annotations

import json
import uuid
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from logdex import _core

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

COMMITTED = "_committed.json"
"""The name of the object."""
JOBS = "_jobs"
"""The directory of the objects of jobs."""

_VERSION = 1


@dataclass(frozen=True, slots=True)
class Committed:
    """One index file: where it is below the directory, and its bytes."""

    object: str
    size: int


def read_committed(directory: Path) -> dict[str, Committed]:
    """Return the files of an index by their names; see `_core.read_committed`."""
    return {name: Committed(*file) for name, file in _core.read_committed(directory).items()}


def committed_content(files: dict[str, Committed]) -> bytes:
    """Return the content of the object that names these files."""
    named = {name: asdict(file) for name, file in sorted(files.items())}
    return json.dumps({"version": _VERSION, "files": named}, indent=1).encode("ascii")


def commit_copies(files: Iterable[Path], target: Path) -> None:
    """Upload local index files into a directory of an object store, and commit them in place of what is there."""
    placed: dict[str, Committed] = {}
    for path in files:
        place = f"{JOBS}/{uuid.uuid4().hex}/{path.name}"
        _core.upload_file(path, target / place)
        placed[path.name] = Committed(place, path.stat().st_size)
    replace_object(target / COMMITTED, committed_content(placed))


def replace_object(path: Path, content: bytes) -> None:
    """Write a small object, in place of the one that is there.

    Raises:
        FileExistsError: Another process writes it, too.
    """
    try:
        ((_, _, etag),) = _core.plan_files([path])
        _core.put_remote(path, content, replaces=etag or "")
    except FileNotFoundError:
        _core.put_remote(path, content)
