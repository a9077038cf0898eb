"""The store that a slave writes: frames of the master's log as they are, and what a broker builds from them."""

from __future__ import annotations

import logging
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from logdex._core import CommitLog, read_file
from logdex.detection import OFFSET_NAME
from logdex.errors import CorruptFileError, GeometryError
from logdex.rocketmq import fastjson
from logdex.rocketmq.broker_config import OFFSETS, members_of, parse_offsets, write_table
from logdex.rocketmq.layout import StoreLayout
from logdex.rocketmq.write.options import StoreOptions
from logdex.rocketmq.write.parts import StoreParts

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from logdex.broker.replica.master import MasterState
    from logdex.report import Report
    from logdex.rocketmq.broker_config import ConfigName

_GEOMETRY = ("hash_slots", "max_entries")

_log = logging.getLogger(__name__)


class StoreCopy:
    """A store that is written from a master's log. It ends with a whole message, so a broker and `MessageStore` read it."""

    def __init__(self, root: Path, master: MasterState) -> None:
        """Open a copy where it stopped, or begin one where the master's log begins.

        Raises:
            CorruptFileError: The copy is damaged where the master's log does not reach any more.
            LockedError: A running broker or another writer holds the store.
            FileExistsError: The directory is neither a store nor empty.
            ValueError: The files of the copy have another size than the master's.
            OSError: An I/O error.
        """
        self.layout = StoreLayout(root, root / "commitlog")
        options = StoreOptions(
            file_size=master.file_size,
            begin_phy_offset=master.min_offset,
            flush="none",
            **self._sizes(master.store_options),
        )
        try:
            self._parts = self._open(options, master)
        except CorruptFileError as error:
            offset = self._log_offset(error)
            if offset is None or offset < master.min_offset:
                raise
            _log.warning("%s; the copy is truncated there, and the master sends the rest again", error)
            self._parts = self._open(replace(options, truncate=True), master)

    def _open(self, options: StoreOptions, master: MasterState) -> StoreParts:
        try:
            return StoreParts(self.layout.root, options)
        except GeometryError:
            # The index files do not show their geometry, because no message had a key.
            slots, entries = (master.store_options.get(name) for name in _GEOMETRY)
            return StoreParts(self.layout.root, replace(options, hash_slots=slots, max_entries=entries))

    def _sizes(self, options: Mapping[str, Any]) -> dict[str, Any]:
        """Return the options that new files need; files that exist keep their sizes."""
        kept = [*(_GEOMETRY if any(self.layout.index.glob("*")) else ())]
        kept += ["queue_file_size", "extension_file_size"] if any(self.layout.queues.glob("*/*/*")) else []
        return {name: value for name, value in options.items() if name not in kept}

    def _log_offset(self, error: CorruptFileError) -> int | None:
        """Return the offset of the log at which an error found damage; None if it is about another file."""
        path = Path(error.path)
        is_log = path.parent.name == "commitlog" and OFFSET_NAME.fullmatch(path.name)
        return int(path.name) + error.offset if is_log else None

    @property
    def recovered(self) -> Report:
        """Report of the recovery when the copy was opened."""
        return self._parts.recovered

    @property
    def begin(self) -> int:
        """Offset of the first byte of the log."""
        return self._parts.min_offset

    @property
    def end(self) -> int:
        """Offset after the last message. Read it after `sync` to know what is on the disk."""
        return self._parts.log.wrote_offset

    def append(self, data: bytearray) -> tuple[int, int]:
        """Append the whole frames at the beginning of the master's bytes; see `CommitLogWriter.append_frames`."""
        return self._parts.log.append_frames(data)

    def sync(self) -> None:
        """Wait until everything that was appended is on the disk."""
        self._parts.log.flush()

    def dispatch(self) -> int:
        """Dispatch what was appended to queues and index, so that readers see it; return the number of messages."""
        return self._parts.dispatch()

    def flush_queues(self) -> None:
        """Flush the queues to the disk."""
        self._parts.flush_queues()

    def write_checkpoint(self) -> None:
        """Dispatch, flush log and queues, and write the checkpoint."""
        self._parts.write_checkpoint()

    def last_message(self) -> tuple[int, bytes] | None:
        """Return the stored bytes of the last message and its offset; None if there are no messages. It reads the last file.

        Raises:
            CorruptFileError: Its checksum is wrong: the copy is damaged.
        """
        end, file_size = self.end, self._parts.log.file_size
        with CommitLog.open(self.layout.commit_log) as log:
            begin = max(self.begin, (end - 1) // file_size * file_size)
            offset: int | None = None
            for batch in log.scan(begin_phy_offset=begin, end_phy_offset=end, columns=("phy_offset",), check_crc=False):
                if batch.num_rows:
                    offset = batch.column("phy_offset")[-1].as_py()
            if offset is None:
                return None
            frame = log.stored_frames([offset], end - offset)
            if not frame:
                path, at = log.place(offset)
                raise CorruptFileError(path, at, "a last message with the checksum that it states", "another checksum")
            return offset, frame

    def close(self) -> None:
        """Dispatch and flush everything, and close as a broker that is shut down.

        Raises:
            OSError: An I/O error. The store is closed nevertheless, as after a crash.
        """
        self._parts.close()

    def abandon(self) -> None:
        """Close after an error, and ignore further errors."""
        with suppress(Exception):
            self._parts.close()


def write_tables(config: Path, bodies: Mapping[ConfigName, bytes]) -> None:
    """Write the master's tables into their files if they differ. A body that is not the table only gets a warning.

    Offsets of consumers are merged: groups that the master deleted stay.

    Raises:
        OSError: An I/O error.
    """
    for table, body in bodies.items():
        path = config / table.file
        old = read_file(path) if path.exists() else b""
        content = _merged(old, body) if table is OFFSETS else body
        if _members(table, content) is None:
            _log.warning("%s: expected this table of the master, found %.80r", table.file, body)
        elif content != old:
            write_table(path, content)


def _members(table: ConfigName, content: bytes) -> dict[str, Any] | None:
    """Return the members of a file's content; None if they lack the table."""
    try:
        members = members_of(content.decode())
    except ValueError:
        return None
    return members if isinstance(members.get(table.name), dict) else None


def _merged(old: bytes, body: bytes) -> bytes:
    """Return the offsets of the master, with those that only the copy has."""
    before, members = _members(OFFSETS, old), _members(OFFSETS, body)
    if before is None or members is None or before[OFFSETS.name].keys() <= members[OFFSETS.name].keys():
        return body
    try:
        offsets = parse_offsets(before[OFFSETS.name]) | parse_offsets(members[OFFSETS.name])
    except ValueError:
        return body
    members[OFFSETS.name] = {f"{topic}@{group}": queues for (topic, group), queues in offsets.items()}
    return fastjson.dumps(members).encode(errors="replace")
