"""`ls.seal` writes the rows that `MessageStore.seal` writes, with Spark's own writer."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

import store_answers
from logdex import spark as ls
from logdex.rocketmq import MessageStore

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import SparkSession


@pytest.mark.parametrize("case", ["rolled", "killed"])
def test_the_rows_are_those_of_a_local_seal(
    spark: SparkSession, store: Callable[[str], Path], tmp_path: Path, case: str
) -> None:
    root = store(case)
    report = ls.seal(spark, str(root), str(tmp_path / "spark"))
    with MessageStore.open(root) as plain:
        local = plain.seal(tmp_path / "local")
        keys = store_answers.keys_of(pa.table(plain.messages()))[::5]
    assert report.findings == local.findings
    assert report.checked["entries"] == local.checked["entries"] > 1000
    made, expected = (store_answers.sealed_rows(tmp_path / place / "_logdex") for place in ("spark", "local"))
    assert made.schema.equals(expected.schema)
    assert made.to_pylist() == expected.to_pylist()
    assert not [path for path in (tmp_path / "spark/_logdex/keys").iterdir() if path.is_dir()]
    with (
        MessageStore.open(root, sealed="never") as plain,
        MessageStore.open(root, sealed=tmp_path / "spark") as sealed,
    ):
        assert f"{report.checked['entries']:,} entries" in str(sealed.sealed)
        columns = [list(column) for column in zip(*keys, strict=True)]
        assert pa.table(sealed.find_batch(*columns)).to_pylist() == pa.table(plain.find_batch(*columns)).to_pylist()
        assert sealed.verify().ok == plain.verify().ok
