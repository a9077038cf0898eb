"""Signatures of requests."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import wire
from logdex._core import RemotingCommand
from logdex.broker.rocketmq.service import read_access_keys, refusal, signature
from logdex.errors import CorruptFileError

if TYPE_CHECKING:
    from pathlib import Path

SIGNED = wire.vectors("acl")


@pytest.mark.parametrize("vector", SIGNED, ids=lambda vector: vector["name"])
def test_the_signature_is_that_of_a_real_client(vector: dict[str, Any]) -> None:
    command = RemotingCommand.decode(bytes.fromhex(vector["requestHex"]))
    assert signature(command, vector["secretKey"]) == vector["signature"]
    keys = {vector["accessKey"]: vector["secretKey"]}
    assert refusal(command, keys) is None
    assert "Check signature failed" in str(refusal(command, {vector["accessKey"]: "other"}))
    assert "No acl config" in str(refusal(command, {"other": vector["secretKey"]}))
    command.ext["topic"] = "T2"
    assert "Check signature failed" in str(refusal(command, keys))


def test_a_request_without_a_key_is_refused() -> None:
    assert "No accessKey" in str(refusal(RemotingCommand.decode(wire.request(105, {"topic": "T"})), {"a": "s"}))


@pytest.mark.parametrize(
    "text",
    [
        "accessKey: rocketmq2\nsecretKey: 12345678\n",
        "accounts:\n  - accessKey: rocketmq2\n    secretKey: '12345678' # x\n    admin: false\n",
        'globalWhiteRemoteAddresses:\n\naccessKey: "rocketmq2"\nsecretKey:  12345678',
    ],
)
def test_keys_are_read_from_files_of_tools_and_brokers(text: str, tmp_path: Path) -> None:
    file = tmp_path / "keys.yml"
    file.write_text(text)
    assert read_access_keys(file) == {"rocketmq2": "12345678"}


@pytest.mark.parametrize("text", ["", "accessKey: a\n", "secretKey: s\naccessKey: a\n", "a:s\n"])
def test_a_file_without_keys_is_refused(text: str, tmp_path: Path) -> None:
    file = tmp_path / "keys.yml"
    file.write_text(text)
    with pytest.raises(CorruptFileError, match=r"keys\.yml"):
        read_access_keys(file)
