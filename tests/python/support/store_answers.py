"""All that a store answers, as plain values, so that two places that hold the same store can be compared."""

from __future__ import annotations

import json
import warnings
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyarrow import parquet

from logdex import DamageWarning

if TYPE_CHECKING:
    from pathlib import Path

    from logdex.kafka import LogDir
    from logdex.rocketmq import MessageStore

Answers = dict[str, Any]


def plain(value: Any, root: object) -> Any:
    """Return a value as JSON, without the path of the store."""
    return json.loads(json.dumps(value, default=str).replace(str(root), "STORE"))


def keys_of(messages: pa.Table) -> list[tuple[str, str]]:
    """Return each topic and key of messages once, in the order of the log."""
    found: dict[tuple[str, str], None] = {}
    columns = (messages.column(name).to_pylist() for name in ("topic", "uniq_key", "keys"))
    for topic, uniq_key, words in zip(*columns, strict=True):
        for key in [uniq_key, *(words or "").split(" ")]:
            if key:
                found[topic, key] = None
    return list(found)


def sealed_rows(directory: Path) -> pa.Table:
    """Return the rows of a sealed index in the order of its files."""
    catalog = parquet.read_table(directory / "catalog.parquet").to_pylist()
    return pa.concat_tables([parquet.read_table(directory / row["path"]) for row in catalog if row["kind"] == "keys"])


def of_store(store: MessageStore) -> Answers:
    """Ask a RocketMQ store everything."""
    answers: Answers = {}
    with warnings.catch_warnings(record=True) as issued:
        warnings.simplefilter("always", DamageWarning)
        messages = pa.table(store.messages())
        keys = keys_of(messages)
        answers["messages"] = messages.to_pylist()
        answers["topics"] = store.topics
        answers["times"] = [store.times(), *(store.times(topic) for topic in store.topics)]
        answers["overview"] = store.overview()
        answers["finds"] = [[message.phy_offset for message in store.find(*each)] for each in keys[:: len(keys) // 200]]
        answers["find_batch"] = pa.table(store.find_batch(*map(list, zip(*keys, strict=True)))).to_pylist()
        answers["ranges"] = _ranges(store, messages, keys)
        answers["queues"] = _queues(store, messages)
        asked = [*keys[:: max(1, len(keys) // 5)], (keys[0][0], "absent")]
        answers["explain"] = [store.explain(topic, key).to_dict() for topic, key in asked]
        answers["verify"] = store.verify().to_dict()
    answers["warnings"] = [str(each.message) for each in issued]
    answers["keys"] = keys
    result: Answers = plain(answers, store.root)
    return result


def _ranges(store: MessageStore, messages: pa.Table, keys: list[tuple[str, str]]) -> list[Any]:
    times = sorted(each.as_py().timestamp() * 1000 for each in messages.column("store_timestamp"))
    found: list[Any] = []
    for part in range(4):
        begin, end = (int(times[at * (len(times) - 1) // 4]) for at in (part, part + 1))
        read = pa.table(store.messages(begin=begin, end=end, columns=["phy_offset"]))
        found.append(read.column("phy_offset").to_pylist())
        for topic, key in keys[:: max(1, len(keys) // 20)]:
            found.append([message.phy_offset for message in store.find(topic, key, begin=begin, end=end)])
    return found


def _queues(store: MessageStore, messages: pa.Table) -> list[Any]:
    found: list[Any] = []
    columns = (messages.column(name).to_pylist() for name in ("topic", "queue_id", "store_timestamp"))
    for topic, queue_id, time in sorted(set(zip(*columns, strict=True)), key=str)[::7]:
        try:
            queue = store.queue(topic, queue_id)
            bounds = (topic, queue_id, queue.min_offset, queue.max_offset, queue.offset_by_time(time))
            found.append((*bounds, pa.table(queue.units(0)).to_pylist()))
        except FileNotFoundError as error:
            found.append((topic, queue_id, error.errno))
    return found


def of_log_dir(logs: LogDir) -> Answers:
    """Ask a Kafka log directory everything; a damaged one answers with errors."""
    answers: Answers = {"topics": logs.topics}
    with warnings.catch_warnings(record=True) as issued:
        warnings.simplefilter("always", DamageWarning)
        records = pa.table(logs.records(on_error="skip", control=True))
        answers["records"] = records.to_pylist()
        answers["raising"] = _or_error(lambda: pa.table(logs.records()).num_rows)
        answers["logs"] = [
            _log(logs, topic, partition) for topic, numbers in logs.topics.items() for partition in numbers
        ]
        answers["finds"] = _finds(logs, records)
        answers["verify"] = logs.verify().to_dict()
    answers["warnings"] = [str(each.message) for each in issued]
    result: Answers = plain(answers, logs.path)
    return result


def _log(logs: LogDir, topic: str, partition: int) -> list[Any]:
    log = logs.log(topic, partition)
    answers: list[Any] = [_or_error(lambda: log.log_start_offset), _or_error(lambda: log.log_end_offset), log.size]
    read = pa.table(log.records(on_error="skip", columns=["offset", "timestamp"]))
    times = sorted({int(each.as_py().timestamp() * 1000) for each in read.column("timestamp") if each.is_valid})
    asked = [*times[:: max(1, len(times) // 10)], -1, -2, 2**60]
    answers += [_or_error(partial(log.offset_for_timestamp, time)) for time in asked]
    for segment in log.segments:
        offsets = range(segment.base_offset, segment.base_offset + 100, 9)
        answers += [_or_error(partial(segment.translate_offset, offset)) for offset in offsets]
    return answers


def _finds(logs: LogDir, records: pa.Table) -> list[Any]:
    keys = {
        (topic, key)
        for topic, key in zip(*(records.column(n).to_pylist() for n in ("topic", "key")), strict=True)
        if key
    }
    chosen = sorted(keys)[:: max(1, len(keys) // 12)]
    return [
        _or_error(lambda topic=topic, key=key: [record.offset for record in logs.find(topic, key)])
        for topic, key in chosen
    ]


def _or_error(ask: Any) -> Any:
    try:
        return ask()
    except (OSError, ValueError) as error:
        return f"{type(error).__name__}: {error}"
