"""Names of index files: creation times in the broker's zone that sort as a broker loads them."""

from __future__ import annotations

from datetime import timedelta, timezone
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logdex._core import is_index_file_name
from logdex.hash_index import files

if TYPE_CHECKING:
    from pathlib import Path

NOON = 1738983140772


@pytest.mark.parametrize(
    ("zone", "name"),
    [
        ("UTC", "20250208025220772"),
        ("Asia/Shanghai", "20250208105220772"),
        (timezone(timedelta(hours=8)), "20250208105220772"),
    ],
)
def test_name_is_local_time(zone: str | timezone, name: str) -> None:
    assert files.format_name(NOON, zone) == name


def test_name_in_the_machines_zone(monkeypatch: pytest.MonkeyPatch) -> None:
    time = pytest.importorskip("time")
    monkeypatch.setenv("TZ", "Asia/Shanghai")
    time.tzset()
    try:
        assert files.format_name(NOON) == "20250208105220772"
    finally:
        monkeypatch.undo()
        time.tzset()


def test_names_step_back_at_the_end_of_summer_time() -> None:
    before = files.format_name(1730611799000, "America/New_York")
    after = files.format_name(1730613600500, "America/New_York")
    assert (before, after) == ("20241103012959000", "20241103010000500")
    assert files.next_name([before], 1730613600500, "America/New_York") == "20241103012959001"


def test_unknown_zone_is_an_error() -> None:
    for zone in ("Europe/Atlantis", "Europe", "", "../zone", "UTC\0", "/etc/passwd"):
        with pytest.raises(ValueError, match="no time zone"):
            files.format_name(NOON, zone)
    with pytest.raises(TypeError, match="time zone"):
        files.resolve_zone(8)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "name", ["100", "+5", "-5", "0", "20250208105220772", "9223372036854775807", "-9223372036854775808", "\u0662\u0660"]
)
def test_any_signed_decimal_of_64_bits_is_an_index_file_name(name: str) -> None:
    assert is_index_file_name(name)


@pytest.mark.parametrize(
    "name",
    [
        "",
        "+",
        "-",
        "notes.txt",
        "1.bak",
        " 1",
        "1 ",
        "1_0",
        "0x1",
        "9223372036854775808",
        "\U0001d7ce",
        "\u00b2",
        "--1",
    ],
)
def test_other_names_are_not(name: str) -> None:
    assert not is_index_file_name(name)


def test_next_name_is_now_where_that_is_the_latest() -> None:
    names = ["20250101000000000", "notes.txt", "zzz", "99999.bak"]
    assert files.next_name(names, NOON, "UTC") == "20250208025220772"
    assert files.next_name([], NOON, "UTC") == "20250208025220772"


@pytest.mark.parametrize(
    ("newest", "following"),
    [
        ("20250208025220772", "20250208025220773"),
        ("20251231235959999", "20260101000000000"),
        ("99990101000000000", "99990101000000001"),
        ("99991231235959999", "99991231235960000"),
        ("99999999999999999", "999999999999999990"),
        ("5555555", "55555550000000000"),
        ("25680208025220772", "25680208025220773"),
        ("9223372036854775807", "92233720368547759"),
    ],
)
def test_next_name_follows_the_newest(newest: str, following: str) -> None:
    assert files.next_name(["20250101000000000", newest], NOON, "UTC") == following


def test_next_name_keeps_the_script_of_the_newest() -> None:
    newest = "".join(chr(0x660 + int(digit)) for digit in "20250208025220772")
    following = "".join(chr(0x660 + int(digit)) for digit in "20250208025220773")
    assert files.next_name([newest], NOON, "UTC") == following


def test_no_name_can_follow_the_largest() -> None:
    with pytest.raises(ValueError, match="no index file name sorts after"):
        files.successor("999999999999999999")
    with pytest.raises(ValueError, match="not the name of an index file"):
        files.successor("notes.txt")


@given(
    st.lists(st.text("0123456789", min_size=1, max_size=18).filter(lambda name: name[:1] != "9"), max_size=5),
    st.integers(0, 4 * 10**12),
)
def test_next_name_sorts_after_all(names: list[str], now_ms: int) -> None:
    following = files.next_name(names, now_ms, "UTC")
    assert is_index_file_name(following)
    assert all(files.sort_key(following) > files.sort_key(name) for name in names)


def test_names_sort_by_utf16_units() -> None:
    # U+FF10 sorts before U+1D7CE by code point, after its high surrogate by unit.
    assert files.sort_key("\uff10") > files.sort_key("\U0001d7ce")


def test_create_next_takes_the_first_free_name(tmp_path: Path) -> None:
    (tmp_path / "20250208025220772").touch()
    (tmp_path / "20250208025220773").mkdir()

    def create(path: Path) -> Path:
        path.touch(exist_ok=False)
        return path

    # The listing is older than the directory: exclusive creation decides.
    created = files.create_next([], tmp_path, NOON, "UTC", create)
    assert created.name == "20250208025220774"
