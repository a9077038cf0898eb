"""Every golden store and Kafka case answers over S3 as it does on the disk."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import golden
import golden_kafka
import object_store
import store_answers
from logdex._core import locate
from logdex.kafka import LogDir, LogSegment, OffsetIndex, TimeIndex
from logdex.rocketmq import CommitLog, IndexFile, IndexService, MessageStore, StoreCheckpoint

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

# Messages and different keys.
STORES = {
    "basic": (553, 1131),
    "cqext": (330, 619),
    "ipv6": (240, 458),
    "killed": (722, 1489),
    "pool": (450, 862),
    "rolled": (2931, 5497),
    "rolled-killed": (800, 1513),
    "sync": (350, 677),
    "v5-3-3": (564, 1078),
    "v5-basic": (580, 1131),
    "v5-killed": (652, 1294),
}
# Records, answers of single logs, and finds.
LOG_DIRS = {
    "codecs": (794, 619, 13),
    "codecs-4x": (354, 417, 13),
    "compacted": (805, 605, 13),
    "compacted-4x": (614, 496, 13),
    "damaged-baseoffset": (95, 53, 14),
    "damaged-codec": (93, 53, 12),
    "damaged-crc": (93, 53, 14),
    "damaged-cut": (92, 53, 14),
    "damaged-cutmid": (75, 53, 12),
    "damaged-emptyindex": (95, 53, 14),
    "damaged-epoch": (95, 53, 13),
    "damaged-indexlong": (95, 53, 13),
    "damaged-indexodd": (95, 53, 14),
    "damaged-indexorder": (95, 53, 14),
    "damaged-length": (76, 53, 13),
    "damaged-magic": (92, 53, 13),
    "damaged-missing": (95, 53, 12),
    "damaged-snapshot": (147, 113, 13),
    "damaged-stale": (95, 53, 14),
    "damaged-timeorder": (95, 53, 14),
    "damaged-txnindex": (133, 89, 14),
    "damaged-zeroindex": (95, 53, 13),
    "damaged-zerotail": (95, 53, 14),
    "follower": (1000, 129, 13),
    "killed": (1780, 380, 13),
    "legacy": (782, 373, 13),
    "timestamps": (3650, 571, 13),
    "transactions": (1086, 385, 13),
    "transactions-4x": (689, 313, 13),
}


@pytest.mark.parametrize("case", golden.STORES)
def test_a_golden_store_answers_alike(
    server: object_store.ObjectStore, store: Callable[[str], Path], case: str
) -> None:
    root = object_store.whole_seconds(store(case))
    url = server.put(case, root)
    with MessageStore.open(root) as local, MessageStore.open(url, storage_options=server.options) as remote:
        here, there = store_answers.of_store(local), store_answers.of_store(remote)
    assert_equal(here, there)
    assert (len(there["messages"]), len(there["keys"])) == STORES[case]
    assert len(there["find_batch"]) >= len(there["keys"]) > len(there["finds"]) - 1 >= 200


@pytest.mark.parametrize("case", golden_kafka.CASES)
def test_a_golden_log_directory_answers_alike(server: object_store.ObjectStore, tmp_path: Path, case: str) -> None:
    root = object_store.whole_seconds(golden_kafka.unpack(case, tmp_path / "logs"))
    url = server.put(f"kafka-{case}", root)
    with LogDir.open(root) as local, LogDir.open(url, storage_options=server.options) as remote:
        here, there = store_answers.of_log_dir(local), store_answers.of_log_dir(remote)
    assert_equal(here, there)
    counted = len(there["records"]), sum(map(len, there["logs"])), len(there["finds"])
    assert counted == LOG_DIRS[case]


def test_single_files_answer_alike(server: object_store.ObjectStore, store: Callable[[str], Path]) -> None:
    root = object_store.whole_seconds(store("rolled"))
    url = server.put("rolled", root)
    answers = []
    names: list[str] = []
    for place, options in ((str(root), None), (url, server.options)):
        with IndexService.open(f"{place}/index", storage_options=options) as index:
            keys = [row["key"] for row in golden.rows("rolled", "queries")][:200]
            found: list[Any] = [index.query_batch("TopicTest", keys).to_pylist(), index.verify().to_dict()]
            names = [file.path.name for file in index.files]
            found.append([index.query_offset("TopicTest", key, begin=0, end=2**50) for key in keys])
        for name in names:
            with IndexFile.open(f"{place}/index/{name}", storage_options=options) as file:
                found += [
                    file.header,
                    file.hash_slots,
                    file.max_entries,
                    len(file),
                    file.is_full,
                    file.verify().to_dict(),
                ]
                found += [pa.table(file.entries()).to_pylist(), [file.select_phy_offset(key) for key in keys]]
        with CommitLog.open(f"{place}/commitlog", storage_options=options) as log:
            found += [
                log.min_offset,
                log.max_offset,
                [path.name for path in log.files],
                pa.table(log.scan()).to_pylist(),
            ]
        with StoreCheckpoint.open(locate(f"{place}/checkpoint", options)) as checkpoint:
            found += [checkpoint.physic_msg_timestamp, checkpoint.index_msg_timestamp]
        answers.append(store_answers.plain(found, place))
    assert len(names) > 5
    assert answers[1] == answers[0]


def test_single_files_of_kafka_answer_alike(server: object_store.ObjectStore, tmp_path: Path) -> None:
    root = object_store.whole_seconds(golden_kafka.unpack("codecs", tmp_path / "logs"))
    url = server.put("kafka-codecs", root)
    kinds: dict[str, type[LogSegment | OffsetIndex | TimeIndex]] = {
        ".log": LogSegment,
        ".index": OffsetIndex,
        ".timeindex": TimeIndex,
    }
    names = sorted(path.relative_to(root).as_posix() for path in root.rglob("*") if path.suffix in kinds)
    answers = []
    for place, options in ((str(root), None), (url, server.options)):
        found: list[Any] = []
        for name in names:
            with kinds[f".{name.rpartition('.')[2]}"].open(f"{place}/{name}", storage_options=options) as file:
                match file:
                    case LogSegment():
                        found.append([pa.table(file.records()).to_pylist(), file.size, file.verify().to_dict()])
                    case OffsetIndex() | TimeIndex():
                        found.append([pa.table(file.entries()).to_pylist(), file.lookup(7), file.verify().to_dict()])
        answers.append(store_answers.plain(found, place))
    assert len(names) > 90
    assert answers[1] == answers[0]


def assert_equal(here: dict[str, Any], there: dict[str, Any]) -> None:
    """Compare part by part, so that a failure is short."""
    assert list(here) == list(there)
    for name, answer in here.items():
        assert there[name] == answer, name
