"""One search in a bucket: the figures of benches/python/remote_rates.py."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

from . import program

if TYPE_CHECKING:
    from ..plan import Part, Plan

KEYS = "20"


def measure(plan: Plan) -> Part:
    """Run the program before and after sealing, and store its figures; its store is in the report's temporary directory."""
    folder = plan.scratch / "bucket"
    options = ["--dir", str(folder), *(["--short"] if plan.short else ["--rounds", KEYS])]
    part = program.run("bucket", plan, "remote_rates.py", *options)
    part.facts["figures"] += program.run("bucket", plan, "remote_rates.py", "--sealed", *options).facts["figures"]
    shutil.rmtree(folder)
    return part
