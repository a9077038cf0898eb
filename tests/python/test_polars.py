"""Lazy frames: every query gives the rows of the eager read, and reads only what it needs."""

from __future__ import annotations

import pickle
import sys
import zlib
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any

import pytest

import golden
import golden_kafka
import logdex
from logdex.errors import CorruptFileError, UnknownTopicWarning
from logdex.kafka import Log, LogDir
from logdex.pushdown import OF_MESSAGES, Rows, pushed_options
from logdex.rocketmq import IndexService, MessageStore, StoreWriter
from message_frames import frame_with_body
from process_counts import bytes_read

pl = pytest.importorskip("polars")
lazy = pytest.importorskip("logdex.polars")
col, lit = pl.col, pl.lit

if TYPE_CHECKING:
    from pathlib import Path

NEW_YEAR = datetime(2026, 1, 1, tzinfo=timezone.utc)
ENGINES = ("in-memory", "streaming")


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """Collect the options of each read."""
    seen: list[dict[str, Any]] = []
    begin = Rows.read

    def read(rows: Rows, options: dict[str, Any]) -> Any:
        seen.append({**options, **rows.filters})
        return begin(rows, options)

    monkeypatch.setattr(Rows, "read", read)
    return seen


def at(row: dict[str, Any], name: str) -> datetime:
    time: datetime = row[name]
    return time


def of_messages(rows: list[dict[str, Any]]) -> list[Any]:
    """Return conditions on every column that reaches the read, and some that do not."""
    row, other = rows[len(rows) // 2], rows[len(rows) // 4]
    time, fine = at(row, "store_timestamp"), timedelta(microseconds=1)
    keyed = next((each for each in rows if each["keys"]), {"keys": "nobody's"})
    single = next((each for each in rows if each["uniq_key"] and each["tags"]), {"uniq_key": "X", "tags": "T"})
    return [
        col("topic") == row["topic"],
        lit(row["topic"]) == col("topic"),
        (col("topic") == row["topic"]) & (col("topic") == "nobody's"),
        col("topic").is_in([row["topic"], other["topic"]]),
        col("topic").is_in([row["topic"], None]),
        ~(col("topic") == row["topic"]),
        (col("topic") == row["topic"]) | (col("queue_id") == 0),
        col("queue_id") == row["queue_id"],
        col("queue_id").is_in([0, 1]),
        col("queue_id") == -1,
        col("queue_id") < 1.5,
        col("store_timestamp") >= time,
        (col("store_timestamp") > time - fine) & (col("store_timestamp") < time + fine),
        col("store_timestamp").is_between(at(other, "store_timestamp"), time, closed="right"),
        lit(time) >= col("store_timestamp"),
        col("store_timestamp").dt.epoch("ms") > 0,
        col("phy_offset") < row["phy_offset"],
        col("phy_offset") == row["phy_offset"],
        col("phy_offset") >= (1 << 63) - 1,
        col("phy_offset").is_in([row["phy_offset"], other["phy_offset"]]),
        (col("phy_offset") > other["phy_offset"]) & (col("phy_offset") <= row["phy_offset"]),
        col("phy_offset") > -5,
        col("uniq_key") == single["uniq_key"],
        col("keys") == keyed["keys"],
        col("keys").is_in([keyed["keys"], "nobody's"]),
        (col("keys") == keyed["keys"]) & (col("uniq_key") == single["uniq_key"]),
        col("keys") == "",
        col("keys").is_null(),
        col("tags") == single["tags"],
        col("tags").str.contains("A"),
        col("body").bin.size() > 20,
    ]


def of_records(rows: list[dict[str, Any]]) -> list[Any]:
    row, other = rows[len(rows) // 2], rows[len(rows) // 4]
    keyed = next((each for each in rows if each["key"]), row)
    return [
        col("topic") == row["topic"],
        col("topic").is_in([row["topic"], other["topic"]]) & (col("partition") == row["partition"]),
        col("partition") == 0,
        col("partition").is_in([0, 7]),
        col("partition") == -1,
        col("offset") >= row["offset"],
        col("offset").is_between(1, 3),
        (col("offset") == row["offset"]) & (col("topic") == row["topic"]),
        col("offset") < 0,
        col("timestamp") >= at(row, "timestamp"),
        col("timestamp") < at(row, "timestamp"),
        col("key") == keyed["key"],
        col("key").is_in([keyed["key"], b"nobody's"]),
        col("key").is_null(),
        col("value").bin.size() > 5,
        col("headers").list.len() > 0,
    ]


def compare(frame: Any, eager: Any, conditions: list[Any]) -> int:
    """Compare each query with the same on the eager read; return the number of rows compared."""
    compared = 0
    for condition in conditions:
        query, expected = frame.filter(condition), eager.filter(condition)
        for engine in ENGINES:
            assert query.collect(engine=engine).equals(expected), f"{condition} by {engine}"
        some = eager.columns[:3]
        assert query.select(some).collect().equals(expected.select(some)), condition
        assert query.head(2).collect().equals(expected.head(2)), condition
        assert query.select(pl.len()).collect().item() == expected.height, condition
        compared += expected.height
    assert frame.collect().equals(eager)
    assert frame.head(3).collect().equals(eager.head(3))
    assert frame.slice(2, 3).collect().equals(eager.slice(2, 3))
    return compared


@pytest.mark.filterwarnings("ignore::logdex.errors.UnknownTopicWarning")
@pytest.mark.parametrize("case", golden.STORES)
def test_queries_of_messages_are_those_of_the_eager_read(case: str, tmp_path: Path) -> None:
    with MessageStore.open(golden.unpack(case, tmp_path)) as store:
        eager = pl.DataFrame(store.messages().read_all())
        assert eager.height == len(golden.rows(case, "messages"))
        assert compare(lazy.scan(store), eager, of_messages(eager.to_dicts())) > eager.height


@pytest.mark.filterwarnings("ignore::logdex.errors.UnknownTopicWarning")
@pytest.mark.parametrize("case", ["codecs", "timestamps"])
def test_queries_of_records_are_those_of_the_eager_read(case: str, tmp_path: Path) -> None:
    root = golden_kafka.unpack(case, tmp_path / "logs")
    with LogDir.open(root) as logs:
        eager = pl.DataFrame(logs.records().read_all())
        assert compare(lazy.scan(root), eager, of_records(eager.to_dicts())) > eager.height
        largest = max((logs.log(each.topic, each.partition) for each in logs.partitions()), key=lambda log: log.size)
        with Log.open(largest.path) as log:
            own = pl.DataFrame(log.records().read_all())
            assert compare(lazy.scan(log), own, of_records(own.to_dicts())) > own.height


@pytest.mark.parametrize(
    ("condition", "options"),
    [
        ((col("topic") == "t") & (col("queue_id") == 0), {"topics": ["t"], "queue_id": 0}),
        (col("topic").is_in(["t", "u"]) & (col("topic") != "u"), {"topics": ["t", "u"]}),
        (col("store_timestamp").is_between(NEW_YEAR, NEW_YEAR), {"begin": 1_767_225_600_000, "end": 1_767_225_600_001}),
        (lit(NEW_YEAR) < col("store_timestamp"), {"begin": 1_767_225_600_000}),
        (col("store_timestamp") > pl.datetime(2026, 1, 1), {}),
        ((col("phy_offset") > 4) & (col("phy_offset") <= 9), {"begin_phy_offset": 4, "end_phy_offset": 10}),
        (col("keys") == " a b", {"keys": ["a"]}),
        (col("keys").is_in(["a b", " "]), {}),
        (col("tags") == col("keys"), {}),
        ((col("tags") == "T") | (col("tags") == "U"), {}),
    ],
)  # fmt: skip
def test_conditions_become_options_of_the_read(condition: Any, options: dict[str, Any]) -> None:
    assert pushed_options(OF_MESSAGES, lazy.conditions(condition)) == options


def test_the_plan_shows_what_is_pushed(tmp_path: Path, reads: list[dict[str, Any]]) -> None:
    frame = lazy.scan(golden.unpack("basic", tmp_path))
    query = frame.filter((col("topic") == "t") & col("keys").str.contains("k")).select("phy_offset")
    plan = query.explain()
    assert "PROJECT 3/21 COLUMNS" in plan
    assert 'col("topic") == "t"' in plan.partition("SELECTION")[2]
    query.collect()
    assert (reads[-1]["topics"], set(reads[-1]["columns"])) == (["t"], {"phy_offset", "topic", "keys"})


def test_an_option_of_the_caller_stays(tmp_path: Path, reads: list[dict[str, Any]]) -> None:
    frame = lazy.scan(golden.unpack("basic", tmp_path), topics=["t", "AaTopic"], scan=True)
    found = frame.filter(col("topic") == "t").collect()
    assert found.height > 0
    assert set(found["topic"]) == {"t"}
    assert (reads[-1]["topics"], reads[-1]["scan"]) == (["t", "AaTopic"], True)


@pytest.mark.skipif(sys.platform != "linux", reason="counts bytes by /proc")
def test_a_query_reads_the_files_of_its_conditions(tmp_path: Path) -> None:
    body, number = b"x" * 1_000, 6_000
    with StoreWriter.open(tmp_path / "store", file_size=1 << 20, hash_slots=9, max_entries=99) as writer:
        for topic, rows in (("Orders", number), ("Rare", 3)):
            writer.put_messages({"topic": [topic] * rows, "body": [body] * rows})
    size = number * len(body)
    with MessageStore.open(tmp_path / "store", access="pread", hash_slots=9, max_entries=99) as store:
        frame = lazy.scan(store)
        offsets = frame.select("phy_offset").collect()["phy_offset"]
        whole = bytes_read(frame.select("tags").collect)
        assert whole > size
        last = frame.filter(col("phy_offset") >= offsets[-5]).select("topic")
        assert last.collect().height == 5
        assert bytes_read(last.collect) < whole / 4
        first = frame.select("topic").head(5)
        assert first.collect().height == 5
        # A batch of 8,192 rows is the least that is read.
        assert bytes_read(first.collect) <= whole
        rare = lazy.scan(store, scan=False).filter(col("topic") == "Rare").select("queue_offset")
        assert rare.collect().height == 3
        assert bytes_read(rare.collect) < whole / 4


@pytest.mark.skipif(sys.platform != "linux", reason="counts bytes by /proc")
def test_a_query_of_records_reads_the_partitions_of_its_conditions(tmp_path: Path) -> None:
    with LogDir.open(golden_kafka.unpack("codecs", tmp_path / "logs"), access="pread") as logs:
        frame = lazy.scan(logs).select("offset")
        # The files are open, and their indexes read, from here on.
        frame.collect()
        whole = bytes_read(frame.collect)
        topic = min(logs.topics)
        some = lazy.scan(logs).filter(col("topic") == topic).select("offset")
        assert 0 < bytes_read(some.collect) < whole / 2
        assert 0 < bytes_read(lazy.scan(logs).select("offset").head(1).collect) < whole / 2
        assert bytes_read(lazy.scan(logs).filter(col("partition") == 7).select("offset").collect) < whole / 10


def test_a_message_in_the_body_of_another_is_no_row(tmp_path: Path) -> None:
    root = golden.unpack("basic", tmp_path)
    file = root / "commitlog" / f"{0:020}"
    with MessageStore.open(root) as store:
        offsets = pl.DataFrame(store.messages(columns=["phy_offset"]).read_all())["phy_offset"].to_list()
    # A frame that states its own place, which is inside of the first message.
    outer_body = bytearray(300 + 88)
    inner = bytearray(frame_with_body(root, b"inner", 0))
    outer = bytearray(frame_with_body(root, bytes(outer_body) + bytes(inner), 0))
    place = outer.index(bytes(inner))
    inner[28:36] = place.to_bytes(8, "big")
    outer[place : place + len(inner)] = inner
    length = int.from_bytes(outer[84:88], "big")
    outer[8:12] = (zlib.crc32(bytes(outer[88 : 88 + length])) & 0x7FFF_FFFF).to_bytes(4, "big")
    content = bytearray(file.read_bytes())
    end = next(each for each in offsets if each > len(outer) + 8)
    blank = (end - len(outer)).to_bytes(4, "big") + bytes.fromhex("cbd43194")
    content[:end] = bytes(outer) + blank + bytes(end - len(outer) - 8)
    file.write_bytes(content)
    with MessageStore.open(root) as store, pytest.warns(logdex.DamageWarning):
        found = lazy.scan(store).filter(col("phy_offset") >= place).select("phy_offset").collect()
    assert place not in found["phy_offset"].to_list()
    assert found.height > 100


def test_damage_is_raised_as_by_the_read(tmp_path: Path) -> None:
    root = golden_kafka.unpack("codecs", tmp_path / "logs")
    file = max(root.rglob("*.log"), key=lambda each: each.stat().st_size)
    data = bytearray(file.read_bytes())
    data[70] ^= 1
    file.write_bytes(data)
    with pytest.raises(CorruptFileError, match="log"):
        lazy.scan(root).collect()
    with pytest.warns(logdex.DamageWarning):
        assert lazy.scan(root, on_error="skip").collect().height > 0
    with pytest.warns(UnknownTopicWarning):
        assert lazy.scan(root).filter(col("topic") == "nobody's").collect().height == 0


def test_wrong_arguments_are_refused(tmp_path: Path) -> None:
    store = golden.unpack("basic", tmp_path)
    with pytest.raises(TypeError, match="columns: expected no such option"):
        lazy.scan(store, columns=["topic"])
    with pytest.raises(TypeError, match="nonsense"):
        lazy.scan(store, nonsense=1)
    with pytest.raises(FileNotFoundError):
        lazy.scan(tmp_path / "nowhere")
    with IndexService.open(store / "index") as index, pytest.raises(ValueError, match="has no messages"):
        lazy.scan(index)


def test_a_reader_pickles(tmp_path: Path) -> None:
    with MessageStore.open(golden.unpack("basic", tmp_path)) as store:
        reader = pickle.loads(pickle.dumps(lazy._Reader(Rows(store, {"topics": ["t"]}))))  # noqa: S301 -- our own
        frames = pl.concat(reader(["phy_offset"], None, None, None))
        assert frames.height == pl.DataFrame(store.messages("t").read_all()).height
