"""The content of a page, the query parameters of a request, and what a page is as a command and as Python."""

from __future__ import annotations

import csv
import io
import json
import re
import shlex
import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import urlencode

from arro3.core import DataType

from logdex import _core
from logdex.hash_index.query import Milliseconds

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from arro3.core import RecordBatch


def command(name: str, *words: object, **options: object) -> str:
    """Return a command of logdex; an option that is None is left out, and one that is True has no value."""
    flags: list[str] = []
    for option, value in options.items():
        if value is not None and value is not False:
            flag, text = f"--{option.replace('_', '-')}", str(value)
            # With `=`, a value that starts with a dash is not parsed as an option.
            flags += [flag] if value is True else [f"{flag}={text}"] if text.startswith("-") else [flag, text]
    # After `--`, a word that begins with a dash is not parsed as an option.
    dashed = ["--"] if any(str(word).startswith("-") for word in words) else []
    return shlex.join(["logdex", *name.split(), *flags, *dashed, *map(str, words)])


def call(name: str, *values: Any, **options: Any) -> str:  # noqa: ANN401 -- anything with a repr
    """Return a call in Python; an argument that is None is left out."""
    given = [f"{option}={value!r}" for option, value in options.items() if value is not None]
    return f"{name}({', '.join([*map(repr, values), *given])})"


@dataclass(frozen=True, slots=True)
class Place:
    """Path as the user wrote it, and the options to open it. Commands and calls need both."""

    path: str
    options: Mapping[str, Any] = field(default_factory=dict)

    def command(self, name: str, *words: object, **options: object) -> str:
        """Return a command with the path and these words."""
        return command(name, self.path, *words, **options, **self.options)

    def opened(self, name: str) -> str:
        """Return a call in Python that opens the path."""
        return call(name, self.path, **self.options)


MOST_ROWS = 500
USUAL_ROWS = 50
_MOST_TEXT = 4_096


_PAGE_SECONDS, _ROWS_SECONDS = 0.5, 25.0
"""Seconds that a page, and its rows as JSON or CSV, wait for slow results."""


class NotThereError(Exception):
    """The page does not exist."""


class StoppedError(Exception):
    """The client no longer waits for the page."""


@dataclass(frozen=True, slots=True)
class Listing:
    """A table as Python values: names of columns, and rows."""

    heads: Sequence[str]
    rows: Sequence[Sequence[Any]]

    def dicts(self) -> list[dict[str, Any]]:
        """Return the rows by name."""
        return [dict(zip(self.heads, row, strict=True)) for row in self.rows]


@dataclass(frozen=True, slots=True)
class View:
    """One page.

    Attributes:
        template: The name of its template.
        title: Its heading.
        values: The values for the template.
        rows: The rows of its `.json` and `.csv`; None: it has none.
        command: The same as a command of the shell.
        python: The same in Python.
    """

    template: str
    title: str
    values: Mapping[str, Any] = field(default_factory=dict)
    rows: Listing | RecordBatch | None = None
    command: str | None = None
    python: str | None = None

    def json(self) -> str:
        """Return the rows as a JSON array of objects."""
        if self.rows is None:
            raise NotThereError
        if isinstance(self.rows, Listing):
            return json.dumps(self.rows.dicts(), default=str, indent=1)
        pieces: list[bytes] = []
        _core.json_lines(self.rows, pieces.append)
        return "[\n" + ",\n".join(b"".join(pieces).decode().splitlines()) + "\n]"

    def csv(self) -> str:
        """Return the rows as CSV with a line of names."""
        if self.rows is None:
            raise NotThereError
        if not isinstance(self.rows, Listing):
            return _core.csv_names(self.rows.schema) + _core.csv_lines(self.rows)
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(self.rows.heads)
        writer.writerows(self.rows.rows)
        return text.getvalue()


class Query:
    """Query parameters of a request. An invalid one is a `ValueError` that names it.

    Attributes:
        patience: Seconds to wait for slow results.
    """

    def __init__(self, words: Mapping[str, str], *, is_page: bool = True) -> None:
        self._words = {name: value for name, value in words.items() if value != ""}
        self.patience = _PAGE_SECONDS if is_page else _ROWS_SECONDS
        self._stopped = threading.Event()

    def stop(self) -> None:
        """End the work for this request at its next step, because its client is gone."""
        self._stopped.set()

    def go_on(self, *_: object) -> None:
        """Raise `StoppedError` after `stop`. Work calls this at each step; it can also be a `progress` callback."""
        if self._stopped.is_set():
            raise StoppedError

    def text(self, name: str) -> str | None:
        """Return a text; None if it is not given."""
        value = self._words.get(name)
        if value is not None and len(value) > _MOST_TEXT:
            raise ValueError(f"{name}: expected at most {_MOST_TEXT} characters, found {len(value)}")
        if value is not None and "\ufffd" in value:
            raise ValueError(f"{name}: it is not valid UTF-8")
        return value

    def needed(self, name: str) -> str:
        """Return a text that must be given."""
        value = self.text(name)
        if value is None:
            raise ValueError(f"{name}: it is missing in the address")
        return value

    def number(self, name: str, low: int = 0, high: int = (1 << 63) - 1) -> int | None:
        """Return a number; None if it is not given."""
        value = self.text(name)
        if value is None:
            return None
        if not value.isascii() or not value.removeprefix("-").isdecimal() or not low <= int(value[:20]) <= high:
            raise ValueError(f"{name}: expected a number from {low} to {high}, found {value!r}")
        return int(value)

    def needed_number(self, name: str, low: int = 0, high: int = (1 << 63) - 1) -> int:
        """Return a number that must be given."""
        self.needed(name)
        return self.number(name, low, high) or 0

    def time(self, name: str) -> int | None:
        """Return a time in ms, of the words that the command line takes; None if it is not given."""
        value = self.text(name)
        if value is None:
            return None
        try:
            return Milliseconds(_core.parse_time(value, now=time.time_ns() // 1_000_000, end=name == "end"))
        except ValueError as error:
            raise ValueError(f"{name}: {error}") from None

    def rows(self) -> int:
        """Return the most rows of a page."""
        return self.number("rows", 1, MOST_ROWS) or USUAL_ROWS

    def columns(self, known: Sequence[str], usual: Sequence[str]) -> list[str]:
        """Return the chosen columns of a list, in the order of the known ones; `usual` are those without a choice."""
        word = self.text("columns")
        chosen = list(usual) if word is None else word.split(",")
        if unknown := [name for name in chosen if name not in known]:
            raise ValueError(f"columns: expected some of {', '.join(known)}, found {unknown[0]!r}")
        return [name for name in known if name in chosen]

    def given(self, *names: str) -> dict[str, str | None]:
        """Return the words of these names as they were written; None for one that is not given."""
        return {name: self._words.get(name) for name in names}


class Download(Exception):  # noqa: N818 -- it ends a page, and is no error
    """Bytes for a file, instead of a page."""

    def __init__(self, content: bytes, name: str) -> None:
        super().__init__(name)
        self.content = content
        self.name = name


_UNSAFE = re.compile(r"[^A-Za-z0-9_-]+")
_MOST_NAME = 80


def file_name(*parts: object, suffix: str = ".bin") -> str:
    """Return the name of a file to download; a topic may have letters that a header or a file system does not hold."""
    return "-".join(_UNSAFE.sub("_", str(part))[:_MOST_NAME] for part in parts) + suffix


_INTERNAL = ("__", "%RETRY%", "%DLQ%", "SCHEDULE_TOPIC_XXXX", "RMQ_SYS_", "rmq_sys_")


def is_internal(topic: str) -> bool:
    """Return whether a topic is the broker's own, or its broker made it for a consumer group. Such topics are last in lists."""
    return topic.startswith(_INTERNAL)


class Pages(Protocol):
    """The pages about one path.

    Attributes:
        path: The path as the user wrote it.
    """

    path: str

    @property
    def kind(self) -> str:
        """Return the kind of the path."""

    @property
    def menu(self) -> Sequence[tuple[str, str]]:
        """Return the addresses and names of the pages in the menu."""

    @property
    def views(self) -> Mapping[str, Callable[[Query], View]]:
        """Return the pages by address."""

    @property
    def actions(self) -> Mapping[str, Callable[[], str]]:
        """Return the actions that change the state of this process, by address; each returns the next page."""

    def close(self) -> None:
        """Close the files."""


def address(path: str, words: Mapping[str, Any] | None = None, /, **more: Any) -> str:  # noqa: ANN401 -- texts and numbers
    """Return the address of a page, without words that are None."""
    query = {name: value for name, value in {**(words or {}), **more}.items() if value is not None}
    return f"{path}?{urlencode(query)}" if query else path


def rows_of(batch: RecordBatch) -> list[dict[str, Any]]:
    """Return the rows of one page by name, with times in ms."""
    columns = [
        (batch.column(at).cast(DataType.int64()) if name.endswith("timestamp") else batch.column(at)).to_pylist()
        for at, name in enumerate(batch.column_names)
    ]
    return [dict(zip(batch.column_names, row, strict=True)) for row in zip(*columns, strict=True)]
