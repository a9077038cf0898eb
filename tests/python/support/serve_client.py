"""A client of a served store that speaks the protocol by hand."""

from __future__ import annotations

import asyncio
import ssl
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any

import wire

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from logdex import rocketmq


class Client:
    """A connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def read(self) -> tuple[dict[str, Any], bytes]:
        head = await asyncio.wait_for(self.reader.readexactly(4), 10)
        return wire.split(head + await self.reader.readexactly(int.from_bytes(head, "big")))

    async def ask(self, frame: bytes) -> tuple[dict[str, Any], bytes]:
        self.writer.write(frame)
        return await self.read()

    async def is_closed(self) -> bool:
        try:
            return await asyncio.wait_for(self.reader.read(), 10) == b""
        except ConnectionError:
            return True


@asynccontextmanager
async def client(server: rocketmq.Server, tls: ssl.SSLContext | None = None) -> AsyncIterator[Client]:
    host, _, port = server.address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port), ssl=tls)
    try:
        yield Client(reader, writer)
    finally:
        writer.close()
        with suppress(ConnectionError, ssl.SSLError):
            await writer.wait_closed()
