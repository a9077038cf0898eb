"""Keys of the benchmarks as Arrow columns, made by the rule of benches/support/keys.rs and of the Java driver."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Numbers = NDArray[np.uint64]

TOPIC = b"TopicTest#"
KEY_LEN = len(TOPIC) + 32
ABSENT = 1 << 61
"""No file has keys with this number or a higher one."""
T0 = 1_700_000_000_000
PIECE = 1 << 20


def mix(seed: Numbers) -> Numbers:
    """Do one step of splitmix64."""
    z = seed + np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed: Numbers = z ^ (z >> np.uint64(31))
    return mixed


def of(numbers: Numbers) -> Any:
    """Return the keys of these numbers as an Arrow column."""
    text = np.empty((len(numbers), KEY_LEN), np.uint8)
    text[:, : len(TOPIC)] = np.frombuffer(TOPIC, np.uint8)
    for first in range(0, len(numbers), PIECE):
        piece = numbers[first : first + PIECE]
        halves = np.stack([mix(2 * piece), mix(2 * piece + 1)], axis=1).astype(">u8")
        digits = np.frombuffer(halves.tobytes().hex().upper().encode("ascii"), np.uint8)
        text[first : first + PIECE, len(TOPIC) :] = digits.reshape(-1, 32)
    offsets = np.arange(0, (len(numbers) + 1) * KEY_LEN, KEY_LEN, dtype=np.int32)
    return pa.StringArray.from_buffers(len(numbers), pa.py_buffer(offsets), pa.py_buffer(text))


def held(count: int) -> Any:
    """Return the keys of a file that holds `count`, in the order of their puts."""
    return of(np.arange(count, dtype=np.uint64))


def asked_numbers(held: int, asked: int, round_number: int) -> Numbers:
    """Return random numbers of keys of a file."""
    first = 777_000_000 + round_number * asked
    numbers: Numbers = mix(np.arange(first, first + asked, dtype=np.uint64)) % np.uint64(held)
    return numbers


def asked(held: int, asked: int, round_number: int, *, present: bool) -> Any:
    """Return random keys of a file, or random keys that it does not hold."""
    return of(asked_numbers(held, asked, round_number) + np.uint64(0 if present else ABSENT))


def columns(count: int) -> tuple[Any, Any, Any]:
    """Return keys, offsets and times that fill a file."""
    numbers = np.arange(count, dtype=np.int64)
    return held(count), pa.array(1024 * numbers), pa.array(T0 + numbers // 10)
