"""IndexService puts, rolls and answers; the real 4.9.3 classes made the vectors."""

from __future__ import annotations

import io
import pickle
from datetime import datetime, timedelta, timezone
from functools import partial
from typing import TYPE_CHECKING, Any

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from index_inputs import T0, contents, entries, messages, snapshot
from logdex.errors import GeometryError, IndexFullError
from logdex.hash_index.files import format_name, successor
from logdex.rocketmq import IndexFile, IndexService

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

MAX = (1 << 63) - 1
SMALL: dict[str, Any] = {"hash_slots": 10, "max_entries": 4}

GOLDEN_RUN = [
    {"phy_offset": 1000, "store_timestamp": T0, "uniq_key": "UQ1", "keys": "k1 k2  k3 "},
    {"phy_offset": 1100, "store_timestamp": T0 + 5000, "keys": "k1", "sys_flag": 8},
    {"phy_offset": 1200, "store_timestamp": T0 + 6000, "uniq_key": "UQ2"},
    {"phy_offset": 1300, "store_timestamp": T0 + 9000, "uniq_key": "UQ3", "keys": "k9", "sys_flag": 12},
    {"phy_offset": 1400, "store_timestamp": T0 + 65000, "uniq_key": "UQ4", "keys": ""},
]
GOLDEN_FILES = [
    (
        "0000018bcfe568000000018bcfe5680000000000000003e800000000000003e80000000300000004"
        "00000000000000000000000100000000000000000000000200000003000000000000000000000000"
        "00000000000000000000000000000000000000006c30617200000000000003e80000000000000000"
        "04c4a48d00000000000003e8000000000000000004c4a48e00000000000003e80000000000000000"
    ),
    (
        "0000018bcfe568000000018bcfe57f7000000000000003e800000000000004b00000000300000004"
        "00000000000000030000000000000000000000000000000200000000000000010000000000000000"
        "000000000000000000000000000000000000000004c4a48f00000000000003e80000000000000000"
        "04c4a48d000000000000044c00000005000000006c30617100000000000004b00000000600000000"
    ),
    (
        "0000018bcfe665e80000018bcfe665e8000000000000057800000000000005780000000100000002"
        "00000000000000000000000000000000000000000000000000000000000000000000000000000001"
        "00000000000000000000000000000000000000006c30616f00000000000005780000003b00000000"
        "00000000000000000000000000000000000000000000000000000000000000000000000000000000"
    ),
]


def build_golden_run(directory: Path) -> Path:
    with IndexService.open(directory, mode="a", zone="UTC", **SMALL) as index:
        assert index.build_index(messages(*GOLDEN_RUN)) == 7
    return directory


def test_build_index_writes_the_brokers_bytes(tmp_path: Path) -> None:
    assert contents(build_golden_run(tmp_path / "index")) == GOLDEN_FILES


def test_build_index_leaves_the_brokers_checkpoint(tmp_path: Path) -> None:
    (tmp_path / "commitlog").mkdir()
    build_golden_run(tmp_path / "index")
    assert (tmp_path / "checkpoint").read_bytes().hex() == "00" * 16 + "0000018bcfe57f70" + "00" * 4072


@pytest.mark.parametrize(
    "zone", ["Asia/Shanghai", "America/New_York", timezone(timedelta(hours=-3, minutes=-30)), None]
)
def test_files_are_named_in_the_brokers_zone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, zone: str | timezone | None
) -> None:
    # Half an hour before New York's clocks go back, then half an hour after: the local time repeats.
    moments = iter([1730611800123, 1730615400123])
    monkeypatch.setattr("logdex.hash_index.index_writer.time.time_ns", lambda: next(moments) * 1_000_000)
    with IndexService.open(tmp_path, mode="a", zone=zone, **SMALL) as index:
        index.put_batch(entries(["a"] * 4))
        first, second = (file.path.name for file in index.files)
    assert first == format_name(1730611800123, zone)
    usual = format_name(1730615400123, zone)
    assert second == (usual if usual > first else successor(first))
    assert zone != "America/New_York" or (first, second) == ("20241103013000123", "20241103013000124")


def test_build_index_message_by_message_writes_the_same(tmp_path: Path) -> None:
    with IndexService.open(tmp_path, mode="a", **SMALL) as index:
        assert [index.build_index(messages(row)) for row in GOLDEN_RUN] == [4, 1, 1, 0, 1]
    assert contents(tmp_path) == GOLDEN_FILES


def test_build_index_takes_message_objects(tmp_path: Path) -> None:
    class Record:
        topic, tags, keys, uniq_key, sys_flag = "TP", None, None, None, 0
        phy_offset = store_timestamp = 0

        def __init__(self, values: dict[str, Any]) -> None:
            self.__dict__ |= values

    with IndexService.open(tmp_path, mode="a", **SMALL) as index:
        index.build_index(Record(row) for row in GOLDEN_RUN)
    assert contents(tmp_path) == GOLDEN_FILES


def test_build_index_refuses_what_is_no_message(tmp_path: Path) -> None:
    table = pa.table(messages(*GOLDEN_RUN))
    fractions = pa.array([1000.5] * len(GOLDEN_RUN))
    with IndexService.open(tmp_path, mode="a", zone="UTC", **SMALL) as index:
        for name in ("topic", "keys", "phy_offset", "store_timestamp", "sys_flag"):
            with pytest.raises(TypeError, match=name):
                index.build_index(table.set_column(table.column_names.index(name), name, fractions))
        for wrong in (None, 5, ["k1"], table.to_pydict()):
            with pytest.raises(TypeError, match="expected Arrow data or messages"):
                index.build_index(wrong)
    assert list(tmp_path.iterdir()) == []


def test_build_index_over_several_openings_writes_the_same(tmp_path: Path) -> None:
    for row in GOLDEN_RUN:
        with IndexService.open(tmp_path, mode="a", **SMALL) as index:
            index.build_index(messages(row))
    assert contents(tmp_path) == GOLDEN_FILES


def test_build_index_passes_over_what_is_indexed(tmp_path: Path) -> None:
    with IndexService.open(tmp_path, mode="a", hash_slots=10, max_entries=100) as index:
        index.build_index(messages(*GOLDEN_RUN))
        held = len(index.files[0])
        # The broker's rule is a strict "less": the last message is indexed again.
        assert index.build_index(messages(*GOLDEN_RUN)) == 1
        assert len(index.files[0]) == held + 1


def test_a_message_that_is_not_indexed_makes_the_first_file(tmp_path: Path) -> None:
    with IndexService.open(tmp_path, mode="a", **SMALL) as index:
        assert index.build_index(messages({"phy_offset": 0, "store_timestamp": T0})) == 0
        assert [len(file) for file in index.files] == [0]
    assert contents(tmp_path) == [bytes(160).hex()]


def test_a_message_that_is_not_indexed_rolls_a_full_file(tmp_path: Path) -> None:
    with IndexService.open(tmp_path, mode="a", **SMALL) as index:
        index.build_index(messages({"phy_offset": 5000, "store_timestamp": T0, "keys": "a b c"}))
        assert [file.is_full for file in index.files] == [True]
        index.build_index(messages({"phy_offset": 5100, "store_timestamp": T0 + 1000}))
    seeded = "0000018bcfe568000000018bcfe56800" + "0000000000001388" * 2 + "00000000" * 2
    assert contents(tmp_path)[1] == seeded + bytes(120).hex()


def test_tags_are_indexed_only_as_5_5_0(tmp_path: Path) -> None:
    row = {"phy_offset": 0, "store_timestamp": T0, "uniq_key": "U", "keys": "k", "tags": "A B"}
    counts: dict[Any, int] = {None: 2, "4.9.3": 2, "5.3.3": 2, "5.5.0": 3}
    for compat, count in counts.items():
        with IndexService.open(tmp_path / str(compat), mode="a", hash_slots=10, max_entries=9, compat=compat) as index:
            assert index.build_index(messages(row)) == count
            assert len(index.query_offset("TP", "T#A B").phy_offsets) == count - 2


@pytest.mark.parametrize(
    ("key", "begin", "end", "offsets"),
    [
        ("k1", 0, MAX, [1100, 1000]),
        ("k2", 0, MAX, [1000]),
        ("k3", 0, MAX, [1000]),
        ("UQ1", 0, MAX, [1000]),
        ("UQ2", 0, MAX, [1200]),
        ("UQ3", 0, MAX, []),
        ("k9", 0, MAX, []),
        ("k1", T0 + 1, MAX, [1100]),
        ("k1", T0, T0 + 4999, [1000]),
        ("k1", T0 + 5000, T0 + 6000, [1100]),
        ("UQ4", T0, T0 + 70000, []),
        ("UQ4", T0, T0 + 124000, [1400]),
    ],
)
def test_golden_run_answers_as_the_broker(tmp_path: Path, key: str, begin: int, end: int, offsets: list[int]) -> None:
    with IndexService.open(build_golden_run(tmp_path), compat="4.9.3") as index:
        result = index.query_offset("TP", key, 64, begin, end)
    assert result.phy_offsets == offsets
    assert (result.index_last_update_timestamp, result.index_last_update_phyoffset) == (T0 + 65000, 1400)


def test_first_entry_of_a_rolled_file_is_found_at_its_time(tmp_path: Path) -> None:
    # B3: its stored difference counts from the seed, so a broker places it 59 s late.
    with IndexService.open(build_golden_run(tmp_path)) as index:
        assert index.query_offset("TP", "UQ4", begin=T0 + 65000, end=T0 + 65000).phy_offsets == [1400]
        assert index.query_offset("TP", "UQ4", begin=T0, end=T0 + 70000).phy_offsets == [1400]


def test_put_batch_rolls_in_the_middle_and_loses_nothing(tmp_path: Path) -> None:
    keys = [f"k{i}" for i in range(50)]
    with IndexService.open(tmp_path / "new" / "index", mode="a", hash_slots=7, max_entries=5) as index:
        assert index.put_batch(entries(keys)) == 50
        assert [len(file) for file in index.files] == [4] * 12 + [2]
        for place, key in enumerate(keys):
            assert index.query_offset("T", key).phy_offsets == [1000 + 10 * place]
    names = [path.name for path in sorted((tmp_path / "new" / "index").iterdir())]
    assert len(names) == len(set(names)) == 13
    assert all(len(name) == 17 for name in names)


@pytest.mark.parametrize("batch_size", [1, 2, 3, 7, 1000])
def test_bytes_do_not_depend_on_how_puts_are_cut(tmp_path: Path, batch_size: int) -> None:
    columns = entries([f"k{i % 5}" for i in range(40)])
    with IndexService.open(tmp_path / "one", mode="a", hash_slots=7, max_entries=12) as index:
        index.put_batch(columns)
    with IndexService.open(tmp_path / "cut", mode="a", hash_slots=7, max_entries=12) as index:
        for at in range(0, 40, batch_size):
            index.put_batch({name: values[at : at + batch_size] for name, values in columns.items()})
    assert contents(tmp_path / "cut") == contents(tmp_path / "one")


@pytest.mark.parametrize(
    "wrap", [lambda table: table, lambda table: table.to_batches()[0], lambda table: table.to_reader(7)]
)
def test_put_batch_takes_arrow(tmp_path: Path, wrap: Any) -> None:
    table = pa.table(entries([f"k{i}" for i in range(30)]))
    stamps = table.column("store_timestamp").cast(pa.timestamp("ms", "UTC"))
    with IndexService.open(tmp_path, mode="a", hash_slots=7, max_entries=12) as index:
        assert index.put_batch(wrap(table.set_column(3, "store_timestamp", stamps))) == 30
        assert index.query_offset("T", "k29").phy_offsets == [1290]


FRAMES: dict[str, Callable[[dict[str, list[Any]]], Any]] = {
    "polars": pl.DataFrame,
    "pandas": pd.DataFrame,
    "duckdb": lambda columns: duckdb.from_arrow(pa.table(columns)),
    "numpy": lambda columns: {name: pd.Series(values).to_numpy() for name, values in columns.items()},
    "series": lambda columns: {name: pl.Series(values) for name, values in columns.items()},
    "bytes": lambda columns: {**columns, "key": [key.encode() for key in columns["key"]]},
    "datetimes": lambda columns: {
        **columns,
        "store_timestamp": [datetime.fromtimestamp(ms / 1000, timezone.utc) for ms in columns["store_timestamp"]],
    },
    "large text": lambda columns: pa.table({**columns, "key": pa.array(columns["key"], pa.large_utf8())}),
    "dictionary": lambda columns: pa.table({**columns, "topic": pa.array(columns["topic"]).dictionary_encode()}),
    "microseconds": lambda columns: pa.table(
        {
            **columns,
            "store_timestamp": pa.array([1000 * t for t in columns["store_timestamp"]], pa.timestamp("us", "UTC")),
        }
    ),
}


@pytest.mark.parametrize("kind", FRAMES)
def test_put_batch_writes_the_same_from_any_kind_of_columns(tmp_path: Path, kind: str) -> None:
    columns = entries([f"k{i}" for i in range(20)])
    for name, batch in (("plain", columns), ("other", FRAMES[kind](columns))):
        with IndexService.open(tmp_path / name, mode="a", hash_slots=7, max_entries=12) as index:
            assert index.put_batch(batch) == 20
    assert contents(tmp_path / "other") == contents(tmp_path / "plain")


@pytest.mark.parametrize("kind", ["pandas", "microseconds"])
def test_build_index_writes_the_same_from_any_kind_of_columns(tmp_path: Path, kind: str) -> None:
    table = pa.table(messages(*GOLDEN_RUN))
    stamps = table.column("store_timestamp").cast(pa.timestamp("us", "UTC"))
    batch = table.to_pandas() if kind == "pandas" else table.set_column(2, "store_timestamp", stamps)
    with IndexService.open(tmp_path, mode="a", **SMALL) as index:
        index.build_index(batch)
    assert contents(tmp_path) == GOLDEN_FILES


@pytest.mark.parametrize("column", ["topic", "key", "phy_offset", "store_timestamp"])
def test_put_batch_refuses_null_before_it_writes(tmp_path: Path, column: str) -> None:
    columns = entries([f"k{i}" for i in range(30)])
    columns[column][29] = None
    batches = pa.table(columns).to_batches(max_chunksize=4)
    with IndexService.open(tmp_path, mode="a", hash_slots=7, max_entries=12) as index:
        for batch in (
            columns,
            pa.Table.from_batches(batches),
            pa.RecordBatchReader.from_batches(batches[0].schema, batches),
        ):
            with pytest.raises(ValueError, match=f"{column}.* null"):
                index.put_batch(batch)
        assert index.files == []
    assert list(tmp_path.iterdir()) == []


def test_put_batch_refuses_the_null_of_a_dictionary_before_it_writes(tmp_path: Path) -> None:
    """A row is never null there, but the value that it refers to is."""
    columns = entries(["a", "b"])
    dictionary = pa.DictionaryArray.from_arrays(pa.array([0, 1]), pa.array(["a", None]))
    with IndexService.open(tmp_path, mode="a", **SMALL) as index:
        for keys in (dictionary, pa.nulls(2)):
            for batch in ({**columns, "key": keys}, pa.table({**columns, "key": keys})):
                with pytest.raises(ValueError, match=r"key.* null"):
                    index.put_batch(batch)
        assert index.files == []
    assert list(tmp_path.iterdir()) == []


def test_put_batch_refuses_what_is_no_batch(tmp_path: Path) -> None:
    columns = entries(["a", "b"])
    with IndexService.open(tmp_path, mode="a", **SMALL) as index:
        with pytest.raises(ValueError, match="missing"):
            index.put_batch({name: columns[name] for name in ("topic", "key", "phy_offset")})
        with pytest.raises(ValueError, match="missing"):
            index.put_batch(pa.table({"topic": ["T"], "key": ["k"]}))
        with pytest.raises(ValueError, match="length"):
            index.put_batch({**columns, "key": ["a"]})
        with pytest.raises(TypeError, match="list"):
            index.put_batch([("T", "k", 0, 0)])
        with pytest.raises(TypeError, match="int"):
            index.build_index(7)
    assert list(tmp_path.iterdir()) == []


def test_a_file_without_room_is_an_error_not_a_loop(tmp_path: Path) -> None:
    # B10: upstream creates files in an endless loop.
    with (
        pytest.raises((IndexFullError, ValueError)),
        IndexService.open(tmp_path, mode="a", hash_slots=10, max_entries=1) as index,
    ):
        index.put_batch(entries(["a"]))
    assert len(list(tmp_path.iterdir())) <= 1


def test_query_reports_truncation(tmp_path: Path) -> None:
    with IndexService.open(tmp_path, mode="a", hash_slots=10, max_entries=30) as index:
        index.put_batch(entries(["k"] * 100))
        offsets = [1990 - 10 * i for i in range(100)]
        for max_num, truncated in ((None, False), (101, False), (100, False), (99, True), (1, True), (0, True)):
            result = index.query_offset("T", "k", max_num)
            assert (result.phy_offsets, result.truncated) == (offsets[:max_num], truncated)
        assert index.query_offset("T", "other", 0).truncated is False
        with pytest.raises(ValueError, match="negative"):
            index.query_offset("T", "k", -1)
        with pytest.raises(ValueError, match="negative"):
            index.query_batch("T", ["k"], max_num=-1)


def test_compat_caps_at_64_and_says_so(tmp_path: Path) -> None:
    with IndexService.open(tmp_path, mode="a", hash_slots=10, max_entries=30, compat="4.9.3") as index:
        index.put_batch(entries(["k"] * 64, topic="A"))
        index.put_batch(entries(["k"] * 65, topic="B"))
        assert [index.query_offset(topic, "k").truncated for topic in "AB"] == [False, True]
        assert len(index.query_offset("B", "k", 1000).phy_offsets) == 64
        assert [len(found) for found in index.query_batch(["A", "B"], ["k", "k"]).to_pylist()] == [64, 64]
        with pytest.raises(ValueError, match="negative"):
            index.query_offset("A", "k", -1)


def test_query_batch_answers_in_the_order_of_its_input(tmp_path: Path) -> None:
    with IndexService.open(tmp_path, mode="a", hash_slots=3, max_entries=4) as index:
        index.put_batch(entries(["a", "b", "a", "c", "a"]))
        assert index.query_batch("T", ["c", None, "a", "none"]).to_pylist() == [[1030], None, [1040, 1020, 1000], []]
        assert index.query_batch(["T", "U", None], ["a", "a", "a"], max_num=2).to_pylist() == [[1040, 1020], [], None]
        keys = pa.array(["a", None, "b"])
        assert index.query_batch(pa.array(["T", "T", "T"]), keys).to_pylist() == [[1040, 1020, 1000], None, [1010]]


def test_time_range_finds_every_message_stored_in_it(tmp_path: Path) -> None:
    stamps = [T0 + 700 * i for i in range(40)]
    with IndexService.open(tmp_path, mode="a", hash_slots=3, max_entries=9) as index:
        index.put_batch({**entries([f"k{i}" for i in range(40)]), "store_timestamp": stamps})
        for place, stamp in enumerate(stamps):
            found = index.query_offset("T", f"k{place}", begin=stamp, end=stamp).phy_offsets
            assert found == [1000 + 10 * place]
            moment = datetime.fromtimestamp(stamp // 1000, timezone.utc).replace(microsecond=stamp % 1000 * 1000)
            assert index.query_offset("T", f"k{place}", begin=moment, end=moment).phy_offsets == found
        with pytest.raises(TypeError):
            index.query_offset("T", "k", begin=datetime(2024, 1, 1))  # noqa: DTZ001 -- what is refused


def test_answers_are_newest_first_whatever_the_names(tmp_path: Path) -> None:
    # Local time stepped back: the later file has the smaller name.
    for name, offset in (("20241103015959000", 100), ("20241103010000000", 200)):
        with IndexFile.create(tmp_path / name, hash_slots=5, max_entries=9) as file:
            file.put_key("T#k", offset, T0 + offset)
    with IndexService.open(tmp_path) as index:
        assert index.query_offset("T", "k").phy_offsets == [200, 100]
        assert index.query_offset("T", "k", 1).phy_offsets == [200]
        assert index.query_offset("T", "k").index_last_update_phyoffset == 200
        assert index.query_batch("T", ["k"], max_num=1).to_pylist() == [[200]]
    with IndexService.open(tmp_path, compat="4.9.3") as index:
        assert index.query_offset("T", "k", 1).phy_offsets == [100]
        assert index.query_offset("T", "k").index_last_update_phyoffset == 100


def test_a_reader_sees_new_entries_and_new_files(tmp_path: Path) -> None:
    with IndexService.open(tmp_path, mode="a", **SMALL) as writer, IndexService.open(tmp_path) as reader:
        assert reader.query_offset("T", "a").phy_offsets == []
        for count in range(1, 10):
            writer.put_batch(entries(["a"], first_offset=1000 + 10 * count))
            assert len(reader.query_offset("T", "a").phy_offsets) == count
        assert len(reader.files) == 3


def test_a_reader_passes_over_files_that_vanish(tmp_path: Path) -> None:
    with IndexService.open(tmp_path, mode="a", **SMALL) as writer, IndexService.open(tmp_path) as reader:
        writer.put_batch(entries(["a"] * 9))
        assert len(reader.files) == 3
        removed = writer.delete_expired_files(1030)
        assert [path.exists() for path in removed] == [False]
        assert reader.query_offset("T", "a").phy_offsets == [1080 - 10 * i for i in range(6)]


def test_a_reader_changes_nothing(tmp_path: Path) -> None:
    directory = build_golden_run(tmp_path / "store" / "index")
    before = snapshot(tmp_path)
    for last_exit_ok in (True, False):
        for compat in (None, "4.9.3"):
            for access in ("mmap", "pread"):
                with IndexService.open(directory, last_exit_ok=last_exit_ok, compat=compat, access=access) as index:
                    index.query_offset("TP", "k1")
                    index.verify()
                    calls: list[Callable[[], object]] = [
                        partial(index.put_batch, entries(["a"])),
                        partial(index.build_index, messages(GOLDEN_RUN[0])),
                        partial(index.delete_expired_files, MAX),
                        index.flush,
                    ]
                    for call in calls:
                        with pytest.raises(io.UnsupportedOperation, match="reading"):
                            call()
    assert snapshot(tmp_path) == before


def test_it_pickles_as_a_reader(tmp_path: Path) -> None:
    with IndexService.open(tmp_path, mode="a", zone="UTC", clock_slack_ms=7, **SMALL) as index:
        index.put_batch(entries(["a"] * 9))
        copy = pickle.loads(pickle.dumps(index))  # noqa: S301 -- our own bytes
        with copy:
            assert copy.mode == "r"
            assert copy.query_offset("T", "a") == index.query_offset("T", "a")
            again = pickle.loads(pickle.dumps(copy))  # noqa: S301 -- our own bytes
            with again:
                assert again.query_offset("T", "a", 2).phy_offsets == [1080, 1070]


def test_use_after_close_is_an_error(tmp_path: Path) -> None:
    index = IndexService.open(tmp_path, mode="a", **SMALL)
    index.put_batch(entries(["a"]))
    index.close()
    index.close()
    for call in (
        lambda: index.query_offset("T", "a"),
        lambda: index.query_batch("T", ["a"]),
        lambda: index.put_batch(entries(["a"])),
        lambda: index.files,
        index.flush,
        index.verify,
    ):
        with pytest.raises(ValueError, match="closed"):
            call()


def test_geometry_comes_from_the_fullest_file(tmp_path: Path) -> None:
    with IndexService.open(tmp_path, mode="a", hash_slots=20, max_entries=40) as index:
        index.put_batch(entries([f"k{i}" for i in range(60)]))
    with IndexService.open(tmp_path, mode="a") as index:
        assert [(file.hash_slots, file.max_entries) for file in index.files] == [(20, 40)] * 2
        index.put_batch(entries([f"m{i}" for i in range(60)], first_offset=9000))
        assert [(file.hash_slots, file.max_entries) for file in index.files] == [(20, 40)] * 4


def test_geometry_of_an_index_without_entries_must_be_given(tmp_path: Path) -> None:
    with IndexService.open(tmp_path, mode="a", **SMALL) as index:
        index.build_index(messages({"phy_offset": 0, "store_timestamp": T0}))
    for mode in ("r", "a"):
        with pytest.raises(GeometryError, match="give hash_slots and max_entries"):
            IndexService.open(tmp_path, mode=mode)
        with IndexService.open(tmp_path, mode=mode, **SMALL) as index:
            assert index.query_offset("T", "a").phy_offsets == []


def test_open_checks_its_arguments(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError) as missing:
        IndexService.open(tmp_path / "none")
    assert missing.value.filename == str(tmp_path / "none")
    (tmp_path / "file").touch()
    with pytest.raises(NotADirectoryError):
        IndexService.open(tmp_path / "file")
    with pytest.raises(ValueError, match="mode"):
        IndexService.open(tmp_path, mode="w")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="both"):
        IndexService.open(tmp_path, hash_slots=3)
    with pytest.raises(ValueError, match="compat"):
        IndexService.open(tmp_path, compat="4.0")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="access"):
        IndexService.open(tmp_path, access="fast")  # type: ignore[arg-type]


def test_an_empty_directory_is_an_empty_index(tmp_path: Path) -> None:
    for compat in (None, "4.9.3"):
        with IndexService.open(tmp_path, compat=compat) as index:
            assert index.query_offset("T", "k").phy_offsets == []
            assert index.query_offset("T", "k").index_last_update_timestamp == 0
            assert index.query_batch("T", ["k", None]).to_pylist() == [[], None]
            assert index.verify().ok
