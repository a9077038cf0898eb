"""docs/spark.md has a row for every option that a format takes, and for no other."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from logdex.spark import kafka_source
from logdex.spark.messages import source as messages_source
from logdex.spark.options import STORAGE

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "spark.md").read_text(encoding="utf-8")
IGNORED = {"kafka.*", "kafkaConsumer.*", "fetchOffset.*", "groupIdPrefix"}


@pytest.mark.parametrize(
    ("heading", "options"),
    [
        ("Read messages", (*messages_source._OPTIONS, f"{STORAGE}*")),
        ("Read Kafka logs", (*kafka_source._OPTIONS, f"{STORAGE}*")),
        ("Write messages into a new store", messages_source.WRITE_OPTIONS),
    ],
)
def test_the_table_has_the_options_of_the_format(heading: str, options: tuple[str, ...]) -> None:
    section = PAGE.split(f"\n## {heading}\n")[1].split("\n## ")[0]
    table = section.split("| option | meaning |")[1].split("\n\n")[0]
    rows = re.findall(r"^\| (`.+?) \|", table, re.MULTILINE)
    listed = {name for row in rows for name in re.findall(r"`([^`]+)`", row)}
    assert listed - IGNORED == set(options)
