"""Writing the index files of a segment: whole or not at all, and never under a running broker."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING

from logdex import _core
from logdex._files import replace_file
from logdex.errors import LockedError
from logdex.kafka.file_name import OFFSET_INDEX, TIME_INDEX, TXN_INDEX, segment_file_name

if TYPE_CHECKING:
    from pathlib import Path

    from logdex._core import RecoveredSegment

_LOCK = ".lock"


def refuse_running_broker(directory: Path) -> None:
    """Refuse to write below a log directory that a broker holds.

    Args:
        directory: A partition's directory, or any other: the lock is looked for beside it and in it.

    Raises:
        LockedError: A broker runs on it.
    """
    for folder in (directory, directory.absolute().parent):
        holder = _core.broker_lock_holder(folder / _LOCK)
        if holder is not None:
            raise LockedError(str(folder / _LOCK), holder)


def write_rebuilt(directory: Path, base_offset: int, recovered: RecoveredSegment, *, overwrite: bool) -> list[Path]:
    """Write the rebuilt indexes of a segment.

    Args:
        directory: Where to; it is made where it is not there.
        base_offset: The segment's.
        recovered: The bytes.
        overwrite: Replace files that are there. An aborted-transactions file is then removed where none belongs there.

    Raises:
        FileExistsError: A file is there; then nothing was written.
        LockedError: A running broker holds the directory.
    """
    refuse_running_broker(directory)
    directory.mkdir(parents=True, exist_ok=True)
    contents = {
        directory / segment_file_name(base_offset, OFFSET_INDEX): recovered.offset_index,
        directory / segment_file_name(base_offset, TIME_INDEX): recovered.time_index,
        directory / segment_file_name(base_offset, TXN_INDEX): recovered.transaction_index,
    }
    if not overwrite:
        for path in contents:
            if path.exists():
                raise FileExistsError(errno.EEXIST, "the index is there; overwrite=True replaces it", str(path))
    written = []
    for path, content in contents.items():
        if content is None:
            path.unlink(missing_ok=True)
            continue
        replace_file(path, content)
        written.append(path)
    return written
