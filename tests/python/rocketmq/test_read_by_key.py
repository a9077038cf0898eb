"""Messages with given keys, read through the key index: the rows of a scan of the log, at the cost of a search."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import golden
import store_answers
from logdex._core import MessageFilter, Queues, SealedStore, Store
from logdex.errors import DamageWarning
from logdex.rocketmq import CommitLog, MessageStore, StoreWriter

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

SEED = 20261124


def rows_of(store: MessageStore, **asked: Any) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = pa.table(store.messages(**asked)).to_pylist()
    return rows


@pytest.mark.parametrize("is_sealed", [False, True])
@pytest.mark.parametrize("case", golden.STORES)
def test_the_rows_are_those_of_a_scan(store: Callable[[str], Path], case: str, *, is_sealed: bool) -> None:
    root = store(case)
    choose = random.Random(SEED)
    if is_sealed:
        with MessageStore.open(root) as plain:
            assert plain.seal().ok
    with MessageStore.open(root) as opened:
        messages = pa.table(opened.messages())
        keys = store_answers.keys_of(messages)
        offsets = sorted(messages["phy_offset"].to_pylist())
        flags = zip(messages["phy_offset"].to_pylist(), messages["sys_flag"].to_pylist(), strict=True)
        rolled_back = {offset for offset, flag in flags if flag & 0xC == 0xC}
        found = 0
        for _ in range(20):
            chosen = choose.sample(keys, min(len(keys), choose.choice([1, 2, 40])))
            begin, end = sorted(choose.sample(offsets, 2))
            asked: dict[str, Any] = choose.choice(
                [
                    {"topics": sorted({topic for topic, _ in chosen})},
                    {"topic": chosen[0][0], "begin_phy_offset": begin},
                    {"topics": [chosen[0][0], chosen[-1][0]], "begin_phy_offset": begin, "end_phy_offset": end},
                    {"topic": chosen[0][0], "columns": ["keys", "phy_offset"], "queue_id": 0},
                ]
            )
            asked["keys"] = [key for _, key in chosen]
            every = rows_of(opened, scan=True, **asked)
            # A broker indexes no message that was rolled back.
            expected = [row for row in every if row["phy_offset"] not in rolled_back]
            assert rows_of(opened, scan=False, **asked) == expected
            found += len(expected)
        assert found > 10


@pytest.mark.parametrize("is_sealed", [False, True])
def test_only_the_end_of_the_log_is_scanned(tmp_path: Path, *, is_sealed: bool) -> None:
    def scanned(**conditions: Any) -> int:
        """Return how many bytes of the log a read scans."""
        log = CommitLog.open(tmp_path / "commitlog")
        sealed = SealedStore.open(tmp_path / "_logdex") if is_sealed else None
        opened = Store.open(Queues(tmp_path, log), tmp_path / "index", sealed=sealed)
        plan = opened.plan(MessageFilter(**conditions), known_topics=lambda: ["T", "U"])
        return sum(end - begin for begin, end, _ in plan.cut(log, 1 << 30)[2])

    with StoreWriter.open(
        tmp_path, file_size=2 << 20, max_message_size=1 << 20, hash_slots=50, max_entries=25, services=False
    ) as writer:
        for number in range(96):
            writer.put_message("TU"[number % 2], bytes(100_000), keys=f"k{number} all")
    if is_sealed:
        with MessageStore.open(tmp_path) as plain:
            assert plain.seal().ok
    with MessageStore.open(tmp_path) as opened:
        size = opened.commit_log.max_offset
        rows = rows_of(opened, topic="T", keys=["k10", "k11", "k80", "none"], columns=["keys"])
        assert rows == [{"keys": "k10 all"}, {"keys": "k80 all"}]
        assert 0 < scanned(topics=["T"], keys=["k10", "k11", "k80", "none"]) < size // 3
        # Without a topic those of the queues are searched.
        assert rows_of(opened, keys=["k10", "k11"], columns=["keys"], scan=False) == [
            {"keys": "k10 all"},
            {"keys": "k11 all"},
        ]
        assert 0 < scanned(keys=["k10", "k11"]) < size // 3
        assert len(rows_of(opened, keys=["all"], columns=["keys"], scan=True)) == 96


def test_a_message_that_is_not_indexed_yet_is_scanned_for(store: Callable[[str], Path]) -> None:
    root = store("rolled")
    newest = max((root / "index").iterdir())
    with MessageStore.open(root) as opened:
        topic, key = store_answers.keys_of(pa.table(opened.messages()))[-1]
        expected = rows_of(opened, topic=topic, keys=[key], scan=True)
        assert expected
    newest.unlink()
    with MessageStore.open(root) as opened:
        assert rows_of(opened, topic=topic, keys=[key], scan=False) == expected


def test_missing_and_damaged_messages_are_reported(store: Callable[[str], Path]) -> None:
    root = store("rolled")
    with MessageStore.open(root) as opened:
        files = opened.commit_log.files
        messages = pa.table(opened.messages(columns=["topic", "keys", "uniq_key", "phy_offset"])).to_pylist()
    lost, damaged = files[len(files) // 3], files[2 * len(files) // 3]
    hit = next(each for each in messages if each["phy_offset"] >= int(damaged.name) and each["uniq_key"])
    gone = next(each for each in messages if each["phy_offset"] >= int(lost.name) and each["uniq_key"])
    at = hit["phy_offset"] - int(damaged.name)
    content = bytearray(damaged.read_bytes())
    content[at + 8] ^= 0xFF
    damaged.write_bytes(content)
    lost.unlink()
    with MessageStore.open(root) as opened:
        stream = opened.messages(
            topics=[hit["topic"], gone["topic"]], keys=[hit["uniq_key"], gone["uniq_key"]], scan=False
        )
        with pytest.warns(DamageWarning):
            assert pa.table(stream).num_rows == 0
        found = [(finding.kind, finding.path) for finding in stream.findings]
    after = str(files[files.index(lost) + 1])
    assert found == [("file-gap", after), ("log-frame", str(damaged))]
