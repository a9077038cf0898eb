"""Invalid options and messages that a `StoreWriter` refuses. Nothing is changed then."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from logdex.rocketmq import StoreWriter

if TYPE_CHECKING:
    from pathlib import Path

SMALL: dict[str, Any] = {"file_size": 16_384, "hash_slots": 20, "max_entries": 50, "zone": "UTC", "services": False}
INTEGERS = ("queue_id", "flag", "sys_flag", "reconsume_times", "prepared_transaction_offset")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"file_size": 0}, "file_size=0: expected 1 or more"),
        ({"file_size": 0, "begin_phy_offset": 1 << 30}, "file_size=0: expected 1 or more"),
        ({"file_size": -4096}, "file_size=-4096: expected 1 or more"),
        ({"queue_file_size": 0}, "queue_file_size=0: expected 1 or more"),
        ({"queue_file_size": -20}, "queue_file_size=-20: expected 1 or more"),
        ({"batch_queue_file_size": 45}, "batch queue files of 45 bytes: expected 46 or more"),
        ({"extension_file_size": 23}, "extension files of 23 bytes: expected 24 or more"),
        ({"begin_phy_offset": -16_384}, "begin_phy_offset=-16384: expected the offset of the first byte of a file"),
        ({"max_entries": 1}, "max_entries=1: expected 2 or more"),
    ],
)
def test_sizes_that_no_store_has_are_refused(options: dict[str, Any], words: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=words):
        StoreWriter.open(tmp_path / "store", **{**SMALL, **options})
    assert not (tmp_path / "store").exists()


@pytest.mark.parametrize("name", INTEGERS)
def test_integer_columns_hold_integers(name: str, tmp_path: Path) -> None:
    with StoreWriter.open(tmp_path, **SMALL) as writer:
        for odd in (1.7, 1.0, "1"):
            for messages in ({"topic": ["T"], name: [odd]}, pa.table({"topic": ["T"], name: [odd]})):
                with pytest.raises(TypeError, match=rf"{name}\b.*integers"):
                    writer.put_messages(messages)
        assert writer.max_offset == 0
        assert writer.put_messages({"topic": ["T", "T"], name: [True, None]}).num_rows == 2
        for array in (pa.array([1, None], pa.int8()), pa.array([1, 1]).dictionary_encode(), pa.nulls(2)):
            assert writer.put_messages(pa.table({"topic": ["T", "T"], name: array})).num_rows == 2


def test_a_mapping_without_columns_is_refused(tmp_path: Path) -> None:
    with StoreWriter.open(tmp_path, **SMALL) as writer:
        for messages in ({}, {"body": [b""]}):
            with pytest.raises(ValueError, match="expected a column topic"):
                writer.put_messages(messages)
        assert writer.put_messages({"topic": []}).num_rows == 0


def test_true_is_the_delay_level_1(tmp_path: Path) -> None:
    with StoreWriter.open(tmp_path, **SMALL) as writer:
        assert writer.put_message("T", delay_level=True).queue_id == 0
        with pytest.raises(TypeError):
            writer.put_message("T", delay_level=1.5)  # type: ignore[arg-type]
