"""`logdex serve`: a store served to RocketMQ's own clients and tools."""

from __future__ import annotations

import asyncio
import logging
import resource
import signal
import sys
from typing import TYPE_CHECKING, get_args

from logdex._types import Append, Compat
from logdex.cli.arguments import OPEN_STORE, Command, add_options, add_source, open_options, port
from logdex.cli.output import say, say_json
from logdex.rocketmq import MessageStore, Retention, ServeOptions, Server, StoreWriter

if TYPE_CHECKING:
    import argparse


_DETAILS = """\
A broker and its name server on one port, over the store of a dead broker or a backup: consumers,
queries and `mqadmin` work as with the broker itself, and sends are refused. Nothing in STORE is
created, locked or changed; offsets that consumers commit are kept in memory, or in a file. It runs
until it gets SIGINT or SIGTERM. http://HOST:PORT/metrics has its counters.

With --write it takes messages, too: a broker for tests, restores and small jobs. STORE may be a new
directory, and no broker can open it meanwhile. With --flush sync a message is on the disk before its
producer is answered.

  logdex serve /backup/store
  logdex serve /tmp/store --write
  mqadmin topicList -n 127.0.0.1:10911
  logdex serve /backup/store --bind 0.0.0.0 --advertise archive.example:10911 --offsets offsets.json"""

_OPEN_FILES = 4096


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    add_source(parser, "the store", metavar="STORE")
    add_options(parser, *OPEN_STORE)
    parser.add_argument(
        "--bind", dest="host", metavar="HOST", default="127.0.0.1", help="address to listen on (default: 127.0.0.1)"
    )
    parser.add_argument("--port", type=port, metavar="N", default=10911, help="port; 0: any free one (default: 10911)")
    parser.add_argument("--advertise", metavar="HOST:PORT", help="the address that clients get to connect to")
    parser.add_argument("--write", action="store_true", help="take messages, as a broker does")
    parser.add_argument(
        "--flush", choices=("async", "sync"), default="async", help="with --write: when messages are on the disk"
    )
    parser.add_argument(
        "--append",
        choices=get_args(Append),
        default="write",
        help="with --write: where messages are appended: to the file, a map of it, or a pool of buffers",
    )
    parser.add_argument(
        "--sync-flush-timeout",
        dest="sync_flush_timeout_s",
        type=float,
        metavar="SECONDS",
        default=5.0,
        help="with --write --flush sync: after it, producers get the answer that the disk is late (default: 5)",
    )
    parser.add_argument(
        "--file-reserved-hours",
        type=float,
        metavar="HOURS",
        help="with --write: delete log files this long after their last message, and the oldest ones if the disk is full",
    )
    parser.add_argument(
        "--delete-when", metavar="HH;HH", default="04", help="with --file-reserved-hours: at these hours (default: 04)"
    )
    parser.add_argument(
        "--no-create-topics",
        dest="create_topics",
        action="store_false",
        help="with --write: create no topics for producers",
    )
    parser.add_argument(
        "--check-every",
        dest="check_every_s",
        type=float,
        metavar="SECONDS",
        default=60.0,
        help="with --write: check open transactions",
    )
    parser.add_argument("--ha-port", type=port, metavar="N", help="serve slaves: the port of the log stream")
    parser.add_argument(
        "--sync-slaves",
        action="store_true",
        help="with --write, --ha-port: sends wait for a slave, as at a SYNC_MASTER",
    )
    parser.add_argument("--offsets", metavar="FILE", help="keep the offsets that consumers commit in this file")
    parser.add_argument("--tls-cert", metavar="FILE", help="certificate; only TLS is spoken then")
    parser.add_argument("--tls-key", metavar="FILE", help="its key (default: in the file of the certificate)")
    parser.add_argument(
        "--access-key",
        dest="acl",
        metavar="FILE",
        help="requests must be signed; lines `accessKey: A` and `secretKey: S`",
    )
    parser.add_argument("--broker-name", metavar="NAME", help="name of the broker (default: as the store shows it)")
    parser.add_argument("--cluster", metavar="NAME", help="name of the cluster (default: likewise)")
    parser.add_argument("--compat", choices=get_args(Compat), help="answer as this release, faults included")
    parser.add_argument("--request-log", metavar="FILE", help="write a line for each request; -: standard error")


def _run(arguments: argparse.Namespace) -> int:
    """Serve until a signal comes."""
    if arguments.tls_key and not arguments.tls_cert:
        raise ValueError("--tls-key: expected with --tls-cert")
    if arguments.request_log:
        _log_requests(arguments.request_log)
    _raise_open_files()
    hours = arguments.file_reserved_hours
    keeps = None if hours is None else Retention(file_reserved_hours=hours, delete_when=arguments.delete_when)
    tls = (arguments.tls_cert, arguments.tls_key or arguments.tls_cert) if arguments.tls_cert else None
    options = ServeOptions.of({**vars(arguments), "retention": keeps, "tls": tls})
    if not options.write:
        with MessageStore.open(arguments.path, **open_options(arguments), compat=arguments.compat) as store:
            asyncio.run(_serve(Server(store, options), arguments))
        return 0
    if arguments.compat or arguments.commit_log:
        raise ValueError("--compat, --commit-log: expected without --write")
    sizes = {name: getattr(arguments, name) for name in ("hash_slots", "max_entries")}
    with StoreWriter.open(
        arguments.path, flush=options.flush, retention=keeps, append=options.append, **sizes
    ) as writer:
        asyncio.run(_serve(Server(writer, options), arguments))
    return 0


async def _serve(server: Server, arguments: argparse.Namespace) -> None:
    stopped = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    async with server:
        if arguments.json:
            say_json({"store": arguments.path, "address": server.address})
        else:
            how = f"takes messages, flush {arguments.flush}" if arguments.write else "read-only"
            say(f"{arguments.path}: name server and broker at {server.address}, {how}; stop with Ctrl-C")
        sys.stdout.flush()
        await stopped.wait()


def _raise_open_files() -> None:
    """Raise the limit of open files within reason: each connection needs one. A JVM does the same."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = _OPEN_FILES if hard == resource.RLIM_INFINITY else min(hard, _OPEN_FILES)
    if soft != resource.RLIM_INFINITY and soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


def _log_requests(file: str) -> None:
    handler = logging.StreamHandler() if file == "-" else logging.FileHandler(file, encoding="utf-8")
    handler.setFormatter(logging.Formatter("%(asctime)s %(message)s"))
    log = logging.getLogger("logdex.rocketmq.server.requests")
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    log.propagate = False


COMMAND = Command("serve", "serve a store to RocketMQ's clients and tools", _DETAILS, _add_arguments, _run)
