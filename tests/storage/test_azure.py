"""Golden stores answer in Azure Blob Storage as they do on the disk."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import golden
import golden_answers
import golden_kafka
from logdex.rocketmq import MessageStore

if TYPE_CHECKING:
    from pathlib import Path

    from azure_server import Azure


@pytest.mark.parametrize("case", ["basic", "rolled", "v5-killed"])
def test_a_golden_store_answers_alike(azure: Azure, tmp_path: Path, case: str) -> None:
    root = golden.unpack(case, tmp_path)
    golden_answers.compare_store(case, root, azure.put(case, root), azure.options)


@pytest.mark.parametrize("case", ["codecs", "compacted", "transactions"])
def test_a_golden_log_directory_answers_alike(azure: Azure, tmp_path: Path, case: str) -> None:
    root = golden_kafka.unpack(case, tmp_path)
    golden_answers.compare_log_dir(case, root, azure.put(f"kafka-{case}", root), azure.options)


def test_a_container_that_is_not_there_is_an_error(azure: Azure) -> None:
    with pytest.raises(FileNotFoundError):
        MessageStore.open("az://nothing/store", storage_options=azure.options)
