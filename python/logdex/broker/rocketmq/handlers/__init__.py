"""The handlers of requests, in a module for each kind, and the answer to any request.

No sockets here: the service passes requests in and sends the replies.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from logdex.broker.rocketmq.handlers import (  # noqa: F401 -- their handlers are registered by the import
    administration,
    consumers,
    name_server,
    pulls,
    sends,
    transactions,
)
from logdex.broker.rocketmq.requests import HANDLERS, UNKNOWN, Answer, Kind, Refusal
from logdex.broker.wire import ResponseCode

if TYPE_CHECKING:
    from logdex.broker.rocketmq.broker import Broker
    from logdex.broker.rocketmq.requests import Reply, Request

_log = logging.getLogger(__name__)


def answer(broker: Broker, request: Request) -> Reply:
    """Return the reply to a request; None: the client gets no answer, not even an error."""
    code = request.command.code
    handler = HANDLERS.get(code, UNKNOWN)
    try:
        if handler.answer is not None and (broker.master is not None or handler.kind is Kind.QUESTION):
            return handler.answer(broker, request)
        raise _refusal(broker, handler.kind, code)
    except Refusal as refusal:
        return refusal.answer
    except (OSError, ValueError, OverflowError) as error:
        # A broker also answers with the class and the text of an error.
        _log.warning("request %s of %s: %r", code, request.peer.address, error)
        return Answer(code=ResponseCode.SYSTEM_ERROR, remark=f"{type(error).__name__}: {error}")


def _refusal(broker: Broker, kind: Kind, code: int) -> Refusal:
    if kind is Kind.SEND:
        broker.require_master()
    if kind is Kind.CHANGE:
        what = "is an archive, which takes no changes" if broker.master is None else "takes no such change"
        return Refusal(ResponseCode.NO_PERMISSION, f"the broker[{broker.address}] {what}")
    return Refusal(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, f" request type {code} not supported")
