"""DuckDB over the messages of a store, or the records of a Kafka log directory or partition."""

from __future__ import annotations

import ctypes
import signal
from contextlib import closing, suppress
from dataclasses import replace
from itertools import chain, islice
from socket import socketpair
from typing import TYPE_CHECKING, Any

try:
    import duckdb
    import pyarrow as pa
    import pyarrow.dataset as ds
except ImportError as error:
    raise ImportError("logdex.duckdb needs duckdb and pyarrow: pip install 'logdex[sql]'", name=error.name) from error

from logdex.errors import LogdexError
from logdex.hash_index import IndexDirectory
from logdex.pushdown import MIRRORED, Condition, Rows

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from os import PathLike

    import pyarrow.compute as pc

    from logdex._core import BatchStream, SegmentReader
    from logdex.source import Source

__all__ = ["connect"]

_QUEUES = pa.schema({"topic": pa.string(), "queue_id": pa.int32(), "messages": pa.int64(), "log_bytes": pa.int64()})
_GROUPS = pa.schema(
    {
        "group": pa.string(),
        "topic": pa.string(),
        "queue_id": pa.int32(),
        "offset": pa.int64(),
        "end_offset": pa.int64(),
        "lag": pa.int64(),
        "commit_timestamp": pa.timestamp("ms", "UTC"),
    }
)
_ROWS_OF_A_BATCH = 8_192
_COMPARISONS = {"equal": "Eq", "greater": "Gt", "greater_equal": "GtEq", "less": "Lt", "less_equal": "LtEq"}


def connect(
    source: str | PathLike[str] | Source,
    *,
    storage_options: Mapping[str, str] | None = None,
    filesystem: object | None = None,
    **filters: Any,  # noqa: ANN401 -- those of `messages` or `records`
) -> duckdb.DuckDBPyConnection:
    """Return a connection to a new database in memory, with the parts of a source as tables.

    The tables are `messages` of a store or `records` of a Kafka log directory or partition; `queues`, with `messages` and
    `log_bytes` of each queue or partition; `groups`, the positions of consumer groups as `Source.groups` returns them; and
    `index_entries`, the entries of the index files of a store. They are read when a query needs them.

    A query reads only the columns that it uses. The conditions that reach the read are those of `logdex.polars.scan`. DuckDB
    checks all conditions on the rows that were read, and stops reading when it has enough.

    Args:
        source: A path, a URL, or what `logdex.open` returned.
        storage_options: See `logdex.open`.
        filesystem: See `logdex.open`.
        filters: Options of `MessageStore.messages`, `LogDir.records` or `Log.records`, except `columns`; such as
            `decode={"body": "json"}`. A condition of a query on the same option does not reach the read.

    Raises:
        OSError: The path does not exist or cannot be read.
        ValueError: The source has no messages; an invalid option.
        TypeError: `columns`, or an option that the call does not have.

    Example:
        >>> import logdex.duckdb
        >>> store = logdex.duckdb.connect("/var/lib/rocketmq/store")  # doctest: +SKIP
        >>> store.sql("SELECT tags, count(*) FROM messages WHERE topic = 'Orders' GROUP BY tags")  # doctest: +SKIP
    """
    return Tables(Rows.open(source, filters, storage_options=storage_options, filesystem=filesystem)).connect()


class Tables:
    """The tables of a source.

    As a context manager, in the main thread, they have a `connection` to a database in memory. Errors of reads are raised as they
    were. Ctrl-C ends the reads, too, for which DuckDB waits in another thread.

    Attributes:
        rows: The source, and the filters of its messages or records.
        schema: The schema of messages or records; without columns if the source has none.
        reads: The reads of them that queries began in the `with` block: their options, and the stream.
        is_interrupted: True after Ctrl-C in the `with` block.
    """

    def __init__(self, rows: Rows, *, empty: bool = False) -> None:
        """Take the rows; `empty` tables have none, to see the reads that a query would begin."""
        self.rows = rows.settled()
        self.schema = pa.schema(self.rows.schema() if rows.exist else [])
        self.reads: list[tuple[dict[str, Any], BatchStream | SegmentReader]] = []
        self._empty = empty
        self._keeps_reads = False
        self._error: LogdexError | OSError | None = None
        self.is_interrupted = False

    def connect(self) -> duckdb.DuckDBPyConnection:
        """Return a connection to a new database in memory with the tables. It refers to them, so they must not refer to it."""
        # A query must not load code from elsewhere.
        connection = duckdb.connect(config={"autoinstall_known_extensions": "false"})
        for name, table in self._tables().items():
            connection.register(name, table)
        return connection

    def __enter__(self) -> Tables:
        self.connection = self.connect()
        self._keeps_reads = True
        self._shown = self.rows.filters.get("progress")
        self.rows = replace(self.rows, filters={**self.rows.filters, "progress": self._progress})
        self._signals, self._wakeup = socketpair()
        for each in (self._signals, self._wakeup):
            each.settimeout(0)
        self._wakeup_before = signal.set_wakeup_fd(self._wakeup.fileno(), warn_on_full_buffer=False)
        return self

    def _progress(self, *done: object) -> None:
        """End the read after Ctrl-C: the main thread waits for DuckDB, and runs no handlers of signals."""
        with suppress(BlockingIOError):
            self.is_interrupted |= signal.SIGINT in self._signals.recv(1 << 10)
        if self.is_interrupted:
            raise KeyboardInterrupt
        if self._shown is not None:
            self._shown(*done)

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        self.connection.close()
        del self.connection
        signal.set_wakeup_fd(self._wakeup_before)
        self._signals.close()
        self._wakeup.close()
        # DuckDB raises another error with the text of the one that ended a read.
        if self._error is not None:
            raise self._error from error
        if self.is_interrupted or (isinstance(error, RuntimeError) and str(error) == "Query interrupted"):
            raise KeyboardInterrupt from error
        if isinstance(error, duckdb.Error):
            raise LogdexError(str(error).partition("\n\n")[0].replace("\n", " ")) from error

    def where(self, condition: str, columns: Sequence[str]) -> pa.RecordBatchReader:
        """Return columns of the messages or records for which a condition of SQL holds, in the types of the read."""
        schema = pa.schema([self.schema.field(name) for name in columns])
        found = self.connection.table(self.rows.name).filter(condition).select(*map(duckdb.ColumnExpression, columns))
        return found.to_arrow_reader(_ROWS_OF_A_BATCH).cast(schema)

    def _tables(self) -> dict[str, _Table]:
        """Return the tables by name."""
        source, tables = self.rows.source, {}
        if self.rows.exist:
            tables[self.rows.name] = _Table(self.schema, self._read)
        tables["queues"] = _Table(_QUEUES, lambda *_: _reader(_QUEUES, source.usage("queue")))
        tables["groups"] = _Table(_GROUPS, lambda *_: _reader(_GROUPS, source.groups()))
        index = source if isinstance(source, IndexDirectory) else getattr(source, "index", None)
        if index is not None and index.files:
            schema = pa.schema(index.files[0].entries().schema)
            tables["index_entries"] = _Table(schema, lambda *_: _chained(schema, (f.entries() for f in index.files)))
        return tables

    def _read(self, columns: Sequence[str] | None, condition: pc.Expression | None) -> pa.RecordBatchReader:
        """Begin the read of a scan."""
        conditions, used = ([], []) if condition is None else _parse(condition)
        options = self.rows.options(conditions)
        if columns is not None and used is not None:
            options["columns"] = self.rows.columns([*columns, *used])
        stream = self.rows.read(options)
        if self._keeps_reads:
            self.reads.append((options, stream))
        return pa.RecordBatchReader.from_batches(pa.schema(stream.schema), self._batches(stream))

    def _batches(self, stream: BatchStream | SegmentReader) -> Iterator[pa.RecordBatch]:
        with closing(stream):
            try:
                while not self._empty and (batch := next(stream, None)) is not None:
                    yield pa.record_batch(batch)
            except (LogdexError, OSError) as error:
                self._error = error
                raise


class _Table(ds.Dataset):  # type: ignore[misc]  # pyarrow has no types
    """A table that is read when it is scanned. Of all that Python has, DuckDB pushes conditions into a `Dataset` only."""

    def __init__(
        self, schema: pa.Schema, read: Callable[[Sequence[str] | None, pc.Expression | None], pa.RecordBatchReader]
    ) -> None:
        self._schema = schema
        self._read = read

    @property
    def schema(self) -> pa.Schema:
        """The schema of all columns."""
        return self._schema

    def scanner(
        self,
        columns: Sequence[str] | None = None,
        filter: pc.Expression | None = None,  # noqa: A002 -- as pyarrow has it
        **_: object,
    ) -> ds.Scanner:
        """Return a scan of some columns of the rows that pass a condition."""
        return ds.Scanner.from_batches(self._read(columns, filter), columns=columns, filter=filter)


def _reader(schema: pa.Schema, rows: Sequence[Any]) -> pa.RecordBatchReader:
    """Return the rows of a listing as a stream."""
    columns = [pa.array([getattr(row, name) for row in rows], schema.field(name).type) for name in schema.names]
    return pa.table(columns, schema=schema).to_reader()


def _chained(schema: pa.Schema, streams: Iterable[Any]) -> pa.RecordBatchReader:
    """Return streams of one schema as one."""
    batches = chain.from_iterable(map(pa.RecordBatchReader.from_stream, streams))
    return pa.RecordBatchReader.from_batches(schema, batches)


def _parse(condition: pc.Expression) -> tuple[list[Condition], list[str] | None]:
    """Return the comparisons of a condition that must all hold, and its columns; None if they are not known.

    pyarrow shows an expression in its serialized form only, which it does not promise: calls in prefix order, with the constants
    in the columns of a batch.
    """
    _, (serialized,) = condition.__reduce__()
    with pa.ipc.open_file(serialized) as file:
        constants, words = file.get_batch(0), _metadata(file.schema)
    columns: list[str] = []

    def operands() -> Iterator[Any]:
        """Iterate over operands: a column is a tuple of names, a constant a list, a call a dict, options a dict, too."""
        for kind, value in words:
            constant = constants.column(int(value))[0].as_py() if kind in ("literal", "options") else None
            match kind:
                case "field_ref":
                    columns.append(value)
                    yield (value,)
                case "nested_field_ref":
                    path = tuple(name for _, name in islice(words, int(value)))
                    columns.append(path[0])
                    yield path
                case "literal":
                    yield [constant]
                case "call":
                    yield {"call": value, "operands": list(operands())}
                case "options":
                    yield {"options": constant}
                case "end":
                    return
                case _:
                    raise _UnknownFormError

    try:
        return list(_conditions(next(operands()))), columns
    except _UnknownFormError:
        return [], None


class _UnknownFormError(Exception):
    """A condition is in a form that is not known here."""


def _conditions(node: Any) -> Iterator[Condition]:  # noqa: ANN401 -- an operand
    match node:
        case {"call": "and_kleene" | "and", "operands": operands}:
            yield from chain.from_iterable(map(_conditions, operands))
        case {"call": str(call), "operands": [(str(name),), [constant]]} if call in _COMPARISONS:
            yield Condition(name, _COMPARISONS[call], [constant])
        case {"call": str(call), "operands": [[constant], (str(name),)]} if call in _COMPARISONS:
            yield Condition(name, MIRRORED[_COMPARISONS[call]], [constant])
        case {"call": "is_in", "operands": [(str(name),), {"options": {"value_set": list(values)}}]}:
            yield Condition(name, "In", values)
        case {"call": "if_else", "operands": [{"call": "is_valid"}, found, [None]]}:
            # Null if the column is null, as SQL has it.
            yield from _conditions(found)


class _ArrowSchema(ctypes.Structure):
    """The first fields of `ArrowSchema` of the Arrow C data interface."""

    _fields_ = (("format", ctypes.c_char_p), ("name", ctypes.c_char_p), ("metadata", ctypes.c_void_p))


def _metadata(schema: pa.Schema) -> Iterator[tuple[str, str]]:
    """Iterate over the metadata of a schema with all of its keys; a dict would have only the last of equal ones.

    The Arrow C data interface has the layout: numbers as int32, and texts with their length before them.
    """
    capsule = schema.__arrow_c_schema__()
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype, pointer.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
    at = _ArrowSchema.from_address(pointer(capsule, b"arrow_schema")).metadata

    def number() -> int:
        nonlocal at
        value = ctypes.c_int32.from_address(at).value
        at += 4
        return value

    def text() -> str:
        nonlocal at
        length = number()
        value = ctypes.string_at(at, length).decode()
        at += length
        return value

    for _ in range(number() if at else 0):
        yield text(), text()
    del capsule
