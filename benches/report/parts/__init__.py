"""Parts of the report, one module each, with a function `measure(plan)`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from . import (
    batches,
    boundary,
    bucket,
    cold,
    commit_log,
    kafka,
    kafka_index,
    kafka_peers,
    message_store,
    peers,
    put,
    sealed,
    search,
    select,
    serve,
    spark,
    store_writer,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..plan import Part, Plan

PARTS: dict[str, Callable[[Plan], Part]] = {
    "put": put.measure,
    "select": select.measure,
    "batches": batches.measure,
    "cold": cold.measure,
    "boundary": boundary.measure,
    "peers": peers.measure,
    "commit_log": commit_log.measure,
    "message_store": message_store.measure,
    "sealed": sealed.measure,
    "bucket": bucket.measure,
    "search": search.measure,
    "serve": serve.measure,
    "store_writer": store_writer.measure,
    "spark": spark.measure,
    "kafka": kafka.measure,
    "kafka_index": kafka_index.measure,
    "kafka_peers": kafka_peers.measure,
}
