"""Every golden store and Kafka case answers over S3 as it does on the disk."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import golden
import golden_answers
import golden_kafka
import object_store
import store_answers
from logdex._core import locate
from logdex.kafka import LogSegment, OffsetIndex, TimeIndex
from logdex.rocketmq import CommitLog, IndexFile, IndexService, StoreCheckpoint

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


@pytest.mark.parametrize("case", golden.STORES)
def test_a_golden_store_answers_alike(
    server: object_store.ObjectStore, store: Callable[[str], Path], case: str
) -> None:
    root = object_store.whole_seconds(store(case))
    golden_answers.compare_store(case, root, server.put(case, root), server.options)


@pytest.mark.parametrize("case", golden_kafka.CASES)
def test_a_golden_log_directory_answers_alike(server: object_store.ObjectStore, tmp_path: Path, case: str) -> None:
    root = object_store.whole_seconds(golden_kafka.unpack(case, tmp_path / "logs"))
    golden_answers.compare_log_dir(case, root, server.put(f"kafka-{case}", root), server.options)


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
