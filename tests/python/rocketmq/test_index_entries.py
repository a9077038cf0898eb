"""The rules that turn messages into index entries, against the index files that real brokers wrote."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

import golden
from logdex import _core
from logdex._core import CommitLog

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Store = Callable[[str], Path]

# In `rolled` the beginning of the log was deleted, and the names of the index files are not in the order of creation.
WHOLE = ("basic", "cqext", "ipv6", "pool", "sync", "v5-3-3", "v5-basic")
KILLED = ("killed", "v5-killed")


def _entries_of_log(root: Path, *, tags: bool, batch_size: int) -> list[tuple[int, int]]:
    entries: list[tuple[int, int]] = []
    end = 0
    for messages in CommitLog.open(root / "commitlog").scan(batch_size=batch_size):
        batch = _core.index_entries(messages, end_phy_offset=end, tags=tags)
        columns = {name: batch.column(name).to_pylist() for name in ("topic", "key", "phy_offset", "row")}
        offsets = messages.column("phy_offset").to_pylist()
        assert columns["phy_offset"] == [offsets[row] for row in columns["row"]]
        entries += [
            (_core.key_hash(_core.index_key(topic, key)), offset)
            for topic, key, offset in zip(columns["topic"], columns["key"], columns["phy_offset"], strict=True)
        ]
        end = max([end, *columns["phy_offset"]])
    return entries


def _entries_of_index(root: Path, case: str) -> list[tuple[int, int]]:
    slots, most = golden.geometry(case)
    entries: list[tuple[int, int]] = []
    for path in sorted((root / "index").iterdir()):
        file = _core.IndexFile.open(path, hash_slots=slots, max_entries=most)
        for batch in file.entries():
            entries += zip(batch.column("key_hash").to_pylist(), batch.column("phy_offset").to_pylist(), strict=True)
    return entries


@pytest.mark.parametrize("case", WHOLE)
def test_entries_are_those_of_the_broker(case: str, store: Store) -> None:
    root = store(case)
    wanted = _entries_of_index(root, case)
    # The seed of an index file is the end of the one before, and the file starts with its own first message. So the message at a
    # batch's border does not occur twice here: each message is in one batch.
    found = _entries_of_log(root, tags=golden.info(case)["broker"] == "5.5.0", batch_size=8192)
    assert found == wanted
    held = sum(row["indexCount"] - 1 for row in golden.rows(case, "index_files"))
    assert len(found) == held > 0


@pytest.mark.parametrize("case", WHOLE)
def test_batches_of_one_message_give_the_same(case: str, store: Store) -> None:
    root = store(case)
    tags = golden.info(case)["broker"] == "5.5.0"
    assert _entries_of_log(root, tags=tags, batch_size=1) == _entries_of_log(root, tags=tags, batch_size=8192)


@pytest.mark.parametrize("case", KILLED)
def test_a_killed_broker_indexed_a_beginning(case: str, store: Store) -> None:
    root = store(case)
    wanted = _entries_of_index(root, case)
    found = _entries_of_log(root, tags=False, batch_size=100)
    assert found[: len(wanted)] == wanted
    assert len(wanted) > 1000


def test_any_arrow_batch_is_taken(store: Store) -> None:
    messages = pa.table(CommitLog.open(store("basic") / "commitlog").scan()).combine_chunks()
    table = messages.set_column(
        messages.schema.get_field_index("store_timestamp"),
        "store_timestamp",
        messages["store_timestamp"].cast(pa.timestamp("us", "UTC")),
    ).set_column(messages.schema.get_field_index("keys"), "keys", messages["keys"].cast(pa.large_string()))
    found = pa.table(_core.index_entries(table.to_batches()[0], end_phy_offset=0))
    assert found.equals(pa.table(_core.index_entries(messages.to_batches()[0], end_phy_offset=0)))
    assert found.num_rows > 1000
    assert found.schema.field("store_timestamp").type == pa.timestamp("ms", "UTC")
    with pytest.raises(ValueError, match="column keys is missing"):
        _core.index_entries(table.drop_columns(["keys"]).to_batches()[0], end_phy_offset=0)
