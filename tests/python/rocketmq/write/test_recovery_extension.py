"""Extension files of queues after a stop without `close`: lost units are written again."""

from __future__ import annotations

import itertools
import shutil
from typing import TYPE_CHECKING, Any

import pytest

from logdex.rocketmq import MessageStore, StoreWriter

if TYPE_CHECKING:
    from pathlib import Path

SIZES: dict[str, Any] = {"file_size": 65_536, "queue_file_size": 400, "hash_slots": 20, "max_entries": 500}
EXTENSION = {"extension_file_size": 400}


def open_store(root: Path, **options: Any) -> StoreWriter:
    return StoreWriter.open(root, **SIZES, services=False, zone="UTC", **options)


def put(writer: StoreWriter, count: int) -> None:
    for number in range(count):
        writer.put_message(f"T{number % 2}", tags=f"tag{number}", keys=f"k{number}")


def leave(root: Path, writer: StoreWriter) -> Path:
    """Copy the store as a kill of the writer would leave it."""
    left = root.with_name("left")
    shutil.copytree(root, left)
    writer.close()
    return left


def assert_valid(root: Path, count: int) -> None:
    with MessageStore.open(root, hash_slots=SIZES["hash_slots"], max_entries=SIZES["max_entries"]) as store:
        report = store.verify()
        assert report.ok, report
        assert report.checked["units_followed"] == count
        assert sum(batch.num_rows for batch in store.messages()) == count


def lose_all(extension: Path) -> None:
    shutil.rmtree(extension)


def lose_files(extension: Path) -> None:
    for path in extension.glob("T0/0/*"):
        path.unlink()


def lose_the_end(extension: Path) -> None:
    path = max(extension.glob("T1/0/*"))
    path.write_bytes(bytes(400))


def lose_the_middle(extension: Path) -> None:
    path = min(extension.glob("T1/0/*"))
    path.write_bytes(path.read_bytes()[:100] + bytes(300))


# Only a few are damaged in the middle: a start walks the last three files of a queue.
@pytest.mark.parametrize(
    ("lose", "count"),
    [*itertools.product([lose_all, lose_files, lose_the_end], [30, 200]), (lose_the_middle, 30)],
)
@pytest.mark.parametrize("options", [{}, EXTENSION], ids=["as it is", "asked for"])
def test_units_whose_extension_is_lost_are_written_again(
    lose: Any, options: dict[str, Any], count: int, tmp_path: Path
) -> None:
    writer = open_store(tmp_path / "store", **EXTENSION)
    put(writer, count)
    writer.flush()
    root = leave(tmp_path / "store", writer)
    lose(root / "consumequeue_ext")
    with open_store(root, **options) as writer:
        assert {finding.kind for finding in writer.recovered.findings} == {"queue-tags"}
        assert writer.recovered.checked["units_added"] > 0
        assert writer.put_message("T0", tags="new").queue_offset == count // 2
    assert_valid(root, count + 1)
    with open_store(root) as writer:
        assert writer.recovered.ok


def test_an_error_between_extension_and_queue_leaves_no_address_that_leads_nowhere(tmp_path: Path) -> None:
    writer = open_store(tmp_path / "store", **EXTENSION)
    put(writer, 30)
    in_the_way = tmp_path / "store" / "consumequeue_ext"
    in_the_way.write_bytes(b"")
    with pytest.raises(OSError, match="consumequeue_ext"):
        writer.flush()
    in_the_way.unlink()
    root = leave(tmp_path / "store", writer)
    with open_store(root, **EXTENSION) as again:
        assert again.recovered.ok
    assert_valid(root, 30)
    assert_valid(tmp_path / "store", 30)


def test_a_queue_whose_addresses_came_twice_is_written_again(tmp_path: Path) -> None:
    """The state left by a writer that found no extension files and used their addresses again."""
    writer = open_store(tmp_path / "store", **EXTENSION)
    put(writer, 30)
    writer.flush()
    root = leave(tmp_path / "store", writer)
    path = min((root / "consumequeue/T0/0").iterdir())
    units = bytearray(path.read_bytes())
    first = units[12:20]
    for number in range(5, 10):
        address = int.from_bytes(first, "big") + 20 * (number - 5)
        units[20 * number + 12 : 20 * number + 20] = address.to_bytes(8, "big")
    path.write_bytes(units)
    with open_store(root) as writer:
        assert [finding.offset for finding in writer.recovered.findings] == [0]
    assert_valid(root, 30)
