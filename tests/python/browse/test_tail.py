"""The live tail shows what is written while the page is open."""

from __future__ import annotations

from typing import TYPE_CHECKING

from browsing import append_records, follow, serve
from logdex import kafka
from logdex.rocketmq import StoreWriter

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from browsing import Visitor


def test_messages_come_to_the_top_as_they_are_written(tmp_path: Path, visitor: Visitor) -> None:
    root = tmp_path / "store"
    with StoreWriter.open(root) as writer:
        for number in range(3):
            writer.put_message("Orders", f"old {number}".encode(), keys=f"k{number}")
        writer.flush()
        with serve(root) as site:
            page = visitor.open(site, "/messages?topic=Orders&grep=o")
            follow(page.get_by_role("link", name="Live tail"))
            rows = page.locator("td.preview")
            assert rows.all_inner_texts() == ["old 2", "old 1", "old 0"]
            for number in range(3, 5):
                writer.put_message("Other", b"another topic")
                writer.put_message("Orders", b"skipped")
                writer.put_message("Orders", f"one {number}".encode())
                writer.flush()
                page.get_by_text(f"one {number}").wait_for()
            assert rows.all_inner_texts() == ["one 4", "one 3", "old 2", "old 1", "old 0"]
            page.get_by_role("button", name="Pause").click()
            writer.put_message("Orders", b"one more")
            writer.flush()
            page.wait_for_timeout(3_000)
            assert page.get_by_text("one more").count() == 0
            page.get_by_role("button", name="Go on").click()
            page.get_by_text("one more").wait_for()
            assert page.locator("#poll").count() == 1


def test_a_server_that_does_not_answer_is_asked_again(tmp_path: Path, visitor: Visitor) -> None:
    with StoreWriter.open(tmp_path / "store") as writer:
        writer.put_message("Orders", b"old")
        writer.flush()
        with serve(tmp_path / "store") as site:
            page = visitor.open(site, "/messages/tail")
            page.route("**/messages/new?*", lambda route: route.abort())
            page.get_by_text("No answer").wait_for()
            page.unroute("**/messages/new?*")
            writer.put_message("Orders", b"new")
            writer.flush()
            page.get_by_text("new", exact=True).wait_for()
            assert page.get_by_text("No answer").count() == 0
    # The browser reports the requests that failed.
    assert visitor.errors
    visitor.errors.clear()


def test_a_burst_is_read_to_its_end(tmp_path: Path, visitor: Visitor) -> None:
    root = tmp_path / "store"
    with StoreWriter.open(root) as writer:
        writer.put_message("Orders", b"first")
        writer.flush()
        with serve(root) as site:
            page = visitor.open(site, "/messages/tail?rows=20")
            for number in range(90):
                writer.put_message("Orders", f"burst {number}".encode())
            writer.flush()
            page.get_by_text("burst 89", exact=True).wait_for()
            assert page.locator("td.preview").all_inner_texts() == [
                *(f"burst {number}" for number in reversed(range(90))), "first",
            ]  # fmt: skip


def test_records_come_to_the_top_as_they_are_written(tmp_path: Path, visitor: Visitor) -> None:
    root = tmp_path / "logs"
    with kafka.LogDirWriter.open(root) as writer:
        writer.create_topic("orders", 1)
        append_records(writer, "orders", 0, [{"key": b"k", "value": b"old", "timestamp": 1_795_260_605_000}])
        with serve(root) as site:
            page = visitor.open(site, "/records?topic=orders&partition=0")
            follow(page.get_by_role("link", name="Live tail"))
            for number in range(3):
                row = {"key": b"k", "value": f"new {number}".encode(), "timestamp": 1_795_260_606_000}
                append_records(writer, "orders", 0, [row])
                page.get_by_text(f"new {number}").wait_for()
            assert page.locator("td.preview").all_inner_texts() == ["new 2", "new 1", "new 0", "old"]


def test_without_scripts_a_link_reloads_the_tail(tmp_path: Path, visit: Callable[..., Visitor]) -> None:
    root = tmp_path / "store"
    with StoreWriter.open(root) as writer:
        writer.put_message("Orders", b"old")
        writer.flush()
        with serve(root) as site:
            page = visit(java_script_enabled=False).open(site, "/messages/tail?topic=Orders")
            writer.put_message("Orders", b"new")
            writer.flush()
            follow(page.get_by_role("link", name="reload"))
            assert page.locator("td.preview").all_inner_texts() == ["new", "old"]
            assert page.get_by_role("button", name="Pause").count() == 0
