"""The commands, in modules of commands that belong together.

Each module has `add_parsers(subparsers)`. A parser sets `run`, a function from the parsed arguments to the exit code:
0 found or valid, 1 nothing found or faults found, 2 wrong use or unreadable.
"""

from __future__ import annotations

SUMMARIES: dict[str, dict[str, str]] = {
    "paths": {
        "info": "describe the store, log or index at a path",
        "verify": "check every byte that has a meaning",
        "du": "count messages and bytes by topic, queue or day",
        "groups": "how far consumer groups have read",
        "cat": "print messages",
        "export": "write messages into a Parquet, JSON or CSV file",
    },
    "search": {
        "find": "find messages by key, the newest first",
        "explain": "explain why a key is found or not",
    },
    "browse": {
        "browse": "look at a store in a browser",
    },
    "build": {
        "build-index": "build index files from the commit log",
        "build-queues": "build consume queues from the commit log",
        "copy": "copy messages into a new store, which a broker loads",
        "recover": "repair a store after a crash, in place",
    },
    "seal": {
        "seal": "make searches cost one read",
    },
    "stats": {
        "stats": "slot use, chain lengths and times of an index",
    },
    "serve": {
        "serve": "serve a store to RocketMQ's clients and tools",
    },
    "replicate": {
        "replicate": "copy the store of a running broker, and follow it",
    },
    "kafka": {
        "kafka": "segments and indexes of Kafka: dump, find, verify, rebuild-index, build-index",
    },
}
"""The commands of each module, with a line that says what they do: a list of them imports no module."""
