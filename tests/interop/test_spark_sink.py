"""A store that Spark wrote loads in a real 4.9.3 broker, with all queues and keys.

LOGDEX_INTEROP_ROWS (environment) is the number of messages.
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from logdex.rocketmq import MessageStore
from wire_programs import Program, start_broker

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import SparkSession

ROWS = int(os.environ.get("LOGDEX_INTEROP_ROWS", "50000"))
QUEUES = 8
TOPIC = "orders"
FILE_SIZE = 1 << 22 if ROWS < 1_000_000 else 1 << 28
HASH_SLOTS, MAX_ENTRIES = ROWS, ROWS * 2 // 3
COLUMNS = (
    f"'{TOPIC}' as topic",
    f"cast(id % {QUEUES} as int) as queue_id",
    "cast(rpad(concat('body ', id, ' '), 160, 'x') as binary) as body",
    "concat('order-', id) as keys",
    "lpad(hex(id), 32, '0') as uniq_key",
)


@pytest.mark.timeout(3600)
def test_a_broker_loads_what_spark_wrote(spark: SparkSession, tmp_path: Path, say: Callable[[str], None]) -> None:
    root = tmp_path / "store"
    options: dict[str, Any] = {"fileSize": FILE_SIZE, "hashSlots": HASH_SLOTS, "maxEntries": MAX_ENTRIES, "zone": "UTC"}
    rows = spark.range(0, ROWS, 1, 1).selectExpr(*COLUMNS)
    begun = time.perf_counter()
    rows.write.format("rocketmq").mode("append").options(**options).save(str(root))
    seconds = time.perf_counter() - begun
    with MessageStore.open(root) as store:
        queues = [store.queue(TOPIC, number) for number in range(QUEUES)]
        bounds = [(queue.min_offset, queue.max_offset) for queue in queues]
        sums = [
            pc.sum(pa.table(queue.units(*bound))["phy_offset"]).as_py()
            for queue, bound in zip(queues, bounds, strict=True)
        ]
        index_files = len(store.index.files) if store.index is not None else 0
    assert [end for _, end in bounds] == [len(range(number, ROWS, QUEUES)) for number in range(QUEUES)]
    sizes = {"mappedFileSizeCommitLog": FILE_SIZE, "maxHashSlotNum": HASH_SLOTS, "maxIndexNum": MAX_ENTRIES}
    broker, names, address = start_broker(tmp_path / "broker", root, **sizes, fileReservedTime=1_000_000)
    with (
        broker,
        Program("Tools", tmp_path / "tools") as tools,
        Program("Clients", tmp_path / "clients", names) as clients,
    ):
        # A store has messages; which topics consumers may ask for is the broker's configuration.
        created = tools.ask(
            ["updateTopic", "-n", names, "-b", address, "-t", TOPIC, "-r", str(QUEUES), "-w", str(QUEUES)]
        )
        assert "success" in created["output"], created
        places = {"topic": TOPIC, "broker": "broker-a", "group": "spark"}
        for number, bound in enumerate(bounds):
            offsets = clients.ask({"op": "offsets", **places, "queueId": number, "time": 0})["result"]
            assert tuple(offsets[:2]) == bound
            drained = clients.ask({"op": "drain", **places, "queueId": number})["result"]
            assert drained == [bound[1], sums[number]]
        asked = range(0, ROWS, max(1, ROWS // 1_000))
        for number in asked:
            by_key = clients.ask({"op": "key", "topic": TOPIC, "key": f"order-{number}"})
            assert "result" in by_key, by_key
            assert len(by_key["result"]) == 1
    say(
        f"spark sink: {ROWS:,} messages by one task, {ROWS / seconds:,.0f} rows/s; a broker loads {QUEUES} queues and"
        f" {index_files} index files, a Java consumer pulls all of them, and finds {len(asked):,} keys"
    )
