"""A put that was cut between its slot and its count (vectors made by the real 4.9.3 classes), in compat and by default."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from index_inputs import T0
from logdex.hash_index import IndexFile

if TYPE_CHECKING:
    from pathlib import Path

GEOMETRY: dict[str, Any] = {"hash_slots": 10, "max_entries": 8}
UNUSED = "00" * 80


def cut(path: Path, count: int) -> Path:
    """Put three entries of one key, then set the count back, as if the last stores of a put were lost."""
    with IndexFile.create(path, **GEOMETRY) as file:
        for phy_offset in (1, 2, 3):
            file.put_key("T#a", phy_offset, T0)
    content = bytearray(path.read_bytes())
    content[36:40] = count.to_bytes(4, "big")
    path.write_bytes(content)
    return path


@pytest.mark.parametrize(
    ("count", "phy_offset", "before", "content"),
    [
        (
            3,
            33,
            [3, 2, 1],
            "0000018bcfe568000000018bcfe56800000000000000000100000000000000210000000100000004"
            "00000000000000000000000000000000000000000000000000000003000000000000000000000000"
            "000000000000000000000000000000000000000000013ff200000000000000010000000000000000"
            "00013ff20000000000000002000000000000000100013ff200000000000000210000000000000003" + UNUSED,
        ),
        (
            2,
            44,
            [],
            "0000018bcfe568000000018bcfe568000000000000000001000000000000002c0000000200000003"
            "00000000000000000000000000000000000000000000000000000002000000000000000000000000"
            "000000000000000000000000000000000000000000013ff200000000000000010000000000000000"
            "00013ff2000000000000002c000000000000000000013ff200000000000000030000000000000002" + UNUSED,
        ),
    ],
)
def test_compat_goes_on_as_the_broker(
    tmp_path: Path, count: int, phy_offset: int, before: list[int], content: str
) -> None:
    path = cut(tmp_path / "100", count)
    with IndexFile.open(path, compat="4.9.3", **GEOMETRY) as file:
        assert file.select_phy_offset("T#a") == before
    with IndexFile.open(path, mode="r+", compat="4.9.3", **GEOMETRY) as file:
        assert file.put_key("T#a", phy_offset, T0)
        assert file.select_phy_offset("T#a") == [phy_offset]
    assert path.read_bytes().hex() == content


@pytest.mark.parametrize("count", [2, 3, 4])
def test_the_default_keeps_the_older_entries(tmp_path: Path, count: int) -> None:
    path = cut(tmp_path / "100", count)
    with IndexFile.open(path, **GEOMETRY) as file:
        assert file.select_phy_offset("T#a") == [3, 2, 1]
    with IndexFile.open(path, mode="r+", **GEOMETRY) as file:
        assert file.put_key("T#a", 33, T0)
        assert file.select_phy_offset("T#a") == [33, 3, 2, 1]
        assert file.verify().ok
