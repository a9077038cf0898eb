"""What three kinds of users do in a browser: on call, a data engineer, a Spark engineer."""

from __future__ import annotations

import csv
import io
import json
import shlex
import subprocess
import sys
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

import golden
from browsing import follow
from logdex.kafka import LogDir
from logdex.rocketmq import MessageStore

if TYPE_CHECKING:
    from collections.abc import Callable

    from playwright.sync_api import Page

    from browsing import Site, Visitor


def _keyed() -> dict[str, Any]:
    """Return a message of the golden store with one key, which no other message has."""
    rows = golden.rows("basic", "messages")
    words = Counter(word for row in rows for word in (row.get("keys") or "").split(" "))
    return next(row for row in rows if words[row.get("keys") or ""] == 1)


def _scanned(page: Page) -> str:
    return page.locator(".scanned").inner_text()


def test_on_call_finds_the_message_of_a_key_and_reads_its_body(store_site: Site, visitor: Visitor) -> None:
    row = _keyed()
    page = visitor.open(store_site)
    assert "stopped cleanly" in page.locator(".health").inner_text()
    page.get_by_label("Key or message id").fill(row["keys"])
    page.get_by_label("Key or message id").press("Enter")
    page.get_by_role("heading", name="1 message", exact=True).wait_for()
    assert "match" in page.locator(".candidates").inner_text()
    follow(page.locator("main table").first.get_by_role("rowheader").get_by_role("link"))
    page.get_by_role("heading", name="Body").wait_for()
    text = page.locator("main").inner_text()
    assert row["topic"] in text
    assert row["msgId"] in text
    with page.expect_download() as download:
        page.get_by_role("link", name="download").click()
    with MessageStore.open(store_site.root) as store:
        message = store.message(row["physicalOffset"])
    assert message is not None
    assert download.value.path().read_bytes() == message.body


def test_on_call_learns_why_a_key_is_not_found(store_site: Site, visitor: Visitor) -> None:
    page = visitor.open(store_site, "/search?key=nobody&topic=TopicTest")
    page.get_by_role("heading", name="0 messages").wait_for()
    # The reason comes later, and the page does not wait for it.
    page.locator(".causes").wait_for()
    assert "not-here" in page.locator(".causes").inner_text()
    assert page.locator(".steps > li").count() == 4


def test_on_call_finds_a_message_by_the_brokers_own_id(store_site: Site, visitor: Visitor) -> None:
    row = _keyed()
    page = visitor.open(store_site, f"/search?key={row['msgId']}")
    assert "offset id" in page.locator(".note").inner_text()
    assert page.locator("main tbody tr").count() == 1


def test_on_call_walks_from_a_message_to_its_neighbours_its_unit_and_its_entries(
    store_site: Site, visitor: Visitor
) -> None:
    row = _keyed()
    page = visitor.open(store_site, f"/message?at={row['physicalOffset']}")
    follow(page.get_by_role("link", name="After in the log"))
    follow(page.get_by_role("link", name="Before in the log"))
    assert page.get_by_role("heading", level=1).inner_text() == f"Message at {row['physicalOffset']:,}"
    follow(page.get_by_role("link", name="its unit"))
    here = page.locator("tr[aria-current]")
    assert f"{row['queueOffset']:,}" in here.get_by_role("rowheader").inner_text()
    follow(here.get_by_role("link"))
    entries = page.get_by_role("table", name="Index entries of each key")
    follow(entries.get_by_role("link", name=row["keys"], exact=True))
    assert page.locator("main tbody tr").count() >= 1
    page.go_back()
    follow(entries.get_by_role("cell").first.get_by_role("link"))
    page.get_by_role("img", name="slots by the length of their chain").wait_for()


def test_data_engineer_pages_through_all_messages_of_a_topic_without_a_silent_end(
    store_site: Site, visitor: Visitor
) -> None:
    with MessageStore.open(store_site.root) as store:
        topic = store.topics[-1]
        expected = sum(batch.num_rows for batch in store.messages(topic=topic, columns=["phy_offset"], scan=False))
        size = store.commit_log.max_offset - store.commit_log.min_offset
    assert expected > 20
    page = visitor.open(store_site, f"/messages?topic={topic}&rows=9")
    seen: list[str] = []
    while True:
        seen += page.get_by_role("table").get_by_role("rowheader").all_inner_texts()
        text = _scanned(page)
        assert "Scanned " in text
        if page.get_by_role("link", name="Older messages").count() == 0:
            break
        assert "That is all" not in text
        follow(page.get_by_role("link", name="Older messages"))
    assert "That is all: the log begins here." in text
    assert f"of {size / 1024:.1f} KiB" in text
    assert len(seen) == len(set(seen)) == expected


def test_data_engineer_filters_and_takes_the_same_rows_as_json_csv_and_commands(
    store_site: Site, visitor: Visitor
) -> None:
    row = _keyed()
    visitor.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page = visitor.open(store_site, "/messages")
    page.get_by_label("Topic").fill(row["topic"])
    page.get_by_label("Key").fill(row["keys"])
    follow(page.get_by_role("button", name="Show"))
    assert page.locator("tbody tr").count() == 1
    shared = page.url
    rows = json.loads(store_site.ask(shared.removeprefix(store_site.base).replace("/messages", "/messages.json")).body)
    assert [each["phy_offset"] for each in rows] == [row["physicalOffset"]]
    answer = store_site.ask(page.get_by_role("link", name="CSV").get_attribute("href") or "")
    assert answer.headers["content-type"].startswith("text/csv")
    assert [each["phy_offset"] for each in csv.DictReader(io.StringIO(answer.text))] == [str(row["physicalOffset"])]
    page.goto(f"{store_site.base}/search?topic={row['topic']}&key={row['keys']}")
    page.get_by_role("button", name="Copy as command").click()
    page.get_by_role("button", name="Copied").wait_for()
    words = shlex.split(page.evaluate("navigator.clipboard.readText()"))
    assert words[0] == "logdex"
    ran = subprocess.run([sys.executable, "-m", *words, "--json"], capture_output=True, text=True, check=True)
    assert [json.loads(line)["phy_offset"] for line in ran.stdout.splitlines()] == [row["physicalOffset"]]
    page.get_by_role("button", name="Copy as Python").click()
    page.locator("button[data-copy]").nth(1).filter(has_text="Copied").wait_for()
    program = page.evaluate("navigator.clipboard.readText()")
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert f"phy_offset={row['physicalOffset']}" in ran.stdout


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/topics",
        "/topic?topic=TopicTest",
        "/queue?topic=TopicTest&queue=0",
        "/messages?topic=TopicTest&order=oldest",
        "/index",
        "/log",
    ],
)
def test_every_page_of_a_store_has_a_program_that_runs(store_site: Site, visitor: Visitor, path: str) -> None:
    page = visitor.open(store_site, path)
    program = page.locator(".copy code").last.inner_text()
    subprocess.run([sys.executable, "-W", "ignore", "-c", program], capture_output=True, check=True)
    words = shlex.split(page.locator(".copy code").first.inner_text())
    subprocess.run([sys.executable, "-m", *words], capture_output=True, check=True)


def test_data_engineer_checks_a_damaged_store_and_sees_where_it_is_damaged(
    damaged_site: Site, visitor: Visitor
) -> None:
    page = visitor.open(damaged_site)
    follow(page.get_by_role("link", name="Check everything"))
    follow(page.get_by_role("link", name="Check everything"))
    page.locator(".verdict.bad").wait_for()
    assert "log-frame" in page.get_by_role("table", name="Findings").inner_text()
    with MessageStore.open(damaged_site.root) as store:
        report = store.verify()
    assert page.locator("tbody tr").count() == min(50, len(report.findings))
    finding = next(each for each in report.findings if each.kind == "log-frame")
    page.goto(f"{damaged_site.base}/log-file?name={finding.path.rpartition('/')[2]}")
    assert page.locator("svg.strip rect.bad").count() >= 1
    assert "damaged part" in page.locator("main").inner_text()
    page.goto(f"{damaged_site.base}/messages?order=oldest&rows=500")
    assert "Passed over:" in page.locator("main").inner_text()


def test_spark_engineer_reads_how_full_an_index_directory_is(index_site: Site, visitor: Visitor) -> None:
    page = visitor.open(index_site)
    follow(page.locator("tbody").get_by_role("link").first)
    for picture in ("slots by the length of their chain", "entries by part of the slots", "entries by store time"):
        page.get_by_role("img", name=picture).wait_for()
    row = _keyed()
    page.goto(f"{index_site.base}/search?topic={row['topic']}&key={row['keys']}")
    assert f"{row['physicalOffset']:,}" in page.get_by_role("table").inner_text()
    page.goto(f"{index_site.base}/verify")
    follow(page.get_by_role("link", name="Check everything"))
    page.locator(".verdict.ok").wait_for()


def test_spark_engineer_reads_partitions_transactions_and_records_of_kafka(kafka_site: Site, visitor: Visitor) -> None:
    page = visitor.open(kafka_site)
    follow(page.get_by_role("link", name="tx-one"))
    follow(page.get_by_role("link", name="tx-one-0", exact=True))
    with LogDir.open(kafka_site.root) as logs:
        log = logs.log("tx-one", 0)
        aborted = log.aborted_transactions()
        committed = sum(batch.num_rows for batch in log.records(isolation="read_committed"))
        segments = len(log.segments)
    assert page.get_by_role("table", name="Aborted transactions").locator("tbody tr").count() == len(aborted)
    assert page.get_by_role("table", name="Producers").locator("tbody tr").count() >= 4
    assert page.get_by_role("table", name="Segments, the newest first").locator("tbody tr").count() == segments
    follow(page.get_by_role("link", name="Records of this partition"))
    page.get_by_label("Transactions").select_option("read_committed")
    page.get_by_label("Order").select_option("oldest")
    follow(page.get_by_role("button", name="Show"))
    seen = 0
    while True:
        seen += page.locator("tbody tr").count()
        if page.get_by_role("link", name="Newer records").count() == 0:
            break
        follow(page.get_by_role("link", name="Newer records"))
    assert seen == committed
    assert "That is all: the partition ends here." in _scanned(page)
    follow(page.locator("tbody").get_by_role("link").first)
    page.get_by_role("heading", name="Value").wait_for()
    page.goto(f"{kafka_site.base}/segment?topic=tx-one&partition=0&base=0")
    follow(page.get_by_role("table", name="Entries of the time index").get_by_role("link").first)
    assert "Record " in page.get_by_role("heading", level=1).inner_text()


def test_spark_engineer_searches_a_key_in_all_partitions_of_a_topic(kafka_site: Site, visitor: Visitor) -> None:
    with LogDir.open(kafka_site.root) as logs:
        keys = [key for batch in logs.records("tx-two", columns=["key"]) for key in batch.column(0).to_pylist() if key]
    key = next(key.decode() for key in keys if key.isascii())
    page = visitor.open(kafka_site, f"/search?topic=tx-two&key={key}")
    assert page.locator("main h2").first.inner_text().startswith(f"{keys.count(key.encode())} record")
    assert page.locator(".scanned").count() == 3


def test_pages_work_without_scripts(store_site: Site, visit: Callable[..., Visitor]) -> None:
    page = visit(java_script_enabled=False).open(store_site, "/search?key=nobody&topic=TopicTest")
    follow(page.get_by_role("link", name="Show it"))
    assert page.locator(".causes li").count() == 1
    page.goto(f"{store_site.base}/verify")
    follow(page.get_by_role("link", name="Check everything"))
    while page.get_by_role("link", name="Reload").count():
        follow(page.get_by_role("link", name="Reload"))
    assert page.locator(".verdict").count() == 1


def test_pages_work_by_keyboard(store_site: Site, visitor: Visitor) -> None:
    page = visitor.open(store_site)
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the content"
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "content"
    page.keyboard.press("/")
    assert page.evaluate("document.activeElement.id") == "quick"
    page.keyboard.type("k1")
    page.keyboard.press("Enter")
    page.get_by_role("heading", name="Search: k1").wait_for()
    # A wide table scrolls by keyboard, too.
    assert page.locator(".wide").first.get_attribute("tabindex") == "0"
