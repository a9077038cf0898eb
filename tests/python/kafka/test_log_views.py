"""Log.records(views=True) and LogDir.records: the records of a read that copies, and bytes that stay as they were read."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import golden_kafka
from logdex.kafka import LogDir, LogDirWriter

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

VALUES = ("key", "value")


def copied(table: pa.Table) -> pa.Table:
    """Return the table with bytes in place of views."""
    for name in VALUES:
        at = table.schema.get_field_index(name)
        assert table.schema.field(at).type == pa.binary_view()
        column = table.column(at)
        chunks = [pa.array(chunk.to_pylist(), pa.binary()) for chunk in column.chunks]
        table = table.set_column(at, name, pa.chunked_array(chunks, pa.binary()))
    return table.combine_chunks()


def read(logs: LogDir, **options: Any) -> tuple[pa.Table, list[Any]]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        table = pa.table(stream := logs.records(on_error="skip", **options))
    table.validate(full=True)
    return table, stream.findings


@pytest.mark.parametrize("case", golden_kafka.CASES)
def test_views_show_what_copies_have(kafka_logs: Callable[[str], Path], case: str) -> None:
    with LogDir.open(kafka_logs(case)) as logs:
        for options in ({}, {"control": True, "batch_size": 3}, {"matches": "[0-4]"}, {"isolation": "read_committed"}):
            plain, findings = read(logs, **options)
            seen, same = read(logs, views=True, **options)
            assert copied(seen).equals(plain.combine_chunks())
            assert same == findings


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A partition of 40 MB: many more bytes than are read at a time, and than are kept to be used again."""
    root = tmp_path_factory.mktemp("views") / "logs"
    with LogDirWriter.open(root) as writer:
        writer.create_topic("orders", 1)
        for codec, count in (("none", 30_000), ("lz4", 1_000), ("none", 9_000)):
            values = [None if number % 97 == 0 else b"%09d" % number * 110 for number in range(count)]
            keys = [b"" if number % 5 == 0 else b"key-%09d" % number for number in range(count)]
            writer.append("orders", 0, {"key": keys, "value": values}, codec=codec)
    return root


@pytest.mark.parametrize("threads", [1, 2])
def test_bytes_stay_while_others_are_read(large: Path, threads: int) -> None:
    with LogDir.open(large) as logs:
        plain = pa.table(logs.records(threads=threads))
        batches = [pa.record_batch(batch) for batch in logs.records(views=True, threads=threads)]
        assert copied(pa.Table.from_batches(batches)).equals(plain.combine_chunks())
        # Only one is held at a time, so that memory is used again.
        rows = 0
        for batch in logs.records(views=True, threads=threads, batch_size=1_000):
            seen = copied(pa.table(batch))
            assert seen.equals(plain.slice(rows, batch.num_rows).combine_chunks())
            rows += batch.num_rows
        assert rows == plain.num_rows == 40_000


def test_batches_end_at_3_mib_unless_their_rows_are_given(large: Path) -> None:
    with LogDir.open(large) as logs:
        rows = [batch.num_rows for batch in logs.records(threads=1, batch_size=8_000)]
        assert rows == [8_000] * 5
        rows = [batch.num_rows for batch in logs.records(threads=1, columns=["offset"])]
        assert rows == [8_192] * 4 + [7_232]
        rows = [batch.num_rows for batch in logs.records(threads=1)]
        assert all(2_000 < each < 4_000 for each in rows[:-1])
        assert sum(rows) == 40_000


def test_a_few_records_do_not_hold_the_memory_of_all(large: Path) -> None:
    with LogDir.open(large) as logs:
        keys = [b"key-%09d" % number for number in range(1, 29_000, 1_000)]
        table = pa.table(logs.records(views=True, keys=keys))
        assert table.num_rows == 29 + 1 + 9
        assert table.nbytes < 200_000
        assert copied(table).equals(pa.table(logs.records(keys=keys)).combine_chunks())


def test_a_column_of_views_is_not_decoded(large: Path) -> None:
    with LogDir.open(large) as logs, pytest.raises(ValueError, match=r"decode: value: .* BinaryView"):
        logs.records(views=True, decode={"value": "text"})
