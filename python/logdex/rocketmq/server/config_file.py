"""The files in which a broker keeps its configuration, as it writes them: `config/topics.json` and others, with a copy `.bak`.

Source: ConfigManager, MixAll#string2File, DataVersion. A broker deletes the old file before it renames the new one; here the new
one replaces the old one. A broker writes a table for each change; here one thread writes all changes since its last write.
"""

from __future__ import annotations

import logging
import threading
import time
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from logdex._core import make_directory, read_file, replace_file, sync_directory
from logdex.errors import CorruptFileError
from logdex.rocketmq import fastjson

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Sequence
    from pathlib import Path

    NotSaved: TypeAlias = "OSError | ValueError"
    """Reason for a failed write of a table."""
    Then: TypeAlias = "Callable[[NotSaved | None], None]"

_log = logging.getLogger(__name__)


class ConfigFile:
    """One of the files. Not for several threads at a time."""

    def __init__(self, path: Path) -> None:
        """Keep the path; nothing is read."""
        self._path = path
        self._backup = path.with_name(f"{path.name}.bak")

    def load(self) -> dict[str, Any]:
        """Read the file; if it is missing, empty or damaged its copy. Without both nothing is configured.

        Raises:
            CorruptFileError: One of them exists, and none can be read.
            OSError: The system refuses.
        """
        damage: CorruptFileError | None = None
        for path in (self._path, self._backup):
            try:
                found = fastjson.loads(read_file(path).decode())
            except FileNotFoundError:
                continue
            except ValueError as error:
                damage = damage or CorruptFileError(str(path), 0, "a configuration of the broker", str(error))
                continue
            if isinstance(found, dict):
                return found
            damage = damage or CorruptFileError(str(path), 0, "a configuration of the broker", f"{found!r:.40}")
        if damage is not None:
            raise damage
        return {}

    def save(self, content: dict[str, Any]) -> None:
        """Write the file, and keep the old one as its copy.

        Raises:
            OSError: The system refuses; the old file is still there.
        """
        self.replace(fastjson.dumps_pretty(content).encode(errors="replace"))

    def replace(self, content: bytes) -> None:
        """Write the file as `save`, with this text."""
        make_directory(self._path.parent)
        if self._path.exists():
            replace_file(self._backup, read_file(self._path))
        replace_file(self._path, content)
        sync_directory(self._path.parent)


class ConfigTable:
    """Configuration table by name, with its version. The event loop changes it, and any thread saves it."""

    _BUCKETS = 2048
    """Of the broker's tables, which are made for 1024 names."""

    def __init__(self, config: Path, file: str, table: str) -> None:
        """Read the table.

        Raises:
            CorruptFileError: The file cannot be read, nor its copy.
            OSError: The system refuses.
        """
        self._file = ConfigFile(config / file)
        self._name = table
        content = self._file.load()
        entries, version = content.get(table), content.get("dataVersion")
        self.entries: dict[str, dict[str, Any]] = {
            name: members
            for name, members in (entries.items() if isinstance(entries, dict) else ())
            if isinstance(members, dict)
        }
        """Entries by name. The members of an entry are never changed, only replaced."""
        self._version = version if isinstance(version, dict) else {"counter": 0, "timestamp": _now_ms()}
        self.changes = 0
        """Number of changes since the table was read."""
        self.changed: Callable[[], None] | None = None
        """Function that is called after each change."""
        # A table without entries has no file yet.
        self._saved = 0 if self.entries else -1
        self._last_changes: dict[str, int] = {}
        # The last written entries with their texts, because a table of thousands grows by a few at a time.
        self._texts: dict[str, tuple[dict[str, Any], fastjson.Pretty]] = {}

    def content(self) -> dict[str, Any]:
        """Return what the file holds, in the broker's order."""
        entries = self.entries.copy()
        names = fastjson.in_java_order(entries, self._BUCKETS)
        return {"dataVersion": self._version, self._name: {name: entries[name] for name in names}}

    def put(self, name: str, members: dict[str, Any]) -> None:
        """Add or replace an entry."""
        self.entries[name] = members
        self._changed(name)

    def remove(self, name: str) -> bool:
        """Remove an entry; return whether it existed."""
        is_known = self.entries.pop(name, None) is not None
        if is_known:
            self._changed(name)
        return is_known

    def is_saved(self, name: str) -> bool:
        """Return whether the file has the current entry."""
        return self._last_changes.get(name, 0) <= self._saved

    def save(self) -> None:
        """Write the table if it changed. Only one thread at a time may call this.

        Raises:
            OSError: The system refuses.
        """
        changes = self.changes
        if changes != self._saved:
            content = self.content()
            content[self._name] = {name: self._text(name, members) for name, members in content[self._name].items()}
            self._file.save(content)
            self._texts = {name: known for name, known in self._texts.items() if name in content[self._name]}
            self._saved = changes

    def _text(self, name: str, members: dict[str, Any]) -> fastjson.Pretty:
        known = self._texts.get(name)
        if known is None or known[0] is not members:
            known = self._texts[name] = members, fastjson.Pretty(fastjson.dumps_pretty(members, "\t\t"))
        return known[1]

    def _changed(self, name: str) -> None:
        if self._saved == self.changes:
            self._last_changes.clear()
        counter = self._version.get("counter", 0)
        self._version = {"counter": counter + 1 if isinstance(counter, int) else 1, "timestamp": _now_ms()}
        self.changes += 1
        self._last_changes[name] = self.changes
        if self.changed is not None:
            self.changed()


class Saving(Protocol):
    """Table with a file."""

    def save(self) -> None:
        """Write the table if it changed."""


class TableWriter:
    """Writer of tables to their files, with one thread. Changes during a write are written together afterwards.

    Methods are called in the thread of the event loop, and so are the callbacks.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        """Start the thread."""
        self._loop = loop
        self._queue: SimpleQueue[tuple[Sequence[Saving], Then] | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="logdex-tables", daemon=True)
        self._thread.start()

    def save(self, tables: Sequence[Saving], then: Then) -> None:
        """Write the tables that changed, then call `then` in the event loop, with the error if a write fails."""
        self._queue.put((tables, then))

    def close(self) -> None:
        """Write the pending changes and end the thread. This blocks until it has ended."""
        self._queue.put(None)
        self._thread.join()

    def _run(self) -> None:
        is_open = True
        while is_open:
            together = [self._queue.get()]
            with suppress(Empty):
                while True:
                    together.append(self._queue.get_nowait())
            is_open = None not in together
            waiting = [each for each in together if each is not None]
            errors = {
                table: _save(table) for table in dict.fromkeys(table for tables, _ in waiting for table in tables)
            }
            results = [(then, _first([errors[table] for table in tables])) for tables, then in waiting]
            # If the event loop has ended, no callback is needed.
            with suppress(RuntimeError):
                self._loop.call_soon_threadsafe(_call_back, results)


def _save(table: Saving) -> NotSaved | None:
    try:
        table.save()
    except (OSError, ValueError) as error:
        _log.error("a table of the broker is not written: %s", error)
        return error
    except Exception as error:  # noqa: BLE001 -- logged
        # A bug in logdex must not end the thread.
        _log.exception("a table of the broker is not written")
        return ValueError(f"{type(error).__name__}: {error}")
    return None


def _first(errors: list[NotSaved | None]) -> NotSaved | None:
    return next((error for error in errors if error is not None), None)


def _call_back(results: list[tuple[Then, NotSaved | None]]) -> None:
    for then, error in results:
        try:
            then(error)
        except Exception:  # noqa: BLE001 -- logged
            # A bug in logdex must not prevent the answers of other requests.
            _log.exception("the callback after the write of a table failed")


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
