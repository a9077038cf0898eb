"""The option `decode`: columns of bytes as typed columns, in the schema that Spark plans.

    schema()          the driver: the formats, and a sample if they need one --> the types of the columns
    reader(schema)    the driver: the types of the plan --> formats that need no sample
    task              a worker decodes its batches

Spark asks for the schema and for the reader in different processes, and gives the second the schema of the first. So what was
inferred from a sample is in the metadata of the schema's fields.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_type, to_arrow_type
from pyspark.sql.types import ArrayType, DataType, MapType, StructField, StructType, TimestampType

from logdex import _core
from logdex.spark import options as opt
from logdex.spark.damage import SparkDamage
from logdex.spark.schema import TIME, checked_schema

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

ERRORS = "body_error"
_PIN = "logdex.decode"
"""The metadata of a field: what its format took from a sample."""
_OBJECTS = ("json", "msgpack")


@dataclass(frozen=True, slots=True)
class Decoding:
    """The formats of columns of bytes, and the columns of the source with the types that these have."""

    formats: Mapping[str, Any]
    columns: dict[str, pa.DataType]
    pins: Mapping[str, Any]

    @classmethod
    def planned(
        cls, options: Mapping[str, str], columns: dict[str, pa.DataType], sample: Callable[[list[str]], Any]
    ) -> Decoding:
        """Return the decoding of the option `decode`, before Spark has a schema.

        Args:
            options: The options of the source.
            columns: The columns of the source.
            sample: Reads the first rows of some columns; None: there are none.

        Raises:
            ValueError: The option is invalid, or there are no rows to infer the types from.
        """
        return cls._of(_formats(options), columns, sample)

    @classmethod
    def none(cls, columns: dict[str, pa.DataType]) -> Decoding:
        """Return the decoding of no column."""
        return cls({}, columns, {})

    @classmethod
    def declared(
        cls,
        options: Mapping[str, str],
        columns: dict[str, pa.DataType],
        schema: StructType,
        sample: Callable[[list[str]], Any],
    ) -> Decoding:
        """Return the decoding of the option `decode` for a schema, which `planned` made or the user wrote.

        Raises:
            ValueError: The option is invalid, or the schema lacks a column that it names.
        """
        formats: dict[str, Any] = {}
        for name, form in _formats(options).items():
            if name not in schema.fieldNames():
                raise ValueError(f"option decode: {name} is not read; the columns are {', '.join(schema.fieldNames())}")
            field = schema[name]
            pin = (field.metadata or {}).get(_PIN)
            if form in _OBJECTS:
                if not isinstance(field.dataType, StructType):
                    raise ValueError(f"option decode: column {name} is a struct, not {field.dataType.simpleString()}")
                formats[name] = (form, pa.schema(list(arrow_type(field.dataType))), pin is True)
            else:
                formats[name] = form if pin is None else (form, pin)
        return cls._of(formats, columns, sample)

    @classmethod
    def _of(cls, formats: Mapping[str, Any], columns: dict[str, pa.DataType], sample: Any) -> Decoding:
        if not formats:
            return cls.none(columns)
        unread = [name for name in formats if columns.get(name) != pa.binary()]
        if unread:
            known = ", ".join(name for name, kind in columns.items() if kind == pa.binary())
            raise ValueError(f"option decode: expected a column of bytes ({known}), found {', '.join(unread)}")
        sampled = _core.sampled_columns(formats)
        decoder = _core.Decoder(formats, sample(sampled) if sampled else None)
        empty = pa.RecordBatch.from_arrays([pa.array([], pa.binary())] * len(formats), names=list(formats))
        found = pa.schema(decoder.decode(empty).schema)
        types = {name: _spark_type(found.field(name).type, name) for name in formats}
        for name in sampled:
            if not found.field(name).type.num_fields:
                raise ValueError(f"option decode: no row shows the fields of {name}: write their types in .schema(...)")
        settled = {name: (formats[name], *rest) for name, rest in decoder.settled.items() if name in sampled}
        own = {name: arrow_type(each) for name, each in types.items()}
        return cls({**formats, **settled}, {**columns, ERRORS: pa.utf8(), **own}, decoder.pins)

    def names(self, names: Iterable[str]) -> list[str]:
        """Return the names of columns, and the column of errors if one of them is decoded."""
        wanted = list(names)
        return [*wanted, ERRORS] if ERRORS not in wanted and not self.formats.keys().isdisjoint(wanted) else wanted

    def pinned(self, schema: StructType) -> StructType:
        """Return a schema with what the formats took from a sample."""
        pins = self.pins
        return StructType(
            [
                StructField(
                    each.name, each.dataType, each.nullable, {_PIN: pins[each.name]} if each.name in pins else None
                )
                for each in schema
            ]
        )

    def batches(self, batches: Iterable[Any]) -> Iterator[Any]:
        """Decode batches."""
        if not self.formats:
            yield from batches
            return
        types = pa.schema([(name, self.columns[name]) for name in self.formats])
        decoder = _core.Decoder(self.formats, types=types)
        for batch in batches:
            yield decoder.decode(batch)


def declared_columns(
    options: Mapping[str, str],
    columns: dict[str, pa.DataType],
    schema: StructType,
    sample: Callable[[list[str]], Any],
) -> tuple[list[str], Decoding]:
    """Return the columns of a schema, and how they are decoded; see `Decoding.declared`.

    Raises:
        ValueError: As `Decoding.declared` and `checked_schema`.
    """
    decoding = Decoding.declared(options, columns, schema, sample)
    return checked_schema(decoding.columns, schema), decoding


def first_rows(read: Any) -> Any:
    """Return the first rows of a read as one batch, or None without rows. The read itself reports the damage."""
    damage = SparkDamage(fail_on_data_loss=False)
    for task in read.tasks(damage):
        for batch in read.rows(task.pieces, damage):
            return batch
    return None


def _formats(options: Mapping[str, str]) -> dict[str, str]:
    """Return the formats by column: one COLUMN=FORMAT, or a JSON array of them."""
    found: dict[str, str] = {}
    for each in opt.texts(options, "decode") or ():
        column, equals, form = each.partition("=")
        if not column or not equals:
            # It may have a password.
            raise ValueError("option decode: expected COLUMN=FORMAT, such as body=json, or a JSON array of them")
        if column in found:
            raise ValueError(f"option decode: {column} has two formats")
        found[column] = form
    return found


def _spark_type(kind: Any, column: str) -> DataType:
    """Return the type of Spark for a decoded column.

    Raises:
        ValueError: Spark has no such type.
    """
    try:
        return from_arrow_type(_known_type(kind))
    except Exception as error:
        raise ValueError(f"option decode: Spark has no type for the column {column}, {kind}: {error}") from error


def _known_type(kind: Any) -> Any:
    """Return the Arrow type with the same values that Spark has."""
    types = pa.types
    if types.is_struct(kind):
        return pa.struct([(each.name, _known_type(each.type)) for each in kind])
    if types.is_list(kind):
        return pa.list_(_known_type(kind.value_type))
    if types.is_map(kind):
        return pa.map_(_known_type(kind.key_type), _known_type(kind.item_type))
    if types.is_timestamp(kind):
        return TIME if kind.tz else pa.timestamp("us")
    if types.is_dictionary(kind):
        return _known_type(kind.value_type)
    others = {
        pa.uint32(): pa.int64(),
        pa.uint64(): pa.decimal128(20, 0),
        # As in Spark's own from_avro.
        pa.time32("ms"): pa.int32(),
        pa.time64("us"): pa.int64(),
        pa.null(): pa.utf8(),
    }
    return pa.binary() if types.is_fixed_size_binary(kind) else others.get(kind, kind)


def arrow_type(kind: DataType) -> Any:
    """Return the Arrow type that Spark expects for one of its types."""
    if isinstance(kind, StructType):
        return pa.struct([pa.field(each.name, arrow_type(each.dataType), each.nullable) for each in kind])
    if isinstance(kind, ArrayType):
        return pa.list_(pa.field("element", arrow_type(kind.elementType), kind.containsNull))
    if isinstance(kind, MapType):
        value = pa.field("value", arrow_type(kind.valueType), kind.valueContainsNull)
        return pa.map_(pa.field("key", arrow_type(kind.keyType), nullable=False), value)
    return TIME if isinstance(kind, TimestampType) else to_arrow_type(kind)
