"""Generated index traffic and questions about it, the input of both sides. This module does not import logdex."""

from __future__ import annotations

import random
from typing import NamedTuple

from rocketmq_driver import FOREVER, Question

TOPICS = ("TopicTest", "%RETRY%group_a", "\u8ba2\u5355")
HOT_KEY = "hot"
"""A key with far more entries than one answer can hold."""

SAME_HASH = tuple("".join(("Aa", "BB")[bit >> place & 1] for place in range(4)) for bit in range(16))
"""Sixteen keys with the same hash. The last four are never put."""

ODD_KEYS = (
    "tbaekxa",  # with TopicTest: the hash is the least int, whose absolute value Java cannot hold
    "tzhulrtb",  # with TopicTest: the hash is the negative of the next one's
    "be0m2hrq",
    "48jhv6js",  # with TopicTest and 5,000,000 slots: the slot of the next one, but not its hash
    "oxc1odp5",
    "\u6d88\u606f\u952e",
    "\U0001f600",  # two UTF-16 units
    "caf\u00e9",
    "cafe\u0301",
    "a#b",
    "",
)


class Put(NamedTuple):
    """An index entry as a dispatcher puts it."""

    topic: str
    key: str
    phy_offset: int
    store_timestamp: int


def puts(seed: int, count: int, *, clock_steps_back: bool = True) -> list[Put]:
    """Make entries in log order, one to four for each message, with idle gaps in which a file may roll."""
    chance = random.Random(seed)
    made: list[Put] = []
    phy_offset, now = chance.randrange(1_000), 1_700_000_000_000 + chance.randrange(100_000)
    while len(made) < count:
        topic = chance.choice(TOPICS)
        made += (Put(topic, key, phy_offset, now) for key in _keys(chance, len(made)))
        phy_offset += chance.randrange(100, 900)
        now += chance.choice((0, 1, 7, 40))
        if chance.random() < 0.005:
            now += chance.randrange(100_000)
        elif clock_steps_back and chance.random() < 0.0005:
            now -= chance.randrange(20_000)
    return made[:count]


def _keys(chance: random.Random, serial: int) -> list[str]:
    keys = [f"7F00000100002A9F18B4AAC2{serial:08X}"]
    for _ in range(chance.randrange(4)):
        kind = chance.random()
        if kind < 0.1:
            keys.append(HOT_KEY)
        elif kind < 0.25:
            keys.append(chance.choice(SAME_HASH[:-4]))
        elif kind < 0.35:
            keys.append(chance.choice(ODD_KEYS))
        else:
            keys.append(f"order-{chance.randrange(2_000)}")
    return keys


def questions(seed: int, known: list[Put], count: int) -> list[Question]:
    """Make questions about known entries: hits, misses, hash collisions, exact time ranges, small limits."""
    chance = random.Random(seed)
    asked: list[Question] = []
    for _ in range(count):
        put = chance.choice(known)
        topic, key = put.topic, put.key
        kind = chance.random()
        if kind < 0.15:
            topic, key = chance.choice(
                ((topic, f"{key}-not"), (f"{topic}X", key), (topic, f"order-{chance.randrange(9_999)}"))
            )
        elif kind < 0.3:
            key = chance.choice(SAME_HASH)
        elif kind < 0.35:
            key = chance.choice(ODD_KEYS)
        begin, end = _range(chance, put.store_timestamp) if chance.random() < 0.4 else (0, FOREVER)
        max_num = chance.choice((0, 1, 1, 2, 3, 10)) if chance.random() < 0.3 else chance.choice((32, 64, 65, 1_000))
        asked.append((topic, key, max_num, begin, end))
    return asked


def _range(chance: random.Random, around: int) -> tuple[int, int]:
    # Whole seconds are what the index stores: the edges that matter lie within one second of the message.
    edges = (
        0,
        1,
        -1,
        499,
        999,
        -999,
        1_000,
        -1_000,
        1_001,
        5_000,
        -5_000,
        60_000,
        -60_000,
        chance.randrange(-90_000, 90_000),
    )
    begin, end = around + chance.choice(edges), around + chance.choice(edges)
    form = chance.random()
    if form < 0.2:
        return 0, end
    if form < 0.4:
        return begin, FOREVER
    if form < 0.45:
        return begin, end  # possibly the wrong way round
    return min(begin, end), max(begin, end)
