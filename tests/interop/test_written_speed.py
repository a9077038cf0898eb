"""One Java producer sends to `logdex serve --write` and to a real broker in turns: figures are printed, none decides.

LOGDEX_INTEROP_SECONDS and _TURNS (environment) change the sizes.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from statistics import median
from typing import TYPE_CHECKING, Any

import pytest

from wire_programs import Program, start_broker

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

SECONDS = int(os.environ.get("LOGDEX_INTEROP_SECONDS", "5"))
TURNS = int(os.environ.get("LOGDEX_INTEROP_TURNS", "3"))
SYNC = {"op": "measureSync", "threads": 64}
ASYNC = {"op": "measureAsync", "under_way": 1_000}


def _rate(producers: Program, question: dict[str, Any], seconds: int) -> float:
    said = producers.ask({"topic": "Speed", "key": "k", "body": "b", "size": 1024, "seconds": seconds, **question})
    sent, failed, took = said["result"]
    assert failed == 0, failed
    return float(sent / took)


@pytest.mark.parametrize("flush", ["sync", "async"])
def test_sends_beside_a_real_broker(flush: str, tmp_path: Path, say: Callable[[str], None]) -> None:
    command = [sys.executable, "-m", "logdex", "serve", str(tmp_path / "own"), "--port", "0", "--json", "--write"]
    with subprocess.Popen([*command, "--flush", flush], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as server:
        assert server.stdout is not None
        address = json.loads(server.stdout.readline())["address"]
        kind = f"{flush.upper()}_FLUSH"
        broker, names, _ = start_broker(tmp_path / "broker", tmp_path / "real", flushDiskType=kind)
        with (
            broker,
            Program("Producers", tmp_path / "ours", address) as ours,
            Program("Producers", tmp_path / "theirs", names) as theirs,
        ):
            for what, question in (("synchronous sends, 64 producers", SYNC), ("asynchronous sends", ASYNC)):
                rates: dict[str, list[float]] = {"logdex": [], "broker": []}
                for turn in range(-1, TURNS):
                    for who, producers in (("logdex", ours), ("broker", theirs)):
                        rate = _rate(producers, question, SECONDS if turn >= 0 else 1)
                        # The first turn only warms up.
                        rates[who] += [rate] if turn >= 0 else []
                own, real = (median(rates[who]) for who in ("logdex", "broker"))
                say(
                    f"serve --write, flush {flush}: {what}, 1 KiB: {own:,.0f}/s, broker {real:,.0f}/s: {own / real:.2f}x"
                )
        server.terminate()
        assert server.wait(60) == 0
