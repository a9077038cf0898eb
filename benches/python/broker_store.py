"""Write the store of a broker with millions of small messages, fast: the log with numpy, queues and index with logdex.

A message has a unique key of 32 hexadecimal digits and one key of 16, which no other message has, and a body of random
letters; its checksum is right. Messages go round topics and queues. The log's files end as a broker ends them
(docs/formats/rocketmq-commitlog.md).
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

T0 = 1_700_000_000_000
MESSAGES_A_MS = 2
TOPICS = 4
QUEUES = 4
BODY_BYTES = 48
FILE_BYTES = 1 << 30
STEP = 200_000
"""Messages that are made at a time: they fit into the CPU cache."""

_MAGIC, _BLANK_MAGIC = 0xDAA320A7, 0xCBD43194
BLANK_BYTES = 8
_HOST = bytes((10, 0, 0, 1, 0, 0, 42, 159))
_UNIQ_KEY_PREFIX = b"7F0000010A2B3C4D"
_DIGITS = np.frombuffer(b"0123456789ABCDEF", np.uint8)


def topic(number: int) -> str:
    """Return the topic of a message."""
    return f"orders-{number % TOPICS}"


def key(number: int) -> str:
    """Return the key of a message."""
    return f"{_spread(number, 2):016X}"


def uniq_key(number: int) -> str:
    """Return the unique key of a message."""
    return f"{_UNIQ_KEY_PREFIX.decode()}{_spread(number, 1):016X}"


def message_bytes(body_bytes: int = BODY_BYTES) -> int:
    """Return the bytes of a message in the log."""
    return len(_frame(body_bytes)[0])


def write_log(
    directory: Path, messages: int, *, body_bytes: int = BODY_BYTES, file_bytes: int = FILE_BYTES, start_offset: int = 0
) -> int:
    """Write a commit log whose older files expired, up to an offset; return the bytes of a message."""
    template, places = _frame(body_bytes)
    in_file = (file_bytes - BLANK_BYTES) // len(template)
    directory.mkdir(parents=True)
    for number, begin in enumerate(range(0, messages, in_file)):
        start, end = start_offset + number * file_bytes, min(begin + in_file, messages)
        with (directory / f"{start:020d}").open("wb") as file:
            for first in range(begin, end, STEP):
                rows = np.arange(first, min(first + STEP, end), dtype=np.uint64)
                offsets = start + (rows - np.uint64(begin)) * np.uint64(len(template))
                file.write(_frames(template, places, rows, offsets).data)
            if end < messages:
                file.write(struct.pack(">iI", file_bytes - file.tell(), _BLANK_MAGIC))
            file.truncate(file_bytes)
    return len(template)


def _frame(body_bytes: int) -> tuple[bytes, dict[str, int]]:
    """Return a template of a message, and the positions of the fields that differ between messages."""
    properties = b"UNIQ_KEY\1" + _UNIQ_KEY_PREFIX + b"u" * 16 + b"\2KEYS\1" + b"k" * 16 + b"\2"
    name = topic(0).encode()
    head = struct.pack(">IIiiqqiq", _MAGIC, 0, 0, 0, 0, 0, 0, 0) + _HOST + bytes(8) + _HOST + bytes(12)
    rest = struct.pack(">i", body_bytes) + b"b" * body_bytes + bytes([len(name)]) + name
    frame = head + rest + struct.pack(">h", len(properties)) + properties
    frame = struct.pack(">i", len(frame) + 4) + frame
    places = {"body": 88, "topic": 88 + body_bytes + len(name)}
    return frame, {**places, "uniq_key": frame.index(b"u" * 16), "key": frame.index(b"k" * 16)}


def _frames(
    template: bytes, places: dict[str, int], rows: NDArray[np.uint64], offsets: NDArray[np.uint64]
) -> NDArray[np.uint8]:
    frames = np.empty((len(rows), len(template)), np.uint8)
    frames[:] = np.frombuffer(template, np.uint8)
    body_bytes = places["topic"] - len(topic(0)) - places["body"]
    body = np.random.default_rng(int(rows[0])).integers(97, 123, (body_bytes, len(rows)), np.uint8)
    frames[:, places["body"] : places["body"] + body_bytes] = body.T
    # The broker keeps 31 bits of the checksum.
    _put(frames, 8, _crc32(body) & np.uint32(0x7FFFFFFF), ">u4")
    times = np.uint64(T0) + rows // np.uint64(MESSAGES_A_MS)
    _put(frames, 12, rows // np.uint64(TOPICS) % np.uint64(QUEUES), ">u4")
    _put(frames, 20, rows // np.uint64(TOPICS * QUEUES), ">u8")
    _put(frames, 28, offsets, ">u8")
    _put(frames, 40, times, ">u8")
    _put(frames, 56, times, ">u8")
    frames[:, places["topic"]] = _DIGITS[(rows % np.uint64(TOPICS)).astype(np.intp)]
    for kind, name in ((1, "uniq_key"), (2, "key")):
        _put_digits(frames, places[name], _spread(rows, kind))
    return frames


def _put(frames: NDArray[np.uint8], at: int, numbers: NDArray[Any], kind: str) -> None:
    as_bytes = numbers.astype(kind).view(np.uint8).reshape(len(numbers), -1)
    frames[:, at : at + as_bytes.shape[1]] = as_bytes


def _put_digits(frames: NDArray[np.uint8], at: int, numbers: NDArray[np.uint64]) -> None:
    for place in range(16):
        nibble = numbers >> np.uint64(60 - 4 * place) & np.uint64(15)
        frames[:, at + place] = _DIGITS[nibble.astype(np.intp)]


def _spread(number: Any, kind: int) -> Any:
    """Map a number to 64 bits, one to one; an integer and an array give the same result."""
    if isinstance(number, int):
        return (number * 2 + kind) * 0x9E3779B97F4A7C15 & 0xFFFFFFFFFFFFFFFF
    return (number * np.uint64(2) + np.uint64(kind)) * np.uint64(0x9E3779B97F4A7C15)


def _crc32(columns: NDArray[np.uint8]) -> NDArray[np.uint32]:
    """Return the CRC-32 of many texts at once; the first axis is the position in the text."""
    crc = np.full(columns.shape[1], 0xFFFFFFFF, np.uint32)
    for column in columns:
        crc = _CRC_TABLE[(crc ^ column) & np.uint32(0xFF)] ^ (crc >> np.uint32(8))
    return ~crc


def _crc_table() -> NDArray[np.uint32]:
    table = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        table = np.where(table & 1, (table >> 1) ^ np.uint32(0xEDB88320), table >> 1)
    return table


_CRC_TABLE = _crc_table()
