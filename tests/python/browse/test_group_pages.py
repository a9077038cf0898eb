"""Pages about consumer groups."""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

import golden_kafka
from browsing import follow, serve
from logdex.kafka import LogDir
from logdex.rocketmq import StoreWriter

if TYPE_CHECKING:
    from browsing import Visitor

GOLDEN = Path(__file__).resolve().parents[2] / "golden" / "kafka-groups"


def test_lags_of_a_store_are_those_of_the_brokers_table(tmp_path: Path, visitor: Visitor) -> None:
    root = tmp_path / "store"
    with StoreWriter.open(root) as writer:
        for number in range(10):
            writer.put_message("Orders", b"body", queue_id=number % 2)
    (root / "config").mkdir(exist_ok=True)
    table = {"Orders@billing": {"0": 1, "1": 5}, "Orders@audit": {"0": 5, "1": 5}, "Gone@audit": {"3": 7}}
    (root / "config" / "consumerOffset.json").write_text(json.dumps({"offsetTable": table}))
    with serve(root) as site:
        page = visitor.open(site)
        follow(page.get_by_role("link", name="Groups"))
        rows = [row.inner_text().split("\t") for row in page.locator("tbody tr").all()]
        assert [(row[0], row[3]) for row in rows] == [("billing", "4"), ("audit", "0")]
        follow(page.get_by_role("link", name="billing"))
        cells = [row.inner_text().split("\t")[:4] for row in page.locator("tbody tr").all()]
        assert cells == [["Orders 0", "1", "5", "4"], ["Orders 1", "5", "5", "0"]]
        follow(page.get_by_role("link", name="Orders 0"))
        assert page.locator("tr[aria-current]").get_by_role("rowheader").inner_text() == "1"
        names = ("topic", "queue_id", "offset", "end_offset", "lag", "commit_timestamp")
        found = [tuple(row[name] for name in names) for row in site.json("/group.json?group=audit")]
        assert found == [("Gone", 3, 7, None, None, None), ("Orders", 0, 5, 5, 0, None), ("Orders", 1, 5, 5, 0, None)]
        assert site.ask("/group?group=nobody").status == 404


def test_lags_of_a_log_directory_are_those_of_the_records(tmp_path: Path, visitor: Visitor) -> None:
    golden_kafka.unpack_archive(GOLDEN / "logs.tar.xz", tmp_path / "logs")
    said = [line.split() for line in (GOLDEN / "offsets.txt").read_text().splitlines()]
    with serve(tmp_path / "logs") as site:
        shown = {(row["group"], row["topic"], row["queue_id"], row["offset"]) for row in site.json("/groups.json")}
        assert shown == {(group, topic, int(partition), int(offset)) for group, topic, partition, offset in said}
        page = visitor.open(site, "/group?group=plain")
        assert page.locator("tbody tr").count() == 2
        follow(page.locator("tbody").get_by_role("link").first)
        assert page.get_by_role("heading", level=1).inner_text() == "Records of orders-0"


def test_the_lag_over_time_is_that_of_the_groups_as_of_each_time(tmp_path: Path, visitor: Visitor) -> None:
    golden_kafka.unpack_archive(GOLDEN / "logs.tar.xz", tmp_path / "logs")
    with serve(tmp_path / "logs") as site, LogDir.open(tmp_path / "logs") as logs:
        page = visitor.open(site, "/group?group=plain")
        bars = page.get_by_role("img", name="lag at the end of each 100 ms").locator("title").all_text_contents()
        found = {time: int(lag.removesuffix(" offsets behind")) for time, lag in (bar.split(": ") for bar in bars)}
        assert len(found) == 3
        for time, lag in found.items():
            end = int(datetime.fromisoformat(time.replace("Z", "+00:00")).timestamp() * 1000) + 99
            assert lag == sum(row.lag or 0 for row in logs.groups("plain", as_of=end)) > 0


def test_a_store_without_groups_says_so(tmp_path: Path, visitor: Visitor) -> None:
    with StoreWriter.open(tmp_path / "store") as writer:
        writer.put_message("Orders", b"body")
    with serve(tmp_path / "store") as site:
        assert "No consumer group" in visitor.open(site, "/groups").locator("main").inner_text()
