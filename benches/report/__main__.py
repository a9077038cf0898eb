"""Measure, and write docs/benchmarks.md with its pictures and the short table in README.md.

    python -m benches.report [--only put,select] [--rounds 5] [--render] [--short]

Parts: put, select, cold, boundary, batches, peers, commit_log, message_store, sealed, bucket, search, serve, store_writer, spark,
kafka, kafka_index, kafka_peers. What each found out is kept under build/bench, and the document is made of all that is kept
there. `--short` runs everything once with small sizes and writes to a temporary folder: it shows that all still works, and no
figure of it means anything.
"""

from __future__ import annotations

import argparse
import datetime as dt
import shutil
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

from . import document, machine, pictures, readme, store
from .parts import PARTS
from .plan import Plan
from .server import HOME

KEPT = HOME / "build" / "bench"


def main() -> None:
    """Measure the chosen parts and write the document."""
    parser = argparse.ArgumentParser(prog="python -m benches.report", description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--only", default=",".join(PARTS), help="parts to measure, by comma (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=5, help="rounds that count (default: %(default)s)")
    parser.add_argument(
        "--render", action="store_true", help="measure nothing; write the document from the stored results"
    )
    parser.add_argument("--short", action="store_true", help="everything once and small, written nowhere")
    parser.add_argument("--scratch", type=Path, help="where files lie meanwhile: 16 GB (default: the system's place)")
    parser.add_argument(
        "--segments", type=Path, help="where Kafka segments are kept for the next time (default: nowhere)"
    )
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="logdex-bench-", dir=given.scratch) as folder:
        scratch = Path(folder)
        plan = (
            Plan.trial(scratch) if given.short else replace(Plan(scratch), rounds=given.rounds, segments=given.segments)
        )
        kept, home = (scratch / "kept", scratch) if given.short else (KEPT, HOME)
        if given.short:
            (home / "docs").mkdir()
            shutil.copy(HOME / "README.md", home)
        for name in [] if given.render else given.only.split(","):
            start = time.monotonic()
            part = PARTS[name](plan)
            part.made = {
                "date": dt.datetime.now(dt.timezone.utc).strftime("%Y-%m-%d"),
                "commit": machine.commit(),
                **machine.describe(scratch),
            }
            store.save(kept, part)
            print(f"{name}: {time.monotonic() - start:.0f} s, {part.measured.dropped} rounds dropped", file=sys.stderr)
        parts = store.load(kept)
        pictures.draw(parts, home / "docs")
        document.write(parts, home / "docs" / "benchmarks.md")
        readme.update(parts, home / "README.md")


if __name__ == "__main__":
    main()
