"""The handlers of requests, in a module for each kind, and the answer to any request.

The service passes requests in and sends the replies; there are no sockets here.
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
from logdex.broker.rocketmq.requests import HANDLERS, UNKNOWN, Answer, Refusal
from logdex.broker.wire import ResponseCode

if TYPE_CHECKING:
    from logdex.broker.rocketmq.broker import Broker
    from logdex.broker.rocketmq.requests import Reply, Request

_log = logging.getLogger(__name__)


def answer(broker: Broker, request: Request) -> Reply:
    """Return the reply to a request; None: the client gets no answer, not even an error."""
    handler = HANDLERS.get(request.command.code, UNKNOWN)
    try:
        return (handler.answer_of_archive if broker.master is None else handler.answer)(broker, request)
    except Refusal as refusal:
        return refusal.answer
    except (OSError, ValueError, OverflowError) as error:
        # A broker also answers with the class and the text of an error.
        _log.warning("request %s of %s: %r", request.command.code, request.peer.address, error)
        return Answer(code=ResponseCode.SYSTEM_ERROR, remark=f"{type(error).__name__}: {error}")
