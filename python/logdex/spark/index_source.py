"""Format `rocketmq_index`: index files as a table of entries, and as a target of writes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceWriter, InputPartition

from logdex.hash_index.file_name import resolve_zone
from logdex.hash_index.geometry import DEFAULT_HASH_SLOTS, DEFAULT_MAX_ENTRIES, file_size
from logdex.rocketmq import IndexFile, IndexService
from logdex.spark import options as opt
from logdex.spark.commit import Job, index_files
from logdex.spark.entry_rows import COLUMNS
from logdex.spark.files import require_directory, settled_geometry
from logdex.spark.index_writer import IndexWriter
from logdex.spark.schema import (
    ENTRY_COLUMNS,
    ENTRY_COLUMNS_AND_FILE,
    FILE_COLUMN,
    arrow_schema,
    checked_schema,
    lay_out,
    record_batches,
    require_columns,
    spark_schema,
    warn_of_lost_instants,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql.types import StructType

    from logdex._types import Access, Compat

FORMAT = "rocketmq_index"
_OPTIONS = ("path", "paths", "hashSlots", "maxEntries", "zone", "access", "compat", "columns")


class IndexSource(DataSource):
    """The data source behind `spark.read.format("rocketmq_index")` and `df.write.format("rocketmq_index")`.

    Options: `hashSlots`, `maxEntries` (default: found from the files there, 5,000,000 and 20,000,000 for a new directory),
    `access`; reading: `columns` (among them `file`, the name of the entry's file), `compat`; writing: `zone` of the file
    names (default: the driver's).
    """

    @classmethod
    def name(cls) -> str:
        """Give the name for `format`."""
        return FORMAT

    def schema(self) -> StructType:
        """Declare the columns of the entries, or those that the option `columns` names."""
        chosen = opt.names(self.options, "columns")
        return spark_schema(ENTRY_COLUMNS if chosen is None else ENTRY_COLUMNS_AND_FILE, chosen)

    def reader(self, schema: StructType) -> EntriesReader:
        """Plan a read of the entries."""
        opt.check_names(self.options, _OPTIONS, FORMAT)
        directory = opt.path(self.options, FORMAT)
        require_directory(directory)
        return EntriesReader(
            str(directory),
            checked_schema(ENTRY_COLUMNS_AND_FILE, schema),
            hash_slots=opt.integer(self.options, "hashSlots"),
            max_entries=opt.integer(self.options, "maxEntries"),
            access=opt.access(self.options),
            compat=opt.compat(self.options),
        )

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:  # noqa: FBT001 - Spark's signature
        """Plan a write and make the directory of its job, on the driver."""
        opt.check_names(self.options, _OPTIONS, FORMAT)
        require_columns(schema.fieldNames(), COLUMNS, f"format {FORMAT}")
        _check_types(schema)
        directory = opt.path(self.options, FORMAT)
        zone = self.options.get("zone")
        resolve_zone(zone)
        slots, entries = _geometry(
            directory,
            opt.integer(self.options, "hashSlots"),
            opt.integer(self.options, "maxEntries"),
            overwrite=overwrite,
        )
        return IndexWriter(
            Job.start(directory, zone),
            hash_slots=slots,
            max_entries=entries,
            overwrite=overwrite,
            access=opt.access(self.options),
        )


@dataclass(frozen=True)
class EntriesOfFile(InputPartition):
    """One index file to read, with its geometry."""

    path: str
    hash_slots: int
    max_entries: int


class EntriesReader(DataSourceReader):
    """Reads entries, one partition a file."""

    def __init__(
        self,
        directory: str,
        columns: list[str],
        *,
        hash_slots: int | None,
        max_entries: int | None,
        access: Access,
        compat: Compat | None,
    ) -> None:
        self.directory = directory
        self.columns = columns
        self.hash_slots = hash_slots
        self.max_entries = max_entries
        self.access = access
        self.compat = compat

    def partitions(self) -> list[InputPartition]:
        """List the files, oldest first, as the service does."""
        service = IndexService.open(
            self.directory,
            hash_slots=self.hash_slots,
            max_entries=self.max_entries,
            access=self.access,
            compat=self.compat,
        )
        return [EntriesOfFile(str(file.path), file.hash_slots, file.max_entries) for file in service.files]

    def read(self, partition: InputPartition | None) -> Iterator[Any]:
        """Read the entries of one file, in a worker."""
        if not isinstance(partition, EntriesOfFile):
            return
        schema = arrow_schema(ENTRY_COLUMNS_AND_FILE, self.columns)
        lost = 0
        with IndexFile.open(
            partition.path,
            hash_slots=partition.hash_slots,
            max_entries=partition.max_entries,
            access=self.access,
            compat=self.compat,
        ) as file:
            constants = {FILE_COLUMN: file.path.name}
            for batch in record_batches(file.entries()):
                rows, out_of_range = lay_out(batch, schema, constants)
                lost += out_of_range
                yield rows
        warn_of_lost_instants(lost, partition.path)


def _check_types(schema: StructType) -> None:
    """Refuse what could only fail in the workers, or write something else than meant."""
    allowed = {
        "topic": ("string", "binary"),
        "key": ("string", "binary"),
        "phy_offset": ("bigint", "int"),
        "store_timestamp": ("timestamp", "bigint"),
    }
    for name, types in allowed.items():
        found = schema[name].dataType.simpleString()
        if found not in types:
            raise ValueError(f"format {FORMAT}: column {name} must be {' or '.join(types)}, not {found}")


def _geometry(directory: Path, slots: int | None, entries: int | None, *, overwrite: bool) -> tuple[int, int]:
    """Choose the geometry of new files: what is asked for, else that of the files there, else the broker's default.

    Raises:
        ValueError: Files of another geometry are there, or the geometry is impossible.
    """
    if (slots is None) != (entries is None):
        raise ValueError("give both options hashSlots and maxEntries, or neither")
    present = [] if overwrite else index_files(directory)
    if present and slots is None:
        slots, entries = settled_geometry(directory, slots, entries)
    slots = DEFAULT_HASH_SLOTS if slots is None else slots
    entries = DEFAULT_MAX_ENTRIES if entries is None else entries
    if slots < 1 or entries < 2:  # noqa: PLR2004 - one entry of a file is never used
        raise ValueError(f"hashSlots must be at least 1 and maxEntries at least 2, not {slots} and {entries}")
    size = file_size((slots, entries))
    for path in present:
        if path.stat().st_size != size:
            raise ValueError(
                f"{path} has {path.stat().st_size} bytes and files of {slots} slots and {entries} entries have {size}: "
                "a broker opens all files of a directory with one geometry"
            )
    return slots, entries
