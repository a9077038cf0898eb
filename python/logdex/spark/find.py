"""Keys on Spark: candidates of the index, and messages that were checked against the log."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyspark
from pyspark.sql import SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.types import ArrayType, LongType, StringType, StructField, StructType, TimestampType

from logdex._core import plan_log, planned_file_faults
from logdex._types import check_int64
from logdex.hash_index.query import Milliseconds, check_max_num
from logdex.rocketmq.read import check_scan
from logdex.spark import workers
from logdex.spark.damage import DamageReports, SparkDamage, driver_address
from logdex.spark.schema import MESSAGE_COLUMNS, require_columns, spark_batches, spark_schema
from logdex.spark.workers import call_beside, check_worker_python

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from os import PathLike
    from pathlib import Path

    from pyspark.sql import Column, DataFrame

    from logdex._core import PlannedLog
    from logdex._types import Scan
    from logdex.report import Damage
    from logdex.rocketmq import MessageStore

_CANDIDATES = StructType(
    [StructField("topic", StringType()), StructField("key", StringType()), StructField("phy_offset", LongType())]
)
_COLUMNS = {"query_topic": pa.utf8(), "query_key": pa.utf8(), **MESSAGE_COLUMNS}


def find(
    keys_df: DataFrame,
    store: str | PathLike[str],
    max_num: int | None = None,
    *,
    scan: Scan = "auto",
    hash_slots: int | None = None,
    max_entries: int | None = None,
    storage_options: Mapping[str, str] | None = None,
) -> DataFrame:
    """Find the messages that carry the key of each row, each message once a row, the newest first.

    Args:
        keys_df: A DataFrame with the texts `topic` and `key`, and optionally `begin` and `end`: the store time of the message,
            inclusive, as timestamp or as milliseconds; null is no bound. Other columns are left out.
        store: The store, as the workers see it: a path, or a URL.
        max_num: At most this many messages a row; None: all.
        scan: How much of the log that no index covers each worker reads, as in `MessageStore.find`.
        hash_slots: Slots of the index files; None: inferred once.
        max_entries: Entries of the index files; likewise.
        storage_options: Options of the store of a URL; see `MessageStore.open`. They go to the tasks, and into no plan or log.

    Returns:
        Rows of query_topic, query_key and the message's columns; none for a key that no message carries, or a null key.

    Raises:
        ValueError: A column or an argument is invalid, or the index files have other slots and entries than those given.
        FileNotFoundError: There is no such store.
        LogdexError: The workers' Python cannot run logdex. A task raises it if the worker lacks files that this call saw.
    """
    check_max_num(max_num)
    check_scan(scan)
    check_int64(hash_slots=hash_slots, max_entries=max_entries)
    check_worker_python(keys_df.sparkSession)
    require_columns(keys_df.columns, ("topic", "key"), "find")
    root = workers.driver_path(store, keys_df.sparkSession, storage_options)
    slots, entries, index, log = call_beside(keys_df.sparkSession, root, _plan, root, hash_slots, max_entries)
    reports = DamageReports(driver=driver_address(keys_df.sparkSession))
    # The unit of a timestamp is known. An integer may be a number of seconds, which `find_batch` refuses.
    dates = {field.name for field in keys_df.schema if isinstance(field.dataType, TimestampType)}
    kinds: list[type[int]] = [Milliseconds if name in dates else int for name in ("begin", "end")]

    def messages(batches: Iterator[Any]) -> Iterator[Any]:
        with reports.collect() as damage, damage.losing("the files of the store"):
            opened = workers.message_store(root, hash_slots=slots, max_entries=entries)
            damage.lose_all(planned_file_faults(index))
            damage.open(log)
            rows = (each for batch in batches for each in found(opened, batch, damage))
            yield from spark_batches(rows, _COLUMNS, _COLUMNS, str(root))

    def found(opened: MessageStore, batch: Any, damage: Damage) -> Iterator[Any]:
        for rows, begin, end in _same_times(batch):
            topics, keys, *_ = rows.columns
            begin, end = (None if time is None else kind(time) for time, kind in zip((begin, end), kinds, strict=True))  # noqa: PLW2901 -- with their kinds
            answers = opened.find_batch(topics, keys, begin=begin, end=end, max_num=max_num, scan=scan)
            for answer in map(pa.record_batch, answers):
                asked = rows.take(answer.column("query_row"))
                columns = [asked.column(0), asked.column(1), *(answer.column(name) for name in MESSAGE_COLUMNS)]
                yield pa.RecordBatch.from_arrays(columns, names=list(_COLUMNS))
            damage.findings += [each for each in answers.findings if each not in damage.findings]

    asked = keys_df.select(
        sf.col("topic").cast("string"), sf.col("key").cast("string"), _bound(keys_df, "begin"), _bound(keys_df, "end")
    )
    return asked.mapInArrow(messages, spark_schema(_COLUMNS))


def _plan(root: Path, slots: int | None, entries: int | None) -> tuple[int | None, int | None, list[Any], PlannedLog]:
    """Return slots and entries of the index of a store, and which files of index and log every worker must have."""
    workers.require_directory(root)
    index: list[Any] = []
    # A store without an index can be searched: its log is read.
    if (root / "index").is_dir():
        slots, entries, index = workers.planned_index(root / "index", slots, entries)
    store = workers.message_store(root, hash_slots=slots, max_entries=entries)
    return slots, entries, index, plan_log(store.commit_log)


def _bound(keys_df: DataFrame, name: str) -> Column:
    """Return a time bound in milliseconds; a begin between two milliseconds rounds up, an end down."""
    if name not in keys_df.columns:
        return sf.lit(None).cast("bigint").alias(name)
    kind = keys_df.schema[name].dataType
    if isinstance(kind, TimestampType):
        # unix_millis rounds down. Nothing is added to microseconds, or the last instants that Spark has would overflow.
        millis = sf.unix_millis(sf.col(name))
        if name == "begin":
            millis += (sf.pmod(sf.unix_micros(sf.col(name)), sf.lit(1000)) > 0).cast("bigint")
        return millis.alias(name)
    if kind.simpleString() not in ("bigint", "int", "void"):
        raise ValueError(f"find: column {name} must be timestamp or bigint milliseconds, not {kind.simpleString()}")
    return sf.col(name).cast("bigint")


def _same_times(batch: Any) -> Iterator[tuple[Any, int | None, int | None]]:
    """Split rows of topic, key, begin, end into groups with the same times."""
    numbered = {"begin": batch.column(2), "end": batch.column(3), "row": pa.array(range(batch.num_rows), pa.int64())}
    groups = pa.table(numbered).group_by(["begin", "end"], use_threads=False).aggregate([("row", "list")])
    for number in range(groups.num_rows):
        begin, end = (groups[name][number].as_py() for name in ("begin", "end"))
        yield batch.take(groups["row_list"][number].values), begin, end


def lookup(
    keys_df: DataFrame,
    index_dir: str | PathLike[str],
    max_num: int | None = None,
    *,
    hash_slots: int | None = None,
    max_entries: int | None = None,
    storage_options: Mapping[str, str] | None = None,
) -> DataFrame:
    """Look up every row's topic and key in the index, one row out for each candidate.

    Args:
        keys_df: A DataFrame with the texts `topic` and `key`; other columns are left out.
        index_dir: The index directory, as the workers see it: a path, or a URL.
        max_num: At most this many candidates a key, the newest; None: all.
        hash_slots: Slots of the index files; None: inferred once.
        max_entries: Entries of the index files; likewise.
        storage_options: Options of the store of a URL; see `MessageStore.open`. They go to the tasks, and into no plan or log.

    Returns:
        Rows of topic, key, phy_offset, the newest first within a key. A candidate can be a message with another key of the same
        hash. A key without candidates has no row; a null topic or key gives one row with a null offset.

    Raises:
        ValueError: A column is missing, `max_num` is negative, or the files have other slots and entries than those given.
        FileNotFoundError: There is no such directory.
        LogdexError: The workers' Python cannot run logdex.
    """
    check_max_num(max_num)
    check_int64(hash_slots=hash_slots, max_entries=max_entries)
    check_worker_python(keys_df.sparkSession)
    require_columns(keys_df.columns, ("topic", "key"), "lookup")
    spark = keys_df.sparkSession
    query = _query(spark, workers.driver_path(index_dir, spark, storage_options), max_num, hash_slots, max_entries)

    def candidates(batches: Iterator[Any]) -> Iterator[Any]:
        for batch in batches:
            topics, keys = batch.columns
            yield _flat_rows(topics, keys, query(topics, keys))

    columns = keys_df.select(sf.col("topic").cast("string"), sf.col("key").cast("string"))
    return columns.mapInArrow(candidates, _CANDIDATES)


def query_offset(
    index_dir: str | PathLike[str],
    max_num: int | None = None,
    *,
    hash_slots: int | None = None,
    max_entries: int | None = None,
    storage_options: Mapping[str, str] | None = None,
) -> Callable[..., Column]:
    """Return a function of columns (topic, key) that returns array<bigint>: the candidates, newest first.

    It is declared non-deterministic on purpose: Spark evaluates a deterministic function twice where a filter or `inline`
    uses its result. A null topic or key gives null. Arguments and errors are those of `lookup`; it needs pyspark 4.1.

    Example:
        df.select("topic", "key", query_offset("/data/store/index")("topic", "key").alias("offsets"))
    """
    try:
        from pyspark.sql.pandas.functions import arrow_udf  # noqa: PLC0415 -- since pyspark 4.1
    except ImportError as error:
        raise ImportError(f"query_offset needs pyspark 4.1, and this is {pyspark.__version__}: use lookup") from error
    check_max_num(max_num)
    check_int64(hash_slots=hash_slots, max_entries=max_entries)
    spark = SparkSession.getActiveSession()
    query = _query(spark, workers.driver_path(index_dir, spark, storage_options), max_num, hash_slots, max_entries)
    # Its signature for mypy requires a function type, which pyspark warns of at run time.
    make: Any = arrow_udf
    made: Callable[..., Column] = make(query, returnType=ArrayType(LongType())).asNondeterministic()
    return made


def _query(
    spark: SparkSession | None, directory: Path, max_num: int | None, hash_slots: int | None, max_entries: int | None
) -> Callable[[Any, Any], Any]:
    """Return a function that a worker calls with topics and keys for the lists of candidates."""
    slots, entries, index = call_beside(spark, directory, workers.planned_index, directory, hash_slots, max_entries)

    def query(topics: pa.Array, keys: pa.Array) -> pa.Array:
        service = workers.index_service(directory, hash_slots=slots, max_entries=entries)
        SparkDamage().lose_all(planned_file_faults(index))
        return pa.array(service.query_batch(topics, keys, max_num=max_num))

    return query


def _flat_rows(topics: Any, keys: Any, lists: Any) -> Any:
    """Return a row for each candidate, and one for each null list."""
    lists = pc.coalesce(lists, pa.scalar([None], lists.type))
    rows, offsets = pc.list_parent_indices(lists), pc.list_flatten(lists)
    return pa.RecordBatch.from_arrays(
        [topics.take(rows), keys.take(rows), offsets], names=["topic", "key", "phy_offset"]
    )
