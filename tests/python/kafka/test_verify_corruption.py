"""Every flipped bit and every truncation of a small segment and its indexes: an error, a finding, or the right answer."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import pytest

import golden_kafka
import kafka_records as records
from logdex.errors import CorruptFileError, DamageWarning
from logdex.kafka import Log, LogSegment, OffsetIndex

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

FOLDER = "cod-none-0"
NAME = "00000000000000000000"


@pytest.fixture
def folder(kafka_copy: Callable[[str], Path]) -> Path:
    """Return a partition of one small segment and its indexes."""
    folder = kafka_copy("codecs") / FOLDER
    for path in folder.iterdir():
        if path.name.split(".")[0] != NAME:
            path.unlink()
    return folder


def _damages(path: Path, begin: int, end: int) -> Iterator[bytes]:
    """Return the file with one bit of each byte flipped, the highest and others in turn, and cut at each byte."""
    content = path.read_bytes()
    for at in range(begin, min(end, len(content))):
        flipped = bytearray(content)
        flipped[at] ^= 1 << (7 - at % 8)
        yield bytes(flipped)
        yield content[:at]


@pytest.mark.parametrize("by", [1, 2, 1 << 32])
def test_a_base_offset_lowered_under_an_index_entry_is_told(folder: Path, by: int) -> None:
    """No checksum covers it; the entry, which names the batch's last offset, and the batch before it do."""
    path = folder / f"{NAME}.log"
    sound = path.read_bytes()
    with OffsetIndex.open(folder / f"{NAME}.index", check="trust") as index:
        entries = [index.entry(n) for n in range(len(index))]
    assert len(entries) >= 3
    for offset, position in entries:
        base = int.from_bytes(sound[position : position + 8], "big") - by
        path.write_bytes(sound[:position] + (base % (1 << 64)).to_bytes(8, "big") + sound[position + 8 :])
        with LogSegment.open(path) as segment:
            for call in (lambda: segment.translate_offset(offset), lambda: segment.read(offset, 1)):  # noqa: B023 -- called here
                with pytest.raises(CorruptFileError) as told:
                    call()
                assert (told.value.path, told.value.offset) == (str(path), position)
        with OffsetIndex.open(folder / f"{NAME}.index") as checked:
            assert checked.lookup(offset)[1] < position


def _answers(log: Log) -> list[Any]:
    offsets = [log.segments[0].translate_offset(offset) for offset in range(-1, log.log_end_offset + 1)]
    times = [row["timestamp"] for row in golden_kafka.rows("codecs", "records")[:40:5]]
    return [offsets, [log.offset_for_timestamp(time + delta) for time in times for delta in (-1, 0, 1)]]


def _read(log: Log) -> tuple[list[records.Row], tuple[str, int] | None]:
    """Read all records; give the place of the damage instead where there is an error."""
    try:
        return records.rows(log.records()), None
    except CorruptFileError as error:
        return [], (error.path, error.offset)


@pytest.mark.parametrize("suffix", ["index", "timeindex"])
def test_no_damage_to_an_index_changes_an_answer(folder: Path, suffix: str) -> None:
    path = folder / f"{NAME}.{suffix}"
    with Log.open(folder) as log:
        expected = _answers(log)
        rows = records.rows(log.records())
        assert log.verify().ok
    tried = named = 0
    for content in _damages(path, 0, 200):
        path.write_bytes(content)
        with Log.open(folder) as log:
            assert _answers(log) == expected
            named += not log.verify(deep=False).ok
            tried += 1
    assert len(rows) > 10
    assert tried >= 40
    # Not named: an index of the last segment that is shorter by whole entries, which one that is written looks like.
    assert named > tried * 3 // 4


def test_a_reader_that_skips_knows_the_offsets_that_damage_hides(folder: Path) -> None:
    """For each flipped bit, an offset without its record is in `unread` or after an unfinished end."""
    path = folder / f"{NAME}.log"
    content = path.read_bytes()
    with Log.open(folder) as log:
        rows = {row[0]: row for row in _with_offsets(log.records())}
    tried = hidden = 0
    for at in range(600):
        flipped = bytearray(content)
        flipped[at] ^= 1 << (7 - at % 8)
        path.write_bytes(bytes(flipped))
        with Log.open(folder) as log:
            stream = log.records(on_error="skip")
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", DamageWarning)
                found = {row[0]: row for row in _with_offsets(stream)}
        unread = [(begin, end) for *_, begin, end, _ in stream.unread]
        lost = {offset for offset, row in rows.items() if found.get(offset) != row}
        tried += 1
        if not stream.damage:
            # A record that is lost without damage follows a batch that appears unfinished.
            assert not unread
            continue
        hidden += len(lost)
        assert all(any(begin <= offset < end for begin, end in unread) for offset in lost), (at, lost, unread)
        # Records that were read are not reported as hidden, except in a batch of which only some could be read.
        assert not any(begin <= offset < end for begin, end in unread for offset in found if offset in rows), (
            at,
            unread,
        )
    assert tried == 600
    assert hidden > 1_000


def _with_offsets(stream: Any) -> list[tuple[int, Any]]:
    return [
        (offset, (key, value))
        for each in stream
        for offset, key, value in zip(
            *(each.column(name).to_pylist() for name in ("offset", "key", "value")), strict=True
        )
    ]


def test_damage_to_a_log_is_an_error_a_finding_or_harmless(folder: Path) -> None:
    path = folder / f"{NAME}.log"
    with Log.open(folder) as log:
        rows = records.rows(log.records())
    outcomes = {"error": 0, "finding": 0, "harmless": 0}
    for content in _damages(path, 0, 340):
        path.write_bytes(content)
        with Log.open(folder) as log:
            found, place = _read(log)
            if place is not None:
                assert place[0] == str(path)
                assert 0 <= place[1] <= len(content)
                assert log.verify().findings
                outcomes["error"] += 1
            elif found != rows:
                # What is left is a part of it, and the check names the damage.
                assert set(found) <= set(rows), len(content)
                assert not log.verify().ok
                outcomes["finding"] += 1
            else:
                # Leader epochs have no checksum; no record depends on them.
                outcomes["harmless"] += 1
    assert sum(outcomes.values()) == 680
    assert outcomes["error"] > 200
    assert outcomes["finding"] > 200
    assert outcomes["harmless"] <= 16
