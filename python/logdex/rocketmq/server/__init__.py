"""Serve a store directory to RocketMQ's own clients and tools: a broker and its name server on one port."""

from logdex._listener import Limits
from logdex.rocketmq.server.server import ServeOptions, Server, serve

__all__ = ["Limits", "ServeOptions", "Server", "serve"]
