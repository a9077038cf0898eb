"""The Spark lines of the quick start run as they stand."""

from __future__ import annotations

import re
import tarfile
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pytest
    from pyspark.sql import SparkSession

HOME = Path(__file__).resolve().parents[3]


def test_the_quick_start_reads_a_topic(spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with tarfile.open(HOME / "examples" / "store" / "store.tar.xz") as store:
        store.extractall(tmp_path / "build" / "guide", filter="data")
    blocks = re.findall(r"```py\n(.*?)```", (HOME / "docs" / "quickstart.md").read_text(encoding="utf-8"), re.DOTALL)
    assert len(blocks) == 1
    # A relative path is relative to where Spark was started.
    code = blocks[0].replace('"build/guide/', f'"{tmp_path}/build/guide/')
    exec(compile(code, "quickstart.md", "exec"), {"spark": spark})  # noqa: S102 -- our own document
    assert capsys.readouterr().out == "73\n"
