"""The real IndexFile and logdex on the same keys, in turns: ratios are printed, and no time decides a test.

LOGDEX_INTEROP_PUTS, _SELECTS, _ROUNDS, _HASH_SLOTS and _MAX_ENTRIES (environment) change the sizes.
"""

from __future__ import annotations

import os
import random
import statistics
import time
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from logdex.rocketmq import IndexFile

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from rocketmq_driver import Driver

PUTS = int(os.environ.get("LOGDEX_INTEROP_PUTS", "2000000"))
SELECTS = int(os.environ.get("LOGDEX_INTEROP_SELECTS", "500000"))
ROUNDS = int(os.environ.get("LOGDEX_INTEROP_ROUNDS", "5"))
HASH_SLOTS = int(os.environ.get("LOGDEX_INTEROP_HASH_SLOTS", "5000000"))
MAX_ENTRIES = int(os.environ.get("LOGDEX_INTEROP_MAX_ENTRIES", "20000000"))
MAX_NUM = 32
TOUCHED_MIB = 900

FIRST_PHY_OFFSET, PHY_OFFSET_STEP = 1_000, 300
FIRST_STORE_TIMESTAMP, KEYS_PER_MS = 1_700_000_000_000, 10


def _message_ids() -> list[str]:
    """Keys as eight producers make them: address and process, start of the process, time, counter."""
    chance = random.Random(61)
    producers = [f"TopicTest#{chance.getrandbits(80):020X}" for _ in range(8)]
    return [f"{producers[put % 8]}{1_000_000 + put // KEYS_PER_MS:08X}{put // 8 & 0xFFFF:04X}" for put in range(PUTS)]


def _random_keys() -> list[str]:
    """Keys without a pattern: every slot is far from the last."""
    chance = random.Random(62)
    return [f"TopicTest#{chance.getrandbits(128):032X}" for _ in range(PUTS)]


@pytest.mark.parametrize("make_keys", [_message_ids, _random_keys])
def test_batch_put_and_select_beside_the_real_class(
    driver: Driver, tmp_path: Path, make_keys: Callable[[], list[str]], say: Callable[[str], None]
) -> None:
    keys = make_keys()
    chance = random.Random(63)
    asked = [key if chance.random() < 0.9 else f"{key[:-1]}x" for key in chance.choices(keys, k=SELECTS)]
    put, select = Race(driver, tmp_path), Race(driver, tmp_path)
    touch_memory(tmp_path / "touched")
    try:
        put.keys(keys)
        for _ in range(1 + ROUNDS):
            put.clear()
            put.real_put()
            put.logdex_put()
            put.same_bytes()
        select.keys(asked)
        for _ in range(1 + ROUNDS):
            assert select.real_select() == select.logdex_select()
    finally:
        put.clear()
    kind = make_keys.__name__.strip("_").replace("_", " ")
    say(f"batch put of {PUTS:,} {kind}: {put}")
    say(f"batch select of {SELECTS:,} {kind}: {select}")


def touch_memory(path: Path) -> None:
    """Touch the memory that the files will use; on a virtual machine the first touch costs the host's time."""
    block = bytes(1 << 20)
    with path.open("wb") as file:
        for _ in range(TOUCHED_MIB):
            file.write(block)
    path.unlink()


class Race:
    """Two files of one geometry, one from each side, and the seconds of each side."""

    def __init__(self, driver: Driver, folder: Path) -> None:
        self._driver = driver
        self._key_file = folder / "keys.txt"
        # The real class takes no name that is not a number.
        self._real, self._logdex = folder / "1", folder / "2"
        self._real_seconds: list[float] = []
        self._logdex_seconds: list[float] = []

    def keys(self, keys: list[str]) -> None:
        self._key_file.write_text("".join(f"{key}\n" for key in keys))
        self._keys = pa.array(keys, pa.utf8())
        steps = pa.array(range(len(keys)), pa.int64())
        self._phy_offsets = pc.add(pc.multiply(steps, PHY_OFFSET_STEP), FIRST_PHY_OFFSET)
        self._store_timestamps = pc.add(pc.divide(steps, KEYS_PER_MS), FIRST_STORE_TIMESTAMP)

    def clear(self) -> None:
        self._real.unlink(missing_ok=True)
        self._logdex.unlink(missing_ok=True)

    def real_put(self) -> None:
        done = self._ask(
            "bench_put",
            first_phy_offset=FIRST_PHY_OFFSET,
            phy_offset_step=PHY_OFFSET_STEP,
            first_store_timestamp=FIRST_STORE_TIMESTAMP,
            keys_per_ms=KEYS_PER_MS,
        )
        assert done["taken"] == len(self._keys)

    def logdex_put(self) -> None:
        with IndexFile.create(self._logdex, hash_slots=HASH_SLOTS, max_entries=MAX_ENTRIES) as file:
            start = time.perf_counter()
            taken = file.put_batch(self._keys, self._phy_offsets, self._store_timestamps)
            self._logdex_seconds.append(time.perf_counter() - start)
        assert taken == len(self._keys)

    def same_bytes(self) -> None:
        used = 40 + 4 * HASH_SLOTS + 20 * (len(self._keys) + 1)
        assert self._real.stat().st_size == self._logdex.stat().st_size
        with self._real.open("rb") as real, self._logdex.open("rb") as logdex:
            same = real.read(used) == logdex.read(used)
        assert same

    def real_select(self) -> tuple[int, int]:
        done = self._ask("bench_select", max_num=MAX_NUM)
        return done["found"], done["sum"]

    def logdex_select(self) -> tuple[int, int]:
        with IndexFile.open(self._logdex, hash_slots=HASH_SLOTS, max_entries=MAX_ENTRIES) as file:
            start = time.perf_counter()
            lists = file.select_batch(self._keys, max_num=MAX_NUM)
            self._logdex_seconds.append(time.perf_counter() - start)
        found = pa.array(lists).flatten()
        return len(found), pc.sum(found).as_py()

    def _ask(self, op: str, **question: Any) -> dict[str, Any]:
        done = self._driver.ask(
            op, path=self._real, keys=self._key_file, hash_slots=HASH_SLOTS, max_entries=MAX_ENTRIES, **question
        )
        self._real_seconds.append(done["seconds"])
        return done

    def __str__(self) -> str:
        # The first round warms the JVM and the memory of a virtual machine.
        real, logdex = self._real_seconds[1:], self._logdex_seconds[1:]
        ratios = [its / mine for its, mine in zip(real, logdex, strict=True)]
        per_key = 1e9 / len(self._keys)
        return (
            f"real {statistics.median(real) * per_key:.0f} ns, logdex {statistics.median(logdex) * per_key:.0f} ns a key, "
            f"{statistics.median(ratios):.1f} times as fast [{min(ratios):.1f} to {max(ratios):.1f}], {ROUNDS} rounds"
        )
