"""The content of a partition's files: lines for people, as kafka-dump-log prints them, and objects for programs.

Source: DumpLogSegments. Unlike the tool, an entry for several batches is not a mismatch, no file is created, and damage does not
end the dump of the other files.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from arro3.core import list_flatten, list_offsets, struct_field

from logdex import _core
from logdex.cli.output import complain, json_bytes, json_headers
from logdex.cli.rows import plain_rows, plain_values
from logdex.kafka import LogSegment, OffsetIndex, TimeIndex, files
from logdex.kafka.files import CHECKPOINT, LOG, OFFSET_INDEX, SNAPSHOT, TIME_INDEX, TXN_INDEX, parse_metadata_snapshot
from logdex.kafka.verify import content_findings
from logdex.report import Finding

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path
    from typing import TypeAlias

    from arro3.core import RecordBatch

    Line: TypeAlias = str | dict[str, Any]

_TIMESTAMP_TYPES = {-1: "NoTimestampType", 0: "CreateTime", 1: "LogAppendTime"}
_SEQUENCES = 1 << 31
_BOOTSTRAP = "bootstrap.checkpoint"
_V2 = 2
_RECORD_COLUMNS = (
    *("offset", "timestamp", "timestampType", "key", "value", "headers"),
    *("sequence", "isControl", "magic", "batchPosition", "crc", "isValid"),
)


@dataclass(slots=True)
class Dump:
    """How to dump: `deep` with records, `data` with their keys and values, `json` objects; and the faults found."""

    deep: bool = False
    data: bool = False
    json: bool = False
    findings: list[Finding] = field(default_factory=list)

    def file(self, path: Path) -> Iterator[Line]:
        """Return the lines of the dump of a segment's file, or the same as objects.

        Raises:
            OSError: The file cannot be read.
        """
        readers: dict[str, Callable[[Path], Iterator[Line]]] = {
            LOG: self._log,
            CHECKPOINT: self._log,
            OFFSET_INDEX: partial(self._sparse_index, OffsetIndex),
            TIME_INDEX: partial(self._sparse_index, TimeIndex),
            TXN_INDEX: self._transaction_index,
            SNAPSHOT: self._snapshot,
        }
        findings: list[Finding] = []
        with content_findings(findings):
            yield from readers[path.suffix](path)
        self._found(findings)

    def _found(self, findings: Iterable[Finding]) -> None:
        """Add findings, each once: headers and records of a batch are read by two readers, which find the same."""
        known = {(each.path, each.offset, each.kind) for each in self.findings}
        self.findings += [each for each in findings if (each.path, each.offset, each.kind) not in known]

    def _log(self, path: Path) -> Iterator[Line]:
        with LogSegment.open(path) as segment:
            yield self._either(*_beginning(segment))
            # Not as an Arrow stream, so that errors keep their class and findings can be asked for.
            batches = segment.batches(on_error="skip")
            records = self._records(segment) if self.deep else iter(())
            waiting = next(records, None)
            for batch in plain_rows(batches):
                yield self._either(_batch_text(batch), {"type": "batch", **batch})
                while waiting is not None and waiting[0] <= batch["position"]:
                    yield waiting[1]
                    waiting = next(records, None)
            self._found(batches.findings)
            left = segment.size - batches.position
            if left:
                text = f"Found {left} invalid bytes at the end of {path.name}"
                yield self._either(text, {"type": "end", "position": batches.position, "invalidBytes": left})

    def _either(self, text: str, row: dict[str, Any]) -> Line:
        return row if self.json else text

    def _records(self, segment: LogSegment) -> Iterator[tuple[int, Line]]:
        """Return each record with the position of its batch."""
        stream = segment.records(columns=_RECORD_COLUMNS, control=True, on_error="skip")
        for batch in stream:
            lines = map(self._record_json, plain_rows([batch])) if self.json else self._record_texts(batch)
            yield from zip(plain_values(batch.column("batchPosition")), lines, strict=True)
        self._found(stream.findings)

    def _record_texts(self, batch: RecordBatch) -> Iterator[str]:
        """Format records column by column: there may be millions."""
        legacy = any(magic < _V2 for magic in plain_values(batch.column("magic")))
        ends: Iterable[str] = map(_crc_text, plain_rows([batch])) if legacy else _sequence_texts(batch)
        names = ("offset", "timestamp", "timestampType", "key", "value", "isControl")
        columns = (plain_values(batch.column(name)) for name in names)
        for offset, timestamp, kind, key, value, control, end in zip(*columns, ends, strict=True):
            text = (
                f"| offset: {offset} {_TIMESTAMP_TYPES.get(kind, kind)}: {timestamp} "
                f"keySize: {_size(key)} valueSize: {_size(value)} {end}"
            )
            if control:
                text = f"{text} {control_text(_core.control_record(key or b'', value or b''))}"
            elif self.data:
                text = text if key is None else f"{text} key: {key.decode(errors='replace')}"
                text = text if value is None else f"{text} payload: {value.decode(errors='replace')}"
            yield text

    def _record_json(self, record: dict[str, Any]) -> dict[str, Any]:
        row = {name: value for name, value in record.items() if name not in ("key", "value", "headers")}
        row |= {"keySize": _size(record["key"]), "valueSize": _size(record["value"])}
        if record["isControl"]:
            row["control"] = _core.control_record(record["key"] or b"", record["value"] or b"")
            row["control"].pop("message", None)
        elif self.data:
            row |= {**json_bytes("key", record["key"]), **json_bytes("value", record["value"])}
            row["headers"] = json_headers(record["headers"])
        else:
            row["headerKeys"] = [header["key"] for header in record["headers"] or ()]
        return {"type": "record", **row}

    def _sparse_index(self, kind: type[OffsetIndex | TimeIndex], path: Path) -> Iterator[Line]:
        with kind.open(path) as index:
            if isinstance(index, OffsetIndex) and not len(index):
                yield self._either(f"{path} is empty.", {"type": "index", "entries": 0})
            for row in plain_rows(index.entries()):
                yield self._either(_words(row, *row), {"type": "entry", **row})
            log = path.with_suffix(LOG)
            self._found(index.verify(log if log.exists() else None).findings)

    def _transaction_index(self, path: Path) -> Iterator[Line]:
        rows, torn = _core.read_transaction_index(path)
        names = ("version", "producerId", "firstOffset", "lastOffset", "lastStableOffset")
        for row in plain_rows([rows]):
            yield self._either(_words(row, *names), {"type": "entry", **row})
        if torn:
            at = path.stat().st_size - torn
            self._found([Finding(str(path), at, "index-size", "whole entries", f"{torn} bytes of one")])

    def _snapshot(self, path: Path) -> Iterator[Line]:
        for row in plain_rows([_core.read_producer_snapshot(path)]):
            yield self._either(_producer_text(row), {"type": "producer", **row})


def is_known(path: Path) -> bool:
    """Return whether `Dump.file` reads files of this name."""
    snapshot = path.name == _BOOTSTRAP or parse_metadata_snapshot(path.name) is not None
    return snapshot or files.parse_segment_file(path.name) is not None


def _beginning(segment: LogSegment) -> tuple[str, dict[str, Any]]:
    snapshot = parse_metadata_snapshot(segment.path.name)
    if snapshot is not None:
        end, epoch = snapshot
        return f"Snapshot end offset: {end}, epoch: {epoch}", {"type": "snapshot", "endOffset": end, "epoch": epoch}
    if segment.path.name == _BOOTSTRAP:
        return "KRaft bootstrap snapshot", {"type": "snapshot"}
    start = segment.base_offset
    return f"Log starting offset: {start}", {"type": "log", "startingOffset": start}


def _crc_text(record: dict[str, Any]) -> str:
    """Format the end of the line of a record."""
    if record["magic"] < _V2:
        return f"isValid: {_bool(record['isValid'])} crc: {record['crc']}}}"
    names = ",".join(header["key"] for header in record["headers"] or ())
    return f"sequence: {record['sequence']} headerKeys: [{names}]"


def _sequence_texts(batch: RecordBatch) -> Iterator[str]:
    """Format the ends of the lines of records of format v2, in a batch of them only."""
    headers = batch.column("headers")
    names = struct_field(list_flatten(headers), 0).to_pylist()
    ends = list_offsets(headers).to_pylist()
    for begin, end, sequence in zip(ends, ends[1:], plain_values(batch.column("sequence")), strict=False):
        yield f"sequence: {sequence} headerKeys: [{','.join(names[begin:end])}]"


def control_text(control: dict[str, Any]) -> str:
    """Format a decoded control record as kafka-dump-log does."""
    if "coordinatorEpoch" in control:
        return f"endTxnMarker: {control['type']} coordinatorEpoch: {control['coordinatorEpoch']}"
    if "value" in control:
        return f"{control['message']} {json.dumps(control['value'], separators=(',', ':'))}"
    return f"controlType: {control['type']}({control['id']})"


def _batch_text(batch: dict[str, Any]) -> str:
    kind = batch["timestampType"]
    time = f"{_TIMESTAMP_TYPES.get(kind, kind)}: {batch['maxTimestamp']}"
    codec = batch["compression"] or f"unknown({batch['compressionId']})"
    end = (
        f"{_words(batch, 'position')} {time} {_words(batch, 'size', 'magic')} compresscodec: {codec} "
        f"crc: {batch['crc']} isvalid: {_bool(batch['isValid'])}"
    )
    if batch["magic"] < _V2:
        return f"offset: {batch['lastOffset']} {end}"
    producer = ("baseSequence", "lastSequence", "producerId", "producerEpoch", "partitionLeaderEpoch")
    begin = _words(batch, "baseOffset", "lastOffset", "count", *producer, "isTransactional", "isControl")
    return f"{begin} deleteHorizonMs: {_optional(batch['deleteHorizonMs'])} {end}"


def _producer_text(row: dict[str, Any]) -> str:
    text = _words(row, "producerId", "producerEpoch", "coordinatorEpoch")
    text += f" currentTxnFirstOffset: {_optional(row['currentTxnFirstOffset'])} lastTimestamp: {row['timestamp']}"
    if row["lastOffset"] >= 0:
        # Sequences wrap from 2147483647 to 0.
        first = (row["lastSequence"] - row["offsetDelta"]) % _SEQUENCES
        text += f" firstSequence: {first} {_words(row, 'lastSequence', 'lastOffset', 'offsetDelta', 'timestamp')}"
    return text


def _words(row: dict[str, Any], *names: str) -> str:
    values = ((name, row[name]) for name in names)
    return " ".join(f"{name}: {_bool(value) if isinstance(value, bool) else value}" for name, value in values)


def _optional(value: int | None) -> str:
    return "OptionalLong.empty" if value is None else f"OptionalLong[{value}]"


def _bool(value: object) -> str:
    return "true" if value else "false"


def _size(content: bytes | None) -> int:
    return -1 if content is None else len(content)


def files_to_dump(paths: list[Path]) -> list[Path]:
    """Return the files to dump: each path, or the files of a partition's directory by name.

    Files of another kind are ignored, because a shell's `partition/*` names them, too; a message names those that were given.

    Raises:
        OSError: A path does not exist.
        ValueError: Nothing can be dumped.
    """
    wanted = []
    for path in paths:
        if path.is_dir():
            wanted += sorted(filter(is_known, path.iterdir()))
            continue
        path.stat()
        if is_known(path):
            wanted.append(path)
        else:
            complain(f"ignoring {path}: no file of a segment")
    if not wanted:
        raise ValueError(f"{paths[0]}: no file of a segment, nor a partition's directory with one")
    return wanted
