"""Fixtures of the tests of the pages: sites, and a real browser, the Chromium of the system."""

from __future__ import annotations

import io
import json
import shutil
import zlib
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import fastavro
import pytest
from playwright.sync_api import sync_playwright

import golden
import golden_kafka
from browsing import ARGUMENTS, BIG_BODY, NAUGHTY, ORDER_SCHEMA, ORDERS, RIGHT_TO_LEFT, Visitor, append_records, serve
from logdex import kafka
from logdex.rocketmq import StoreWriter

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from playwright.sync_api import Browser, Request

    from browsing import Site


@pytest.fixture(scope="session")
def store_site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with serve(golden.unpack("basic", tmp_path_factory.mktemp("basic"))) as site:
        yield site


@pytest.fixture(scope="session")
def damaged_site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with serve(golden.unpack_damaged("crc-early-clean", tmp_path_factory.mktemp("damaged"))) as site:
        yield site


@pytest.fixture(scope="session")
def index_site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with serve(golden.unpack("basic", tmp_path_factory.mktemp("index")) / "index") as site:
        yield site


@pytest.fixture(scope="session")
def kafka_site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with serve(golden_kafka.unpack("transactions", tmp_path_factory.mktemp("kafka"))) as site:
        yield site


@pytest.fixture(scope="session")
def decoded_site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A store with bodies in Avro, of which the last is cut, and their schema."""
    root, schema = tmp_path_factory.mktemp("decoded"), fastavro.parse_schema(ORDER_SCHEMA)
    (root / "order.avsc").write_text(json.dumps(ORDER_SCHEMA))
    with StoreWriter.open(root / "store") as writer:
        out = io.BytesIO()
        for order in ORDERS[:5]:
            out = io.BytesIO()
            fastavro.schemaless_writer(out, schema, order)
            writer.put_message("Orders", out.getvalue(), keys=f"o{order['id']}")
        writer.put_message("Orders", out.getvalue()[:-1])
    with serve(root / "store", "--decode", f"body=avro:{root / 'order.avsc'}") as site:
        yield site


@pytest.fixture(scope="session")
def hostile_site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A store whose messages are written to break a page: key k0, k1 and so on."""
    root = tmp_path_factory.mktemp("hostile") / "store"
    bodies: list[tuple[bytes, int]] = [
        (NAUGHTY.encode(), 0),
        (RIGHT_TO_LEFT.encode(), 0),
        (zlib.compress(BIG_BODY), 1),
        (b"before \xff\xfe\x00 after", 0),
        (json.dumps({"html": NAUGHTY, "rtl": RIGHT_TO_LEFT, "list": [1, None, True, {"deep": []}]}).encode(), 0),
        (b"[" * 100_000, 0),
        (b"", 0),
        (bytes(range(256)) * 40, 0),
    ]
    with StoreWriter.open(root) as writer:
        for number, (body, flag) in enumerate(bodies):
            properties = {NAUGHTY: NAUGHTY, "rtl": RIGHT_TO_LEFT}
            writer.put_message("hostile", body, keys=f"k{number}", tags=NAUGHTY, properties=properties, sys_flag=flag)
        for key in ("<b>bold</b>", RIGHT_TO_LEFT.replace(" ", "_")):
            writer.put_message("hostile", b"key", keys=key)
    with serve(root) as site:
        yield site


@pytest.fixture(scope="session")
def orders_site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A store with JSON, text and bytes, in a topic of its own and in topics of the broker."""
    root = tmp_path_factory.mktemp("orders") / "store"
    with StoreWriter.open(root) as writer:
        for number, order in enumerate(ORDERS):
            body = json.dumps(order, indent=4).encode()
            writer.put_message(
                "Orders", body, queue_id=number % 2, keys=[f"o{number}", f"u{number % 3}"], tags=f"T{number % 4}"
            )
        writer.put_message("Orders", b"\x00\x01\xfe\xff" * 9, keys="bytes")
        for _ in range(50):
            writer.put_message("%RETRY%billing", b"again", keys="o1")
            writer.put_message("RMQ_SYS_TRACE_TOPIC", b"trace")
        writer.put_message("Audit", b"a line\r\nand\tanother")
    with serve(root) as site:
        yield site


@pytest.fixture(scope="session")
def values_site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A log directory with two topics and one of the broker's own."""
    root = tmp_path_factory.mktemp("values") / "logs"
    with kafka.LogDirWriter.open(root) as writer:
        for topic, partitions in (("__internal", 1), ("orders", 2), ("zero", 1)):
            writer.create_topic(topic, partitions)
        for partition in range(2):
            rows = [
                {
                    "key": f"u{number % 3}".encode(),
                    "value": json.dumps(order, indent=2).encode(),
                    "timestamp": 1_795_260_605_000 + number,
                }
                for number, order in enumerate(ORDERS)
            ]
            rows += [{"key": b"\xff\xfe", "value": b"\x00\xff", "timestamp": 1_795_270_000_000}]
            rows += [{"key": b"gone", "value": None, "timestamp": 1_795_270_000_001}]
            append_records(writer, "orders", partition, rows)
    with serve(root) as site:
        yield site


@pytest.fixture(scope="session")
def chromium() -> Iterator[Browser]:
    found = shutil.which("chromium") or shutil.which("chromium-browser")
    if found is None:
        pytest.fail("the tests of the pages need a browser: apt-get install chromium")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found, args=list(ARGUMENTS))
        yield browser
        browser.close()


@pytest.fixture
def visit(chromium: Browser) -> Iterator[Callable[..., Visitor]]:
    """Return a factory of visitors. At the end, no page of theirs has failed, or asked for anything elsewhere."""
    visitors: list[Visitor] = []

    def come(**options: Any) -> Visitor:
        context = chromium.new_context(**options)
        page = context.new_page()
        visitor = Visitor(context, page, [], [])

        def asked(request: Request) -> None:
            visitor.requests.append(request.url)

        context.on("request", asked)
        page.on("pageerror", lambda error: visitor.errors.append(str(error)))
        page.on("console", lambda said: visitor.errors.append(said.text) if said.type in ("error", "warning") else None)
        visitors.append(visitor)
        return visitor

    yield come
    for visitor in visitors:
        elsewhere = [url for url in visitor.requests if urlsplit(url).hostname != "127.0.0.1"]
        assert not elsewhere, "a page asked for something that is not on this machine"
        assert not visitor.errors
        visitor.context.close()


@pytest.fixture
def visitor(visit: Callable[..., Visitor]) -> Visitor:
    return visit()
