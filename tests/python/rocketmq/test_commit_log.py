"""The commit log reader against the answers of real brokers for their own stores."""

from __future__ import annotations

import base64
import hashlib
import ipaddress
import pickle
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import duckdb
import polars as pl
import pyarrow as pa
import pytest

import golden
from logdex._core import CommitLog

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Store = Callable[[str], Path]


def _host(text: str) -> str:
    ip, port = text.rsplit("|", 1)
    address = ipaddress.ip_address(ip)
    return f"[{address.compressed}]:{port}" if address.version == 6 else f"{address}:{port}"


def _expected(row: dict[str, Any]) -> dict[str, Any]:
    return {
        "topic": row["topic"],
        "queue_id": row["queueId"],
        "queue_offset": row["queueOffset"],
        "phy_offset": row["physicalOffset"],
        "store_timestamp": row["storeTimestamp"],
        "born_timestamp": row["bornTimestamp"],
        "msg_id": row["msgId"],
        "uniq_key": row["uniqKey"],
        "tags": row["tags"],
        "keys": row["keys"],
        "properties": row["properties"],
        "flag": row["flag"],
        "sys_flag": row["sysFlag"],
        "store_size": row["storeSize"],
        "body_crc": row["bodyCRC"],
        "reconsume_times": row["reconsumeTimes"],
        "prepared_transaction_offset": row["preparedTransactionOffset"],
        "born_host": _host(row["bornHost"]),
        "store_host": _host(row["storeHost"]),
    }


def _read(log: CommitLog, **options: Any) -> list[dict[str, Any]]:
    """Return the rows of a scan, with times in ms and the properties as a dict."""
    rows = []
    for batch in log.scan(**options):
        columns = []
        for name in batch.schema.names:
            column = batch.column(name)
            values: list[Any]
            if name.endswith("timestamp"):
                values = [None if v is None else round(v.timestamp() * 1000) for v in column.to_pylist()]
            elif name == "properties":
                values = [None if v is None else dict(v) for v in column.to_pylist()]
            else:
                values = list(column.to_pylist())
            columns.append(values)
        rows += [dict(zip(batch.schema.names, values, strict=True)) for values in zip(*columns, strict=True)]
    return rows


def _check_body(row: dict[str, Any], body: bytes | None, error: str | None) -> None:
    if "bodyError" in row:
        assert body is None
        assert error is not None
        assert " at byte " in error
        assert "commitlog" in error
        return
    assert error is None
    assert body is not None
    assert len(body) == row["bodyLength"]
    assert hashlib.sha256(body).hexdigest() == row["bodySha256"]
    if "bodyBase64" in row:
        assert body == base64.b64decode(row["bodyBase64"])


@pytest.mark.parametrize("case", golden.STORES)
def test_scan_gives_every_message_of_a_real_store(case: str, store: Store) -> None:
    log = CommitLog.open(store(case) / "commitlog")
    expected = golden.rows(case, "messages")
    found = _read(log)
    compared = 0
    for row, message in zip(expected, found, strict=True):
        body, error = message.pop("body"), message.pop("body_error")
        assert message == _expected(row)
        _check_body(row, body, error)
        compared += 1
    assert compared == len(expected) > 0


@pytest.mark.parametrize("case", golden.STORES)
def test_stored_bodies_are_the_bytes_of_the_log(case: str, store: Store) -> None:
    log = CommitLog.open(store(case) / "commitlog")
    expected = golden.rows(case, "messages")
    found = _read(log, columns=["body", "body_error"], body="stored", batch_size=7)
    compared = 0
    for row, message in zip(expected, found, strict=True):
        assert len(message["body"]) == row["storedBodyLength"]
        assert hashlib.sha256(message["body"]).hexdigest() == row["storedBodySha256"]
        assert message["body_error"] is None
        compared += 1
    assert compared == len(expected) > 0


@pytest.mark.parametrize("access", ["auto", "mmap", "pread"])
@pytest.mark.parametrize("case", golden.STORES)
def test_every_message_is_found_by_its_offset(case: str, access: Any, store: Store) -> None:
    log = CommitLog.open(store(case) / "commitlog", access=access)
    expected = golden.rows(case, "messages")
    offsets = [row["physicalOffset"] for row in expected]
    scanned = _read(log)
    for at, row in enumerate(expected):
        message = log.message(offsets[at])
        assert message is not None
        assert {name: getattr(message, name) for name in scanned[at]} == scanned[at]
        _check_body(row, message.body, message.body_error)
    batch = log.messages(offsets[::-1])
    assert batch.column("phy_offset").to_pylist() == offsets[::-1]
    assert batch.column("msg_id").to_pylist() == [row["msgId"] for row in expected[::-1]]


@pytest.mark.parametrize("case", golden.STORES)
def test_no_message_begins_between_two_messages(case: str, store: Store) -> None:
    log = CommitLog.open(store(case) / "commitlog")
    begins = {row["physicalOffset"] for row in golden.rows(case, "messages")}
    first, end = log.min_offset, log.max_offset
    others = [offset for offset in range(max(0, first - 100), end + 100) if offset not in begins]
    others += [-1, -(2**63), 2**63 - 1, end + 10**9]
    batch = log.messages(others, columns=["phy_offset", "topic"])
    assert batch.column("phy_offset").to_pylist() == others
    assert set(batch.column("topic").to_pylist()) == {None}
    assert len(others) > len(begins)


@pytest.mark.parametrize("case", golden.STORES)
def test_log_ends_where_the_broker_says(case: str, store: Store) -> None:
    log = CommitLog.open(store(case) / "commitlog")
    walk = golden.info(case)["load"]["walk"]
    assert log.max_offset == walk["nextOffset"] == walk["maxOffset"]
    assert log.max_offset == walk["nextOffset"]  # from what it remembers
    assert log.min_offset == walk["minOffset"]
    assert log.file_size == golden.info(case)["store"]["mappedFileSizeCommitLog"]
    assert sum(batch.num_rows for batch in log.scan(columns=[])) == walk["count"]


WALKS = ("crc-early-clean", "crc-last-clean", "magic-last", "tag-byte")


@pytest.mark.parametrize("name", WALKS)
def test_scan_of_a_damaged_log_ends_where_the_broker_s_walk_ends(name: str, damaged_store: Store) -> None:
    case = golden.damaged(name)
    log = CommitLog.open(damaged_store(name) / "commitlog")
    found = [row["phy_offset"] for row in _read(log, columns=["phy_offset"])]
    assert found == case["messageOffsets"]
    assert len(found) == case["walk"]["count"] > 0
    assert log.max_offset == case["walk"]["maxOffset"]


@pytest.mark.parametrize("name", [name for name in golden.DAMAGED if name.startswith("log-")])
def test_stray_short_and_empty_files_hide_no_message(name: str, damaged_store: Store) -> None:
    log = CommitLog.open(damaged_store(name) / "commitlog")
    expected = [row["physicalOffset"] for row in golden.rows("basic", "messages")]
    if name == "log-truncated":
        # The last file ends within its last message, but the file size in the BLANK frame stays that of the others.
        patch = golden.damaged(name)["patches"][0]
        end = int(patch["path"].rsplit("/", 1)[1]) + patch["size"]
        sizes = {row["physicalOffset"]: row["storeSize"] for row in golden.rows("basic", "messages")}
        expected = [offset for offset in expected if offset + sizes[offset] <= end]
    found = [row["phy_offset"] for row in _read(log, columns=["phy_offset"])]
    assert found == expected
    assert len(found) > 0
    assert log.file_size == 65536


def test_compat_4_9_3_ends_at_a_frame_of_version_2(store: Store) -> None:
    directory = store("v5-basic") / "commitlog"
    version_1 = -626843481
    rows = golden.rows("v5-basic", "messages")
    first = next(row["physicalOffset"] for row in rows if row["magic"] != version_1)
    with CommitLog.open(directory, compat="4.9.3") as log:
        offsets = [row["phy_offset"] for row in _read(log, columns=["phy_offset"])]
        assert offsets == [row["physicalOffset"] for row in rows if row["physicalOffset"] < first]
        assert log.message(first) is None
    for compat in ("5.3.3", "5.5.0"):
        with CommitLog.open(directory, compat=compat) as log:
            assert sum(batch.num_rows for batch in log.scan(columns=["phy_offset"])) == len(rows)


def test_ranges_and_columns(store: Store) -> None:
    log = CommitLog.open(store("basic") / "commitlog")
    offsets = [row["physicalOffset"] for row in golden.rows("basic", "messages")]
    for begin, end in [
        (offsets[3], offsets[200]),
        (offsets[3] + 1, offsets[200] + 1),
        (0, 0),
        (-5, 10**15),
        (10**15, None),
    ]:
        found = [
            row["phy_offset"] for row in _read(log, begin_phy_offset=begin, end_phy_offset=end, columns=["phy_offset"])
        ]
        assert found == [o for o in offsets if begin <= o and (end is None or o < end)]
    reader = log.scan(columns=["keys", "topic"], batch_size=100)
    assert reader.schema.names == ["keys", "topic"]
    assert [batch.num_rows for batch in reader] == [100] * 5 + [53]
    with pytest.raises(ValueError, match="no message column"):
        log.scan(columns=["bodies"])
    with pytest.raises(ValueError, match="twice"):
        log.scan(columns=["body", "body"])
    with pytest.raises(ValueError, match="salvage"):
        log.scan(stop="never")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="batch_size"):
        log.scan(batch_size=0)


def test_schema_is_the_contract(store: Store) -> None:
    schema = pa.schema(CommitLog.open(store("basic") / "commitlog").scan().schema)
    time = pa.timestamp("ms", "UTC")
    wanted = {
        "topic": pa.string(),
        "queue_id": pa.int32(),
        "queue_offset": pa.int64(),
        "phy_offset": pa.int64(),
        "store_timestamp": time,
        "born_timestamp": time,
        "msg_id": pa.string(),
        "uniq_key": pa.string(),
        "tags": pa.string(),
        "keys": pa.string(),
        "body": pa.binary(),
        "properties": pa.map_(pa.string(), pa.string()),
        "flag": pa.int32(),
        "sys_flag": pa.int32(),
        "store_size": pa.int32(),
        "body_crc": pa.int32(),
        "reconsume_times": pa.int32(),
        "prepared_transaction_offset": pa.int64(),
        "born_host": pa.string(),
        "store_host": pa.string(),
        "body_error": pa.string(),
    }
    assert schema.names == list(wanted)
    assert [field.type for field in schema] == list(wanted.values())
    assert all(field.nullable for field in schema)


def test_reading_changes_nothing(store: Store) -> None:
    root = store("killed")
    before = _state(root)
    for access in ("auto", "mmap", "pread"):
        with CommitLog.open(root / "commitlog", access=access) as log:
            _read(log)
            log.messages(range(0, 1000, 7))
            assert log.max_offset > 0
    assert _state(root) == before


def _state(root: Path) -> dict[str, tuple[int, bytes]]:
    return {
        str(path): (path.stat().st_mtime_ns, path.read_bytes() if path.is_file() else b"") for path in root.rglob("*")
    }


def test_closed_and_pickled(store: Store) -> None:
    log = CommitLog.open(store("sync") / "commitlog", access="mmap", max_body_bytes=10)
    other = pickle.loads(pickle.dumps(log))  # noqa: S301
    assert other.max_offset == log.max_offset
    message = other.message(0)
    assert message is not None
    assert pickle.loads(pickle.dumps(message)) == message  # noqa: S301
    log.close()
    assert log.closed
    with pytest.raises(ValueError, match="closed"):
        log.message(0)
    with pytest.raises(ValueError, match="closed"):
        log.scan()
    assert other.message(0) == message


def test_missing_directory_is_file_not_found(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError) as info:
        CommitLog.open(tmp_path / "none")
    assert info.value.filename == str(tmp_path / "none")


def test_file_that_vanishes_under_a_scan_is_an_os_error(store: Store) -> None:
    log = CommitLog.open(store("rolled") / "commitlog")
    reader = log.scan(columns=["phy_offset"], batch_size=1)
    assert next(reader).num_rows == 1
    gone = log.files[3]
    gone.unlink()
    with pytest.raises(FileNotFoundError) as info:
        list(reader)
    assert info.value.filename == str(gone)
    assert list(reader) == []


def test_reader_is_an_iterator_a_table_and_a_stream(store: Store) -> None:
    log = CommitLog.open(store("ipv6") / "commitlog")
    whole = pa.table(log.scan(columns=["phy_offset", "topic"]))
    assert whole.num_rows == len(golden.rows("ipv6", "messages"))
    reader = log.scan(columns=["phy_offset", "topic"], batch_size=100)
    first = pa.record_batch(reader.read_next_batch())
    rest = pa.table(reader.read_all())
    assert pa.concat_tables([pa.table([*first.columns], first.schema.names), rest]).equals(whole)
    assert reader.closed
    for call in (reader.read_next_batch, reader.read_all, reader.__arrow_c_stream__, lambda: next(reader)):
        with pytest.raises(ValueError, match="closed"):
            call()
    assert pl.DataFrame(log.scan(columns=["phy_offset"]))["phy_offset"].to_list() == whole["phy_offset"].to_pylist()
    with duckdb.connect() as database:
        database.register("messages", log.scan(columns=["phy_offset", "topic"]))
        counted = database.execute("select count(*), max(phy_offset) from messages").fetchall()
    assert counted == [(whole.num_rows, whole["phy_offset"][-1].as_py())]


def test_one_reader_serves_many_threads(store: Store) -> None:
    log = CommitLog.open(store("rolled") / "commitlog")
    offsets = [row["physicalOffset"] for row in golden.rows("rolled", "messages")]
    reader = log.scan(columns=["phy_offset"], batch_size=3)

    def drain() -> list[int]:
        return [offset for batch in reader for offset in batch.column(0).to_pylist()]

    def look_up(part: int) -> list[str]:
        return [type(log.message(offset)).__name__ for offset in offsets[part::8]]

    with ThreadPoolExecutor(8) as pool:
        drained = [pool.submit(drain) for _ in range(4)]
        looked_up = [pool.submit(look_up, part) for part in range(8)]
        found = [offset for future in drained for offset in future.result()]
        kinds = {kind for future in looked_up for kind in future.result()}
    assert sorted(found) == offsets
    assert kinds == {"Message"}


def test_scan_from_a_message_starts_there(damaged_store: Store) -> None:
    # The broker's own walk never gets past the damage. A caller that knows a message after it can continue from there.
    log = CommitLog.open(damaged_store("crc-early-clean") / "commitlog")
    offsets = [row["physicalOffset"] for row in golden.rows("basic", "messages")]
    damaged = 98616
    behind = [offset for offset in offsets if offset > damaged]
    assert [row["phy_offset"] for row in _read(log, begin_phy_offset=behind[0], columns=["phy_offset"])] == behind
    assert _read(log, begin_phy_offset=damaged) == []
    assert log.message(damaged) is None


def test_limit_of_bodies(store: Store) -> None:
    log = CommitLog.open(store("basic") / "commitlog", max_body_bytes=1000)
    whole = _read(CommitLog.open(store("basic") / "commitlog"))
    cut = 0
    for row, full in zip(_read(log), whole, strict=True):
        compressed = full["sys_flag"] & 1
        if compressed and len(full["body"]) > 1000:
            assert row["body"] is None
            assert row["body_error"].endswith("body of more than 1000 bytes")
            cut += 1
        else:
            assert row == full
    assert cut > 0
