"""A store in a bucket is served as that on the disk is, and begins with few requests."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

import golden
import object_store
import wire
from logdex import rocketmq
from logdex.rocketmq import MessageStore
from serve_client import Client, client
from slow_proxy import SlowProxy

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

VECTORS = wire.vectors("remoting-read")
BY_NAME = {vector["name"]: vector for vector in VECTORS}
Said = tuple[dict[str, Any], bytes]


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return object_store.whole_seconds(golden.unpack("basic", tmp_path_factory.mktemp("served")))


@pytest.fixture(scope="module")
def bucket() -> Iterator[object_store.ObjectStore]:
    with object_store.serve() as server:
        yield server


async def _answer(asker: Client, frame: bytes) -> Said:
    """Return the answer to a request, without what the server tells in between."""
    asker.writer.write(frame)
    wanted = wire.split(frame)[0]["opaque"] if frame[4] == 0 else int.from_bytes(frame[13:17], "big")
    while True:
        header, body = await asker.read()
        if header["flag"] & 1:
            assert header["opaque"] == wanted
            return header, body


def _without_ports(server: rocketmq.Server, said: Said) -> Said:
    header, body = said
    remark = re.sub(r"consumer:\[/[0-9.:]+\]", "consumer:[...]", header.get("remark") or "")
    return {**header, "remark": remark}, body.replace(server.address.encode(), b"ADDRESS")


def _answers(store: MessageStore) -> dict[str, Said]:
    """Ask a server all vectors, in their order."""

    async def ask() -> dict[str, Said]:
        async with rocketmq.serve(store, port=0) as server, client(server) as asker:
            return {
                vector["name"]: _without_ports(server, await _answer(asker, bytes.fromhex(vector["requestHex"])))
                for vector in VECTORS
            }

    return asyncio.run(ask())


def test_all_answers_are_those_of_the_disk(root: Path, bucket: object_store.ObjectStore) -> None:
    url = bucket.put("basic", root)
    with MessageStore.open(root) as local, MessageStore.open(url, storage_options=bucket.options) as remote:
        found, wanted = _answers(remote), _answers(local)
    assert [name for name in wanted if found[name] != wanted[name]] == []
    assert len(wanted) == len(VECTORS) == 62


@pytest.mark.parametrize("name", ["max", "pull", "key-unique", "view"])
def test_the_command_answers_after_few_requests(name: str, root: Path, bucket: object_store.ObjectStore) -> None:
    frame, real = (bytes.fromhex(BY_NAME[name][member]) for member in ("requestHex", "responseHex"))
    with SlowProxy(bucket.port) as proxy:
        options = {**bucket.options, "aws_endpoint": proxy.endpoint}
        storage = [word for option in options.items() for word in ("--storage", "=".join(option))]
        words = [sys.executable, "-m", "logdex", "serve", bucket.put("basic", root), "--port", "0", "--json", *storage]
        with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as server:
            assert server.stdout is not None
            address = json.loads(server.stdout.readline())["address"]
            host, _, port = address.rpartition(":")

            async def ask() -> Said:
                reader, writer = await asyncio.open_connection(host, int(port))
                said = await _answer(Client(reader, writer), frame)
                writer.close()
                return said

            _, body = asyncio.run(ask())
            server.terminate()
            server.communicate(timeout=30)
    assert body == wire.split(real)[1]
    # One of them for each of the six index files and three for the log; 23 to 27 in 11 to 15 rounds.
    assert len(proxy.requests) <= 30, [(request.method, request.target) for request in proxy.requests]
    assert proxy.rounds <= 18
