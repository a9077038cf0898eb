"""Programs that run on a disk that fails for a while (failing_disk.c)."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

SOURCE = Path(__file__).with_name("failing_disk.c")

NEEDS = pytest.mark.skipif(
    sys.platform != "linux" or shutil.which("cc") is None, reason="needs LD_PRELOAD and a C compiler"
)

CONTROL = """
    import faulthandler, os, sys, threading, time
    from logdex.errors import WriteFailedError
    root = sys.argv[1]
    def fail(calls, part, nbytes=0):
        open(os.environ["FAILING_DISK"], "w").write(f"{calls} {part} {nbytes}")
    def well():
        os.unlink(os.environ["FAILING_DISK"])
    def told(name, call):
        try:
            result = f"passed {call()}"
        except WriteFailedError as error:
            result = f"{error.errno} {error.filename}"
        # Whole lines, also of several threads.
        print(f"{name} {result}\\n", end="")
"""
"""The beginning of a program: `fail` and `well` control the disk, `told` prints the result of a call."""


def compile_library(directory: Path) -> Path:
    """Compile the library that is loaded before the system's."""
    built = directory / "failing_disk.so"
    subprocess.run([str(shutil.which("cc")), "-shared", "-fPIC", "-o", str(built), str(SOURCE), "-ldl"], check=True)
    return built


def run_program(library: Path, root: Path, program: str) -> list[str]:
    """Run a program, and return the lines that it printed."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", textwrap.dedent(CONTROL) + textwrap.dedent(program), str(root)],
        env={**os.environ, "LD_PRELOAD": str(library), "FAILING_DISK": f"{root}.fails"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()
