"""`logdex browse --decode`: lists and pages show what a body decodes to, or why it does not decode."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import msgpack

from browsing import ORDERS, serve
from logdex.cli import main
from logdex.kafka import LogDirWriter
from logdex.rocketmq import StoreWriter

if TYPE_CHECKING:
    from pathlib import Path

    import pytest
    from playwright.sync_api import Page

    from browsing import Site, Visitor


def _previews(page: Page) -> list[str]:
    return [text.strip() for text in page.locator("td.preview").all_inner_texts()]


def test_a_list_shows_what_bodies_decode_to(decoded_site: Site, visitor: Visitor) -> None:
    page = visitor.open(decoded_site, "/messages?order=oldest")
    shown = _previews(page)
    assert [json.loads(text) for text in shown[:5]] == ORDERS[:5]
    assert page.locator("td.preview").nth(5).locator(".badge").first.inner_text().strip()
    assert shown[5].endswith("08 00 04 75 31 08 78 78 78")
    # Marks are in what is shown; the pattern itself searches the bodies.
    page.goto(f"{decoded_site.base}/messages?grep=u1")
    assert set(page.locator("td.preview mark").all_inner_texts()) == {"u1", "75 31"}
    page.goto(f"{decoded_site.base}/search?topic=Orders&key=o3")
    assert [json.loads(text) for text in _previews(page)] == [ORDERS[3]]


def test_a_page_shows_what_a_body_decodes_to(decoded_site: Site, visitor: Visitor) -> None:
    rows = decoded_site.json("/messages.json?order=oldest")
    page = visitor.open(decoded_site, f"/message?at={rows[3]['phy_offset']}")
    assert page.locator(".pager b[aria-current]").inner_text() == "decoded"
    body = page.get_by_role("region", name="Body as decoded")
    assert body.locator("li > b").all_inner_texts() == ['"id"', '"user"', '"note"']
    page.get_by_role("link", name="hex", exact=True).click()
    assert page.get_by_role("region", name="Body as hex").inner_text().startswith("00000000  06 00 04 75 30")
    page.get_by_role("link", name="decoded", exact=True).click()
    assert body.is_visible()
    page.goto(f"{decoded_site.base}/message?at={rows[5]['phy_offset']}")
    assert "it does not decode: " in page.locator("p.note").inner_text()
    assert page.get_by_role("region", name="Body as text").inner_text() == "\\x08\\x00\\x04u1\\x08xxx"


def test_values_and_keys_of_records(tmp_path: Path, visitor: Visitor) -> None:
    # The maps have no common fields.
    values = [{"id": 1, "nan": float("nan")}, {"id": {"deep": [1]}}, {7: b"\0"}]
    records = {"key": [msgpack.packb({"k": 1}), b"\xc1", None], "value": [msgpack.packb(value) for value in values]}
    with LogDirWriter.open(tmp_path / "logs") as writer:
        writer.append("t", 0, records)
    with serve(tmp_path / "logs", "--decode", "value=msgpack", "--decode", "key=msgpack") as site:
        page = visitor.open(site, "/records?topic=t&partition=0&order=oldest")
        assert _previews(page) == ['{"id":1,"nan":"NaN"}', '{"id":{"deep":[1]}}', '{"7":"AA=="}']
        page.goto(f"{site.base}/record?topic=t&partition=0&offset=0")
        assert page.get_by_role("region", name="Value as decoded").locator("li > b").count() == 2
        assert '"k"' in page.get_by_role("region", name="Key").inner_text()
        page.goto(f"{site.base}/record?topic=t&partition=0&offset=1")
        assert "c1" in page.get_by_role("region", name="Key").inner_text()


def test_a_registry_that_does_not_answer_hides_no_message(tmp_path: Path, visitor: Visitor) -> None:
    with StoreWriter.open(tmp_path / "store") as writer:
        writer.put_message("T", b"\0\0\0\0\x05\x02")
    with serve(tmp_path / "store", "--decode", "body=avro:http://me:secret@127.0.0.1:9") as site:
        page = visitor.open(site, "/messages")
        [text] = _previews(page)
        assert "refused" in text
        assert text.endswith("00 00 00 00 05 02")
        assert "secret" not in page.content()
        page.goto(f"{site.base}/message?at=0")
        assert "refused" in page.locator("p.note").inner_text()
        assert "secret" not in page.content()


def test_wrong_formats_end_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with StoreWriter.open(tmp_path / "store") as writer:
        writer.put_message("T", b"x", keys="k")
    for form, message in {
        "body=yaml": "expected text, json, avro:FILE.avsc",
        "value=json": "decode: value: expected body",
        "body=avro:missing.avsc": "missing.avsc",
    }.items():
        assert main(["browse", str(tmp_path / "store"), "--no-open", "--decode", form]) == 2
        assert message in capsys.readouterr().err
    assert main(["browse", str(tmp_path / "store" / "index"), "--no-open", "--decode", "body=json"]) == 2
    assert "an index directory has no bodies to decode" in capsys.readouterr().err
