"""Compares what a copy of a golden store answers with what the store answers on the disk, and counts it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import store_answers
from logdex.kafka import LogDir
from logdex.rocketmq import MessageStore

if TYPE_CHECKING:
    from pathlib import Path

# Messages and different keys.
_STORES = {
    "basic": (553, 1131),
    "cqext": (330, 619),
    "ipv6": (240, 458),
    "killed": (722, 1489),
    "pool": (450, 862),
    "rolled": (2931, 5497),
    "rolled-killed": (800, 1513),
    "sync": (350, 677),
    "v5-3-3": (564, 1078),
    "v5-basic": (580, 1131),
    "v5-killed": (652, 1294),
}
# Records, answers of single logs, and finds.
_LOG_DIRS = {
    "codecs": (794, 619, 13),
    "codecs-4x": (354, 417, 13),
    "compacted": (805, 605, 13),
    "compacted-4x": (614, 496, 13),
    "damaged-baseoffset": (95, 53, 14),
    "damaged-codec": (93, 53, 12),
    "damaged-crc": (93, 53, 14),
    "damaged-cut": (92, 53, 14),
    "damaged-cutmid": (75, 53, 12),
    "damaged-emptyindex": (95, 53, 14),
    "damaged-epoch": (95, 53, 13),
    "damaged-indexlong": (95, 53, 13),
    "damaged-indexodd": (95, 53, 14),
    "damaged-indexorder": (95, 53, 14),
    "damaged-length": (76, 53, 13),
    "damaged-magic": (92, 53, 13),
    "damaged-missing": (95, 53, 12),
    "damaged-snapshot": (147, 113, 13),
    "damaged-stale": (95, 53, 14),
    "damaged-timeorder": (95, 53, 14),
    "damaged-txnindex": (133, 89, 14),
    "damaged-zeroindex": (95, 53, 13),
    "damaged-zerotail": (95, 53, 14),
    "follower": (1000, 129, 13),
    "killed": (1780, 380, 13),
    "legacy": (782, 373, 13),
    "timestamps": (3650, 571, 13),
    "transactions": (1086, 385, 13),
    "transactions-4x": (689, 313, 13),
}


def compare_store(case: str, root: Path, url: str, options: dict[str, str]) -> None:
    """Compare a RocketMQ store on the disk with its copy at a URL."""
    with MessageStore.open(root) as local, MessageStore.open(url, storage_options=options) as remote:
        here, there = store_answers.of_store(local), store_answers.of_store(remote)
    _assert_equal(here, there)
    assert (len(there["messages"]), len(there["keys"])) == _STORES[case]
    assert len(there["find_batch"]) >= len(there["keys"]) > len(there["finds"]) - 1 >= 200


def compare_log_dir(case: str, root: Path, url: str, options: dict[str, str]) -> None:
    """Compare a Kafka log directory on the disk with its copy at a URL."""
    with LogDir.open(root) as local, LogDir.open(url, storage_options=options) as remote:
        here, there = store_answers.of_log_dir(local), store_answers.of_log_dir(remote)
    _assert_equal(here, there)
    counted = len(there["records"]), sum(map(len, there["logs"])), len(there["finds"])
    assert counted == _LOG_DIRS[case]


def _assert_equal(here: dict[str, Any], there: dict[str, Any]) -> None:
    """Compare part by part, so that a failure is short."""
    assert list(here) == list(there)
    for name, answer in here.items():
        if isinstance(answer, list):
            differing = [each for each in zip(answer, there[name], strict=False) if each[0] != each[1]]
            assert differing[:1] == [], f"{name}: {differing[:1]}"
            assert len(there[name]) == len(answer), name
        assert there[name] == answer, name
