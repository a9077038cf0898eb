"""`config/delayOffset.json`: up to where each delay level was delivered, in the broker's own text.

Source: ScheduleMessageService, ConfigManager#load and #persist, MixAll#string2File. The text is fastjson's: integer names stand
without quotes, which is no JSON. 4.9.3 and 5.3.3 write the offsets on one line, 5.5.0 one a line; 5.x adds `dataVersion`. What
the file holds besides is kept, and so is its form.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from logdex._files import replace_file, sync_directory
from logdex.errors import CorruptFileError

if TYPE_CHECKING:
    from pathlib import Path

_NAME = "delayOffset.json"
_TABLE = "offsetTable"
# Texts in quotes are passed over whole; what else looks like an integer before a colon is a name.
_BARE_NAME = re.compile(r'"(?:[^"\\]|\\.)*"|(?P<name>-?\d+)(?P<colon>\s*:)')
_ONE_A_LINE = re.compile(rf'"{_TABLE}"\s*:\s*\{{\s*\n\s*"?\d')


class DelayOffsets:
    """The next queue offset of each delay level.

    Attributes:
        offsets: Levels from 1 on, and the offset in the level's queue of what is delivered next.
    """

    def __init__(self, config: Path) -> None:
        """Read the file, or its copy `.bak` where it is missing, empty or damaged; without both nothing was delivered.

        Args:
            config: The store's directory `config`, which may be missing.

        Raises:
            CorruptFileError: Both are there and neither can be read.
            OSError: The system refuses.
        """
        self._path = config / _NAME
        self._others: dict[str, Any] = {}
        self._one_a_line = False
        self._written: dict[int, int] | None = None
        self.offsets: dict[int, int] = {}
        damage: CorruptFileError | None = None
        for path in (self._path, self._backup):
            try:
                self._load(path)
            except FileNotFoundError:
                continue
            except CorruptFileError as error:
                damage = damage or error
                continue
            return
        if damage is not None:
            raise damage

    @property
    def _backup(self) -> Path:
        return self._path.with_name(f"{_NAME}.bak")

    def _load(self, path: Path) -> None:
        try:
            text = path.read_text(encoding="utf-8")
            table = json.loads(_BARE_NAME.sub(_with_quotes, text))
            offsets = {_integer(level): _integer(offset) for level, offset in table.pop(_TABLE, {}).items()}
        except (ValueError, AttributeError, TypeError, RecursionError) as error:
            raise CorruptFileError(str(path), 0, "a table of delay levels and offsets", str(error)) from None
        self.offsets, self._others = offsets, table
        self._one_a_line = _ONE_A_LINE.search(text) is not None
        if path == self._path:
            self._written = dict(offsets)

    def save(self) -> None:
        """Write the file if it does not say this already, and keep what it said before as `.bak`.

        A broker deletes the file before it gives the new one its name; here the new one takes the place of the old one.

        Raises:
            OSError: The system refuses; then the file is as it was.
        """
        if self.offsets == (self._written or {}):
            return
        self._path.parent.mkdir(parents=True, exist_ok=True)
        if self._path.exists():
            replace_file(self._backup, self._path.read_bytes())
        replace_file(self._path, self.text().encode())
        sync_directory(self._path.parent)
        self._written = dict(self.offsets)

    def text(self) -> str:
        """Give the broker's text."""
        between = ",\n\t\t" if self._one_a_line else ","
        first = "\n\t\t" if self._one_a_line else ""
        offsets = between.join(f"{level}:{offset}" for level, offset in sorted(self.offsets.items()))
        members = {name: _dumps(value) for name, value in self._others.items()}
        members[_TABLE] = f"{{{first}{offsets}\n\t}}"
        return "{\n\t" + ",\n\t".join(f'"{name}":{members[name]}' for name in sorted(members)) + "\n}"


def _with_quotes(match: re.Match[str]) -> str:
    return match[0] if match["name"] is None else f'"{match["name"]}"{match["colon"]}'


def _integer(value: str | float) -> int:
    if isinstance(value, float) or int(value) < 0:
        raise ValueError(f"no offset or level: {value!r}")
    return int(value)


def _dumps(value: Any) -> str:  # noqa: ANN401 -- what JSON holds
    """Write a value as fastjson does, at the first level of a table."""
    return json.dumps(value, indent="\t", separators=(",", ":")).replace("\n", "\n\t")
