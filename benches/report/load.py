"""CPU time that other processes used during a measurement."""

from __future__ import annotations

import os
import time
from pathlib import Path

TICKS = os.sysconf("SC_CLK_TCK")
KERNEL_THREADS = 2
"""The process whose children are the kernel's threads: they work for the process that writes files, which is this one."""

IDLE, IO_WAIT, COUNTED = 3, 4, 8


class Watch:
    """CPU time, since its creation, of all processes except this one, its descendants and the kernel's threads.

    Time that the host took away (steal) counts as used by others.
    """

    def __init__(self) -> None:
        self._others = _busy() - _ours()
        self._start = time.monotonic()

    def others(self) -> float:
        """Return the CPU seconds that others used, for each second that passed: 1.0 is one core all the time."""
        passed = max(time.monotonic() - self._start, 1 / TICKS)
        return max(0.0, _busy() - _ours() - self._others) / passed


def wait_for_quiet(share: float = 0.05, seconds: float = 1.0, patience: float = 60.0) -> None:
    """Wait until other processes are idle for some seconds, at most `patience`."""
    end = time.monotonic() + patience
    while time.monotonic() < end:
        watch = Watch()
        time.sleep(seconds)
        if watch.others() <= share:
            return


def _busy() -> float:
    fields = [int(field) for field in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1 : 1 + COUNTED]]
    return sum(ticks for at, ticks in enumerate(fields) if at not in {IDLE, IO_WAIT}) / TICKS


def _ours() -> float:
    parents, ticks = {}, {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue  # the process has just ended
        parents[int(folder.name)] = int(fields[1])
        ticks[int(folder.name)] = sum(map(int, fields[11:15]))  # its own and its ended children's
    ours = {os.getpid(), KERNEL_THREADS}
    grown = True
    while grown:
        more = {process for process, parent in parents.items() if parent in ours} - ours
        ours |= more
        grown = bool(more)
    return sum(ticks.get(process, 0) for process in ours) / TICKS
