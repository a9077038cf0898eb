"""Measure puts of 1 KB into a log by where they append: to files, maps or a pool, beside the real store in the same modes.

    python benches/python/append_rates.py [--count 200000] [--seconds 3] [--directory DIR]

It needs cargo, and for the real store Maven and a JDK. It prints a table for docs/benchmarks.md.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benches.report.server import jvm, native

if TYPE_CHECKING:
    from benches.report.server import Server

_MODES = ("write", "mapped", "mapped, warm", "pool")
_BATCHES = (1, 32)
_THREADS = (1, 8)
_FILE_BYTES = {False: 16 << 20, True: 1 << 20}
"""Bytes of a log file without and with synchronous flush: small, so that the log rolls often."""
_BODY_BYTES = 1024
_HEAD = "| flush | threads | a put | where | messages/s | p50 | p99 | p99.9 | longest | rolls: median | longest |"


def main() -> None:
    """Put the same messages in each mode, and print a row for each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=200_000, help="messages of a run, unless its time is over")
    parser.add_argument("--seconds", type=int, default=3, help="longest time of a run")
    parser.add_argument("--directory", help="where the stores are made (default: the system's for temporary files)")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=arguments.directory) as scratch, ExitStack() as stack:
        ours, theirs = stack.enter_context(native(Path(scratch))), stack.enter_context(jvm(Path(scratch)))
        source, count = Path(scratch) / "source", arguments.count
        ours.ask("log_write", path=source, files=1, file_len=count * (_BODY_BYTES + 400), body_len=_BODY_BYTES)
        given = {"count": count, "seconds": arguments.seconds}
        print(_HEAD)
        print("|" + " --- |" * (_HEAD.count("|") - 1))
        for sync in (False, True):
            for threads in _THREADS:
                for batch in _BATCHES:
                    how = {**given, "threads": threads, "batch": batch}
                    for mode in _MODES:
                        done = _own(ours, Path(scratch) / "log", mode, sync, source=source, **how)
                        _say(sync, threads, batch, f"logdex {mode}", done)
                    # 4.9.3 ignores its pool with synchronous flush.
                    for mode in _MODES[1:-1] if sync else _MODES[1:]:
                        [file] = source.iterdir()
                        done = _real(theirs, Path(scratch) / "store", mode, sync, source=file, **how)
                        _say(sync, threads, batch, f"Java {mode}", done)


def _own(ours: Server, log: Path, mode: str, sync: bool, **how: Any) -> dict[str, Any]:  # noqa: FBT001 -- a value of a loop
    append, _, warm = mode.partition(", ")
    return ours.ask(
        "log_put_each", path=log, append=append, warm=bool(warm), sync=sync, file_size=_FILE_BYTES[sync], **how
    )


def _real(theirs: Server, root: Path, mode: str, sync: bool, **how: Any) -> dict[str, Any]:  # noqa: FBT001 -- as above
    config = {
        "flushDiskType": "SYNC_FLUSH" if sync else "ASYNC_FLUSH",
        "mappedFileSizeCommitLog": _FILE_BYTES[sync],
        "transientStorePoolEnable": mode == "pool",
        "warmMapedFileEnable": mode == "mapped, warm",
    }
    shutil.rmtree(root, ignore_errors=True)
    return theirs.ask("rounds_store_put_each", root=root, config=config, **how)


def _say(sync: bool, threads: int, batch: int, where: str, done: dict[str, Any]) -> None:  # noqa: FBT001 -- as above
    puts, rolls = sorted(done["puts"]), sorted(done["rolls"])
    times = [puts[int(len(puts) * part)] for part in (0.5, 0.99, 0.999)] + [puts[-1]]
    times += [rolls[len(rolls) // 2], rolls[-1]] if rolls else []
    cells = [f"{nanoseconds / 1e3:,.1f}" for nanoseconds in times] + ["-"] * (6 - len(times))
    rate = f"{done['messages'] / done['seconds']:,.0f}"
    flush = "sync" if sync else "async"
    print("|", " | ".join([flush, str(threads), str(batch), where, rate, *cells]), "|", flush=True)


if __name__ == "__main__":
    main()
