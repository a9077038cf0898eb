"""Count and time the requests of a first lookup in a store of 10 index files of the broker's size, 50 ms a request.

    python benches/python/remote_rates.py [--files 10] [--rounds 20] [--delay-ms 50] [--dir DIR] [--sealed] [--json] [--short]
    python benches/python/remote_rates.py --files 1000 --slots 10000 --entries 40000 --sealed

Makes its own store in a temporary folder (5 GB): one file of the log with its queues, and full index files of 5,000,000 slots
and 20,000,000 entries, of which the newest entries are those of the log; the others belong to messages that expired. A server of
this program lists the folder and serves ranges of its files as S3 does, behind the proxy of the tests. Each time the store is
opened and one key is found, as one, with nothing in memory. The rounds of requests are for:

    1             the listings of log and index              meanwhile: a catalog, which a store without a seal lacks
    2             the headers of all index files, the end of the oldest one, the head of the log, the listing of the root
    3             two slots of the oldest file, which show the geometry
    4             the slot of the key in all files          meanwhile: the last indexed message,
    5 to 4 + n    an entry of the chain in all files        the listing and the unit of its queue, the end of the log
    5 + n         the message

Each entry of a chain says where the next one is, so n, the length of the longest chain, cannot be saved by a reader of these
files. With 4 entries a slot, the longest of 10 chains has 7 or 8. It is printed beside the rounds, and the rounds are at most
n + 5. A sealed store has no chains: with `--sealed` the store is sealed first, through its URL.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import statistics
import sys
import tempfile
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

import broker_store  # type: ignore[import-not-found] # beside this program
import numpy as np

from logdex import _core
from logdex.rocketmq import MessageStore

sys.path.append(str(Path(__file__).parents[2] / "tests" / "python" / "support"))
from slow_proxy import SlowProxy

MESSAGES = 200_000
LOG_START = 1 << 50
BUCKET = "bench"
ENTRY = np.dtype([("hash", ">i4"), ("offset", ">i8"), ("time", ">i4"), ("previous", ">i4")])


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--files", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=20, help="keys, each found in a store that was just opened")
    parser.add_argument("--delay-ms", type=float, default=50)
    parser.add_argument("--slots", type=int, default=5_000_000, help="slots of an index file")
    parser.add_argument("--entries", type=int, default=20_000_000, help="entries of an index file")
    parser.add_argument("--sealed", action="store_true", help="seal the store")
    parser.add_argument("--dir", type=Path, help="make the store here, or take the one that is there")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--short", action="store_true", help="small and once, to see that it runs")
    given = parser.parse_args()
    if given.short:
        given.files, given.slots, given.entries, given.rounds = 3, 1_000, 4_000, 1
    with tempfile.TemporaryDirectory(prefix="logdex-remote-") as scratch:
        root = (given.dir or Path(scratch)) / "store"
        if not (root / "index").exists():
            make(root, given.files, given.slots, given.entries)
        figures = measure(
            root, message_count(given.entries), given.rounds, given.delay_ms / 1000, is_sealed=given.sealed
        )
    if given.json:
        what = f"{given.files:,} index files{', sealed' if given.sealed else ''}"
        turns = figures.pop("rounds")
        print(json.dumps({"what": what, "unit": "s", "rounds": figures.pop("seconds"), "turns": turns, **figures}))
        return
    for name, values in figures.items():
        print(f"{name}: median {statistics.median(values):.3g}, {min(values):.3g} to {max(values):.3g}")


def make(root: Path, files: int, slot_count: int, max_entries: int) -> None:
    """Write log, queues and index."""
    messages = message_count(max_entries)
    message_bytes = broker_store.write_log(root / "commitlog", messages, start_offset=LOG_START)
    with MessageStore.open(root) as store:
        store.build_queues(root)
    texts = [
        f"{broker_store.topic(number)}#{key(number)}"
        for number in range(messages)
        for key in (broker_store.uniq_key, broker_store.key)
    ]
    hashes = np.asarray(_core.key_hashes(texts))
    own_offsets = np.repeat(LOG_START + np.arange(messages, dtype=np.int64) * message_bytes, 2)
    (root / "index").mkdir()
    random = np.random.default_rng(7)
    for number in range(files):
        entries = np.zeros(max_entries, ENTRY)
        entries["hash"][1:] = random.integers(0, 1 << 31, max_entries - 1, np.int32)
        entries["offset"][1:] = (number << 40) + np.arange(max_entries - 1, dtype=np.int64) * 200
        entries["time"] = np.arange(max_entries) // 4000
        if number == files - 1:
            entries["hash"][-len(hashes) :] = hashes
            entries["offset"][-len(hashes) :] = own_offsets
        write_index(root / "index" / f"2026010100000{number:04d}", entries, slot_count)


def message_count(max_entries: int) -> int:
    """Return how many messages an index file of so many entries has beside those that expired; each has two entries."""
    return min(MESSAGES, max_entries // 8)


def write_index(path: Path, entries: np.ndarray[Any, np.dtype[np.void]], slot_count: int) -> None:
    """Link the entries to chains, and write the file."""
    slots = entries["hash"][1:].astype(np.int32) % slot_count
    order = np.argsort(slots, kind="stable")
    previous = np.zeros(len(slots), np.int32)
    same = slots[order][1:] == slots[order][:-1]
    previous[order[1:][same]] = order[:-1][same] + 1
    entries["previous"][1:] = previous
    heads = np.zeros(slot_count, ">i4")
    heads[slots] = np.arange(1, len(slots) + 1)
    begin, end = broker_store.T0, broker_store.T0 + 1000 * int(entries["time"][-1])
    header = np.array([begin, end, entries["offset"][1], entries["offset"][-1]], ">i8").tobytes()
    counts = np.array([np.count_nonzero(heads), len(entries)], ">i4").tobytes()
    with path.open("wb") as file:
        file.write(header + counts)
        heads.tofile(file)
        entries.tofile(file)


def measure(root: Path, messages: int, finds: int, delay_s: float, *, is_sealed: bool) -> dict[str, list[float]]:
    """Open and find, each time with other options, so that nothing is in memory; return seconds and counts by round."""
    server = serve(root)
    figures: dict[str, list[float]] = {"seconds": [], "rounds": [], "requests": [], "longest chain": []}
    if is_sealed and not (root / "_logdex").exists():
        options = {"aws_endpoint": f"http://127.0.0.1:{server.server_port}", "aws_region": "x"}
        options |= {"aws_access_key_id": "sealing", "aws_secret_access_key": "unused"}
        with MessageStore.open(f"s3://{BUCKET}/store", storage_options=options) as store:
            store.seal()
    with SlowProxy(server.server_port, delay_s) as proxy, MessageStore.open(root, sealed="never") as local:
        for number in range(finds):
            chosen = number * 7919 % messages
            topic, key = broker_store.topic(chosen), broker_store.uniq_key(chosen)
            options = {"aws_endpoint": proxy.endpoint, "aws_region": "x", "aws_access_key_id": str(number)}
            options["aws_secret_access_key"] = "unused"  # noqa: S105 -- nobody asks for it
            proxy.forget()
            began = time.perf_counter()
            with MessageStore.open(f"s3://{BUCKET}/store", storage_options=options) as store:
                found = store.find(topic, key)
                offsets = [message.phy_offset for message in found]
            took = time.perf_counter() - began
            if offsets != [message.phy_offset for message in local.find(topic, key)] or len(offsets) != 1:
                raise SystemExit(f"{key}: {offsets}")
            hashed = _core.key_hash(_core.index_key(topic, key))
            chains = [_core.read_chain(file, hashed, 0)[3] for file in local.index.files] if local.index else []
            for values, value in zip(
                figures.values(), (took, proxy.rounds, len(proxy.requests), max(chains)), strict=True
            ):
                values.append(value)
            if number == 0:
                tell(proxy)
    server.shutdown()
    return figures


def tell(proxy: SlowProxy) -> None:
    """Print requests on standard error, with their times from the first on."""
    first = proxy.requests[0].began
    for request in proxy.requests:
        text = f"    {request.began - first:7.3f} {request.method} {unquote(request.target)} {request.range or ''}"
        print(text, file=sys.stderr)


class StoreServer(ThreadingHTTPServer):
    """A server that takes many connections at once: of more than the usual 5, each further one would wait a second."""

    request_queue_size = 128


class StoreHandler(BaseHTTPRequestHandler):
    """Serves a folder as the prefix of its name in a bucket."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # head and body are two writes: else each answer waits for 40 ms
    folder: Path

    def do_GET(self) -> None:
        """Answer a list, or a range of an object."""
        asked = urlsplit(self.path)
        query = {name: values[0] for name, values in parse_qs(asked.query).items()}
        if "list-type" in query:
            self._answer(200, listing(self.folder, query.get("prefix", ""), query.get("delimiter")))
            return
        path = self.folder.parent.joinpath(*unquote(asked.path).split("/")[2:])
        if not path.is_file():
            self._answer(404, b"")
            return
        size = path.stat().st_size
        first, _, last = self.headers.get("Range", f"bytes=0-{size - 1}").removeprefix("bytes=").partition("-")
        begin, end = int(first), min(int(last or size), size - 1) + 1
        self.send_response(206)
        self.send_header("Content-Length", str(end - begin))
        self.send_header("Content-Range", f"bytes {begin}-{end - 1}/{size}")
        self.send_header("ETag", etag(path))
        self.send_header("Last-Modified", "Thu, 01 Jan 2026 00:00:00 GMT")
        self.end_headers()
        self.send_range(path, begin, end)

    def send_range(self, path: Path, begin: int, end: int) -> None:
        """Send a part of a file."""
        with path.open("rb") as file:
            file.seek(begin)
            self.wfile.write(file.read(end - begin))

    def do_PUT(self) -> None:
        """Keep an object."""
        path = self.folder.parent.joinpath(*unquote(urlsplit(self.path).path).split("/")[2:])
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(self.rfile.read(int(self.headers["Content-Length"])))
        self.send_response(200)
        self.send_header("ETag", etag(path))
        self.send_header("Content-Length", "0")
        self.end_headers()

    def do_HEAD(self) -> None:
        """Answer what an object is; a directory is none."""
        path = self.folder.parent.joinpath(*unquote(urlsplit(self.path).path).split("/")[2:])
        if not path.is_file():
            self._answer(404, b"")
            return
        self.send_response(200)
        self.send_header("Content-Length", str(path.stat().st_size))
        self.send_header("ETag", etag(path))
        self.send_header("Last-Modified", "Thu, 01 Jan 2026 00:00:00 GMT")
        self.end_headers()

    def _answer(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 -- the name of the base class
        """Print nothing."""


def serve(root: Path) -> ThreadingHTTPServer:
    """Serve a folder in a thread."""

    class Handler(StoreHandler):
        folder = root

    server = StoreServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server


def etag(path: Path) -> str:
    """Return the ETag of a file that does not change."""
    return f'"{hashlib.md5(str(path).encode(), usedforsecurity=False).hexdigest()}"'


def listing(root: Path, prefix: str, delimiter: str | None) -> bytes:
    """Answer ListObjectsV2."""
    found, folders = [], set()
    for path in sorted(root.rglob("*")):
        name = f"store/{path.relative_to(root).as_posix()}"
        if not path.is_file() or not name.startswith(prefix):
            continue
        rest = name[len(prefix) :]
        if delimiter and delimiter in rest:
            folders.add(prefix + rest.split(delimiter)[0] + delimiter)
            continue
        found.append(
            f"<Contents><Key>{escape(name)}</Key><LastModified>2026-01-01T00:00:00.000Z</LastModified>"
            f"<ETag>{escape(etag(path))}</ETag><Size>{path.stat().st_size}</Size></Contents>"
        )
    common = "".join(f"<CommonPrefixes><Prefix>{escape(each)}</Prefix></CommonPrefixes>" for each in sorted(folders))
    text = f"<ListBucketResult><IsTruncated>false</IsTruncated>{''.join(found)}{common}</ListBucketResult>"
    return text.encode()


if __name__ == "__main__":
    main()
