"""Access to the pages: only GET requests for the names of this machine, with the token of the start URL."""

from __future__ import annotations

import hmac
from http import HTTPStatus
from typing import TYPE_CHECKING
from urllib.parse import urlencode

from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse

if TYPE_CHECKING:
    from starlette.responses import Response
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

HOSTS = frozenset({"127.0.0.1", "localhost", "[::1]"})
"""Names in a request's Host. Another name leads here by a DNS server that lies (DNS rebinding)."""

_HEADERS = {
    # Styles and scripts are files of this package; nothing is inline, and nothing comes from elsewhere.
    "Content-Security-Policy": (
        "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; connect-src 'self'; "
        "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}


class Guard:
    """Lets a request through to the pages, or answers why not."""

    def __init__(self, app: ASGIApp, token: str) -> None:
        self._app = app
        self._token = token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":
            # No page opens a WebSocket.
            await send({"type": "websocket.close", "code": 1008})
            return

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers[name] = value
            await send(message)

        answer = self._refusal(Request(scope)) or self._app
        await answer(scope, receive, send_guarded)

    def _refusal(self, request: Request) -> Response | None:
        """Return the answer to a request that the pages must not see; None lets it through."""
        host = request.headers.get("host", "")
        name = host if host.endswith("]") else host.rpartition(":")[0] or host
        if name.lower() not in HOSTS:
            text = f"The host of this request is none of {', '.join(sorted(HOSTS))}.\n"
            return PlainTextResponse(text, HTTPStatus.MISDIRECTED_REQUEST)
        if request.method not in ("GET", "HEAD"):
            return PlainTextResponse(
                "These pages are only read.\n", HTTPStatus.METHOD_NOT_ALLOWED, {"Allow": "GET, HEAD"}
            )
        headers = request.headers
        if (
            headers.get("sec-fetch-site", "none") not in ("none", "same-origin")
            and headers.get("sec-fetch-mode") != "navigate"
        ):
            return PlainTextResponse("Another site must not load this.\n", HTTPStatus.FORBIDDEN)
        cookie = f"logdex-{request.scope['server'][1]}"
        given = request.query_params.get("token")
        if given is not None and self._is_token(given):
            rest = [(key, value) for key, value in request.query_params.multi_items() if key != "token"]
            # Two slashes at the start would be parsed as another host.
            path = "/" + request.url.path.lstrip("/\\")
            answer = RedirectResponse(f"{path}?{urlencode(rest)}" if rest else path, HTTPStatus.SEE_OTHER)
            answer.set_cookie(cookie, self._token, httponly=True, samesite="lax", path="/")
            return answer
        if self._is_token(request.cookies.get(cookie, "")):
            return None
        text = (
            "Open the address that logdex browse printed when it started: it has a token, which this browser lacks.\n"
        )
        return PlainTextResponse(text, HTTPStatus.FORBIDDEN)

    def _is_token(self, given: str) -> bool:
        return hmac.compare_digest(given.encode(), self._token.encode())
