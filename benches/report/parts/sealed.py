"""The sealed index: the figures of benches/python/sealed_rates.py."""

from __future__ import annotations

from typing import TYPE_CHECKING

from . import program

if TYPE_CHECKING:
    from ..plan import Part, Plan


def measure(plan: Plan) -> Part:
    """Run the program and store its figures; its store is in the report's temporary directory."""
    part = program.run("sealed", plan, "sealed_rates.py", "--spark", *["--short"] * plan.short)
    part.facts["entries"] = plan.held
    return part
