"""How fast the pages of `logdex browse` are over a large store: the time of the server, median of 100.

python benches/python/page_rates.py --messages 20000000 --directory /data/bench
"""

from __future__ import annotations

import argparse
import http.client
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import broker_store  # type: ignore[import-not-found] # beside this program

from logdex.rocketmq import MessageStore

if TYPE_CHECKING:
    from collections.abc import Callable

_TOKEN = "a-token-for-benches"  # noqa: S105 -- of a server that lives as long as this program
_CALLS = 100


def write_store(root: Path, messages: int) -> None:
    """Write a store with its queues and its index, unless it is there."""
    if (root / "index").exists():
        return
    broker_store.write_log(root / "commitlog", messages)
    with MessageStore.open(root) as store:
        store.build_queues(root)
        store.build_index(root / "index")


def main() -> None:
    """Measure and print a line for each page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--messages", type=int, default=1_000_000)
    parser.add_argument("--directory", type=Path, help="where the store is, or is written and stays")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        root = arguments.directory or Path(folder) / "store"
        write_store(root, arguments.messages)
        command = [sys.executable, "-m", "logdex", "browse", str(root), "--port", "0", "--no-open", "--json"]
        with subprocess.Popen([*command, "--token", _TOKEN], stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            begun = time.perf_counter()
            port = int(json.loads(process.stdout.readline())["address"].split(":")[2].split("/")[0])
            print(f"started in {time.perf_counter() - begun:.2f} s")
            try:
                _measure(port, arguments.messages)
            finally:
                process.terminate()


def _measure(port: int, messages: int) -> None:
    step = messages // _CALLS
    pages: dict[str, Callable[[int], str]] = {
        "overview": lambda _: "/",
        "key": lambda n: f"/search?topic={broker_store.topic(n * step)}&key={broker_store.key(n * step)}",
        "unique key, any topic": lambda n: f"/search?key={broker_store.uniq_key(n * step)}",
        "messages": lambda n: f"/messages?position={(n + 1) * step * broker_store.message_bytes()}",
        "messages of a topic": lambda n: f"/messages?topic={broker_store.topic(n)}",
        "message": lambda n: f"/queue?topic={broker_store.topic(n)}&queue=0&at={n}",
        "index files": lambda _: "/index",
    }
    for name, page in pages.items():
        times = []
        for number in range(_CALLS + 1):
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
            begun = time.perf_counter()
            connection.request("GET", page(number % _CALLS), headers={"Cookie": f"logdex-{port}={_TOKEN}"})
            response = connection.getresponse()
            body = response.read()
            times.append(time.perf_counter() - begun)
            assert response.status == 200, body
            connection.close()
        first, *warm = (each * 1000 for each in times)
        middle = f"median of {len(warm)} {statistics.median(warm):.1f} ms, most {max(warm):.1f} ms"
        print(f"{name}: first {first:.1f} ms, {middle}")


if __name__ == "__main__":
    main()
