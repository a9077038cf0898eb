"""Golden stores answer in Azure Blob Storage as they do on the disk."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import golden
import golden_kafka
import store_answers
from logdex.kafka import LogDir
from logdex.rocketmq import MessageStore

if TYPE_CHECKING:
    from pathlib import Path

    from azure_server import Azure


@pytest.mark.parametrize(("case", "messages"), [("basic", 553), ("rolled", 2931), ("v5-killed", 652)])
def test_a_golden_store_answers_alike(azure: Azure, tmp_path: Path, case: str, messages: int) -> None:
    root = golden.unpack(case, tmp_path / case)
    url = azure.put(case, root)
    with MessageStore.open(root) as local, MessageStore.open(url, storage_options=azure.options) as remote:
        here, there = store_answers.of_store(local), store_answers.of_store(remote)
    assert there == here
    assert len(there["messages"]) == messages


@pytest.mark.parametrize(("case", "records"), [("codecs", 794), ("compacted", 805), ("transactions", 1086)])
def test_a_golden_log_directory_answers_alike(azure: Azure, tmp_path: Path, case: str, records: int) -> None:
    root = golden_kafka.unpack(case, tmp_path / case)
    url = azure.put(f"kafka-{case}", root)
    with LogDir.open(root) as local, LogDir.open(url, storage_options=azure.options) as remote:
        here, there = store_answers.of_log_dir(local), store_answers.of_log_dir(remote)
    assert there == here
    assert len(there["records"]) == records


def test_a_container_that_is_not_there_is_an_error(azure: Azure) -> None:
    with pytest.raises(FileNotFoundError):
        MessageStore.open("az://nothing/store", storage_options=azure.options)
