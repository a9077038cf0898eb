"""Pages of messages by position: read one after the other, they are what one scan of the whole log returns."""

from __future__ import annotations

import warnings
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Literal

import pytest

import golden
from logdex.errors import DamageWarning
from logdex.rocketmq import MessageStore

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def _read_on(store: MessageStore, limit: int, **filters: Any) -> tuple[list[int], int]:
    """Return the offsets of all pages, and the number of pages with findings."""
    offsets: list[int] = []
    found, position, done = 0, None, -1
    for _ in range(100_000):
        page = store.page(position, limit=limit, columns=["phy_offset"], **filters)
        assert page.batch.num_rows <= limit
        assert done < page.done <= page.total or page.total == 0
        done = page.done
        offsets += page.batch.column("phy_offset").to_pylist()
        found += bool(page.findings)
        position = page.next_position
        if position is None:
            assert page.done == page.total
            return offsets, found
    raise AssertionError("the pages never end")


def _expected(store: MessageStore, **filters: Any) -> list[int]:
    # Queues have no units of some messages of transactions.
    scan: Literal[False, "auto"] = False if filters.get("topic") in store.topics else "auto"
    batches = list(store.messages(columns=["phy_offset"], scan=scan, **filters))
    return [offset for batch in batches for offset in batch.column("phy_offset").to_pylist()]


@pytest.mark.parametrize("case", golden.STORES)
def test_pages_are_the_whole_log_in_both_orders(store: Callable[[str], Path], case: str) -> None:
    with MessageStore.open(store(case)) as opened:
        expected = _expected(opened)
        assert len(expected) > 50
        for limit in (7, 500):
            assert _read_on(opened, limit, newest_first=False)[0] == expected
            assert _read_on(opened, limit)[0] == expected[::-1]


@pytest.mark.filterwarnings("ignore::logdex.UnknownTopicWarning")
@pytest.mark.parametrize("case", ["basic", "killed", "v5-basic"])
def test_pages_of_filters_are_the_messages_of_the_filters(store: Callable[[str], Path], case: str) -> None:
    with MessageStore.open(store(case)) as opened:
        heads = opened.messages(columns=["topic", "queue_id", "tags", "keys", "store_timestamp"]).read_all()
        rows = [
            dict(zip(heads.column_names, row, strict=True))
            for row in zip(*(heads[n].to_pylist() for n in heads.column_names), strict=True)
        ]
        times = sorted(row["store_timestamp"] for row in rows)
        middle = {"begin": times[len(times) // 3], "end": times[2 * len(times) // 3]}
        keyed = next(row for row in rows if row["keys"])
        tagged = next(row for row in rows if row["tags"])
        filters: list[dict[str, Any]] = [
            middle,
            {"keys": [keyed["keys"].split(" ")[0]]},
            {"tags": [tagged["tags"]]},
            {"topic": "nobody's"},
            *({"topic": topic} for topic in opened.topics),
            {"topic": keyed["topic"], "queue_id": keyed["queue_id"], **middle},
            {"topic": tagged["topic"], "tags": [tagged["tags"]]},
        ]
        for each in filters:
            expected = _expected(opened, **each)
            assert _read_on(opened, 3, newest_first=False, **each)[0] == expected, each
            assert _read_on(opened, 3, **each)[0] == expected[::-1], each


@pytest.mark.parametrize("name", [name for name in golden.DAMAGED if name.startswith(("crc", "magic", "log-"))])
def test_pages_of_a_damaged_log_pass_over_the_damage_and_name_it(
    damaged_store: Callable[[str], Path], name: str
) -> None:
    with MessageStore.open(damaged_store(name)) as opened:
        with warnings.catch_warnings(record=True) as issued:
            warnings.simplefilter("always", DamageWarning)
            expected = [o for batch in opened.messages(columns=["phy_offset"]) for o in batch.column(0).to_pylist()]
        is_damaged = any(issubclass(each.category, DamageWarning) for each in issued)
        for newest_first in (True, False):
            offsets, found = _read_on(opened, 20, newest_first=newest_first)
            assert offsets == (expected[::-1] if newest_first else expected)
            assert bool(found) == is_damaged


@pytest.mark.parametrize(("number", "is_deleted"), [(0, False), (1, False), (1, True)])
def test_pages_of_a_topic_are_whole_without_a_file_of_its_queue(
    store: Callable[[str], Path], number: int, is_deleted: bool
) -> None:
    root = store("basic")
    lost = root / "consumequeue" / "TopicTest" / "0" / f"{1000 * number:020}"
    lost.unlink() if is_deleted else lost.rename(f"{lost}.gz")
    with MessageStore.open(root) as opened:
        expected = opened.messages("TopicTest", columns=["phy_offset"], scan=True).read_all()["phy_offset"].to_pylist()
        assert _read_on(opened, 7, topic="TopicTest", newest_first=False)[0] == expected
        assert _read_on(opened, 7, topic="TopicTest")[0] == expected[::-1]


def test_a_page_ends_when_its_time_is_over_and_says_where(store: Callable[[str], Path]) -> None:
    with MessageStore.open(store("basic")) as opened:
        # Never without a step, or a reader of a slow disk would ask for the same page again and again.
        page = opened.page(keys=["nobody's"], seconds=0.0)
        assert page.next_position == opened.commit_log.max_offset
        assert (page.batch.num_rows, page.done) == (0, 0)
        step = opened.page(page.next_position, keys=["nobody's"], seconds=0.0)
        assert step.next_position is not None
        assert step.next_position < page.next_position
        assert 0 < step.done < step.total
        rest = opened.page(page.next_position, keys=["nobody's"])
        assert (rest.batch.num_rows, rest.next_position) == (0, None)
        assert rest.done == rest.total == opened.commit_log.max_offset - opened.commit_log.min_offset


def test_a_frame_inside_of_a_body_is_no_first_message(store: Callable[[str], Path]) -> None:
    """A copy of a log in a body states offsets of its own."""
    root = store("basic")
    with MessageStore.open(root) as opened:
        for before, offset in pairwise(_expected(opened)[:20]):
            for position in (before + 1, offset - 1, offset):
                page = opened.page(position, columns=["phy_offset"], limit=1, newest_first=False)
                assert page.batch.column("phy_offset").to_pylist() == [offset]
