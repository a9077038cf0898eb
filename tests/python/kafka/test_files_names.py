"""Names of partition directories and of segment files."""

from __future__ import annotations

from pathlib import Path

import pytest

from logdex.kafka.files import (
    TopicPartition,
    parse_partition_directory,
    parse_segment_file,
    partition_of,
    renamed_partition,
)

HEX = "0123456789abcdef0123456789abcdef"


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("00000000000000000000.log", (0, ".log")),
        ("00000000000000000042.timeindex", (42, ".timeindex")),
        ("42.index", (42, ".index")),
        ("09223372036854775807.log", (2**63 - 1, ".log")),
        ("00000000000000000007.txnindex", (7, ".txnindex")),
        ("00000000000000000007.snapshot", (7, ".snapshot")),
        ("09223372036854775808.log", None),
        ("99999999999999999999.log", None),
        ("00000000000000000042.log.deleted", None),
        ("00000000000000000042.index.swap", None),
        ("-00000000000000000001.log", None),
        ("\u0660" * 19 + "\u0667.log", (7, ".log")),
        ("00000000000000000042", None),
        (".log", None),
        ("leader-epoch-checkpoint", None),
    ],
)
def test_segment_file(name: str, expected: tuple[int, str] | None) -> None:
    assert parse_segment_file(name) == expected


def test_names_round_trip() -> None:
    for offset in (0, 1, 9_999, 2**31, 2**63 - 1):
        name = f"{offset:020d}.index"
        assert len(name) == 20 + len(".index")
        assert parse_segment_file(name) == (offset, ".index")


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("my-topic-12", TopicPartition("my-topic", 12)),
        ("__consumer_offsets-0", TopicPartition("__consumer_offsets", 0)),
        ("a--1", TopicPartition("a-", 1)),
        ("topic", None),
        ("-1", None),
        ("topic-", None),
        ("topic-x", None),
        ("topic-007", None),
        ("topic-2147483647", TopicPartition("topic", 2**31 - 1)),
        ("topic-2147483648", None),
        (f"topic-1.{HEX}-delete", None),
        (f"topic-1.{HEX}-future", None),
        (f"topic-1.{HEX}-stray", None),
        ("remote-log-index-cache", None),
    ],
)
def test_partition_directory(name: str, expected: TopicPartition | None) -> None:
    assert parse_partition_directory(name) == expected


def test_a_renamed_replica_is_told() -> None:
    for why in ("delete", "future", "stray"):
        assert renamed_partition(f"t-3.{HEX}-{why}") == why
        assert partition_of(Path(f"/data/t-3.{HEX}-{why}")) == TopicPartition("t", 3)
    assert renamed_partition("t-3") is None
    assert partition_of(Path("/data/backup of t")) == TopicPartition("backup of t", 0)
