"""Ctrl-C while the command line starts: no traceback, and the exit code of an interrupt, as later on."""

from __future__ import annotations

import subprocess
import sys

import pytest

# A real interrupt, at a place that is the same each time: when a module is looked for.
_INTERRUPT = """\
import signal, sys
from importlib.metadata import entry_points
from runpy import run_module

class Interrupting:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name == {module!r}:
            sys.meta_path.remove(Interrupting)
            signal.raise_signal(signal.SIGINT)

sys.meta_path.insert(0, Interrupting)
sys.argv = ["logdex", "find", "--help"]
"""
_STARTS = {
    "python -m logdex": "run_module('logdex', run_name='__main__', alter_sys=True)",
    "logdex": "[script] = entry_points(group='console_scripts', name='logdex')\nsys.exit(script.load()())",
}


@pytest.mark.parametrize(
    "module", ["logdex.cli", "logdex.cli.commands.find", "logdex.hash_index", "arro3.core", "argparse"]
)
@pytest.mark.parametrize("start", _STARTS)
def test_an_interrupt_while_modules_are_imported_is_quiet(start: str, module: str) -> None:
    program = _INTERRUPT.format(module=module) + _STARTS[start]
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stdout, ran.stderr) == (130, "", "logdex: interrupted\n")


@pytest.mark.parametrize("start", _STARTS)
def test_nothing_else_is_changed(start: str) -> None:
    program = _INTERRUPT.format(module="no.such.module") + _STARTS[start]
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stdout.partition(" ")[0], ran.stderr) == (0, "usage:", "")
