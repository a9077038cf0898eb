"""Stores whose store times go back, as those of restored messages do, after a crash and after damage."""

from __future__ import annotations

import shutil
import subprocess
import sys
import textwrap
from typing import TYPE_CHECKING, Any

import pytest

from logdex._core import StoreLock
from logdex.errors import CorruptFileError
from logdex.rocketmq import MessageStore, StoreCheckpoint, StoreWriter, copy_messages

if TYPE_CHECKING:
    import os
    from pathlib import Path

SMALL: dict[str, Any] = {"file_size": 4096, "hash_slots": 100, "max_entries": 1000, "zone": "UTC", "services": False}
LIVE = 1_800_000_000_000
OLD = 1_700_000_000_000

LOCK = "logdex.rocketmq.write.parts.StoreLock"

CRASH = """
    import os, sys
    from pathlib import Path
    from logdex.rocketmq import StoreWriter
    root = Path(sys.argv[1])
    writer = StoreWriter.open(root, file_size=4096, hash_slots=100, max_entries=1000, zone="UTC", services=False)
    writer.put_message("T0", b"live", store_timestamp=1_800_000_000_000)
    writer.flush()
    for number in range(60):
        writer.put_message(f"T{number % 6}", b"old", keys=f"old{number}", store_timestamp=1_700_000_000_000 + number)
    # What a kill between the queues leaves: some have their units, others have none.
    writer.dispatch()
    writer._parts._queues.flush()
    for topic in ("T3", "T4", "T5"):
        for path in (root / "consumequeue" / topic / "0").iterdir():
            path.unlink()
    os._exit(9)
"""


def queue_offsets(root: Path) -> list[tuple[str, int]]:
    with MessageStore.open(root) as store:
        return [
            place
            for batch in store.messages(columns=["topic", "queue_offset"])
            for place in zip(batch.column("topic").to_pylist(), batch.column("queue_offset").to_pylist(), strict=True)
        ]


def test_units_of_messages_with_older_times_are_dispatched_after_a_crash(tmp_path: Path) -> None:
    root = tmp_path / "store"
    ended = subprocess.run([sys.executable, "-c", textwrap.dedent(CRASH), root], check=False)
    assert ended.returncode == 9
    with StoreWriter.open(root, zone="UTC", services=False) as writer:
        for number in range(6):
            writer.put_message(f"T{number}", b"next")
    offsets = queue_offsets(root)
    assert len(offsets) == len(set(offsets)) == 67
    with MessageStore.open(root) as store:
        assert store.verify().ok


def test_the_checkpoint_is_lowered_before_an_older_message_is_written(tmp_path: Path) -> None:
    def logics() -> int:
        with StoreCheckpoint.open(tmp_path / "checkpoint") as checkpoint:
            return checkpoint.logics_msg_timestamp

    with StoreWriter.open(tmp_path, **SMALL) as writer:
        writer.put_message("T", keys="k", store_timestamp=LIVE)
        writer.flush()
        assert logics() == LIVE
        writer.put_message("T", keys="k", store_timestamp=LIVE - 2999)
        assert logics() == LIVE
        writer.put_message("T", keys="k", store_timestamp=OLD)
        lowered = logics()
        assert OLD - 2 * 3_600_000 < lowered < OLD
        # It need not be lowered for each of many.
        writer.put_message("T", keys="k", store_timestamp=OLD - 1000)
        assert logics() == lowered
        writer.flush()
        assert logics() == OLD - 1000
        with StoreCheckpoint.open(tmp_path / "checkpoint") as checkpoint:
            assert checkpoint.physic_msg_timestamp == OLD - 1000


def restored_behind_damage(root: Path) -> None:
    """Ten messages, the last of them damaged, and fifty older ones that were put after them."""
    with StoreWriter.open(root, **SMALL | {"file_size": 65_536}) as writer:
        live = [writer.put_message("A", b"live", keys=f"l{n}", store_timestamp=LIVE + n) for n in range(10)]
        for number in range(50):
            writer.put_message("A", b"restored", keys=f"r{number}", store_timestamp=OLD + number)
    with (root / "commitlog" / f"{0:020}").open("r+b") as file:
        file.seek(live[9].phy_offset + 4)
        file.write(b"\xff")


def test_restored_messages_behind_damage_are_not_cut_off_without_a_word(tmp_path: Path) -> None:
    restored_behind_damage(tmp_path)
    with pytest.raises(
        CorruptFileError, match="50 that look as if a broker had truncated them, though queues lead to them, after it"
    ):
        StoreWriter.open(tmp_path, **SMALL | {"file_size": 65_536}, last_exit_ok=False)
    with StoreWriter.open(tmp_path, **SMALL | {"file_size": 65_536}, last_exit_ok=False, truncate=True) as writer:
        assert writer.recovered.checked["messages_cut_off"] == 50


def test_a_copy_of_a_store_without_queues_keeps_its_queue_offsets(tmp_path: Path) -> None:
    root, target = tmp_path / "store", tmp_path / "copy"
    with StoreWriter.open(root, **SMALL) as writer:
        for number in range(40):
            writer.put_message("D", b"x" * 100, delay_level=1, keys=f"k{number}", store_timestamp=OLD + 1000 * number)
        assert writer.deliver_due(OLD + 20_500) == 20
    # The beginning of the log has expired.
    (root / "commitlog" / f"{0:020}").unlink()
    shutil.rmtree(root / "consumequeue")
    wanted = queue_offsets(root)
    assert min(offset for topic, offset in wanted if topic != "D") > 0
    with MessageStore.open(root) as store:
        copy_messages(store, target, zone="UTC")
    assert queue_offsets(target) == wanted
    with StoreWriter.open(target, **SMALL) as writer:
        assert writer.deliver_due(OLD + 10**7) == 20


def test_opening_goes_by_what_it_finds_under_the_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Slow:
        """Let another process create the store between the check and the lock."""

        @staticmethod
        def take(path: os.PathLike[str]) -> Any:
            monkeypatch.setattr(LOCK, real)
            with StoreWriter.open(tmp_path, **SMALL) as writer:
                for _ in range(100):
                    writer.put_message("A", b"first", keys="k")
            return real.take(path)

    real = StoreLock
    monkeypatch.setattr(LOCK, Slow)
    with StoreWriter.open(tmp_path, **SMALL) as writer:
        assert writer.put_message("A", b"second").queue_offset == 100
    with MessageStore.open(tmp_path) as store:
        assert sum(batch.num_rows for batch in store.messages()) == 101
        assert store.verify().ok
