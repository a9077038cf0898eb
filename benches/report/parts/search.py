"""Search in bodies: the figures of benches/python/grep_rates.py."""

from __future__ import annotations

from typing import TYPE_CHECKING

from . import program

if TYPE_CHECKING:
    from ..plan import Part, Plan


def measure(plan: Plan) -> Part:
    """Run the program and store its figures; its stores are in the report's temporary directory."""
    sizes = ["--short"] if plan.short else [str(plan.search_messages)]
    part = program.run("search", plan, "grep_rates.py", "--spark", "--dir", str(plan.scratch), *sizes)
    part.facts["messages"] = plan.search_messages
    return part
