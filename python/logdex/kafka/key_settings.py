"""What the index of a partition's keys was built with: a small file beside its index files, `_key_index.json`."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from logdex._files import replace_file
from logdex.errors import CorruptFileError

if TYPE_CHECKING:
    from pathlib import Path

NAME = "_key_index.json"


@dataclass(frozen=True, slots=True)
class KeySettings:
    """Settings that do not change once an index is begun.

    Attributes:
        hash_slots: Slots of each index file.
        max_entries: Entries of each index file, plus one.
        header: The header whose values are indexed beside the keys; None for none.
    """

    hash_slots: int
    max_entries: int
    header: str | None = None

    @classmethod
    def read(cls, directory: Path) -> KeySettings | None:
        """Read the settings of a partition's index; None where there is no index.

        Raises:
            CorruptFileError: The file holds something else.
        """
        path = directory / NAME
        try:
            values = json.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return None
        except ValueError as error:
            raise CorruptFileError(str(path), 0, "JSON", str(error)) from error
        numbers = ("hash_slots", "max_entries")
        if (
            not isinstance(values, dict)
            or set(values) != {*numbers, "header"}
            or not all(isinstance(values[name], int) and values[name] > 0 for name in numbers)
            or not isinstance(values["header"], str | None)
        ):
            raise CorruptFileError(str(path), 0, f"{', '.join(numbers)} and header", repr(values)[:200])
        return cls(**values)

    def write(self, directory: Path) -> None:
        """Write the settings, before the first index file."""
        directory.mkdir(parents=True, exist_ok=True)
        replace_file(directory / NAME, json.dumps(asdict(self)).encode("ascii"))
