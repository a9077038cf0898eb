"""The machine and the software of a measurement."""

from __future__ import annotations

import os
import platform
import subprocess
from importlib.metadata import version
from pathlib import Path

from .server import HOME


def describe(scratch: Path) -> dict[str, str]:
    """Return the machine and the versions of all programs."""
    model = _line_of("/proc/cpuinfo", "model name")
    cache = "".join(_read(f"/sys/devices/system/cpu/cpu0/cache/index3/{name}") for name in ("size",))
    virtual = " (virtual machine)" if "hypervisor" in _line_of("/proc/cpuinfo", "flags").split() else ""
    memory = int(_line_of("/proc/meminfo", "MemTotal").split()[0]) / 2**20
    return {
        "processor": f"{model}, {os.cpu_count()} cores{virtual}, L3 {cache or 'unknown'}",
        "memory": f"{memory:.0f} GiB, large pages: {_read('/sys/kernel/mm/transparent_hugepage/enabled')}",
        "system": f"Linux {platform.release()}, files on {_filesystem(scratch)}",
        "Rust": _output("rustc", "--version"),
        "Java": _output("java", "-version").splitlines()[0],
        "Python": f"{platform.python_version()}, pyarrow {version('pyarrow')}, pyspark {version('pyspark')}",
    }


def commit() -> str:
    """Return the commit of the sources, and whether they were changed."""
    dirty = _output("git", "status", "--porcelain", "--untracked-files=no", "--", ".", ":!docs", ":!README.md")
    return _output("git", "rev-parse", "--short=10", "HEAD") + (" with changes" if dirty else "")


def _output(*command: str) -> str:
    done = subprocess.run(command, cwd=HOME, capture_output=True, text=True, check=False)
    return (done.stdout or done.stderr).strip()


def _read(path: str) -> str:
    try:
        return Path(path).read_text().strip()
    except OSError:
        return ""


def _line_of(path: str, name: str) -> str:
    lines = (line.partition(":") for line in _read(path).splitlines())
    return next((value.strip() for key, _, value in lines if key.strip() == name), "unknown")


def _filesystem(folder: Path) -> str:
    where = str(folder.resolve())
    mounts = [line.split()[1:3] for line in _read("/proc/mounts").splitlines()]
    inside = [(len(at), kind) for at, kind in mounts if where == at or where.startswith(at.rstrip("/") + "/")]
    return max(inside)[1] if inside else "unknown"
