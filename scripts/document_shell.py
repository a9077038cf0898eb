"""Run the shell commands of documents."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

_TIMEOUT_SECONDS = 120
_LOGDEX = f'logdex() {{ "{sys.executable}" -m logdex "$@"; }}\n'


def run_shell(code: str, directory: Path, *, columns: int) -> str:
    """Run commands in a directory and return their output; `logdex` is that of this interpreter.

    Args:
        code: Lines for the shell.
        directory: Where they run.
        columns: Width of the terminal for the commands.

    Raises:
        subprocess.CalledProcessError: The exit code is neither 0 nor 1 (nothing found, faults found).
        subprocess.TimeoutExpired: It took longer than two minutes.
    """
    done = subprocess.run(  # noqa: S603 -- our own documents
        ["/bin/sh", "-c", _LOGDEX + code],
        cwd=directory,
        # An empty value is none: most users' output is buffered.
        env={**os.environ, "COLUMNS": str(columns), "PYTHONUNBUFFERED": ""},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=_TIMEOUT_SECONDS,
        check=False,
        encoding="utf-8",
    )
    if done.returncode not in (0, 1):
        raise subprocess.CalledProcessError(done.returncode, code, done.stdout)
    return done.stdout
