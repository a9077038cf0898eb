"""Programs of benches/python, each of which measures in its own process."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING

from ..load import Watch, wait_for_quiet
from ..plan import Part
from ..rounds import DISTURBED, Measured
from ..server import HOME

if TYPE_CHECKING:
    from ..plan import Plan

ATTEMPTS = 2
"""Runs of a program until one is undisturbed; its rounds are not visible here."""


def run(name: str, plan: Plan, program: str, *options: str) -> Part:
    """Run a program with `--json` and store its figures.

    Raises:
        RuntimeError: It failed.
    """
    command = [sys.executable, f"benches/python/{program}", "--json", "--rounds", str(plan.rounds), *options]
    part = Part(name, 1, Measured({}))
    for attempt in range(1 if plan.short else ATTEMPTS):
        if not plan.short:
            wait_for_quiet()
        watch = Watch()
        done = subprocess.run(command, cwd=HOME, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"{' '.join(command)} failed:\n{done.stderr[-4000:]}")
        part.facts["figures"] = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
        part.facts["others"] = watch.others()
        if plan.short or part.facts["others"] <= DISTURBED:
            break
        part.measured.dropped = attempt + 1
    return part
