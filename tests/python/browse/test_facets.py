"""Counts of values, each of which narrows a list to it."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import golden
from browsing import answers, follow
from logdex.browse import facets

if TYPE_CHECKING:
    import pytest
    from playwright.sync_api import Page

    from browsing import Site, Visitor


def facet(page: Page, name: str) -> dict[str, int]:
    rows = page.get_by_role("region", name=f"By {name}", exact=True).locator("li").all()
    return {row.locator("bdi").inner_text(): int(row.locator(".n").inner_text()) for row in rows}


def test_values_are_counted_and_each_narrows_the_list(store_site: Site, visitor: Visitor) -> None:
    rows = golden.rows("basic", "messages")
    page = visitor.open(store_site, "/messages")
    follow(page.get_by_role("link", name="Count values"))
    assert f"Values in {len(rows)} messages" in page.locator(".counts").inner_text()
    topics, tags = Counter(row["topic"] for row in rows), Counter(row["tags"] for row in rows if row.get("tags"))
    keys = Counter(key for row in rows for key in (row.get("keys") or "").split(" ") if key)
    assert facet(page, "topic") == dict(topics.most_common(10))
    assert [topic.startswith(("%", "RMQ", "SCHEDULE")) for topic in facet(page, "topic")] == [False] * 6 + [True] * 4
    assert facet(page, "tag") == {tag: tags[tag] for tag in facet(page, "tag")}
    assert sorted(facet(page, "key").values(), reverse=True) == [count for _, count in keys.most_common(10)]
    assert facet(page, "hour") == {"2026-11-21T11:00Z": len(rows)}
    follow(page.get_by_role("link", name="TagF", exact=True))
    assert f"Values in {tags['TagF']} messages" in page.locator(".counts").inner_text()
    assert page.get_by_label("Tag", exact=True).input_value() == "TagF"
    assert page.get_by_role("region", name="By tag", exact=True).count() == 0
    follow(page.get_by_role("region", name="By hour", exact=True).get_by_role("link"))
    assert f"Values in {tags['TagF']} messages" in page.locator(".counts").inner_text()


def test_values_of_records_are_counted(values_site: Site, visitor: Visitor) -> None:
    page = visitor.open(values_site, "/records?topic=orders&partition=0&counts=1")
    assert facet(page, "key") == {"u0": 10, "u1": 10, "u2": 10, "gone": 1, "0xfffe": 1}
    assert facet(page, "hour") == {"2026-11-21T11:00Z": 30, "2026-11-21T14:00Z": 2}
    follow(page.get_by_role("link", name="u1", exact=True))
    assert "Values in 10 records" in page.locator(".counts").inner_text()
    assert page.locator("table.list tbody tr").count() == 10
    follow(page.get_by_role("region", name="By hour", exact=True).get_by_role("link"))
    assert page.locator("table.list tbody tr").count() == 10


def test_no_more_rows_are_counted_than_the_limit(orders_site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(facets, "MOST_ROWS", 7)
    (answer,) = answers(orders_site.root, "/messages?topic=Orders&counts=1")
    assert "Values in 7 messages" in answer.text
    assert "; there is more" in answer.text
