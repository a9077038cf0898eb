"""The service of a broker: answer each request in the event loop, in a thread, later, or by another client.

The handlers compute the replies. This module has what needs time: threads, held pulls, puts, slaves, tables. It also checks the
signatures that clients make with their access keys. Source: AclUtils, AclClientRPCHook, PlainAccessValidator.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import logging
import re
import threading
from base64 import b64encode
from collections import Counter, defaultdict
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeVar

from logdex._core import RemotingCommand, Sends, read_file, remoting_frames
from logdex._types import MAX_INT64
from logdex.broker.listener import Goodbye
from logdex.broker.rocketmq.broker import STORED
from logdex.broker.rocketmq.handlers import answer
from logdex.broker.rocketmq.handlers.pulls import HeldPull, HeldPulls
from logdex.broker.rocketmq.handlers.sends import REGION, PutService, now_ms
from logdex.broker.rocketmq.handlers.transactions import CHECK_GROUP, look_at_halves, question
from logdex.broker.rocketmq.requests import (
    HANDLERS,
    REAL_TOPIC,
    UNKNOWN,
    Answer,
    Cost,
    Forward,
    Hold,
    Peer,
    Put,
    Refusal,
    Request,
)
from logdex.broker.wire import RequestCode, ResponseCode
from logdex.errors import CorruptFileError
from logdex.rocketmq.broker_config import GIVEN_UP_TOPIC, HALF_TOPIC, OP_TOPIC

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from logdex.broker.listener import Connection
    from logdex.broker.replica.log_server import LogServer
    from logdex.broker.rocketmq.broker import Broker
    from logdex.broker.rocketmq.handlers.sends import Answered, Placed, PutEach
    from logdex.broker.rocketmq.requests import NewMessage, Notice, Reply
    from logdex.broker.rocketmq.tables import NotSaved, TableWriter
    from logdex.rocketmq.message import Message


ACCESS_KEY = "AccessKey"
_SIGNATURE = "Signature"
SECRETS = frozenset({ACCESS_KEY, _SIGNATURE, "SecurityToken"})
"""Fields that are never logged."""
_NOT_SIGNED = {_SIGNATURE, "_UNIQUE_KEY_QUERY"}
_MEMBER = re.compile(r"^\s*(?:-\s+)?(accessKey|secretKey)\s*:\s*(['\"]?)(.+?)\2\s*(?:#.*)?$", re.MULTILINE)
_ERROR = "org.apache.rocketmq.acl.common.AclException"


def read_access_keys(path: Path) -> dict[str, str]:
    """Read access keys and their secrets from lines `accessKey: A` and `secretKey: S`, as in tools.yml and plain_acl.yml.

    Raises:
        CorruptFileError: The file has no key, or a key without a secret.
        OSError: An I/O error.
    """
    text = read_file(path).decode(errors="replace")
    members = [(match[1], match[3]) for match in _MEMBER.finditer(text)]
    names = [name for name, _ in members]
    if not members or names != ["accessKey", "secretKey"] * (len(members) // 2):
        raise CorruptFileError(str(path), 0, "lines `accessKey: A`, each followed by `secretKey: S`", f"{names}")
    values = [value for _, value in members]
    return dict(zip(values[::2], values[1::2], strict=True))


def signature(command: RemotingCommand, secret: str) -> str:
    """Return the signature of a request: of the values of its fields, in the order of their names, and of its body."""
    # Java compares texts by UTF-16 units.
    names = sorted(command.ext.keys() - _NOT_SIGNED, key=lambda name: name.encode("utf-16-be", errors="surrogatepass"))
    content = "".join(command.ext[name] for name in names).encode(errors="replace") + command.body
    return b64encode(hmac.digest(secret.encode(), content, hashlib.sha1)).decode()


def refusal(command: RemotingCommand, keys: dict[str, str]) -> str | None:
    """Return the reason to refuse a request; None if it is signed by a known key."""
    key = command.ext.get(ACCESS_KEY)
    if not key:
        return f"{_ERROR}: No accessKey is configured"
    secret = keys.get(key)
    if secret is None:
        return f"{_ERROR}: No acl config for {key}"
    given = command.ext.get(_SIGNATURE, "").encode(errors="replace")
    if not hmac.compare_digest(signature(command, secret).encode(), given):
        return f"{_ERROR}: Check signature failed for accessKey={key}"
    return None


_T = TypeVar("_T")

_log = logging.getLogger(__name__)
requests_log = logging.getLogger("logdex.rocketmq.server.requests")
"""A line for each request, at level INFO."""

_THREADS = 4
"""Number of threads for requests. Requests about many queues or groups have a separate one, so that they do not block others."""
_MOST_IN_THREADS = 256
_MOST_OF_CLIENT = 2
"""Requests of one client that threads answer at a time. Its next requests are read later."""
_QUICK_S = 0.005
"""A kind of request whose last answer took less than this needs no thread: a change of threads costs more than a short search."""
_QUICK_AGAIN_S = 10.0
"""Time for which threads answer a kind of request after a slow one, because clients may choose its cost."""
_LONG_BODY = 65_536
"""Size in bytes above which a thread parses the body."""
_NOTICES_TOGETHER = 256
"""Notices that are sent at once. Other clients are served before the rest."""
_MOST_HELD = 20_000
_MOST_FORWARDED = 256
_MOST_KEPT_BYTES = 64 << 20
"""Bytes of all requests that wait for their queue, a thread, a table, a slave, or another client."""
_FORWARD_S = 10.0
_LOOK_S = 1.0
"""Seconds between two polls of the queues with held pulls, in a store that a broker may write."""
_POLLED_AT_ONCE = 64
_REST_OF_LOOKS = 4
"""Ratio of the pause to the duration of a poll, so that polls take at most a fifth of the time."""
_BESIDE_FIELDS = 1024
_DRAIN_S = 0.01
_BUSY = "[OVERLOAD]system busy, start flow control for a while"
_REJECTED = "[REJECTREQUEST]system busy, start flow control for a while"
_HTTP = b"GET "


@dataclass(frozen=True, slots=True)
class _Forwarded:
    asker: Connection
    request: Request
    forward: Forward
    timeout: asyncio.TimerHandle
    size: int


class BrokerService:
    """The protocol of a broker and its name server over one store."""

    def __init__(
        self,
        broker: Broker,
        access_keys: dict[str, str] | None,
        put_each: PutEach | None = None,
        flushed: Callable[[], int] | None = None,
        *,
        tables: TableWriter | None = None,
    ) -> None:
        """Answer requests about a store.

        `put_each` stores messages, if the server takes any. `flushed`: the offset up to which they are on the disk, if producers
        wait for that. `tables` writes the configuration that requests change. Their answers wait for it.
        """
        self.broker = broker
        self._access_keys = access_keys
        self._slow_from = int(Cost.FILE if broker.view.is_remote else Cost.SEARCH)
        """The least cost with which a thread answers requests."""
        self.quick: set[int] = set()
        self._slow_until: dict[int, float] = defaultdict(float)
        self._loop = asyncio.get_running_loop()
        self._threads = ThreadPoolExecutor(_THREADS, "logdex-serve")
        self._lister = ThreadPoolExecutor(1, "logdex-list")
        self.peers: dict[Connection, Peer] = {}
        self.connections: dict[Peer, Connection] = {}
        self.in_threads = 0
        self.searches: Counter[Connection] = Counter()
        """Requests in threads, by client."""
        self._results = threading.Semaphore(1)
        """Limits the results that wait for the event loop to one, because each may be a frame of the largest size."""
        self._puts = None if put_each is None else PutService(self._loop, put_each)
        self._flushed = flushed
        self._tables = tables
        self._has_changed = False
        self._unsaved = 0
        for table in broker.master.tables if broker.master is not None else ():
            table.changed = self._note_change
        self.held = HeldPulls(self._loop, self._answer_held)
        self.kept_bytes = 0
        """Bytes of the requests that wait for a thread, a table, a slave or another client."""
        self._forwarded: dict[int, _Forwarded] = {}
        self.slaves: LogServer | None = None
        self._slave_timeout_s: float | None = None
        self._waiting: set[asyncio.Task[None]] = set()
        self._opaque = 0
        if put_each is None and not broker.view.is_remote:
            # Only the server's own writer reports the queues that grew. A remote store is not polled.
            self._waiting.add(self._loop.create_task(self._poll_queues()))

    # Calls of the listener

    def serve_slaves(self, slaves: LogServer, timeout_s: float | None) -> None:
        """Notify slaves of puts. With a timeout, producers wait this long for a slave that has their messages."""
        self.slaves, self._slave_timeout_s = slaves, timeout_s

    def connected(self, connection: Connection) -> None:
        """Take a new connection."""
        peer = Peer(connection.address)
        self.peers[connection] = peer
        self.connections[peer] = connection

    def frame_length(self, head: bytes) -> int:
        """Return the bytes of a frame. A browser or a collector of metrics gets the counters."""
        if head == _HTTP:
            text = self.metrics().encode()
            kind = b"Content-Type: text/plain; version=0.0.4\r\nConnection: close\r\n"
            raise Goodbye(b"HTTP/1.1 200 OK\r\n%bContent-Length: %d\r\n\r\n%b" % (kind, len(text), text))
        return RemotingCommand.frame_length(head)

    def frames(self, connection: Connection, data: bytes) -> list[bytes | Sends]:
        """Return the whole frames at the start of these bytes. Consecutive plain sends stay together."""
        # Each request is logged, checked, or waits for a slave by itself.
        is_each_alone = self._access_keys is not None or self._slave_timeout_s is not None
        master = self.broker.master
        if master is None or is_each_alone or requests_log.isEnabledFor(logging.INFO):
            return remoting_frames(data)
        return remoting_frames(data, master.topics.sends, self.peers[connection].host)

    def received(self, connection: Connection, frame: bytes | Sends) -> None:
        """Process a frame, or several sends."""
        if isinstance(frame, Sends):
            self._put_sends(connection, frame)
            return
        command = RemotingCommand.decode(frame)
        if command.is_answer:
            self._pass_on(self.peers[connection], command)
            return
        request = Request(command, self.peers[connection])
        self.broker.counts[_requests(command.code)] += 1
        if self._access_keys is not None and (reason := refusal(command, self._access_keys)) is not None:
            self._finish(connection, request, Answer(code=ResponseCode.SYSTEM_ERROR, remark=reason))
        else:
            self._start(connection, request)

    def disconnected(self, connection: Connection) -> None:
        """Remove a client from its groups."""
        peer = self.peers.pop(connection)
        del self.connections[peer]
        self.held.forget(connection)
        self._tell(self.broker.clients.leave(peer))

    # The rest

    def drop_silent(self) -> None:
        """Remove clients without heartbeats from their groups."""
        self.broker.clients.forget_locks(self.broker.now())
        for peer in self.broker.clients.silent(self.broker.now()):
            self._tell(self.broker.clients.leave(peer))

    def metrics(self) -> str:
        """Return counters and gauges as a collector of metrics reads them."""
        gauges = {
            "connections": len(self.connections),
            "consumer_groups": len(self.broker.clients.consumers),
            "held_pulls": len(self.held),
            "requests_in_threads": self.in_threads,
        }
        if self._puts is not None:
            gauges["waiting_messages"] = self.waiting()
        return "".join(f"logdex_{name} {value}\n" for name, value in [*self.broker.counts.items(), *gauges.items()])

    def waiting(self) -> int:
        """Return the number of messages that are not stored yet."""
        return 0 if self._puts is None else self._puts.waiting

    def close(self) -> None:
        """Drop the waiting requests and end the threads."""
        for task in self._waiting:
            task.cancel()
        for forwarded in self._forwarded.values():
            forwarded.timeout.cancel()
        self.held.clear()
        self._forwarded.clear()
        # Threads that wait to deliver a result can end.
        self._results.release(_MOST_IN_THREADS + _THREADS)
        self._threads.shutdown()
        self._lister.shutdown()
        if self._puts is not None:
            self._puts.close()

    async def drain(self, seconds: float) -> None:
        """Wait until the received messages are stored and answered, but not longer than this."""
        end = self._loop.time() + seconds
        while (self.waiting() or self._unsaved) and self._loop.time() < end:  # noqa: ASYNC110 -- a moment, at the end
            await asyncio.sleep(_DRAIN_S)

    def grown(self, ends: list[tuple[str, int, int]]) -> None:
        """Answer the held pulls of queues that grew. `ends`: topic, queue id, and queue offset of the next message."""
        self.broker.view.forget_bounds((topic, queue_id) for topic, queue_id, _ in ends)
        self.held.grown(ends)

    async def _poll_queues(self) -> None:
        """Poll the queues with held pulls, because the broker of the store sends no notification."""
        while True:
            await asyncio.sleep(_LOOK_S)
            queues = self.held.queues()
            for at in range(0, len(queues), _POLLED_AT_ONCE):
                begin = self._loop.time()
                some = queues[at : at + _POLLED_AT_ONCE]
                self.held.grown(await self._loop.run_in_executor(self._threads, self._ends, some))
                await asyncio.sleep(_REST_OF_LOOKS * (self._loop.time() - begin))

    def _ends(self, queues: list[tuple[str, int]]) -> list[tuple[str, int, int]]:
        return [(topic, queue_id, self._end(topic, queue_id)) for topic, queue_id in queues]

    def _end(self, topic: str, queue_id: int) -> int:
        try:
            return self.broker.view.bounds(topic, queue_id)[1]
        except (OSError, ValueError):
            # The answer to the pull reports the error.
            return MAX_INT64
        except Exception:  # noqa: BLE001 -- logged
            # A bug in logdex must not end the polls.
            _log.exception("the poll of queue %d of topic %s", queue_id, topic)
            return MAX_INT64

    async def check_transactions(self) -> None:
        """Request the state of old half messages from their producers."""
        now = now_ms()
        while await self._check_some(now):
            pass

    async def _check_some(self, now: int) -> bool:
        """Check as many half messages as fit into memory; return whether there are more."""
        checks = await self._loop.run_in_executor(self._threads, look_at_halves, self.broker, now)
        if self._puts is None or self.broker.master is None:
            return False
        waiting = []
        if checks.given_up:
            self.broker.master.topics.create(GIVEN_UP_TOPIC, 1, is_own=True)
            if await self._saved() is not None:
                # They stay in their queue, and the next check finds them.
                return False
        for renewed, half in checks.renewed:
            waiting.append(self._loop.create_future())
            self._puts.put(renewed, partial(self._ask_producer, waiting[-1], half, renewed))
        for message in checks.given_up:
            _log.warning(
                "a half message of topic %s is given up: no producer ended its transaction",
                message.properties.get(REAL_TOPIC),
            )
            waiting.append(self._loop.create_future())
            self._puts.put(message, partial(_set, waiting[-1]))
        for placed in await asyncio.gather(*waiting):
            if isinstance(placed, OSError | ValueError):
                # They stay in their queue, and the next check finds them.
                return False
        for topic, offset in ((HALF_TOPIC, checks.half_offset), (OP_TOPIC, checks.op_offset)):
            if offset:
                self.broker.offsets.commit(CHECK_GROUP, topic, 0, offset)
        return checks.is_cut

    def _ask_producer(
        self, done: asyncio.Future[Placed], half: Message | None, renewed: NewMessage, placed: Placed
    ) -> None:
        _set(done, placed)
        if half is not None and isinstance(placed, list):
            notice = question(self.broker, half, renewed, placed)
            self._tell([notice] if notice is not None else [])

    def _start(self, connection: Connection, request: Request) -> None:
        """Answer a request here or in a thread."""
        code = request.command.code
        handler = HANDLERS.get(code, UNKNOWN)
        if handler.parse is not None and len(request.command.body) > _LONG_BODY and not request.is_read:
            self._start_thread(connection, request, partial(_parse, handler.parse))
        elif handler.cost < self._slow_from:
            reply = self._answer(request)
            if isinstance(reply, Hold):
                # A message that is stored during the write of a table must wake this pull.
                self._finish(connection, request, reply)
                self._save_changes()
            elif self._has_changed or (isinstance(reply, Put) and reply.needs is not None):
                self._finish_saved(connection, request, reply)
            else:
                self._finish(connection, request, reply)
        elif code in self.quick:
            self._finish(connection, request, self._answer_timed(request))
        else:
            self._start_thread(connection, request, self._answer_timed)

    def _start_thread(self, connection: Connection, request: Request, work: Callable[[Request], Reply]) -> None:
        size = _size(request)
        if self.in_threads >= _MOST_IN_THREADS or not self._has_space(size):
            self._finish(connection, request, Answer(code=ResponseCode.SYSTEM_BUSY, remark=_BUSY))
            return
        self.in_threads += 1
        self.kept_bytes += size
        self.searches[connection] += 1
        if self.searches[connection] == _MOST_OF_CLIENT:
            connection.pause()
        threads = self._lister if HANDLERS[request.command.code].cost == Cost.MANY else self._threads
        done = self._loop.run_in_executor(threads, self._answer_in_thread, connection, request, work)
        done.add_done_callback(lambda done: self._finish_work(connection, request, size, done))

    def _has_space(self, size: int) -> bool:
        """Return whether a request of this size may wait."""
        return self.held.size + self.kept_bytes + size <= _MOST_KEPT_BYTES

    def _answer_in_thread(self, connection: Connection, request: Request, work: Callable[[Request], Reply]) -> Reply:
        # The client may have disconnected meanwhile.
        reply = work(request) if connection.is_open else None
        self._results.acquire()
        return reply

    def _note_change(self) -> None:
        self._has_changed = True

    def _finish_saved(self, connection: Connection, request: Request, reply: Reply) -> None:
        """Finish a request when the tables that it changed or needs are written. Other requests do not wait."""
        notices, size = reply.notices if isinstance(reply, Answer) else [], _size(request)
        if not self._has_space(size):
            self._save_changes()
            self._finish(connection, request, Answer(code=ResponseCode.SYSTEM_BUSY, remark=_BUSY, notices=notices))
            return
        self.kept_bytes += size
        master = self.broker.master
        topic = reply.needs if isinstance(reply, Put) else None
        self._unsaved += 1
        if master is not None and topic is not None:
            master.topics.waiting[topic] += 1

        def then(error: NotSaved | None) -> None:
            self.kept_bytes -= size
            self._unsaved -= 1
            if master is not None and topic is not None:
                master.topics.waiting[topic] -= 1
                if not master.topics.waiting[topic]:
                    del master.topics.waiting[topic]
            if error is None:
                self._finish(connection, request, reply)
                return
            code = ResponseCode.SERVICE_NOT_AVAILABLE if isinstance(reply, Put) else ResponseCode.SYSTEM_ERROR
            self._finish(connection, request, Answer(code=code, remark=_not_available(error), notices=notices))

        self._save(then)

    def _save_changes(self) -> None:
        """Write the tables that changed. No request waits for it."""
        if self._has_changed:
            self._save(lambda _: None)

    def _save(self, then: Callable[[NotSaved | None], None]) -> None:
        self._has_changed = False
        if self._tables is None or self.broker.master is None:
            then(None)
        else:
            self._tables.save(self.broker.master.tables, then)

    def _saved(self) -> asyncio.Future[NotSaved | None]:
        done: asyncio.Future[NotSaved | None] = self._loop.create_future()
        self._save(partial(_set, done))
        return done

    def _answer_timed(self, request: Request) -> Reply:
        """Answer a request, and record whether its kind needs a thread."""
        begin = self._loop.time()
        reply = self._answer(request)
        code = request.command.code
        # The next request to a remote store may be slow, even if this one found its data in memory.
        now = self._loop.time()
        is_quick = now - begin < _QUICK_S and not self.broker.view.is_remote and HANDLERS[code].cost == Cost.SEARCH
        if not is_quick:
            self._slow_until[code] = now + _QUICK_AGAIN_S
        if is_quick and now > self._slow_until[code]:
            self.quick.add(code)
        else:
            self.quick.discard(code)
        return reply

    def _answer(self, request: Request) -> Reply:
        try:
            return answer(self.broker, request)
        except Exception as error:  # noqa: BLE001 -- logged
            return _fault(request, error)

    def _finish_work(self, connection: Connection, request: Request, size: int, done: asyncio.Future[Reply]) -> None:
        self._results.release()
        self.in_threads -= 1
        self.kept_bytes -= size
        try:
            reply = None if done.cancelled() else done.result()
            if reply is not None:
                self._finish(connection, request, reply)
            elif request.is_read and connection.is_open:
                # A client that is gone must not join its groups again.
                self._start(connection, request)
        finally:
            self.searches[connection] -= 1
            if self.searches[connection] == _MOST_OF_CLIENT - 1:
                connection.resume()
            if not self.searches[connection]:
                del self.searches[connection]

    def _finish(self, connection: Connection, request: Request, reply: Reply) -> None:
        if isinstance(reply, Answer):
            if reply.notices:
                self._tell(reply.notices)
            self._send(connection, request, reply)
        elif isinstance(reply, Hold):
            size = _size(request)
            if len(self.held) >= _MOST_HELD or not self._has_space(size):
                self._finish(connection, request, Answer(code=ResponseCode.SYSTEM_BUSY, remark=_BUSY))
            elif connection.is_open:
                self.held.add(HeldPull(connection, request, reply, size))
        elif isinstance(reply, Put):
            self._put(connection, request, reply)
        elif isinstance(reply, Forward):
            self._ask(connection, request, reply)

    def _send(self, connection: Connection, request: Request, reply: Answer) -> None:
        command = request.command
        if requests_log.isEnabledFor(logging.INFO):
            _log_request(request, reply)
        if not command.is_one_way and connection.is_open:
            connection.send(command.answer(reply.code, reply.ext, reply.body, reply.remark))
            self.broker.counts["sent_bytes_total"] += len(reply.body)

    def _tell(self, notices: Iterable[Notice]) -> None:
        rest = iter(notices)
        for notice in islice(rest, _NOTICES_TOGETHER):
            connection = self.connections.get(notice.peer)
            if connection is not None:
                frame = RemotingCommand.request(notice.code, self._next_opaque(), notice.ext, notice.body, one_way=True)
                connection.send(frame)
        later = [*rest]
        if later:
            self._loop.call_soon(self._tell, later)

    def _put_sends(self, connection: Connection, sends: Sends) -> None:
        self.broker.counts[_PLAIN_SENDS] += sends.count
        if self._puts is None or self._puts.is_busy:
            connection.send(sends.refusals(ResponseCode.SYSTEM_BUSY, _REJECTED))
            return

        def then(placed: Answered) -> None:
            if isinstance(placed, OSError | ValueError):
                connection.send(sends.refusals(ResponseCode.SERVICE_NOT_AVAILABLE, _not_available(placed), REGION))
                return
            answers, stored = placed
            self.broker.counts[STORED] += stored
            if self.slaves is not None:
                self.slaves.wake()
            connection.send(answers)

        self._puts.put_sends(sends, then)

    def _put(self, connection: Connection, request: Request, put: Put) -> None:
        if self._puts is None or self._puts.is_busy:
            self._finish(connection, request, Answer(code=ResponseCode.SYSTEM_BUSY, remark=_REJECTED))
            return

        def then(placed: Placed) -> None:
            if isinstance(placed, OSError | ValueError):
                self._finish(
                    connection, request, Answer(code=ResponseCode.SERVICE_NOT_AVAILABLE, remark=_not_available(placed))
                )
                return
            reply = put.then(placed)
            if self._flushed is not None and isinstance(reply, Answer) and message.waits:
                last = placed[-1][1] if isinstance(placed, list) and placed else -1
                if last >= self._flushed():
                    reply = replace(reply, code=ResponseCode.FLUSH_DISK_TIMEOUT)
            if self.slaves is not None:
                self.slaves.wake()
                if self._slave_timeout_s is not None and isinstance(reply, Answer) and message.waits:
                    self._await_slave(connection, request, reply, self.slaves, self._slave_timeout_s)
                    return
            self._finish(connection, request, reply)

        message = put.message
        self._puts.put(put.message, then)

    def _await_slave(
        self, connection: Connection, request: Request, answer: Answer, slaves: LogServer, timeout_s: float
    ) -> None:
        """Answer when a slave has the log up to here, or with the code for the lack of such a slave.

        Source: CommitLog#submitReplicaRequest.
        """
        if answer.code not in (ResponseCode.SUCCESS, ResponseCode.FLUSH_DISK_TIMEOUT):
            self._finish(connection, request, answer)
            return
        if not slaves.is_near:
            self._finish(connection, request, replace(answer, code=ResponseCode.SLAVE_NOT_AVAILABLE))
            return
        end, size = slaves.end, _size(request)
        if not self._has_space(size):
            self._finish(connection, request, replace(answer, code=ResponseCode.FLUSH_SLAVE_TIMEOUT))
            return
        self.kept_bytes += size

        async def wait() -> None:
            try:
                has_it = await slaves.wait_for(end, timeout_s)
            finally:
                self.kept_bytes -= size
            self._finish(
                connection, request, answer if has_it else replace(answer, code=ResponseCode.FLUSH_SLAVE_TIMEOUT)
            )

        task = self._loop.create_task(wait())
        self._waiting.add(task)
        task.add_done_callback(self._waiting.discard)

    def _answer_held(self, held: HeldPull) -> None:
        if held.connection.is_open:
            self._start(held.connection, replace(held.request, may_hold=False))

    def _ask(self, connection: Connection, request: Request, forward: Forward) -> None:
        target, size = self.connections.get(forward.peer), _size(request)
        if target is None or len(self._forwarded) >= _MOST_FORWARDED or not self._has_space(size):
            self._finish(connection, request, Answer(code=ResponseCode.SYSTEM_BUSY, remark=_BUSY))
            return
        opaque = self._next_opaque()

        def too_late() -> None:
            del self._forwarded[opaque]
            self.kept_bytes -= size
            remark = f"The consumer {forward.who} consume and process timeout"
            self._finish(connection, request, Answer(code=ResponseCode.CONSUME_MSG_TIMEOUT, remark=remark))

        timeout = self._loop.call_later(_FORWARD_S, too_late)
        self._forwarded[opaque] = _Forwarded(connection, request, forward, timeout, size)
        self.kept_bytes += size
        target.send(RemotingCommand.request(forward.code, opaque, forward.ext, forward.body))

    def _pass_on(self, peer: Peer, command: RemotingCommand) -> None:
        """Send the answer of a client to the one that sent the request."""
        asked = self._forwarded.get(command.opaque)
        if asked is not None and asked.forward.peer is peer:
            del self._forwarded[command.opaque]
            asked.timeout.cancel()
            self.kept_bytes -= asked.size
            reply = Answer(code=command.code, remark=command.remark, ext=command.ext or None, body=command.body)
            self._finish(asked.asker, asked.request, reply)

    def _next_opaque(self) -> int:
        self._opaque = (self._opaque + 1) & 0x7FFFFFFF
        return self._opaque


def _set(done: asyncio.Future[_T], result: _T) -> None:
    # The future is cancelled when the server stops.
    if not done.done():
        done.set_result(result)


def _parse(parse: Callable[[dict[str, Any]], object], request: Request) -> Reply:
    """Parse the body of a request; return the answer if it is refused."""
    try:
        request.content(parse)
    except Refusal as refusal:
        return refusal.answer
    except Exception as error:  # noqa: BLE001 -- logged
        return _fault(request, error)
    return None


def _fault(request: Request, error: Exception) -> Answer:
    """Log a bug in logdex and return it as the answer. The server continues."""
    _log.error("request %s of %s", _name(request.command.code), request.peer.address, exc_info=error)
    return Answer(code=ResponseCode.SYSTEM_ERROR, remark=f"{type(error).__name__}: {error}")


def _log_request(request: Request, reply: Answer) -> None:
    """Log a request without its access key and signature."""
    fields = {name: "***" if name in SECRETS else value for name, value in request.command.ext.items()}
    remark, key = reply.remark, request.command.ext.get(ACCESS_KEY)
    if remark and key:
        remark = remark.replace(key, "***")
    what = (request.peer.address, _name(request.command.code), fields, int(reply.code), remark, len(reply.body))
    requests_log.info("%s %s %s -> %d %r, %d bytes", *what)


def _size(request: Request) -> int:
    """Return the approximate number of bytes that a waiting request occupies."""
    command = request.command
    return _BESIDE_FIELDS + len(command.body) + sum(len(name) + len(value) for name, value in command.ext.items())


def _not_available(error: OSError | ValueError) -> str:
    return f"service not available now. It may be caused by one of the following reasons: {error}"


def _name(code: int) -> str:
    try:
        return RequestCode(code).name
    except ValueError:
        return "other"


@lru_cache(maxsize=1024)
def _requests(code: int) -> str:
    """Return the name of a counter."""
    return f'requests_total{{code="{_name(code)}"}}'


_PLAIN_SENDS = _requests(RequestCode.SEND_MESSAGE_V2)
