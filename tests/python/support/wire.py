"""Requests and answers of real RocketMQ programs, from tests/golden/rocketmq-wire, in this module's own reading of the protocol.

Nothing here imports logdex: what a test compares with must not pass through the code under test.
"""

from __future__ import annotations

import json
import re
import struct
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parents[2] / "golden" / "rocketmq-wire"


def vectors(name: str) -> list[dict[str, Any]]:
    """Return the pairs of a file, in order."""
    found: list[dict[str, Any]] = json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))["vectors"]
    if not found:
        raise ValueError(f"{name}: no vectors")
    return found


def split(frame: bytes) -> tuple[dict[str, Any], bytes]:
    """Return the JSON header and the body of a frame."""
    length, header = struct.unpack_from(">iI", frame)
    if length != len(frame) - 4 or header >> 24:
        raise ValueError(f"no JSON frame: {frame[:16].hex()}")
    end = 8 + (header & 0xFFFFFF)
    members: dict[str, Any] = json.loads(frame[8:end])
    return members, frame[end:]


def request(
    code: int, ext: dict[str, str] | None = None, body: bytes = b"", *, opaque: int = 1, flag: int = 0
) -> bytes:
    """Return the frame of a request as a Java client writes it."""
    members: dict[str, Any] = {"code": code, "flag": flag, "language": "JAVA", "opaque": opaque, "version": 399}
    if ext is not None:
        members["extFields"] = ext
    header = json.dumps(members).encode()
    return struct.pack(">iI", 4 + len(header) + len(body), len(header)) + header + body


def binary_request(code: int, ext: dict[str, str], *, opaque: int = 1) -> bytes:
    """Return the frame of a request with the binary header."""
    fields = b"".join(
        struct.pack(">h", len(name)) + name.encode() + struct.pack(">i", len(value.encode())) + value.encode()
        for name, value in ext.items()
    )
    header = struct.pack(">hbhiiii", code, 0, 399, opaque, 0, 0, len(fields)) + fields
    return struct.pack(">iI", 4 + len(header), 1 << 24 | len(header)) + header


def frames(data: bytes) -> list[bytes]:
    """Split the body of a pull into the messages' frames."""
    found = []
    while data:
        size = int.from_bytes(data[:4], "big")
        found.append(data[:size])
        data = data[size:]
    return found


def value(body: bytes) -> Any:
    """Return the value of a body in fastjson's dialect; keys of maps that are objects become sorted texts."""
    text = body.decode()
    parsed, end = _value(text, 0)
    if end != len(text):
        raise ValueError(f"{text[end:]!r} behind the value")
    return parsed


_SCALAR = re.compile(r'"(?:[^"\\]|\\.)*"|true|false|null|-?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?')


def _value(text: str, at: int) -> tuple[Any, int]:
    if text[at] == "{":
        table: dict[str, Any] = {}
        at += 1
        while text[at] != "}":
            key, at = _value(text, at)
            if text[at] != ":":
                raise ValueError(f"no colon at {at}")
            table[key if isinstance(key, str) else json.dumps(key, sort_keys=True)], at = _value(text, at + 1)
            at += text[at] == ","
        return table, at + 1
    if text[at] == "[":
        items = []
        at += 1
        while text[at] != "]":
            item, at = _value(text, at)
            items.append(item)
            at += text[at] == ","
        return items, at + 1
    match = _SCALAR.match(text, at)
    if match is None:
        raise ValueError(f"no value at {at}")
    return json.loads(match[0]), match.end()
