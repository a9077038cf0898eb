"""Damaged logs: each kind of damage has the finding that names it, and healthy logs have none."""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING

import pytest

import golden_kafka
import kafka_records as records
from logdex.errors import CorruptFileError, DamageWarning
from logdex.kafka import Log, LogDir

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

# Case: the file, the byte offset and the kind of the finding that names the damage.
NAMED: dict[str, list[tuple[str, int | None, str]]] = {
    "damaged-baseoffset": [("00000000000000000038.log", 1706, "batch-offset")],
    "damaged-codec": [("00000000000000000035.log", 1574, "records")],
    "damaged-crc": [("00000000000000000035.log", 1332, "batch-crc")],
    "damaged-cut": [("00000000000000000075.log", 1671, "torn-batch")],
    "damaged-cutmid": [("00000000000000000034.log", 1261, "torn-batch")],
    "damaged-emptyindex": [("00000000000000000031.timeindex", 0, "time-index-end")],
    "damaged-epoch": [("00000000000000000042.log", 827, "leader-epoch")],
    "damaged-indexlong": [
        ("00000000000000000034.index", None, "index-entry"),
        ("00000000000000000034.timeindex", None, "index-entry"),
    ],
    "damaged-indexodd": [
        ("00000000000000000040.index", None, "index-size"),
        ("00000000000000000040.timeindex", None, "index-size"),
    ],
    "damaged-indexorder": [("00000000000000000037.index", None, "index-order")],
    "damaged-length": [("00000000000000000033.log", 1240, "torn-batch")],
    "damaged-magic": [
        ("00000000000000000034.log", 1376, "batch-magic"),
        ("00000000000000000034.log", 2767, "batch-magic"),
    ],
    "damaged-missing": [
        ("00000000000000000000.index", 0, "file-missing"),
        ("00000000000000000031.timeindex", 0, "file-missing"),
        ("00000000000000000067.index", 0, "file-missing"),
        ("00000000000000000067.timeindex", 0, "file-missing"),
    ],
    "damaged-snapshot": [("00000000000000000147.snapshot", None, "file-content")],
    "damaged-stale": [("00000000000000000072.index", None, "index-entry")],
    "damaged-timeorder": [
        ("00000000000000000036.timeindex", None, "index-order"),
        ("00000000000000000000.timeindex", None, "index-order"),
    ],
    "damaged-txnindex": [
        ("00000000000000000104.txnindex", 34, "index-size"),
        ("00000000000000000007.txnindex", 0, "index-entry"),
    ],
    "damaged-zeroindex": [
        ("00000000000000000032.index", None, "index-tail"),
        ("00000000000000000032.timeindex", None, "index-tail"),
    ],
    "damaged-zerotail": [("00000000000000000064.log", 2709, "zero-tail")],
}


def test_every_damage_is_named() -> None:
    assert set(NAMED) == set(golden_kafka.DAMAGED)
    for case, expected in NAMED.items():
        damaged = {damage["file"] for damage in golden_kafka.info(case)["damage"]}
        assert {name for name, *_ in expected} & damaged or case == "damaged-emptyindex"


@pytest.mark.parametrize("case", golden_kafka.DAMAGED)
def test_a_finding_names_the_damage(kafka_logs: Callable[[str], Path], case: str) -> None:
    with LogDir.open(kafka_logs(case)) as logs:
        report = logs.verify()
    found = {(finding.path.rpartition("/")[2], finding.offset, finding.kind) for finding in report.findings}
    for name, offset, kind in NAMED[case]:
        hits = {f for f in found if f[0] == name and f[2] == kind and offset in (None, f[1])}
        assert hits, f"no {kind} in {name}: {report}"
    touched = {damage["file"].partition(".")[0] for damage in golden_kafka.info(case)["damage"]}
    others = {name for name, *_ in found if name.partition(".")[0] not in touched}
    # What follows a damaged segment may contradict it, too.
    assert not others or case == "damaged-baseoffset", report


@pytest.mark.parametrize("case", golden_kafka.SOUND)
def test_nothing_that_a_broker_left_is_a_finding(kafka_logs: Callable[[str], Path], case: str) -> None:
    with LogDir.open(kafka_logs(case)) as logs:
        report = logs.verify()
    assert report.checked["segments"] == len(list(kafka_logs(case).glob("*/*.log"))) > 0
    # The killed broker's preallocated log ends in zeros, as that of the damaged case does: recovery cuts both.
    expected = [("kl-pre-0", "zero-tail")] if case == "killed" else []
    assert [(finding.path.split("/")[-2], finding.kind) for finding in report.findings] == expected, report


def _before(case: str) -> list[records.Row]:
    return [records.golden_row(row) for row in golden_kafka.rows(case, "records-before")]


# Damage that does not touch the records: all of them are read as before.
HARMLESS = tuple(
    case
    for case in golden_kafka.DAMAGED
    if case.removeprefix("damaged-") not in {"baseoffset", "codec", "crc", "cut", "cutmid", "length", "magic"}
)


@pytest.mark.parametrize("case", HARMLESS)
def test_records_survive_damage_beside_them(kafka_logs: Callable[[str], Path], case: str) -> None:
    with LogDir.open(kafka_logs(case)) as logs:
        assert records.rows(logs.records()) == _before(case)


@pytest.mark.parametrize("case", sorted(set(golden_kafka.DAMAGED) - set(HARMLESS)))
def test_damage_to_records_is_an_error_or_passed_over(kafka_logs: Callable[[str], Path], case: str) -> None:
    before = _before(case)
    topic, partition = golden_kafka.rows(case, "records-before")[0]["topic"], 0
    with Log.open(kafka_logs(case) / f"{topic}-{partition}") as log:
        stream = log.records()
        try:
            records.rows(stream)
        except CorruptFileError as error:
            named, kinds = error.path, ["raised"]
        else:
            named, kinds = stream.findings[0].path, [finding.kind for finding in stream.findings]
        assert golden_kafka.info(case)["damage"][0]["file"] in named
        # A batch that runs past the end of its file cannot be told from one that was being written.
        assert kinds in (["raised"], ["torn-batch"])
        stream = log.records(on_error="skip")
        with pytest.warns(DamageWarning) if kinds == ["raised"] else nullcontext():
            found = records.rows(stream)
        if case == "damaged-baseoffset":
            # The records are whole; only the offset is wrong that their batch says.
            assert [row[1:] for row in found] == [row[1:] for row in before]
        else:
            assert set(found) < set(before)
            assert found == [row for row in before if row in set(found)]
        assert len(found) > len(before) // 4
        assert stream.findings
