"""Lists of messages and records: previews, marks, columns, order, counts, cards on a phone, local times."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING
from urllib.parse import parse_qs, urlsplit

import pytest

from browsing import INDEX, KAFKA, NAUGHTY, ORDERS, STORE, follow
from logdex.rocketmq import MessageStore

if TYPE_CHECKING:
    from collections.abc import Callable

    from playwright.sync_api import Locator, Page

    from browsing import Site, Visitor

PHONE = {"width": 390, "height": 844}


def previews(page: Page | Locator) -> list[str]:
    return [text.strip() for text in page.locator("td.preview").all_inner_texts()]


def column(page: Page, name: str) -> list[str]:
    heads = [
        head.split("\n")[0].strip(" \u2191\u2193") for head in page.locator("table.list thead th").all_inner_texts()
    ]
    at = next(at for at, head in enumerate(heads) if head.startswith(name))
    return [row.locator("th, td").nth(at).inner_text() for row in page.locator("table.list tbody tr").all()]


def test_each_list_of_messages_shows_the_start_of_the_bodies(orders_site: Site, visitor: Visitor) -> None:
    compact = [json.dumps(order, separators=(",", ":")) for order in ORDERS]
    page = visitor.open(orders_site, "/messages?topic=Orders&order=oldest")
    assert previews(page) == [*compact, f"binary {' '.join(['00 01 fe ff'] * 9)}"]
    page.goto(f"{orders_site.base}/messages?topic=Audit")
    assert previews(page) == ["a line and another"]
    page.goto(f"{orders_site.base}/search?topic=Orders&key=o7")
    assert previews(page) == [compact[7]]
    page.goto(f"{orders_site.base}/queue?topic=Orders&queue=1")
    assert previews(page) == compact[1::2]


def test_previews_of_hostile_bodies_are_text(hostile_site: Site, visitor: Visitor) -> None:
    page = visitor.open(hostile_site, "/messages?order=oldest")
    shown = previews(page)
    assert shown[0] == NAUGHTY
    assert "\\u202e" in shown[1]
    assert shown[2].startswith("0123456789abcdef")
    assert shown[3] == "binary " + b"before \xff\xfe\x00 after".hex(" ")
    assert shown[5].startswith("[[[[")
    assert shown[6] == "empty"
    assert page.locator("main img, main script").count() == 0
    assert max(map(len, shown)) < 200
    assert len(page.content()) < 60_000
    for path in ("/messages?counts=1", "/messages/tail", "/search?topic=hostile&key=k0&grep=script"):
        page.goto(hostile_site.base + path)
        assert page.locator("main img, main script").count() == 0
        assert page.title().endswith(" - logdex")
        assert NAUGHTY in page.locator("main").inner_text()
    assert page.locator("mark").all_inner_texts() == ["script", "script"]


def test_matches_are_marked_and_the_page_says_how_much_was_searched(orders_site: Site, visitor: Visitor) -> None:
    wanted = [order for order in ORDERS if order["user"] == "u1" and order["id"] > 9]
    page = visitor.open(orders_site, '/messages?topic=Orders&grep="id":+[12].,\\s*"user":+"u1"')
    assert len(previews(page)) == len(wanted) > 3
    assert page.locator("mark").all_inner_texts() == [f'"id":{order["id"]},"user":"u1"' for order in reversed(wanted)]
    assert "Searched the bodies in" in page.locator(".scanned").inner_text()
    page.goto(f"{orders_site.base}/search?topic=Orders&key=u1&grep=x{{4}}")
    assert len(previews(page)) == sum(order["user"] == "u1" and "xxxx" in order["note"] for order in ORDERS) > 0
    assert set(page.locator("mark").all_inner_texts()) == {"xxxx"}
    assert "The bodies of 10 messages with the key were searched." in page.locator("main").inner_text()


def test_each_list_of_records_shows_the_start_of_the_values(values_site: Site, visitor: Visitor) -> None:
    compact = [json.dumps(order, separators=(",", ":")) for order in ORDERS]
    page = visitor.open(values_site, "/records?topic=orders&partition=1&order=oldest")
    assert previews(page) == [*compact, "binary 00 ff", "null: a tombstone"]
    page.goto(f"{values_site.base}/search?topic=orders&grep=xxxx")
    wanted = [each for each in compact if "xxxx" in each]
    assert len(previews(page)) == 2 * len(wanted) > 0
    assert {text[:4] + text[-14:] for text in previews(page)} == {'... "note":"xxxx"}'}
    assert page.locator("mark").count() == 2 * len(wanted)
    assert "Searched the values of 32 of 32 offsets." in page.locator(".scanned").first.inner_text()
    page.goto(f"{values_site.base}/search?topic=orders&key=u2&grep=xxxx")
    assert len(previews(page)) == 2 * sum('"u2"' in each for each in wanted) > 0


def test_a_page_has_the_chosen_columns_and_its_address_keeps_them(orders_site: Site, visitor: Visitor) -> None:
    page = visitor.open(orders_site, "/messages?topic=Orders&rows=5")
    page.locator(".columns summary").click()
    follow(page.get_by_role("link", name="hide Keys"))
    page.locator(".columns summary").click()
    follow(page.get_by_role("link", name="show Unique key"))
    heads = [
        text.split("\n")[0].strip(" \u2191\u2193") for text in page.locator("table.list thead th").all_inner_texts()
    ]
    assert heads == ["Offset", "Stored", "Queue", "Tag", "Body", "Bytes", "Unique key"]
    page.get_by_label("Tag", exact=True).fill("T1")
    follow(page.get_by_role("button", name="Show"))
    assert parse_qs(urlsplit(page.url).query)["columns"] == ["stored,queue,tags,body,size,uniq_key"]
    assert set(column(page, "Tag")) == {"T1"}
    follow(page.get_by_role("link", name="Older messages"))
    assert "columns=stored" in page.url
    assert orders_site.ask("/messages?columns=stored,nothing").status == 400


def test_the_head_of_the_offsets_turns_the_order(orders_site: Site, values_site: Site, visitor: Visitor) -> None:
    for site, path in ((orders_site, "/messages?topic=Orders"), (values_site, "/records?topic=orders&partition=0")):
        page = visitor.open(site, path)
        newest = page.locator("table.list tbody th").all_inner_texts()
        head = page.locator("table.list thead th").first
        assert head.get_attribute("aria-sort") == "descending"
        follow(head.get_by_role("link"))
        assert page.locator("table.list tbody th").all_inner_texts() == newest[::-1]
        assert page.locator("table.list thead th").first.get_attribute("aria-sort") == "ascending"


@pytest.mark.parametrize(("name", "paths"), [("store_site", STORE), ("kafka_site", KAFKA), ("index_site", INDEX)])
def test_on_a_phone_rows_are_cards_and_nothing_is_wider_than_the_screen(
    request: pytest.FixtureRequest, visit: Callable[..., Visitor], name: str, paths: tuple[str, ...]
) -> None:
    site: Site = request.getfixturevalue(name)
    visitor = visit(viewport=PHONE)
    cards = 0
    for path in paths:
        page = visitor.open(site, path)
        page.wait_for_load_state("networkidle")
        visitor.errors[:] = [error for error in visitor.errors if "404" not in error]
        assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"], path
        widths = page.locator("header nav, .wide").evaluate_all(
            "parts => parts.map(each => each.scrollWidth - each.clientWidth)"
        )
        assert max(widths) <= 1, path
        if page.locator(".wide tbody tr").count():
            assert page.locator(".wide tbody tr").first.evaluate("row => getComputedStyle(row).display") == "flex", path
            cards += 1
    assert cards > 0


def test_a_card_names_its_values(orders_site: Site, visit: Callable[..., Visitor]) -> None:
    page = visit(viewport=PHONE).open(orders_site, "/messages?topic=Orders&key=o7")
    labels = page.locator(".wide tbody td[data-label]").evaluate_all(
        "cells => cells.map(each => getComputedStyle(each, '::before').content.replaceAll('\"', ''))"
    )
    assert labels == ["Stored", "Queue", "Keys", "Tag", "Bytes"]


def test_local_times_are_next_to_those_in_utc(store_site: Site, visit: Callable[..., Visitor]) -> None:
    page = visit(timezone_id="Asia/Shanghai").open(store_site, "/messages?order=oldest&rows=1")
    assert page.locator("tbody time").inner_text().split() == ["2026-11-21T11:30:05.105Z", "19:30:05", "+08:00"]
    assert "Asia/Shanghai" in page.locator("footer").inner_text()
    page = visit(timezone_id="Pacific/Kiritimati").open(store_site, "/message?at=0")
    assert "2026-11-22 01:30:05 +14:00" in page.locator(".facts").first.inner_text()
    for options in ({"timezone_id": "UTC"}, {"timezone_id": "Asia/Shanghai", "java_script_enabled": False}):
        page = visit(**options).open(store_site, "/messages?order=oldest&rows=1")
        assert page.locator("tbody time").inner_text() == "2026-11-21T11:30:05.105Z"
        assert "local" not in page.locator("footer").inner_text()


def test_topics_of_the_broker_come_last(orders_site: Site, values_site: Site, visitor: Visitor) -> None:
    page = visitor.open(orders_site, "/topics")
    own = ["%RETRY%billing", "RMQ_SYS_TRACE_TOPIC"]
    assert page.locator("tbody th").all_inner_texts() == ["Orders", "Audit", *own]
    follow(page.get_by_role("link", name="Sort by Topic"))
    assert page.locator("tbody th").all_inner_texts() == ["Audit", "Orders", *own]
    assert "Topic" in page.locator("th[aria-sort=ascending]").inner_text()
    assert orders_site.ask("/topics?sort=size").status == 400
    page.goto(f"{orders_site.base}/")
    assert page.locator("tbody th").all_inner_texts() == ["Orders", "Audit", *own]
    visitor.open(values_site, "/partitions")
    assert page.locator("tbody th").all_inner_texts() == ["orders-0", "orders-1", "zero-0", "__internal-0"]
    page.goto(f"{values_site.base}/records")
    assert page.get_by_label("Topic").input_value() == "orders"


def test_bodies_and_values_are_downloaded_under_safe_names(orders_site: Site, values_site: Site) -> None:
    with MessageStore.open(orders_site.root) as store:
        (message,) = store.find("Orders", "bytes")
        (retried, *_) = store.find("%RETRY%billing", "o1")
    for at, name, body in (
        (message.phy_offset, f"Orders-0-{message.queue_offset}-{message.phy_offset}.bin", message.body),
        (retried.phy_offset, f"_RETRY_billing-0-{retried.queue_offset}-{retried.phy_offset}.bin", b"again"),
    ):
        answer = orders_site.ask(f"/body?at={at}")
        assert answer.headers["content-disposition"] == f'attachment; filename="{name}"'
        assert answer.headers["content-type"] == "application/octet-stream"
        assert answer.body == body
    place = "/value?topic=orders&partition=1&offset=30"
    for part, body in (("", b"\x00\xff"), ("&part=key", b"\xff\xfe")):
        answer = values_site.ask(place + part)
        assert answer.body == body
        assert re.fullmatch(
            r'attachment; filename="orders-1-30-(key|value)\.bin"', answer.headers["content-disposition"]
        )


def test_a_message_leads_to_the_next_with_its_key_and_in_its_queue(orders_site: Site, visitor: Visitor) -> None:
    with MessageStore.open(orders_site.root) as store:
        same = sorted(message.phy_offset for message in store.find("Orders", "u1"))
        queue = sorted(message.phy_offset for message in store.find("Orders", "u1") if message.queue_id == 1)
    page = visitor.open(orders_site, f"/message?at={same[3]}")
    walk = page.get_by_role("navigation", name="Messages with the same key")
    follow(walk.get_by_role("link", name="after with the key u1"))
    assert page.get_by_role("heading", level=1).inner_text() == f"Message at {same[4]:,}"
    for _ in range(4):
        follow(walk.get_by_role("link", name="before with the key u1"))
    assert page.get_by_role("heading", level=1).inner_text() == f"Message at {same[0]:,}"
    assert walk.get_by_role("link", name="before with the key u1").count() == 0
    assert "none before" in walk.inner_text()
    follow(page.get_by_role("link", name="After in the queue"))
    assert page.get_by_role("heading", level=1).inner_text() != f"Message at {same[0]:,}"
    assert len(queue) == 5


def test_a_record_leads_to_the_next_with_its_key_and_in_its_partition(values_site: Site, visitor: Visitor) -> None:
    page = visitor.open(values_site, "/record?topic=orders&partition=0&offset=10")
    for link, offset in (
        ("After with this key", 13), ("Before with this key", 10), ("Before in the partition", 9), ("After in the partition", 10),
    ):  # fmt: skip
        follow(page.get_by_role("link", name=link))
        assert page.get_by_role("heading", level=1).inner_text() == f"Record {offset} of orders-0"
    page.goto(f"{values_site.base}/record?topic=orders&partition=0&offset=0")
    assert "Before with this key: none" in page.locator("main").inner_text()
    assert "Before in the partition: none" in page.locator("main").inner_text()


def test_the_reason_for_a_miss_is_below_the_number(store_site: Site, visitor: Visitor) -> None:
    page = visitor.open(store_site, "/search?key=nobody&topic=TopicTest")
    found = page.get_by_role("region", name="0 messages")
    found.locator(".causes").wait_for()
    assert "not-here" in found.locator(".causes").inner_text()
    assert "no range was requested" not in page.locator("main").inner_text()
    page.goto(f"{store_site.base}/search?key=nobody&topic=TopicTest&end=2026-11-20")
    page.locator(".causes").first.wait_for()
    assert "misses the range" in page.locator("main").inner_text()
