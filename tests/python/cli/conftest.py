"""Running commands in this process, and reading what they print."""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from logdex.cli import main

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


class Ran(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def rows(self) -> list[dict[str, Any]]:
        """What `--json` printed."""
        return [json.loads(line) for line in self.out.splitlines()]


@pytest.fixture
def logdex_command(capsys: pytest.CaptureFixture[str]) -> Callable[..., Ran]:
    """Return a function that runs `logdex` with words and gives exit code and output."""

    def run(*words: object) -> Ran:
        code = main([str(word) for word in words])
        out, err = capsys.readouterr()
        return Ran(code, out, err)

    return run


@pytest.fixture(autouse=True)
def plain_logging() -> Iterator[None]:
    """The command line sets up logging; leave none of it to other tests."""
    before = logging.getLogger().handlers[:]
    yield
    logging.getLogger().handlers[:] = before
