"""Frames of the remoting protocol: a length, a header as JSON or in the binary form "ROCKETMQ", and a body.

```text
0 length i32, of all that follows    4 serialize type u8    5 header length u24    8 header    body
```

Source: RemotingCommand, RocketMQSerializable. docs/formats/rocketmq-wire.md describes the format.
"""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass, field
from typing import Any

MAX_FRAME = 16_777_216
"""The most bytes of a frame with its length field (com.rocketmq.remoting.frameMaxLength)."""
VERSION = 399
"""Ordinal of V4_9_3 in MQVersion."""

_ANSWER, _ONE_WAY = 1, 2
_LANGUAGES = ("JAVA", "CPP", "DOTNET", "PYTHON", "DELPHI", "ERLANG", "RUBY", "OTHER", "HTTP", "GO", "PHP", "OMS")
_MIN_HEADER = 4
_FIXED = struct.Struct(">hbhiii")
_LENGTH = struct.Struct(">i")
_SHORT = struct.Struct(">h")


class FrameError(ValueError):
    """Bytes that are no frame. A server closes the connection."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """A request or an answer."""

    code: int
    ext: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    remark: str | None = None
    opaque: int = 0
    """Number of the request, which the answer repeats."""
    flag: int = 0
    language: str = "OTHER"
    version: int = 0

    @property
    def is_answer(self) -> bool:
        """Whether it answers a request of this side."""
        return bool(self.flag & _ANSWER)

    @property
    def is_one_way(self) -> bool:
        """Whether no answer is wanted."""
        return bool(self.flag & _ONE_WAY)


def frame_length(head: bytes) -> int:
    """Return the bytes of a frame, with its length field, that begins with these four bytes.

    Raises:
        FrameError: No frame is so short or so long.
    """
    length: int = _LENGTH.unpack(head)[0] + _LENGTH.size
    if not _LENGTH.size + _MIN_HEADER <= length <= MAX_FRAME:
        raise FrameError(f"frame of {length} bytes: expected {_LENGTH.size + _MIN_HEADER} to {MAX_FRAME}")
    return length


def decode(frame: bytes) -> Command:
    """Return the command of a whole frame.

    Raises:
        FrameError: It is not a frame.
    """
    kind, header_length = frame[4], int.from_bytes(frame[5:8], "big")
    header, body = frame[8 : 8 + header_length], frame[8 + header_length :]
    if len(header) < header_length:
        raise FrameError(f"header of {header_length} bytes in a frame of {len(frame)}")
    try:
        if kind == 0:
            return _of_json(header, body)
        if kind == 1:
            return _of_binary(header, body)
    except (ValueError, TypeError, AttributeError, RecursionError, struct.error) as error:
        raise FrameError(f"header: {error}") from None
    raise FrameError(f"serialize type {kind}: expected 0 (JSON) or 1 (ROCKETMQ)")


def encode_request(code: int, opaque: int, ext: dict[str, str], body: bytes = b"", *, one_way: bool = False) -> bytes:
    """Return the frame of a request to a client."""
    return _frame(_json_header(code, opaque, ext, None, _ONE_WAY if one_way else 0), body)


def encode_answer(
    request: Command, code: int, ext: dict[str, str] | None = None, body: bytes = b"", remark: str | None = None
) -> bytes:
    """Return the frame that answers a request. `ext` None: the answer has no fields.

    As a broker's, its header is JSON, whatever that of the request is: clients read both.
    """
    return _frame(_json_header(code, request.opaque, ext, remark, _ANSWER), body)


def _json_header(code: int, opaque: int, ext: dict[str, str] | None, remark: str | None, flag: int) -> bytes:
    header: dict[str, Any] = {"code": code}
    if ext is not None:
        header["extFields"] = ext
    header |= {"flag": flag, "language": "PYTHON", "opaque": opaque}
    if remark is not None:
        header["remark"] = remark
    header |= {"serializeTypeCurrentRPC": "JSON", "version": VERSION}
    return _utf8(json.dumps(header, ensure_ascii=False, separators=(",", ":")))


def _frame(header: bytes, body: bytes) -> bytes:
    return struct.pack(">ii", 4 + len(header) + len(body), len(header)) + header + body


def _utf8(text: str) -> bytes:
    """Encode as Java does: a lone surrogate becomes a question mark."""
    return text.encode(errors="replace")


def _of_json(header: bytes, body: bytes) -> Command:
    members = json.loads(header.decode())
    ext = members.get("extFields") or {}
    return Command(
        code=_int(members["code"]) if "code" in members else 0,
        ext={
            name: value if isinstance(value, str) else json.dumps(value)
            for name, value in ext.items()
            if value is not None
        },
        body=body,
        remark=None if members.get("remark") is None else str(members["remark"]),
        opaque=_int(members.get("opaque", 0)),
        flag=_int(members.get("flag", 0)),
        language=str(members.get("language", "OTHER")),
        version=_int(members.get("version", 0)),
    )


def _int(value: object) -> int:
    if type(value) is not int or not -(1 << 31) <= value < 1 << 31:
        raise ValueError(f"expected a 32-bit integer, found {value!r:.40}")
    return value


def _of_binary(header: bytes, body: bytes) -> Command:
    code, language, version, opaque, flag, length = _FIXED.unpack_from(header)
    remark, at = _piece(header, _FIXED.size, length)
    fields, _ = _piece(header, at + _LENGTH.size, *_LENGTH.unpack_from(header, at))
    ext: dict[str, str] = {}
    at = 0
    while at < len(fields):
        name, at = _piece(fields, at + _SHORT.size, *_SHORT.unpack_from(fields, at))
        value, at = _piece(fields, at + _LENGTH.size, *_LENGTH.unpack_from(fields, at))
        ext[name.decode(errors="replace")] = value.decode(errors="replace")
    return Command(
        code=code,
        ext=ext,
        body=body,
        remark=remark.decode(errors="replace") or None,
        opaque=opaque,
        flag=flag,
        language=_LANGUAGES[language] if 0 <= language < len(_LANGUAGES) else "OTHER",
        version=version,
    )


def _piece(data: bytes, at: int, length: int) -> tuple[bytes, int]:
    """Return some bytes and the position after them."""
    if not 0 <= length <= len(data) - at:
        raise ValueError(f"{length} bytes at {at}, but there are {len(data)}")
    return data[at : at + length], at + length
