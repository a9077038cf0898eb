"""`logdex serve` beside a real broker: the figures of benches/python/serve_rates.py."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..server import package
from . import program

if TYPE_CHECKING:
    from ..plan import Part, Plan


def measure(plan: Plan) -> Part:
    """Build the client and the broker, run the program and store its figures."""
    package("tests/interop/wire")
    return program.run(
        "serve", plan, "serve_rates.py", "--dir", str(plan.scratch), *(["--short"] if plan.short else [])
    )
