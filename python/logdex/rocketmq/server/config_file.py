"""The files in which a broker keeps its configuration, as it writes them: `config/topics.json` and others, with a copy `.bak`.

Source: ConfigManager, MixAll#string2File, DataVersion. A broker deletes the old file before it renames the new one; here the new
one replaces the old one.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from logdex._core import make_directory, read_file, sync_directory
from logdex._files import replace_file
from logdex.errors import CorruptFileError
from logdex.rocketmq import fastjson

if TYPE_CHECKING:
    from pathlib import Path


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
            except (ValueError, RecursionError) as error:
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
    """A table of the configuration by name, with its version. Each change is written at once, as a broker does."""

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
        self._version = version if isinstance(version, dict) else {"counter": 0, "timestamp": _now_ms()}

    def content(self) -> dict[str, Any]:
        """Return what the file holds, in the broker's order."""
        names = fastjson.in_java_order(self.entries, self._BUCKETS)
        return {"dataVersion": self._version, self._name: {name: self.entries[name] for name in names}}

    def put(self, name: str, members: dict[str, Any]) -> None:
        """Add an entry, or replace it.

        Raises:
            OSError: The table is not written; the entry counts all the same.
        """
        self.entries[name] = members
        self._changed()

    def remove(self, name: str) -> bool:
        """Remove an entry; return whether there was one.

        Raises:
            OSError: The table is not written; the entry is gone all the same.
        """
        is_known = self.entries.pop(name, None) is not None
        if is_known:
            self._changed()
        return is_known

    def save(self) -> None:
        """Write the table.

        Raises:
            OSError: The system refuses.
        """
        self._file.save(self.content())

    def _changed(self) -> None:
        counter = self._version.get("counter", 0)
        self._version = {"counter": counter + 1 if isinstance(counter, int) else 1, "timestamp": _now_ms()}
        self.save()


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
