"""The parts of the report, one file each: `measure(plan)` measures it."""
