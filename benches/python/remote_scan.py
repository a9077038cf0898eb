"""Scan a log over a link of 1 GiB/s, and download the same bytes: how much of the link does a scan use?

    python benches/python/remote_scan.py [--mib 1024] [--link-mib-s 1024] [--rounds 3] [--dir DIR]

Makes a log of messages of some 400 bytes in a temporary folder, and a server in a process of its own that sends ranges with
`sendfile`, all connections together not faster than the link. The same run shows two limits. One is a plain download of the same
bytes in ranges of 8 MiB by 16 threads. Client and server share the processors, so the other is the rate at which all processors
are busy with nothing but the processor time of that download, server included, and of a scan of the local files.
"""

from __future__ import annotations

import argparse
import http.client
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import broker_store  # type: ignore[import-not-found] # beside this program
import remote_rates  # type: ignore[import-not-found] # as above

from logdex.rocketmq import CommitLog

RANGE = 8 << 20
PIECE = 1 << 20


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--mib", type=int, default=1024)
    parser.add_argument("--link-mib-s", type=int, default=1024)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--dir", type=Path, help="make the log here, or take the one that is there")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.serve:
        serve(given.dir, given.link_mib_s << 20)
        return
    with tempfile.TemporaryDirectory(prefix="logdex-scan-") as scratch:
        root = (given.dir or Path(scratch)) / "store"
        if not root.exists():
            messages = (given.mib << 20) // broker_store.message_bytes(200)
            broker_store.write_log(root / "commitlog", messages, body_bytes=200)
        measure(root, given.link_mib_s, given.rounds)


def measure(root: Path, link_mib_s: int, rounds: int) -> None:
    """Scan and download in turns, each time with other options, so that nothing is in memory."""
    size = sum(path.stat().st_size for path in (root / "commitlog").iterdir())
    command = [sys.executable, __file__, "--serve", "--dir", str(root), "--link-mib-s", str(link_mib_s)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        port = int(server.stdout.readline()) if server.stdout else 0
        rates: dict[str, list[float]] = {"download": [], "scan": [], "local scan": [], "limit": []}
        for number in range(rounds):
            options = {"aws_endpoint": f"http://127.0.0.1:{port}", "aws_region": "x", "aws_access_key_id": str(number)}
            options["aws_secret_access_key"] = "unused"  # noqa: S105 -- nobody asks for it
            busy: dict[str, float] = {}

            def note(name: str, began: tuple[float, float], busy: dict[str, float] = busy) -> None:
                """Keep the rate and the processor time since a moment."""
                wall, processors = moment(server.pid)
                rates[name].append(size / (wall - began[0]))
                busy[name] = processors - began[1]

            began = moment(server.pid)
            download(root, port)
            note("download", began)
            counts = []
            for name, place, given in (
                ("scan", f"s3://{remote_rates.BUCKET}/store/commitlog", options),
                ("local scan", str(root / "commitlog"), None),
            ):
                with CommitLog.open(place, storage_options=given) as log:
                    began = moment(server.pid)
                    counts.append(sum(batch.num_rows for batch in log.scan(columns=["phy_offset"], threads=2)))
                    note(name, began)
            rates["limit"].append(size * (os.cpu_count() or 1) / (busy["download"] + busy["local scan"]))
            print("processor seconds: " + ", ".join(f"{name} {spent:.2f}" for name, spent in busy.items()))
            if counts[0] != counts[1]:
                raise SystemExit(f"{counts} messages")
        server.terminate()
    for name, values in rates.items():
        each = ", ".join(f"{value / (1 << 20):.0f}" for value in values)
        print(f"{name:10} {statistics.median(values) / (1 << 20):6.0f} MiB/s ({each})")


def moment(server: int) -> tuple[float, float]:
    """Return the time, and the processor time of this process and of the server."""
    fields = Path(f"/proc/{server}/stat").read_text(encoding="ascii").rsplit(")", 1)[1].split()
    here, there = os.times(), (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return time.perf_counter(), here.user + here.system + there


def download(root: Path, port: int) -> None:
    """Read all files of the log in ranges."""
    held = threading.local()

    def get(part: tuple[str, int, int]) -> None:
        if not hasattr(held, "connection"):
            held.connection = http.client.HTTPConnection("127.0.0.1", port)
        name, begin, end = part
        place = f"/{remote_rates.BUCKET}/store/commitlog/{name}"
        held.connection.request("GET", place, headers={"Range": f"bytes={begin}-{end - 1}"})
        answer = held.connection.getresponse()
        left = end - begin
        buffer = bytearray(PIECE)
        while left:
            left -= answer.readinto(buffer)

    parts = [
        (path.name, begin, min(begin + RANGE, path.stat().st_size))
        for path in sorted((root / "commitlog").iterdir())
        for begin in range(0, path.stat().st_size, RANGE)
    ]
    with ThreadPoolExecutor(16) as pool:
        list(pool.map(get, parts))


def serve(root: Path, link_bytes_s: int) -> None:
    """Serve the store until the process ends."""
    lock, free_at = threading.Lock(), [time.monotonic()]

    def wait_for(count: int) -> None:
        """Wait until the link has sent so many bytes more."""
        with lock:
            free_at[0] = max(free_at[0], time.monotonic() - 0.01) + count / link_bytes_s
            left = free_at[0] - time.monotonic()
        if left > 0:
            time.sleep(left)

    class Handler(remote_rates.StoreHandler):  # type: ignore[misc] # as above
        folder = root

        def send_range(self, path: Path, begin: int, end: int) -> None:
            self.wfile.flush()
            with path.open("rb") as file:
                while begin < end:
                    piece = min(PIECE, end - begin)
                    wait_for(piece)
                    begin += os.sendfile(self.connection.fileno(), file.fileno(), begin, piece)

    server = remote_rates.StoreServer(("127.0.0.1", 0), Handler)
    sys.stdout.write(f"{server.server_port}\n")
    sys.stdout.flush()
    server.serve_forever()


if __name__ == "__main__":
    main()
