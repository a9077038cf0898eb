"""`logdex serve --write --flush sync` is killed again and again while producers send: nothing that it acknowledged is missing.

LOGDEX_INTEROP_KILLS (environment) is the number of kills. It needs no Java.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import subprocess
import sys
from contextlib import suppress
from typing import TYPE_CHECKING

import wire
from logdex.rocketmq import MessageStore, StoreWriter

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

KILLS = int(os.environ.get("LOGDEX_INTEROP_KILLS", "20"))
PRODUCERS = 8
SEED = 20261123
SEND = {"a": "p", "b": "Killed", "c": "TBW102", "d": "4", "f": "0", "g": "1795260000000", "h": "0"}


async def _produce(address: str, name: str, acknowledged: dict[int, tuple[str, bytes]]) -> None:
    """Send, each message after the last one's answer, until the server is gone."""
    host, _, port = address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    with suppress(ConnectionError, asyncio.IncompleteReadError):
        for number in range(1_000_000):
            key = f"{name}-{number}"
            body = key.encode() * (1 + number % 50)
            fields = {**SEND, "e": str(number % 4), "i": f"KEYS\x01{key}"}
            writer.write(wire.request(310, fields, body, opaque=number))
            head = await reader.readexactly(4)
            header, _ = wire.split(head + await reader.readexactly(int.from_bytes(head, "big")))
            assert (header["code"], header["opaque"]) == (0, number), header
            acknowledged[int(header["extFields"]["msgId"][-16:], 16)] = key, body
    writer.close()
    with suppress(ConnectionError):
        await writer.wait_closed()


async def _send_until_killed(
    server: subprocess.Popen[bytes], address: str, turn: int, seconds: float, acknowledged: dict[int, tuple[str, bytes]]
) -> None:
    producers = [asyncio.create_task(_produce(address, f"{turn}-{n}", acknowledged)) for n in range(PRODUCERS)]
    await asyncio.sleep(seconds)
    server.kill()
    await asyncio.gather(*producers)


def test_nothing_acknowledged_is_missing(tmp_path: Path, say: Callable[[str], None]) -> None:
    root = tmp_path / "store"
    with StoreWriter.open(root, file_size=1 << 20, hash_slots=1_000, max_entries=4_000) as writer:
        for number in range(2):
            writer.put_message("Begin", keys=f"begin{number}")
    acknowledged: dict[int, tuple[str, bytes]] = {}
    chance = random.Random(SEED)
    for turn in range(KILLS):
        program = [sys.executable, "-m", "logdex", "serve", str(root), "--port", "0", "--json", "--write"]
        with subprocess.Popen([*program, "--flush", "sync"], stdout=subprocess.PIPE) as server:
            assert server.stdout is not None
            address = json.loads(server.stdout.readline())["address"]
            seconds = chance.uniform(0.0, 0.4)
            asyncio.run(_send_until_killed(server, address, turn, seconds, acknowledged))
    assert len(acknowledged) > KILLS
    with StoreWriter.open(root):
        pass
    with MessageStore.open(root) as store:
        rows = store.messages("Killed", columns=("phy_offset", "body", "queue_id", "queue_offset")).read_all()
        places = rows.column("phy_offset").to_pylist()
        stored = dict(zip(places, rows.column("body").to_pylist(), strict=True))
        assert not [place for place, (_, body) in acknowledged.items() if stored.get(place) != body]
        for queue_id in range(4):
            offsets = [
                offset
                for number, offset in zip(
                    rows.column("queue_id").to_pylist(), rows.column("queue_offset").to_pylist(), strict=True
                )
                if number == queue_id
            ]
            assert sorted(offsets) == [*range(len(offsets))]
        assert store.verify().findings == []
        key, body = acknowledged[max(acknowledged)]
        (found,) = store.find("Killed", key)
        assert found.body == body
    say(
        f"serve --write: {KILLS} kills while {PRODUCERS} producers sent: all {len(acknowledged):,} acknowledged messages are"
        f" there, of {len(stored):,} stored"
    )
