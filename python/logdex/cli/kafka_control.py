"""What the records of control batches say, for `logdex kafka dump`.

Markers of transactions are two numbers; those of KRaft's own log have the compact encoding of Kafka's generated messages.
Source: ControlRecordType, EndTransactionMarker, ControlRecordUtils, SnapshotHeaderRecord.json and its kin.
"""

from __future__ import annotations

import base64
import json
import struct
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

_KEY = struct.Struct(">hh")
_MARKER_VALUE = struct.Struct(">hi")
_TYPES = {
    0: "ABORT",
    1: "COMMIT",
    2: "LEADER_CHANGE",
    3: "SNAPSHOT_HEADER",
    4: "SNAPSHOT_FOOTER",
    5: "KRAFT_VERSION",
    6: "KRAFT_VOTERS",
}
_MARKERS = ("ABORT", "COMMIT")
_VARINT_BITS = 35


class _Reader:
    """Reads the fields of a message one after the other; ValueError where they are not all there."""

    def __init__(self, content: bytes) -> None:
        self._rest = content

    def take(self, size: int) -> bytes:
        if not 0 <= size <= len(self._rest):
            raise ValueError(f"{size} bytes expected, {len(self._rest)} left")
        taken, self._rest = self._rest[:size], self._rest[size:]
        return taken

    def number(self, size: int, *, signed: bool = True) -> int:
        return int.from_bytes(self.take(size), "big", signed=signed)

    def varint(self) -> int:
        value = 0
        for shift in range(0, _VARINT_BITS, 7):
            byte = self.number(1, signed=False)
            value |= (byte & 0x7F) << shift
            if byte < 1 << 7:
                return value
        raise ValueError("a number without an end")

    def text(self) -> str:
        return self.take(self.varint() - 1).decode()

    def tags(self) -> None:
        for _ in range(self.varint()):
            self.varint()
            self.take(self.varint())

    def array(self, item: Callable[[], dict[str, Any]]) -> list[dict[str, Any]]:
        return [item() for _ in range(self.varint() - 1)]

    def endpoint(self) -> dict[str, Any]:
        fields = {"name": self.text(), "host": self.text(), "port": self.number(2, signed=False)}
        self.tags()
        return fields

    def voter(self) -> dict[str, Any]:
        directory = base64.urlsafe_b64encode
        fields: dict[str, Any] = {
            "voterId": self.number(4),
            "voterDirectoryId": directory(self.take(16)).decode("ascii").rstrip("="),
            "endpoints": self.array(self.endpoint),
            "kRaftVersionFeature": {"minSupportedVersion": self.number(2), "maxSupportedVersion": self.number(2)},
        }
        self.tags()
        self.tags()
        return fields


_MESSAGES: dict[str, tuple[str, Callable[[_Reader], dict[str, Any]]]] = {
    "SNAPSHOT_HEADER": ("SnapshotHeader", lambda reader: {"lastContainedLogTimestamp": reader.number(8)}),
    "SNAPSHOT_FOOTER": ("SnapshotFooter", lambda _: {}),
    "KRAFT_VERSION": ("KRaftVersion", lambda reader: {"kRaftVersion": reader.number(2)}),
    "KRAFT_VOTERS": ("KRaftVoters", lambda reader: {"voters": reader.array(reader.voter)}),
}


def control_json(key: bytes, value: bytes) -> dict[str, Any]:
    """Give the type of a control record, and what it says where its value has that type's form."""
    if len(key) < _KEY.size:
        return {"type": "UNKNOWN", "id": -1}
    kind = _KEY.unpack_from(key)[1]
    name = _TYPES.get(kind, "UNKNOWN")
    if name in _MARKERS and len(value) >= _MARKER_VALUE.size:
        return {"type": name, "id": kind, "coordinatorEpoch": _MARKER_VALUE.unpack_from(value)[1]}
    if name in _MESSAGES:
        reader = _Reader(value)
        try:
            return {"type": name, "id": kind, "value": {"version": reader.number(2), **_MESSAGES[name][1](reader)}}
        except ValueError:
            pass
    return {"type": name, "id": kind}


def control_text(key: bytes, value: bytes) -> str:
    """Write a control record as kafka-dump-log does."""
    control = control_json(key, value)
    if "coordinatorEpoch" in control:
        return f"endTxnMarker: {control['type']} coordinatorEpoch: {control['coordinatorEpoch']}"
    if "value" in control:
        return f"{_MESSAGES[control['type']][0]} {json.dumps(control['value'], separators=(',', ':'))}"
    return f"controlType: {control['type']}({control['id']})"
