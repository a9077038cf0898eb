"""delayOffset.json in the broker's own text."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from logdex.errors import CorruptFileError
from logdex.rocketmq.write.schedule import DelayOffsets

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

NAME = "delayOffset.json"


@pytest.mark.parametrize(
    ("case", "offsets"),
    [
        ("basic", {1: 1, 2: 1, 3: 1}),
        ("v5-3-3", {1: 4, 2: 1, 3: 1, 5: 0, 6: 0}),
        ("v5-basic", {1: 4, 2: 1, 3: 1, 5: 0, 6: 0}),
    ],
)
def test_a_broker_s_text_is_read_and_written(case: str, offsets: dict[int, int], store: Callable[[str], Path]) -> None:
    config = store(case) / "config"
    before = (config / NAME).read_text(encoding="utf-8")
    table = DelayOffsets(config)
    assert table.offsets == offsets
    assert table.text() == before
    table.offsets[2] = 17
    table.save()
    assert (config / NAME).read_text(encoding="utf-8") == before.replace("2:1", "2:17")
    assert (config / f"{NAME}.bak").read_text(encoding="utf-8") == before
    assert DelayOffsets(config).offsets == {**offsets, 2: 17}


def test_what_is_not_changed_is_not_written(store: Callable[[str], Path], tmp_path: Path) -> None:
    config = store("basic") / "config"
    before = {path: path.stat().st_mtime_ns for path in config.iterdir()}
    DelayOffsets(config).save()
    assert {path: path.stat().st_mtime_ns for path in config.iterdir()} == before
    DelayOffsets(tmp_path / "config").save()
    assert not (tmp_path / "config").exists()


def test_a_new_table_has_the_text_of_4_9_3(tmp_path: Path) -> None:
    table = DelayOffsets(tmp_path / "config")
    assert table.offsets == {}
    table.offsets.update({3: 9, 1: 4})
    table.save()
    assert (tmp_path / "config" / NAME).read_bytes() == b'{\n\t"offsetTable":{1:4,3:9\n\t}\n}'
    assert not (tmp_path / "config" / f"{NAME}.bak").exists()


@pytest.mark.parametrize("damaged", [None, b"", b"{", b"[]", b'{"offsetTable":{"x":1}}', b'{"offsetTable":{1:-4}}'])
def test_the_copy_stands_in_for_a_damaged_file(damaged: bytes | None, tmp_path: Path) -> None:
    (tmp_path / f"{NAME}.bak").write_bytes(b'{"offsetTable":{"1":2,-0:3}}')
    if damaged is not None:
        (tmp_path / NAME).write_bytes(damaged)
    table = DelayOffsets(tmp_path)
    assert table.offsets == {1: 2, 0: 3}
    table.save()
    assert (tmp_path / NAME).read_bytes() == b'{\n\t"offsetTable":{0:3,1:2\n\t}\n}'


def test_two_damaged_files_are_an_error(tmp_path: Path) -> None:
    (tmp_path / NAME).write_bytes(b"")
    (tmp_path / f"{NAME}.bak").write_bytes(b"\0")
    with pytest.raises(CorruptFileError, match="delay levels") as caught:
        DelayOffsets(tmp_path)
    assert caught.value.path == str(tmp_path / NAME)


def test_numbers_in_texts_are_no_names(tmp_path: Path) -> None:
    (tmp_path / NAME).write_text('{"a":"{1:2}","offsetTable":{5 : 6}}', encoding="utf-8")
    table = DelayOffsets(tmp_path)
    assert table.offsets == {5: 6}
    table.offsets[6] = 1
    table.save()
    assert (tmp_path / NAME).read_text(encoding="utf-8") == '{\n\t"a":"{1:2}",\n\t"offsetTable":{5:6,6:1\n\t}\n}'


def test_a_hostile_file_takes_no_time(tmp_path: Path) -> None:
    for text in (
        f'{{"offsetTable":{{1:{"9" * 1_000_000}}}}}',
        f'{{"a":{"9" * 1_000_000}',
        '{"offsetTable":{' + "\n" * 1_000_000,
    ):
        (tmp_path / NAME).write_text(text, encoding="utf-8")
        with pytest.raises(CorruptFileError, match="delay levels"):
            DelayOffsets(tmp_path)
    (tmp_path / NAME).write_text('{"offsetTable":{' + "\n" * 1_000_000 + "}}", encoding="utf-8")
    assert DelayOffsets(tmp_path).offsets == {}
