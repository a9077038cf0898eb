"""Which files of a directory any process opens, and how often the directory itself is opened to be listed (Linux)."""

from __future__ import annotations

import ctypes
import os
import struct
import sys
from collections import Counter
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

_IN_OPEN = 0x20
_IN_NONBLOCK = os.O_NONBLOCK
_EVENT = struct.Struct("iIII")
LISTED = ""
"""The name of the directory itself in `Opened.counts`."""


class Opened:
    """Counts the opens of a directory and of its files, by name, while it is entered."""

    def __init__(self, directory: Path) -> None:
        if sys.platform != "linux":
            pytest.skip("inotify is a part of Linux")
        self._directory = directory
        self.counts: Counter[str] = Counter()

    def __enter__(self) -> Opened:
        libc = ctypes.CDLL(None, use_errno=True)
        self._events = libc.inotify_init1(_IN_NONBLOCK)
        if self._events < 0 or libc.inotify_add_watch(self._events, os.fsencode(self._directory), _IN_OPEN) < 0:
            raise OSError(ctypes.get_errno(), "inotify", str(self._directory))
        return self

    def __exit__(self, *_: object) -> None:
        try:
            while True:
                self._count(os.read(self._events, 1 << 20))
        except BlockingIOError:
            pass
        finally:
            os.close(self._events)

    def _count(self, events: bytes) -> None:
        at = 0
        while at < len(events):
            watch, _, _, length = _EVENT.unpack_from(events, at)
            assert watch > 0, "more events than the kernel keeps"
            at += _EVENT.size
            self.counts[os.fsdecode(events[at : at + length].rstrip(b"\0"))] += 1
            at += length
