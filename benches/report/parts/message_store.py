"""Find in a whole store, and read one topic of it: the figures of benches/python/store_rates.py and filter_rates.py."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

from . import program

if TYPE_CHECKING:
    from ..plan import Part, Plan


def measure(plan: Plan) -> Part:
    """Run the programs and store their figures; their stores are in the report's temporary directory."""
    folder = plan.scratch / "store"
    sizes = ["--short"] if plan.short else [str(plan.store_messages)]
    part = program.run("message_store", plan, "store_rates.py", "--dir", str(folder), *sizes)
    part.facts["messages"] = plan.store_messages
    shutil.rmtree(folder)
    part.facts["topic"] = program.run("topic", plan, "filter_rates.py", *["--short"] * plan.short).facts["figures"]
    return part
