"""The answer to each request. No sockets here: a server passes requests in and sends what comes out."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from logdex.rocketmq.remoting_codes import Code
from logdex.rocketmq.server import (  # noqa: F401 -- these modules register the handlers
    changes,
    consumers,
    inspection,
    messages,
    name_server,
    sends,
    transactions,
)
from logdex.rocketmq.server.exchange import HANDLERS, UNKNOWN, Answer, Kind, Refusal

if TYPE_CHECKING:
    from logdex.rocketmq.server.archive import Archive
    from logdex.rocketmq.server.exchange import Reply, Request
    from logdex.rocketmq.server.state import State

_log = logging.getLogger(__name__)


def answer(store: Archive, state: State, request: Request) -> Reply:
    """Return the reply to a request; None: the client gets no answer, not even an error."""
    code = request.command.code
    handler = HANDLERS.get(code, UNKNOWN)
    try:
        if handler.answer is not None and (state.master is not None or handler.kind is Kind.QUESTION):
            return handler.answer(store, state, request)
        raise _refused(state, handler.kind, code)
    except Refusal as refusal:
        return refusal.answer
    except (OSError, ValueError, OverflowError) as error:
        # A broker tells the class and the text of an error as well.
        _log.warning("request %s of %s: %r", code, request.peer.address, error)
        return Answer(code=Code.SYSTEM_ERROR, remark=f"{type(error).__name__}: {error}")


def _refused(state: State, kind: Kind, code: int) -> Refusal:
    is_archive = state.master is None
    if kind is Kind.SEND and is_archive:
        return Refusal(Code.NO_PERMISSION, f"the broker[{state.address}] sending message is forbidden")
    if kind is Kind.CHANGE:
        what = "is an archive, which takes no changes" if is_archive else "takes no such change"
        return Refusal(Code.NO_PERMISSION, f"the broker[{state.address}] {what}")
    return Refusal(Code.REQUEST_CODE_NOT_SUPPORTED, f" request type {code} not supported")
