"""Write messages into a new store: `df.coalesce(1).write.format("rocketmq").mode("append").save(directory)`.

The log of a store is one sequence, so one task writes it: rows become messages in their order, with new places in log and queues.
A task attempt writes a store of its own next to the directory; the commit gives it the directory's name, in one rename.
"""

from __future__ import annotations

import errno
import shutil
import uuid
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from logdex._files import refuse_broker_directory
from logdex.rocketmq import StoreWriter
from logdex.spark.index.job import attempt_name, remove_job
from logdex.spark.schema import MESSAGE_COLUMNS, require_columns

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from pyspark.sql.types import StructType

_ADVICE = "one task writes a store: write df.coalesce(1)"


@dataclass(frozen=True)
class WrittenStore(WriterCommitMessage):
    """Commit message of a task that had rows: the directory of its store."""

    directory: Path
    messages: int


@dataclass
class StoreSink(DataSourceArrowWriter):
    """Writes a store into a directory that is missing or empty; `options` are those of `StoreWriter.open`."""

    target: Path
    options: dict[str, Any]
    job_id: str = field(default_factory=lambda: uuid.uuid4().hex)

    @property
    def directory(self) -> Path:
        """The directory of the attempts of tasks: on the file system of the target, which must support renames."""
        return self.target.with_name(f".{self.target.name}.{self.job_id}")

    def start(self) -> None:
        """Create the directory of the job, on the driver.

        Raises:
            FileExistsError: There is something at the target.
        """
        if self.target.exists() and not (self.target.is_dir() and next(self.target.iterdir(), None) is None):
            raise FileExistsError(
                errno.EEXIST, "expected a missing or empty directory for a new store", str(self.target)
            )
        refuse_broker_directory(self.target)
        self.directory.mkdir(parents=True)

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        """Put the rows of a task, in a worker.

        Raises:
            ValueError: A row is no message; or another task has rows, too.
        """
        batches = (batch for batch in iterator if batch.num_rows)
        first = next(batches, None)
        if first is None:
            return WriterCommitMessage()
        store = self.directory / attempt_name()
        own = store.name.partition("-")[0]
        # Retries of a task do not count as further tasks.
        if any(each.name.partition("-")[0] != own for each in self.directory.iterdir()):
            raise ValueError(_ADVICE)
        try:
            with StoreWriter.open(store, services=False, **self.options) as writer:
                messages = _put(writer, first) + sum(_put(writer, batch) for batch in batches)
        except BaseException:
            shutil.rmtree(store, ignore_errors=True)
            raise
        return WrittenStore(store, messages)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Set the name of the store.

        Raises:
            ValueError: Several tasks had rows.
        """
        written = [message for message in messages if isinstance(message, WrittenStore)]
        if len(written) > 1:
            raise ValueError(f"{len(written)} tasks had rows; {_ADVICE}")
        for each in written:
            each.directory.rename(self.target)
        self._clean_up()

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Remove what attempts wrote."""
        del messages
        self._clean_up()

    def _clean_up(self) -> None:
        remove_job(self.directory)


def _put(writer: StoreWriter, batch: Any) -> int:
    """Put a batch of Spark's columns, and dispatch it to queues and index."""
    columns = [_of_store(column) for column in batch.columns]
    writer.put_messages(pa.RecordBatch.from_arrays(columns, names=batch.schema.names), park=False)
    writer.dispatch()
    return int(batch.num_rows)


def _of_store(column: Any) -> Any:
    """Return a column with the milliseconds of a store for the microseconds of Spark."""
    if not pa.types.is_timestamp(column.type):
        return column
    return column.cast(pa.timestamp("ms", tz="UTC"), safe=False)


def check_columns(schema: StructType) -> None:
    """Check that rows of this schema are messages.

    Raises:
        ValueError: There is no topic, or a column is not a message column, or has another type.
    """
    names: Sequence[str] = schema.fieldNames()
    require_columns(names, ("topic",), "a write of format rocketmq")
    unknown = [name for name in names if name not in MESSAGE_COLUMNS]
    if unknown:
        raise ValueError(f"no message columns: {', '.join(unknown)}; there are {', '.join(MESSAGE_COLUMNS)}")
