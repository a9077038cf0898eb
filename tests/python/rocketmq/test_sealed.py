"""A sealed index changes no answer: of the golden stores, after changes, and if it is damaged."""

from __future__ import annotations

import logging
import os
import pickle
import random
import shutil
import warnings
import zlib
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

import duckdb
import fsspec
import fsspec.implementations.local
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from pyarrow.fs import LocalFileSystem

import golden
import store_answers
from logdex import CorruptFileError, DamageWarning
from logdex._core import SealedStore
from logdex.rocketmq import IndexService, MessageStore, StoreWriter

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

KEYS_COLUMNS = pa.schema(
    [
        pa.field("key_hash", pa.int32(), nullable=False),
        pa.field("phy_offset", pa.int64(), nullable=False),
        pa.field("store_timestamp", pa.timestamp("ms", "UTC"), nullable=False),
    ]
)
UNKNOWN_TIME = datetime(1969, 12, 31, 23, 59, 59, 999_000, tzinfo=timezone.utc)


def seal(root: Path, out: Path | None = None) -> dict[str, Any]:
    """Seal a store and return what was counted."""
    with MessageStore.open(root, sealed="never") as store:
        report = store.seal(out)
    assert report.ok, report
    return report.checked


def searches(store: MessageStore, keys: list[tuple[str, str]]) -> list[Any]:
    """Ask for keys one by one and together, with and without ranges, and keep all that a result says."""
    times = store.times()
    ranges = [(None, None), (min(times), min(times)), (min(times), (min(times) + max(times)) // 2), (max(times), None)]
    found: list[Any] = []
    for number, (topic, key) in enumerate(keys):
        begin, end = ranges[number % len(ranges)]
        result = store.find(topic, key, begin=begin, end=end, max_num=[None, 1][number % 5 == 0])
        facts = (result.truncated, result.rejected, result.complete, result.unscanned, result.unreadable)
        found.append(([message.phy_offset for message in result], *facts))
        if number % 50 == 0:
            found.append([message.phy_offset for message in store.find(None, key)])
    for begin, end in ranges:
        columns = list(zip(*keys, strict=True))
        batch = pa.table(store.find_batch(*map(list, columns), begin=begin, end=end))
        found.append(batch.select(["query_row", "phy_offset"]).to_pylist())
    return found


def keys_of(root: Path, most: int = 400) -> list[tuple[str, str]]:
    """Return keys of a store, some that it does not have among them."""
    with MessageStore.open(root, sealed="never") as store:
        keys = store_answers.keys_of(pa.table(store.messages()))
    chosen = keys[:: max(1, len(keys) // most)]
    return [*chosen, (chosen[0][0], "absent"), ("absent", chosen[0][1])]


def assert_same(root: Path, keys: list[tuple[str, str]], *, is_used: bool = True) -> None:
    """Compare a store with its sealed index to the store without."""
    with MessageStore.open(root, sealed="never") as plain, MessageStore.open(root) as sealed:
        assert plain.sealed is None
        assert (sealed.sealed is not None) == is_used
        assert searches(sealed, keys) == searches(plain, keys)


@pytest.mark.parametrize("case", golden.STORES)
def test_a_golden_store_answers_alike(store: Callable[[str], Path], case: str) -> None:
    root = store(case)
    with MessageStore.open(root) as plain:
        expected = store_answers.of_store(plain)
        entries = sum(map(len, plain.index.files if plain.index else []))
    before = {path: path.stat().st_mtime_ns for path in root.rglob("*")}
    counts = seal(root)
    assert counts["entries"] == entries > 200
    assert {path: path.stat().st_mtime_ns for path in before} == before
    with MessageStore.open(root) as sealed:
        found = store_answers.of_store(sealed)
        assert f"with {entries:,} entries" in found["overview"].pop("sealed_index")
    assert expected["overview"].pop("sealed_index") is None
    assert found["verify"]["checked"].pop("sealed_rows") == entries
    for explained in found["explain"]:
        assert explained.pop("sealed")["files"] > 0
    for explained in expected["explain"]:
        assert explained.pop("sealed") is None
    assert list(found) == list(expected)
    for name, answer in expected.items():
        assert found[name] == answer, name
    assert_same(root, keys_of(root))


@pytest.mark.parametrize("name", golden.DAMAGED)
def test_a_damaged_store_answers_alike(damaged_store: Callable[[str], Path], name: str) -> None:
    root = damaged_store(name)
    answers = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DamageWarning)
        with MessageStore.open(root, sealed="never") as plain:
            plain.seal()
            keys = store_answers.keys_of(pa.table(plain.messages()))[::40]
        for sealed in ("never", "auto"):
            with MessageStore.open(root, sealed=sealed) as opened:
                answers.append(searches(opened, keys))
    assert len(keys) > 10
    assert answers[1] == answers[0]


def test_rows_are_the_entries_with_the_times_of_the_messages(store: Callable[[str], Path]) -> None:
    root = store("rolled")
    seal(root)
    rows = pa.concat_tables([pq.read_table(path) for path in sorted((root / "_logdex/keys").iterdir())])
    assert rows.schema.equals(KEYS_COLUMNS)
    with MessageStore.open(root) as opened, IndexService.open(root / "index") as index:
        entries = [(file.header.begin_timestamp, pa.table(file.entries())) for file in index.files]
        messages = pa.table(opened.messages(columns=["phy_offset", "store_timestamp"]))
    time_of = dict(zip(*(messages.column(name).to_pylist() for name in messages.column_names), strict=True))
    expected = []
    for begin, table in entries:
        for entry in table.to_pylist():
            time = entry["store_timestamp"]
            # Without its message: a difference of 0 stands for all times before as well.
            is_known = entry["position"] == 1 or time.timestamp() * 1000 != begin
            known = time_of.get(entry["phy_offset"], time if is_known else UNKNOWN_TIME)
            expected.append((entry["key_hash"], -entry["phy_offset"], known))
    expected.sort(key=lambda row: row[:2])
    # The log lost the first messages.
    assert len({-offset for _, offset, _ in expected} - set(time_of)) > 5
    found = list(zip(*(rows.column(name).to_pylist() for name in KEYS_COLUMNS.names), strict=True))
    assert [(key_hash, -offset, time) for key_hash, offset, time in found] == expected
    assert len(found) > 5000


def test_a_lookup_reads_one_small_row_group_that_other_programs_read_too(tmp_path: Path) -> None:
    root = tmp_path / "store"
    with StoreWriter.open(root, file_size=1 << 24, services=False) as writer:
        for number in range(9_000):
            writer.put_message("orders", b"x", keys=f"n{number}")
    seal(root)
    catalog = {row["path"]: row for row in pq.read_table(root / "_logdex/catalog.parquet").to_pylist()}
    (path,) = (root / "_logdex/keys").iterdir()
    groups = catalog[f"keys/{path.name}"]
    width = len(KEYS_COLUMNS)
    sizes = [sum(groups["group_sizes"][at : at + width]) for at in range(0, len(groups["group_sizes"]), width)]
    assert len(sizes) == len(groups["group_rows"]) == len(groups["group_crc"]) > 5
    assert max(sizes) <= 16 << 10
    assert max(groups["group_rows"]) == 1_024
    # Row groups follow each other from byte 4 on.
    content, at = path.read_bytes(), 4
    for size, crc in zip(sizes, groups["group_crc"], strict=True):
        assert zlib.crc32(content[at : at + size]) == crc
        at += size
    with MessageStore.open(root) as store:
        opened = SealedStore.open(root / "_logdex")
        files = opened.unchanged_files(root / "index")
        for number in range(0, 9_000, 1_000):
            before = opened.reads
            (found,) = opened.select(files, [f"n{number}"], topics="orders").to_pylist()
            # A second one if it begins with this hash.
            assert opened.reads - before in {1, 2}
            assert [message.phy_offset for message in store.find("orders", f"n{number}")] == found
    rows = pq.read_table(path)
    expected = rows.to_pydict()
    assert len(rows) == sum(groups["group_rows"]) == groups["entries"]
    polars_rows = pl.read_parquet(path).to_dict(as_series=False)
    assert polars_rows == expected
    query = f"SELECT * REPLACE (epoch_ms(store_timestamp) AS store_timestamp) FROM '{path}'"
    times = pc.cast(rows["store_timestamp"], pa.int64()).to_pylist()
    columns = [expected["key_hash"], expected["phy_offset"], times]
    assert duckdb.execute(query).fetchall() == list(zip(*columns, strict=True))
    hashes = expected["key_hash"]
    count = hashes.count(hashes[5_000])
    only = f"SELECT key_hash FROM '{path}' WHERE key_hash = {hashes[5_000]}"
    assert duckdb.execute(only).fetchall() == [(hashes[5_000],)] * count
    assert len(pq.read_table(path, filters=[("key_hash", "=", hashes[5_000])])) == count


def test_a_catalog_of_another_version_is_not_used(written: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = written / "_logdex/catalog.parquet"
    content = path.read_bytes().replace(b"logdex.sealed\x18\x012", b"logdex.sealed\x18\x011")
    path.write_bytes(content[:4] + zlib.crc32(content[8:], zlib.crc32(content[:4])).to_bytes(4, "little") + content[8:])
    assert_same(written, keys_of(written, 20), is_used=False)
    assert "logdex.sealed=1, expected 2: seal again with `logdex seal`" in caplog.text
    with pytest.raises(CorruptFileError, match="logdex seal"):
        MessageStore.open(written, sealed=written)


def test_the_catalog_lists_every_file(store: Callable[[str], Path]) -> None:
    root = store("rolled")
    seal(root)
    catalog = pq.read_table(root / "_logdex/catalog.parquet")
    files = {path.relative_to(root).as_posix(): path for path in root.rglob("*") if path.is_file()}
    of_store = {name: path.stat() for name, path in files.items() if not name.startswith("_logdex/")}
    rows = {row["path"]: row for row in catalog.to_pylist()}
    assert {name for name, row in rows.items() if row["kind"] != "keys"} == set(of_store)
    for name, status in of_store.items():
        assert (rows[name]["size"], rows[name]["modified"].value) == (status.st_size, status.st_mtime_ns)
    with MessageStore.open(root) as opened:
        messages = pa.table(opened.messages(columns=["phy_offset", "store_timestamp"]))
        end = opened.commit_log.max_offset
        headers = {f"index/{file.path.name}": (file.header, len(file)) for file in opened.index.files}  # type: ignore[union-attr]
    logs = [row for row in rows.values() if row["kind"] == "commit-log" and row["last_offset"] is not None]
    for row in logs:
        in_file = pc.and_(
            pc.greater_equal(messages["phy_offset"], row["first_offset"]),
            pc.less_equal(messages["phy_offset"], row["last_offset"]),
        )
        of_file = messages.filter(in_file)
        assert row["first_offset"] == of_file["phy_offset"][0].as_py()
        assert row["last_offset"] == of_file["phy_offset"][-1].as_py()
        assert row["first_timestamp"] == of_file["store_timestamp"][0].as_py()
        assert row["last_timestamp"] == of_file["store_timestamp"][-1].as_py()
    assert sum(row["last_offset"] - row["first_offset"] for row in logs) > 0
    assert max(row["end_offset"] for row in logs) == end
    assert len(headers) > 5
    for name, (header, count) in headers.items():
        row = rows[name]
        assert (row["first_offset"], row["last_offset"]) == (header.begin_phy_offset, header.end_phy_offset)
        assert row["entries"] == count


def put(root: Path, first: int, count: int, *, keys: int = 50, hash_slots: int = 40, max_entries: int = 160) -> None:
    """Let a broker of our own write messages."""
    with StoreWriter.open(
        root,
        hash_slots=hash_slots,
        max_entries=max_entries,
        file_size=1 << 20,
        queue_file_size=20_000,
        services=False,
    ) as writer:
        for number in range(first, first + count):
            writer.put_message("orders", b"body %d" % number, keys=[f"order-{number % keys}", f"n{number}"])


@pytest.fixture
def written(tmp_path: Path) -> Path:
    """Return a sealed store of several index files."""
    root = tmp_path / "written"
    put(root, 0, 500)
    counts = seal(root)
    assert counts["index_files"] > 3
    return root


def test_files_that_came_later_are_asked(written: Path) -> None:
    put(written, 500, 400)
    assert_same(written, keys_of(written))
    with MessageStore.open(written) as sealed:
        assert "other files" in str(sealed.sealed)
        assert [message.body for message in sealed.find("orders", "n890")] == [b"body 890"]
    seal(written)
    with MessageStore.open(written) as sealed:
        assert "other files" not in str(sealed.sealed)
    assert_same(written, keys_of(written))


def test_files_may_come_while_the_store_is_open(written: Path) -> None:
    with MessageStore.open(written) as sealed, MessageStore.open(written, sealed="never") as plain:
        for first in (500, 510, 700):
            put(written, first, 10 if first < 700 else 300)
            keys = keys_of(written, 50)
            assert searches(sealed, keys) == searches(plain, keys)
            assert sealed.find("orders", f"n{first + 5}")[0].body == b"body %d" % (first + 5)


@pytest.mark.parametrize("which", [0, 1, -1])
def test_a_deleted_index_file_leaves_its_rows_out(written: Path, which: int) -> None:
    keys = keys_of(written)
    sorted((written / "index").iterdir())[which].unlink()
    assert_same(written, keys)


@pytest.mark.parametrize("which", [0, 2, -1])
def test_a_changed_index_file_is_asked_itself(written: Path, which: int) -> None:
    keys = keys_of(written)
    path = sorted((written / "index").iterdir())[which]
    content = bytearray(path.read_bytes())
    # The first entry leads elsewhere, and the time of the file is another one.
    content[40 + 4 * 40 + 20 + 4 + 7] ^= 1
    path.write_bytes(content)
    assert_same(written, keys)
    for each in (written / "index").iterdir():
        os.utime(each)
    assert_same(written, keys, is_used=False)


def test_an_entry_through_a_map_is_seen_without_a_new_time(written: Path) -> None:
    newest = max((written / "index").iterdir())
    status = newest.stat()
    with IndexService.open(written / "index") as index:
        header = index.files[-1].header
    put_more = IndexService.open(written / "index", mode="a", hash_slots=40, max_entries=160)
    with put_more as index:
        entry = {
            "topic": ["orders"],
            "key": ["n7"],
            "phy_offset": [header.end_phy_offset],
            "store_timestamp": [header.end_timestamp],
        }
        index.put_batch(entry)
    assert max((written / "index").iterdir()) == newest
    os.utime(newest, ns=(status.st_atime_ns, status.st_mtime_ns))
    with MessageStore.open(written) as sealed:
        assert "1 other files" in str(sealed.sealed)
    assert_same(written, keys_of(written))


def grow(root: Path, first: int, count: int) -> None:
    """Write messages as a broker does: through maps, which keep the lengths of files and may not change their times."""
    before = {path: path.stat() for path in root.rglob("*") if path.is_file()}
    put(root, first, count)
    for path, status in before.items():
        assert path.stat().st_size == status.st_size or path.suffix == ".json", path
        os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


def opened(root: Path, how: str) -> MessageStore:
    """Open a store by its path, or in a file system without `ETag`s."""
    if how == "path":
        return MessageStore.open(root)
    return MessageStore.open(str(root), filesystem=LocalFileSystem())


@pytest.mark.parametrize("how", ["path", "filesystem"])
def test_new_entries_in_files_that_look_the_same_are_found(written: Path, how: str) -> None:
    newest = max((written / "index").iterdir())
    grow(written, 500, 5)
    assert max((written / "index").iterdir()) == newest
    with opened(written, how) as sealed:
        assert "1 other files" in str(sealed.sealed)
        found = sealed.find("orders", "n503")
        assert [message.body for message in found] == [b"body 503"]
        assert found.complete


@pytest.mark.parametrize("how", ["path", "filesystem"])
def test_a_log_that_looks_the_same_is_read_to_its_end(written: Path, tmp_path: Path, how: str) -> None:
    """The index may lag behind the log, so that only the end of the log has the new messages."""
    shutil.copytree(written / "index", tmp_path / "index")
    grow(written, 500, 5)
    shutil.rmtree(written / "index")
    shutil.copytree(tmp_path / "index", written / "index")
    with MessageStore.open(written, sealed="never") as plain:
        end = plain.commit_log.max_offset
    with opened(written, how) as sealed:
        assert "other files" not in str(sealed.sealed)
        assert sealed.commit_log.max_offset == end
        found = sealed.find("orders", "n503")
        assert [message.body for message in found] == [b"body 503"]
        assert found.complete


@pytest.mark.parametrize("how", ["path", "filesystem"])
def test_after_a_crash_the_end_of_the_log_is_looked_for_anew(written: Path, how: str) -> None:
    """A broker that crashed may have lost a page in the middle of its log. The messages after it still exist."""
    with MessageStore.open(written) as store:
        damaged = store.find("orders", "n300")[0].phy_offset
    path = max((written / "commitlog").iterdir())
    status = path.stat()
    with path.open("r+b") as file:
        file.seek(damaged)
        file.write(bytes(64))
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    (written / "abort").touch()
    with opened(written, how) as sealed:
        assert sealed.sealed is not None
        assert sealed.commit_log.max_offset == damaged


def test_the_log_may_lose_its_front(store: Callable[[str], Path]) -> None:
    root = store("rolled")
    keys = keys_of(root)
    seal(root)
    logs = sorted((root / "commitlog").iterdir())
    assert len(logs) > 3
    for path in logs[:2]:
        path.unlink()
    assert_same(root, keys)
    with MessageStore.open(root) as sealed:
        assert sealed.verify().kinds.get("sealed-row") is None
    with MessageStore.open(root, sealed="never") as plain:
        first = plain.commit_log.min_offset
    for path in sorted((root / "index").iterdir())[:2]:
        path.unlink()
    assert first > 0
    assert_same(root, keys)


def test_the_log_may_lose_its_end(store: Callable[[str], Path]) -> None:
    root = store("rolled")
    keys = keys_of(root)
    seal(root)
    max((root / "commitlog").iterdir()).unlink()
    with (
        pytest.warns(DamageWarning, match="0 valid|no file|begins at"),
        MessageStore.open(root, sealed="never") as plain,
        MessageStore.open(root) as sealed,
    ):
        assert searches(sealed, keys) == searches(plain, keys)


def test_without_the_index_directory_the_log_is_read(written: Path) -> None:
    keys = keys_of(written)
    shutil.rmtree(written / "index")
    assert_same(written, keys, is_used=False)


def test_a_damaged_sealed_index_changes_no_answer(written: Path, caplog: pytest.LogCaptureFixture) -> None:
    keys = keys_of(written, 60)
    with MessageStore.open(written, sealed="never") as plain:
        expected = searches(plain, keys)
    files = [path for path in (written / "_logdex").rglob("*") if path.is_file()]
    assert len(files) == 2
    seeds = random.Random(17)
    words = 0
    for path in files:
        whole = path.read_bytes()
        changed = [whole[:length] for length in (0, 1, len(whole) // 2, len(whole) - 1)]
        changed += [whole + b"x", b"PAR1 something else PAR1"]
        for _ in range(25):
            at = seeds.randrange(len(whole))
            changed.append(whole[:at] + bytes([whole[at] ^ (1 << seeds.randrange(8))]) + whole[at + 1 :])
        for content in changed:
            path.write_bytes(content)
            caplog.clear()
            with caplog.at_level(logging.WARNING, "logdex"), MessageStore.open(written) as sealed:
                assert searches(sealed, keys) == expected
            words += any("sealed index is not used" in record.getMessage() for record in caplog.records)
        path.write_bytes(whole)
    # Some bytes of a file of keys are for other readers: names and statistics.
    assert words > 40
    assert_same(written, keys)


def test_a_hostile_catalog_with_a_right_checksum_is_not_used(
    store: Callable[[str], Path], caplog: pytest.LogCaptureFixture
) -> None:
    """The Parquet library panics on some of these bytes: lengths in the first column."""
    root = store("basic")
    topic, key = keys_of(root)[0]
    seal(root)
    path = root / "_logdex/catalog.parquet"
    whole = path.read_bytes()
    panics = 0
    for at in range(106, 150):
        content = bytearray(whole)
        content[at] = 0xFF
        content[4:8] = zlib.crc32(content[8:], zlib.crc32(content[:4])).to_bytes(4, "little")
        path.write_bytes(content)
        caplog.clear()
        with caplog.at_level(logging.WARNING, "logdex"), MessageStore.open(root) as sealed:
            assert len(sealed.find(topic, key)) > 0
        if "at which the Parquet reader fails" in caplog.text:
            panics += 1
            with pytest.raises(CorruptFileError, match=r"catalog\.parquet"):
                MessageStore.open(root, sealed=root)
    assert panics > 3


def forbidding(error: OSError) -> Any:
    """Return a file system that answers each request for a sealed index with an error."""

    class Forbidding(fsspec.implementations.local.LocalFileSystem):  # type: ignore[misc]
        cachable = False

        def info(self, path: Any, **options: Any) -> Any:
            if "_logdex" in os.fspath(path):
                raise error
            return super().info(path, **options)

    return Forbidding()


@pytest.mark.parametrize("error", [PermissionError(13, "Forbidden"), OSError(5, "Internal Server Error")])
def test_a_sealed_index_that_cannot_be_read_is_not_used(
    written: Path, caplog: pytest.LogCaptureFixture, error: OSError
) -> None:
    shutil.rmtree(written / "_logdex")
    with (
        caplog.at_level(logging.WARNING, "logdex"),
        MessageStore.open(str(written), filesystem=forbidding(error)) as store,
    ):
        assert store.sealed is None
        assert len(store.find("orders", "n77")) == 1
    assert "the sealed index is not used" in caplog.text
    assert "catalog.parquet" in caplog.text


def test_a_catalog_that_is_no_file_is_not_used(written: Path, caplog: pytest.LogCaptureFixture) -> None:
    catalog = written / "_logdex/catalog.parquet"
    catalog.unlink()
    catalog.mkdir()
    with caplog.at_level(logging.WARNING, "logdex"):
        assert_same(written, keys_of(written, 20), is_used=False)
    assert "the sealed index is not used" in caplog.text
    with pytest.raises(IsADirectoryError):
        MessageStore.open(written, sealed=written)


def test_a_missing_file_of_keys_changes_no_answer(written: Path, caplog: pytest.LogCaptureFixture) -> None:
    keys = keys_of(written, 60)
    for path in (written / "_logdex/keys").iterdir():
        path.unlink()
    with MessageStore.open(written, sealed="never") as plain, MessageStore.open(written) as sealed:
        assert searches(sealed, keys) == searches(plain, keys)
        assert "damaged" in str(sealed.sealed)
    assert "each index file is asked" in caplog.text


def test_a_batch_asks_index_files_in_memory(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    root = tmp_path / "store"
    put(root, 0, 1_500, hash_slots=1_000, max_entries=5_000)
    seal(root)
    # Only a look-up in the sealed rows notices that they are gone.
    shutil.rmtree(root / "_logdex/keys")
    [index] = (root / "index").iterdir()
    assert index.read_bytes()
    keys = [f"n{number}" for number in range(0, 1_500, 50)]
    for asked, is_sealed in ((keys, False), (keys[:10], True)):
        caplog.clear()
        with MessageStore.open(root) as store:
            found = pa.table(store.find_batch("orders", asked, columns=["body"]))
        assert found.column("body").to_pylist() == [b"body %s" % key[1:].encode() for key in asked]
        assert ("each index file is asked" in caplog.text) == is_sealed


@pytest.mark.parametrize(("before", "is_sealed"), [(3, True), (20, False)])
def test_after_some_keys_index_files_in_memory_are_asked(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, before: int, *, is_sealed: bool
) -> None:
    root = tmp_path / "store"
    put(root, 0, 1_500, hash_slots=1_000, max_entries=5_000)
    seal(root)
    [index] = (root / "index").iterdir()
    assert index.read_bytes()
    with MessageStore.open(root) as store:
        for number in range(before):
            assert [message.body for message in store.find("orders", f"n{number}")] == [b"body %d" % number]
        # Only a look-up in the sealed rows notices that they are damaged.
        for rows in (root / "_logdex/keys").iterdir():
            os.truncate(rows, 100)
        assert [message.body for message in store.find("orders", "n777")] == [b"body 777"]
    assert ("each index file is asked" in caplog.text) == is_sealed


def test_changes_of_a_directory_that_was_at_rest_are_seen(tmp_path: Path) -> None:
    root = tmp_path / "store"
    put(root, 0, 100)
    seal(root)
    # Its names are not listed again as long as its time stays.
    os.utime(root / "index", (1, 1))
    with MessageStore.open(root) as store:
        assert [message.body for message in store.find("orders", "n99", scan=False)] == [b"body 99"]
        files = len([*(root / "index").iterdir()])
        put(root, 100, 10)
        assert len([*(root / "index").iterdir()]) == files
        os.utime(root / "index", (1, 1))
        assert [message.body for message in store.find("orders", "n109", scan=False)] == [b"body 109"]
        put(root, 110, 200)
        assert len([*(root / "index").iterdir()]) > files
        assert [message.body for message in store.find("orders", "n309", scan=False)] == [b"body 309"]


def test_a_sealed_index_of_another_store_is_passed_over(
    written: Path, store: Callable[[str], Path], caplog: pytest.LogCaptureFixture
) -> None:
    other = store("basic")
    shutil.copytree(written / "_logdex", other / "_logdex")
    assert_same(other, keys_of(other), is_used=False)
    assert "no index file is as this sealed index says" in caplog.text


def test_a_sealed_index_elsewhere(written: Path, tmp_path: Path) -> None:
    shutil.rmtree(written / "_logdex")
    out = tmp_path / "elsewhere"
    seal(written, out)
    assert not (written / "_logdex").exists()
    with MessageStore.open(written) as plain:
        assert plain.sealed is None
    keys = keys_of(written, 60)
    for place in (out, str(out), out / "_logdex", f"file:{out}"):
        with MessageStore.open(written, sealed=place) as sealed, MessageStore.open(written) as plain:
            assert "index files" in str(sealed.sealed)
            assert searches(sealed, keys) == searches(plain, keys)
            with pickle.loads(pickle.dumps(sealed)) as again:  # noqa: S301 -- our own
                assert again.sealed == sealed.sealed


def test_what_is_asked_for_by_its_path_must_be_there(written: Path, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        MessageStore.open(written, sealed=tmp_path / "nowhere")
    catalog = written / "_logdex/catalog.parquet"
    content = bytearray(catalog.read_bytes())
    content[50] ^= 1
    catalog.write_bytes(content)
    with pytest.raises(CorruptFileError, match="checksum"):
        MessageStore.open(written, sealed=written)
    with pytest.raises(TypeError, match="sealed"):
        MessageStore.open(written, sealed=None)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="compat"):
        MessageStore.open(written, sealed=written, compat="4.9.3")
    with MessageStore.open(written, compat="4.9.3") as broker:
        assert broker.sealed is None


def test_a_view_has_the_entries_of_sealed_files(written: Path) -> None:
    with MessageStore.open(written) as sealed, MessageStore.open(written, sealed="never") as plain:
        assert sealed.sealed is not None
        views = [store.key_view() for store in (sealed, plain)]
        frames = [
            [
                view.stored_frames("orders", f"n{n}", begin=0, end=1 << 50, max_num=9, max_bytes=1 << 20)
                for n in range(0, 500, 7)
            ]
            for view in views
        ]
    assert frames[0] == frames[1]
    assert all(frames[0])


def test_reading_writes_nothing(written: Path) -> None:
    before = {path: (path.stat().st_mtime_ns, path.read_bytes()) for path in written.rglob("*") if path.is_file()}
    with MessageStore.open(written) as sealed:
        sealed.find("orders", "order-1")
        sealed.verify()
        sealed.explain("orders", "order-1")
        sealed.overview()
    assert {p: (p.stat().st_mtime_ns, p.read_bytes()) for p in written.rglob("*") if p.is_file()} == before


def test_sealing_again_replaces_the_files(written: Path) -> None:
    before = sorted(path.name for path in (written / "_logdex/keys").iterdir())
    with MessageStore.open(written) as opened:
        seal(written)
        # The files of keys that it has not opened yet are gone.
        assert opened.find("orders", "n3")[0].body == b"body 3"
    after = sorted(path.name for path in (written / "_logdex/keys").iterdir())
    assert before != after
    assert len(after) == len(before)
    assert_same(written, keys_of(written, 60))


def test_an_index_file_with_damage_is_not_sealed(written: Path) -> None:
    path = sorted((written / "index").iterdir())[1]
    content = bytearray(path.read_bytes())
    # A slot that leads nowhere.
    content[40:44] = (100_000).to_bytes(4, "big")
    path.write_bytes(content)
    with MessageStore.open(written, sealed="never") as plain:
        report = plain.seal()
    assert not report.ok
    assert {finding.path for finding in report.findings} == {str(path)}
    assert report.checked["index_files_not_sealed"] == 1
    with MessageStore.open(written) as sealed:
        assert "1 other files" in str(sealed.sealed)
    assert_same(written, keys_of(written))


def test_verify_compares_rows_with_index_and_log(written: Path) -> None:
    with MessageStore.open(written) as sealed:
        report = sealed.verify()
        assert report.ok, report
        assert report.checked["sealed_rows"] == report.checked["entries"]
        assert sealed.sealed is not None
    keys = next((written / "_logdex/keys").iterdir())
    content = bytearray(keys.read_bytes())
    content[100] ^= 1
    keys.write_bytes(content)
    with MessageStore.open(written) as sealed:
        assert sealed.verify().kinds == {"sealed-file": 1}


def test_a_store_without_an_index_can_be_sealed(tmp_path: Path) -> None:
    root = tmp_path / "store"
    put(root, 0, 20)
    shutil.rmtree(root / "index")
    with MessageStore.open(root) as plain:
        report = plain.seal()
    assert report.absent == ["key index"]
    assert_same(root, keys_of(root), is_used=False)


def test_progress_counts_entries(written: Path) -> None:
    calls: list[tuple[int, int]] = []
    with MessageStore.open(written) as opened:
        opened.seal(progress=lambda done, total: calls.append((done, total)))
    assert calls == sorted(calls)
    assert calls[-1][0] == calls[-1][1] == 1000
