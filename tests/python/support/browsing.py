"""The pages of `logdex browse`, served by the command itself, and those who look at them."""

from __future__ import annotations

import asyncio
import http.client
import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit

from arro3.core import Array, DataType, RecordBatch

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import BrowserContext, Locator, Page

    from logdex.kafka import LogDirWriter

TOKEN = "a-token-for-tests"  # noqa: S105 -- of servers that live as long as a test
COOKIE = "logdex-{}=" + TOKEN
ARGUMENTS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
)
# Addresses of the pages of a store, a Kafka log directory and an index directory.
STORE = (
    "/", "/topics", "/topic?topic=TopicTest", "/queue?topic=TopicTest&queue=0&at=3", "/messages", "/messages?key=nobody",
    "/messages?counts=1&grep=alpha", "/messages/tail", "/groups", "/group?group=grp-c",
    "/message?at=0", "/message?at=0&form=hex", "/search", "/search?key=k1", "/search?key=nobody&topic=TopicTest",
    "/search/steps?key=k1&topic=TopicTest", "/index", "/log", "/log-file?name=00000000000000000000", "/verify", "/nothing",
)  # fmt: skip
KAFKA = (
    "/", "/partitions", "/partition?topic=tx-one&partition=0", "/segment?topic=tx-one&partition=0&base=0", "/records",
    "/records?counts=1", "/records/tail", "/groups",
    "/record?topic=tx-one&partition=0&offset=6", "/search?topic=tx-two&key=a", "/verify",
)  # fmt: skip
INDEX = ("/", "/search?topic=TopicTest&key=k1")
ORDERS: list[dict[str, Any]] = [
    {"id": number, "user": f"u{number % 3}", "note": "x" * (number % 5)} for number in range(30)
]
"""Bodies of messages and values of records."""
ORDER_SCHEMA = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "user", "type": ["string", "int"]},
        {"name": "note", "type": "string"},
    ],
}
BIG_BODY = b"0123456789abcdef" * (10 << 16)
NAUGHTY = '<script>document.title="owned"</script><img src=x onerror="document.title=1">"\'&{{7*7}}'
RIGHT_TO_LEFT = "\u05e9\u05dc\u05d5\u05dd \u202egnp.exe \u0645\u0631\u062d\u0628\u0627"


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def text(self) -> str:
        return self.body.decode()


@dataclass(frozen=True)
class Site:
    """A running server."""

    address: str
    root: Path

    @property
    def port(self) -> int:
        port = urlsplit(self.address).port
        assert port is not None
        return port

    @property
    def base(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def ask(
        self, path: str, *, method: str = "GET", cookie: bool = True, headers: dict[str, str] | None = None
    ) -> Answer:
        """Send one request as it is, with the token's cookie."""
        given = {"Cookie": COOKIE.format(self.port)} if cookie else {}
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        connection.request(method, path, headers=given | (headers or {}))
        response = connection.getresponse()
        answer = Answer(
            response.status, {name.lower(): value for name, value in response.getheaders()}, response.read()
        )
        connection.close()
        return answer

    def json(self, path: str) -> Any:
        answer = self.ask(path)
        assert answer.status == 200, answer.text
        return json.loads(answer.body)


@contextmanager
def serve(path: Path | str, *words: str) -> Iterator[Site]:
    command = [
        sys.executable,
        "-m",
        "logdex",
        "browse",
        str(path),
        "--port",
        "0",
        "--no-open",
        "--json",
        "--token",
        TOKEN,
    ]
    with subprocess.Popen([*command, *words], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        try:
            yield Site(json.loads(line)["address"], Path(path))
        finally:
            process.terminate()
            process.wait(20)


def answers(root: Path, *addresses: str) -> list[Answer]:
    """Return the answers of the pages of a path, in this process and without a socket."""
    from logdex.browse.server import application, open_pages  # noqa: PLC0415 -- needs the extra `web`

    async def ask(address: str) -> Answer:
        path, _, query = address.partition("?")
        scope = {
            "type": "http",
            "method": "GET",
            "path": path,
            "raw_path": path.encode(),
            "query_string": query.encode(),
        }
        scope |= {"headers": [(b"host", b"127.0.0.1"), (b"cookie", COOKIE.format(1).encode())], "root_path": ""}
        scope |= {"server": ("127.0.0.1", 1), "client": ("127.0.0.1", 2), "scheme": "http", "http_version": "1.1"}
        sent: list[Any] = []
        received: list[dict[str, Any]] = [{"type": "http.request", "body": b"", "more_body": False}]

        async def receive() -> dict[str, Any]:
            # The client stays.
            return received.pop() if received else await asyncio.Future()

        async def send(message: Any) -> None:
            sent.append(message)

        await app(scope, receive, send)
        headers = {name.decode(): value.decode() for name, value in sent[0]["headers"]}
        return Answer(sent[0]["status"], headers, b"".join(each.get("body", b"") for each in sent))

    async def ask_all() -> list[Answer]:
        return [await ask(address) for address in addresses]

    # In a thread, because the browser of other tests has an event loop in this one.
    with closing(open_pages(root, str(root))) as pages, ThreadPoolExecutor(1) as thread:
        app = application(pages, TOKEN)
        return thread.submit(lambda: asyncio.run(ask_all())).result()


@dataclass
class Visitor:
    """One person with a browser."""

    context: BrowserContext
    page: Page
    requests: list[str]
    errors: list[str]

    def open(self, site: Site, path: str = "/") -> Page:
        """Go to a page of a site, with its token at the first time."""
        if not any(cookie["name"] == f"logdex-{site.port}" for cookie in self.context.cookies()):
            self.page.goto(site.address)
        self.page.goto(site.base + path)
        return self.page


def append_records(writer: LogDirWriter, topic: str, partition: int, rows: list[dict[str, Any]]) -> None:
    """Append records with `key`, `value` and `timestamp` to a partition."""
    types = {"key": DataType.binary(), "value": DataType.binary(), "timestamp": DataType.int64()}
    columns: dict[str, Any] = {name: Array([row[name] for row in rows], type=kind) for name, kind in types.items()}
    writer.append(topic, partition, RecordBatch.from_pydict(columns))


def follow(link: Locator) -> None:
    """Click a link or a button, and wait for the page that it opens."""
    with link.page.expect_navigation():
        link.click()
