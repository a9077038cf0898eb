"""Pages share long work, do not wait for it, and end it when no client waits."""

from __future__ import annotations

import asyncio
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest

import golden
from browsing import COOKIE, TOKEN
from logdex.browse import server
from logdex.browse.jobs import Shared
from logdex.browse.pictures import Piece, Series, bars, strip
from logdex.browse.server import application
from logdex.browse.store_pages import StorePages
from logdex.browse.view import Place, Query, StoppedError, View
from logdex.rocketmq import MessageStore

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path


def test_many_requests_share_one_run() -> None:
    may_end, runs = threading.Event(), []

    def work() -> int:
        runs.append(threading.get_ident())
        assert may_end.wait(20)
        return len(runs)

    shared = Shared(work)
    assert shared.get(0) is None
    found: list[int | None] = []
    threads = [threading.Thread(target=lambda: found.append(shared.get(20))) for _ in range(20)]
    for thread in threads:
        thread.start()
    may_end.set()
    for thread in threads:
        thread.join()
    assert found == [1] * 20
    assert len(runs) == 1


def test_a_result_serves_until_the_next_one_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    now, may_end = [0.0], threading.Event()
    may_end.set()
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    runs = []

    def work() -> int:
        assert may_end.wait(20)
        runs.append(1)
        now[0] += 1
        return len(runs)

    shared = Shared(work)
    assert shared.get(20) == 1
    now[0] += 9
    assert shared.get(20) == 1
    now[0] += 2
    may_end.clear()
    assert shared.get(0) == 1
    may_end.set()
    assert shared.get(20) == 2


def test_the_error_of_the_work_is_raised_and_the_next_request_begins_anew() -> None:
    errors = [TimeoutError("the disk"), None]

    def work() -> str:
        if error := errors.pop(0):
            raise error
        return "done"

    shared = Shared(work)
    with pytest.raises(TimeoutError, match="the disk"):
        shared.get(20)
    assert shared.get(20) == "done"


class OnePage:
    """A site of one page."""

    path, kind, menu = "here", "test", ()

    def __init__(self, page: Callable[[Query], View]) -> None:
        self.views = {"/": page}
        self.actions: Mapping[str, Callable[[], str]] = {}

    def close(self) -> None:
        pass


def ask(page: Callable[[Query], View], leave: threading.Event | None) -> list[dict[str, Any]]:
    """Request a page; the client disconnects when an event is set. Return the sent messages."""
    sent: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        if received:
            await asyncio.to_thread(leave.wait, 20) if leave is not None else await asyncio.sleep(20)
            return {"type": "http.disconnect"}
        received.append(1)
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Any) -> None:
        sent.append(message)

    received: list[int] = []
    headers = [(b"host", b"127.0.0.1"), (b"cookie", COOKIE.format(1).encode())]
    scope = {"type": "http", "method": "GET", "path": "/", "raw_path": b"/", "query_string": b"", "headers": headers}
    scope |= {
        "server": ("127.0.0.1", 1),
        "client": ("127.0.0.1", 2),
        "scheme": "http",
        "http_version": "1.1",
        "root_path": "",
    }
    # In a thread, because the browser of other tests has an event loop in this one.
    with ThreadPoolExecutor(1) as thread:
        thread.submit(lambda: asyncio.run(application(OnePage(page), TOKEN)(scope, receive, send))).result()
    return sent


@pytest.mark.parametrize("reason", ["the client left", "it took too long"])
def test_work_for_nobody_ends_at_its_next_step(monkeypatch: pytest.MonkeyPatch, reason: str) -> None:
    begun, ended = threading.Event(), threading.Event()
    if reason == "it took too long":
        monkeypatch.setattr(server, "_MOST_SECONDS", 0.05)

    def page(query: Query) -> View:
        begun.set()
        until = time.monotonic() + 20
        while time.monotonic() < until:
            try:
                query.go_on(1, 2)
            except StoppedError:
                ended.set()
                raise
            time.sleep(0.001)
        raise AssertionError

    sent = ask(page, begun if reason == "the client left" else None)
    assert ended.wait(20)
    assert sent[0]["status"] == (408 if reason == "the client left" else 503)


@pytest.fixture
def pages(tmp_path: Path) -> StorePages:
    """Return the pages of a broker's store."""
    root = golden.unpack("basic", tmp_path)
    return StorePages(MessageStore.open(root), Place(str(root)))


@pytest.mark.parametrize("name", ["overview", "topics"])
def test_a_page_does_not_wait_until_all_queues_are_counted(
    pages: StorePages, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    may_end = threading.Event()
    count = MessageStore.overview

    def slow(store: MessageStore) -> dict[str, Any]:
        assert may_end.wait(20)
        return count(store)

    monkeypatch.setattr(MessageStore, "overview", slow)
    page = getattr(pages, name)
    view = page(Query({}))
    assert view.template == "counting.html"
    assert view.rows is None
    may_end.set()
    # JSON and CSV have all rows.
    assert page(Query({}, is_page=False)).rows is not None
    pages.close()


def test_the_pages_of_a_store_open_no_queue_to_count_its_messages(
    pages: StorePages, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A store may have 100,000 queues."""
    monkeypatch.setattr(MessageStore, "queue", lambda *_: pytest.fail("a queue was opened"))
    view = pages.topics(Query({}, is_page=False))
    assert view.rows is not None
    expected = {(each.topic, each.messages, each.log_bytes) for each in pages._store.usage()}
    assert {(row["topic"], row["messages"], row["bytes"]) for row in view.rows.dicts()} == expected  # type: ignore[union-attr]
    pages.close()


def test_messages_after_damage_are_mentioned_on_the_first_page(tmp_path: Path) -> None:
    root = golden.unpack_damaged("crc-last-clean", tmp_path)
    # Without `abort`, the search for the end starts at the last index entry.
    (root / "abort").touch()
    with MessageStore.open(root) as store:
        end = store.commit_log.max_offset
        offsets = [
            offset for batch in store.commit_log.scan(stop="valid") for offset in batch.column("phy_offset").to_pylist()
        ]
    pages = StorePages(MessageStore.open(root), Place(str(root)))
    view = pages.overview(Query({}, is_page=False))
    assert view.values["after_damage"] == min(offset for offset in offsets if offset >= end)
    page = server._environment(pages, "key").get_template(view.template)
    text = page.render(view=view, here="/", other={}, query={}, **view.values)
    assert (
        f"damaged at offset {end:,}, and valid messages follow from offset {view.values['after_damage']:,} on" in text
    )
    pages.close()


def test_control_characters_in_a_title_of_a_picture_are_shown_as_codes() -> None:
    hostile = "\u202ereversed \x1b[2J"
    chart = bars([Series(hostile, [1, 2], 0)], ["a", "b"], hostile, [hostile, "b"])
    picture = strip([("log", [Piece(0, 1, "bad", hostile)])], 0, 10, hostile)
    for text in (chart.svg, picture):
        assert "\\u202ereversed \\x1b[2J" in text
        assert "\x1b" not in text
        assert "\u202e" not in text
