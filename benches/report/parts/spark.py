"""Spark: the figures of benches/python/spark_rates.py."""

from __future__ import annotations

from typing import TYPE_CHECKING

from . import program

if TYPE_CHECKING:
    from ..plan import Part, Plan


def measure(plan: Plan) -> Part:
    """Run the program and store its figures."""
    sizes = ["--short"] if plan.short else ["--rows", str(plan.spark_rows), "--keys", str(plan.spark_keys)]
    part = program.run("spark", plan, "spark_rates.py", *sizes)
    part.facts |= {"rows": plan.spark_rows, "keys": plan.spark_keys}
    return part
