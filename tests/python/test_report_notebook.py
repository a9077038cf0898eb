"""Results in a notebook and at the prompt: short, escaped; times as text; the same shapes for puts."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import golden_kafka
from kafka_search import find
from logdex.kafka import LogDir
from logdex.report import Finding, Report
from logdex.rocketmq import IndexFile, IndexService, MessageStore, StoreWriter

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

SMALL: dict[str, Any] = {"hash_slots": 16, "max_entries": 4}
TIME = 1_795_260_608_628
TEXT = "2026-11-21T11:30:08.628Z"


class Cells(HTMLParser):
    """Reads the cells of tables; any other tag is an error."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.texts: list[str] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag in ("table", "caption", "thead", "tbody", "tfoot", "tr", "th", "td"), tag
        assert {name for name, _ in attrs} <= {"colspan"}

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def test_a_long_body_is_not_printed(tmp_path: Path) -> None:
    with StoreWriter.open(tmp_path / "store", services=False) as writer:
        writer.put_message("T", keys="<b>k</b>", body=b"x" * (2 << 20))
        writer.put_message("T", keys="short", body=b"<script>")
    with MessageStore.open(tmp_path / "store") as store:
        (long,), (short,) = store.find("T", "<b>k</b>"), store.find("T", "short")
        assert len(repr(long)) < 1_000
        assert "body=<2,097,152 bytes, b'xxx" in repr(long)
        assert "body=b'<script>'" in repr(short)
        cells = Cells(store.find("T", "<b>k</b>")._repr_html_()).texts
        assert "<b>k</b>" in cells
        assert sum(map(len, cells)) < 1_000


def test_results_are_tables(store: Callable[[str], Path]) -> None:
    with MessageStore.open(store("basic")) as opened:
        found = opened.find("AaTopic", "BB")
        assert Cells(found._repr_html_()).texts.count("AaTopic") == 16
        explanation = opened.explain("AaTopic", "nobody's")
        assert repr(explanation) == "Explanation(topic='AaTopic', key=\"nobody's\": 0 found, not-here)"
        assert "not-here" in Cells(explanation._repr_html_()).texts
        assert opened.index is not None
        assert "61582" in Cells(opened.index.files[0].header._repr_html_()).texts
    report = Report([Finding("f<i>", at, "index-count", "<", ">") for at in range(30)], {"files": 1})
    cells = Cells(report._repr_html_()).texts
    assert (cells[0], cells.count("f<i>"), cells[-1]) == (
        "30 findings; checked 1 files; 30 index-count",
        20,
        "and 10 more",
    )
    assert repr(report) == "Report(30 findings; checked 1 files; 30 index-count)"


def test_records_are_tables(tmp_path: Path) -> None:
    with LogDir.open(golden_kafka.unpack("codecs", tmp_path / "codecs")) as logs:
        row = next(row for row in pa.table(logs.records()).to_pylist() if row["key"] is not None)
        found = find(logs, row["topic"], row["key"])
    assert row["topic"] in Cells(found._repr_html_()).texts


def test_times_are_text(store: Callable[[str], Path], tmp_path: Path) -> None:
    with MessageStore.open(store("basic")) as opened:
        for text in (TEXT, "2026-11-21T12:30:08.628+01:00", "20261121T113008.628Z"):
            expected = [message.phy_offset for message in opened.find("AaTopic", "BB", begin=TIME)]
            assert [message.phy_offset for message in opened.find("AaTopic", "BB", begin=text)] == expected
            assert len(expected) == 1
        assert not opened.find("AaTopic", "BB", begin="2026-11-21T11:30:08.6280001Z")
        assert len(opened.find("AaTopic", "BB", begin=TIME, end="2026-11-21T11:30:08.6280009Z")) == 1
        for text in ("2026-11-21", "2026-11-21T11:30:08", "soon", "-2h", ""):
            with pytest.raises(ValueError, match=re.escape(f'begin="{text}": expected ISO 8601 with a zone')):
                opened.find("AaTopic", "BB", begin=text)
    with IndexFile.create(tmp_path / "100", **SMALL) as file:
        assert file.put_key("T#k", 5, TEXT)
        assert file.header.begin_timestamp == TIME
    with LogDir.open(golden_kafka.unpack("codecs", tmp_path / "codecs")) as logs:
        partition = logs.partitions()[0]
        log = logs.log(partition.topic, partition.partition)
        assert log.offset_for_timestamp("1970-01-01T00:00:00Z") == log.offset_for_timestamp(0)


def test_a_directory_takes_puts_as_a_file_does(tmp_path: Path) -> None:
    rows = [(f"T#k{number}", 100 * number, TIME + 1_000 * number) for number in range(7)]
    keys, offsets, times = (list(column) for column in zip(*rows, strict=True))
    batch = {"topic": ["T"] * 7, "key": [key[2:] for key in keys], "phy_offset": offsets, "store_timestamp": times}
    services = {
        name: IndexService.open(tmp_path / name, mode="a", **SMALL) for name in ("key", "keys", "topics", "batch")
    }
    assert all(services["key"].put_key(*row) for row in rows)
    assert services["keys"].put_batch(keys, offsets, times) == 7
    assert services["topics"].put_batch(batch["key"], offsets, times, topics="T") == 7
    assert services["batch"].put_batch(batch) == 7
    for service in services.values():
        service.close()
    (first, *others) = ([file.read_bytes() for file in sorted((tmp_path / name).iterdir())] for name in services)
    assert len(first) == 3
    assert others == [first] * 3
