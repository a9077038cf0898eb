"""Calling a function in Spark's workers, once for each of some arguments."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa
from pyspark.sql.types import StringType, StructField, StructType

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from pyspark.sql import SparkSession

_Argument = TypeVar("_Argument")

_ANSWER = StructType([StructField("answer", StringType())])


def call_in_tasks(
    spark: SparkSession, function: Callable[[_Argument], str], arguments: Sequence[_Argument]
) -> list[str]:
    """Call a function for each argument, each call in a task of its own, and give the answers in their order.

    Args:
        spark: The session whose workers do it.
        function: What they call; it is pickled into every task, and so are all arguments.
        arguments: What it is called with.
    """
    if not arguments:
        return []

    def answers(batches: Iterator[Any]) -> Iterator[Any]:
        for batch in batches:
            texts = [json.dumps([number, function(arguments[number])]) for number in batch.column(0).to_pylist()]
            yield pa.RecordBatch.from_pydict({"answer": pa.array(texts, pa.utf8())})

    rows = spark.range(0, len(arguments), 1, len(arguments)).mapInArrow(answers, _ANSWER).collect()
    answered = dict(json.loads(row.answer) for row in rows)
    return [answered[number] for number in range(len(arguments))]
