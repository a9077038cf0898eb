"""Index directories of logdex in the real IndexService: the same answers as logdex with compat="4.9.3".

Every way to build one is here: rows put in batches, messages of a commit log, a Spark job over a store, a Spark
DataFrame. Together they ask more than 10,000 questions.
"""

from __future__ import annotations

import itertools
import random
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import golden
from comparison import Comparison, build_with_the_real_service, first_difference, index_contents
from logdex.rocketmq import CommitLog, IndexService
from traffic import Put, puts, questions
from traffic_messages import columns, golden_rows, messages

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

    from rocketmq_driver import Driver

SLOTS, ENTRIES = 211, 1_500
QUESTIONS = 3_500
WAYS = 7


@pytest.fixture(scope="module")
def comparison(driver: Driver, say: Callable[[str], None]) -> Comparison:
    return Comparison(driver, say)


def test_rows_put_in_batches(comparison: Comparison, tmp_path: Path) -> None:
    rows = puts(1, 20_000)
    index = tmp_path / "index"
    with closing(IndexService.open(index, mode="a", hash_slots=SLOTS, max_entries=ENTRIES, zone="UTC")) as service:
        for batch in _cut(rows, seed=2, longest=4_000):
            assert service.put_batch(_columns(batch)) == len(batch)

    assert len(index_contents(tmp_path)) == -(-len(rows) // (ENTRIES - 1))
    comparison.compare("put_batch", tmp_path, rows, questions(3, rows, QUESTIONS), (SLOTS, ENTRIES))


def test_messages_handed_to_build_index(comparison: Comparison, driver: Driver, tmp_path: Path) -> None:
    made = messages(puts(11, 20_000), seed=12)
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    ours.mkdir()
    index = ours / "index"
    with closing(IndexService.open(index, mode="a", hash_slots=SLOTS, max_entries=ENTRIES, zone="UTC")) as service:
        for batch in _cut(made, seed=13, longest=2_000):
            service.build_index(columns(batch))
    build_with_the_real_service(driver, theirs, made, (SLOTS, ENTRIES))

    assert first_difference(index_contents(ours), index_contents(theirs)) is None
    rows = [row for message in made for row in message.rows()]
    comparison.compare("build_index", ours, rows, questions(14, rows, QUESTIONS), (SLOTS, ENTRIES))


@pytest.mark.parametrize("case", ["basic", "sync"])
def test_commit_log_handed_to_build_index(
    comparison: Comparison, store: Callable[[str], Path], tmp_path: Path, case: str
) -> None:
    root, rebuilt = store(case), tmp_path / "rebuilt"
    rebuilt.mkdir()
    slots, entries = golden.geometry(case)
    with (
        closing(CommitLog.open(root / "commitlog")) as log,
        closing(
            IndexService.open(rebuilt / "index", mode="a", hash_slots=slots, max_entries=entries, zone="UTC")
        ) as service,
    ):
        service.build_index(log.scan(body="stored"))

    assert first_difference(index_contents(rebuilt), index_contents(root)) is None
    rows = golden_rows(case)
    comparison.compare(f"build_index, log of {case}", rebuilt, rows, questions(21, rows, 1_000), (slots, entries))


@pytest.mark.parametrize("case", ["basic", "ipv6"])
def test_store_indexed_by_spark(
    comparison: Comparison, spark: SparkSession, store: Callable[[str], Path], tmp_path: Path, *, case: str
) -> None:
    from logdex import spark as ls  # noqa: PLC0415 - needs the extra `spark`

    root, rebuilt = store(case), tmp_path / "rebuilt"
    slots, entries = golden.geometry(case)
    ls.build_index(spark, root, rebuilt / "index", hash_slots=slots, max_entries=entries)

    assert first_difference(index_contents(rebuilt), index_contents(root)) is None
    rows = golden_rows(case)
    comparison.compare(f"Spark build_index, log of {case}", rebuilt, rows, questions(31, rows, 1_000), (slots, entries))


def test_data_frame_written_by_spark(comparison: Comparison, spark: SparkSession, tmp_path: Path) -> None:
    from logdex import spark as ls  # noqa: PLC0415 - needs the extra `spark`

    # A broker's clock may step back; a DataFrame whose files would then overlap in time is refused, as it should.
    rows = puts(41, 20_000, clock_steps_back=False)
    index = tmp_path / "index"
    frame = spark.createDataFrame(pa.table(_columns(rows)))
    writer = ls.arrange(frame).write.format("rocketmq_index").mode("append")
    writer.option("hashSlots", SLOTS).option("maxEntries", ENTRIES).option("zone", "UTC").save(str(index))

    comparison.compare("Spark df.write", tmp_path, rows, questions(42, rows, QUESTIONS), (SLOTS, ENTRIES))


def test_questions_were_enough(comparison: Comparison, say: Callable[[str], None]) -> None:
    total = comparison.total
    if len(comparison.ways) < WAYS:
        pytest.skip("counts what the other tests of this file asked: not all of them ran to their end")
    say(f"in all {total}: 0 answered differently")
    assert total.asked >= 10_000
    for kind, count in total.kinds().items():
        assert count >= total.asked // 25, kind


def _cut(rows: list[Any], *, seed: int, longest: int) -> Iterator[list[Any]]:
    chance = random.Random(seed)
    rest = iter(rows)
    while batch := list(itertools.islice(rest, chance.randrange(1, longest))):
        yield batch


def _columns(rows: list[Put]) -> dict[str, pa.Array]:
    topics, keys, phy_offsets, store_timestamps = zip(*rows, strict=True)
    return {
        "topic": pa.array(topics, pa.utf8()),
        "key": pa.array(keys, pa.utf8()),
        "phy_offset": pa.array(phy_offsets, pa.int64()),
        "store_timestamp": pa.array(store_timestamps, pa.timestamp("ms", "UTC")),
    }
