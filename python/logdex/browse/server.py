"""Serves the pages of one path on this machine: routes, formats, error pages, access."""

from __future__ import annotations

import asyncio
import hmac
import logging
import os
import secrets
import socket
import sys
import warnings
import webbrowser
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from http import HTTPStatus
from pathlib import Path
from threading import Timer
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

import uvicorn
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup
from starlette.applications import Starlette
from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from logdex import _core
from logdex._filesystem import in_filesystem
from logdex.browse.pictures import share
from logdex.browse.view import Download, NotThereError, Pages, Place, Query, StoppedError, View, address
from logdex.errors import DamageWarning, LogdexError, printable
from logdex.report import size_text
from logdex.source import Kind, kind_to_open, refusal

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from os import PathLike

    from starlette.types import ASGIApp, Message, Receive, Scope, Send


HOSTS = frozenset({"127.0.0.1", "localhost", "[::1]"})
"""Names in a request's Host. A forged DNS answer can lead another name here (DNS rebinding)."""

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
    """Passes a request on to the pages, or answers with the reason for a refusal."""

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
        """Return the answer to a request that must not reach the pages; None: it may."""
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


_log = logging.getLogger(__name__)

_HOME = Path(__file__).parent
_THREADS = 8
"""Requests that are read at the same time. The others wait."""
_MOST_SECONDS = 30.0
_FORMS = {"": "text/html", ".json": "application/json", ".csv": "text/csv"}


def application(pages: Pages, token: str) -> Guard:
    """Return the application that serves some pages to clients with the token."""
    # An action needs a word that only pages of this process show: another page cannot guess an address that acts.
    key = secrets.token_urlsafe(16)
    environment = _environment(pages, key)
    executor = ThreadPoolExecutor(_THREADS, "logdex-page")

    async def answer(path: str, form: str, request: Request) -> Response:
        query = Query(request.query_params, is_page=not form)
        work = partial(_answer, environment, pages.views[path], form, request, query)
        running = asyncio.get_running_loop().run_in_executor(executor, work)
        gone = asyncio.ensure_future(_disconnected(request))
        either: set[asyncio.Future[Any]] = {running, gone}
        await asyncio.wait(either, timeout=_MOST_SECONDS, return_when=asyncio.FIRST_COMPLETED)
        is_gone = gone.done()
        gone.cancel()
        if running.done():
            return running.result()
        # Pending work is cancelled, and running work ends at its next step, so that the threads serve waiting clients.
        running.cancel()
        query.stop()
        if is_gone:
            return Response(status_code=HTTPStatus.REQUEST_TIMEOUT)
        text = f"this took longer than {_MOST_SECONDS:.0f} s; request less: one topic, a range of times"
        return _failure(environment, HTTPStatus.SERVICE_UNAVAILABLE, text)

    async def act(path: str, request: Request) -> Response:
        if not secrets.compare_digest(request.query_params.get("key", "").encode(), key.encode()):
            return _failure(environment, HTTPStatus.FORBIDDEN, "use the button of the page")
        return RedirectResponse(pages.actions[path](), HTTPStatus.SEE_OTHER)

    async def missing(_: Request, __: Exception) -> Response:
        return _failure(environment, HTTPStatus.NOT_FOUND, "there is no such page")

    routes: list[Route | Mount] = [
        Route(path + form, partial(answer, path, form), methods=["GET"])
        for path in pages.views
        for form in _FORMS
        if path != "/" or not form
    ]
    routes += [Route("/overview" + form, partial(answer, "/", form), methods=["GET"]) for form in _FORMS if form]
    routes += [Route(path, partial(act, path), methods=["GET"]) for path in pages.actions]
    routes.append(Mount("/static", StaticFiles(directory=_HOME / "static")))
    app = Starlette(routes=routes, exception_handlers={HTTPStatus.NOT_FOUND: missing})
    return Guard(app, token)


def _environment(pages: Pages, key: str) -> Environment:
    environment = Environment(
        loader=FileSystemLoader(_HOME / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        # Texts of messages and files may reverse or hide the text next to them.
        finalize=lambda value: printable(value) if type(value) is str else value,
    )
    environment.filters["time"] = _time
    environment.filters["size"] = lambda value: "-" if value is None else size_text(value)
    environment.filters["number"] = lambda value: "-" if value is None else f"{value:,}"
    environment.globals.update(pages=pages, action_key=key, address=address, share=share, version=_core.__version__)
    return environment


def _time(value: int | None) -> str:
    """Return a time in UTC; a browser with scripts adds the local time."""
    text = _core.time_text(value)
    if text is None or not text.endswith("Z"):
        return text or "-"
    return Markup('<time datetime="{0}"><span>{0}</span></time>').format(text)


async def _disconnected(request: Request) -> None:
    """Wait until the client closes its connection."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _answer(
    environment: Environment, page: Callable[[Query], View], form: str, request: Request, query: Query
) -> Response:
    """Make a page; runs in a thread, because it reads files."""
    try:
        view = page(query)
        if form:
            content = view.json() if form == ".json" else view.csv()
            return Response(content, media_type=_FORMS[form])
        return HTMLResponse(_html(environment, view, request))
    except Download as file:
        headers = {"Content-Disposition": f'attachment; filename="{file.name}"'}
        return Response(file.content, media_type="application/octet-stream", headers=headers)
    except StoppedError:
        # The client is gone, so this answer is not sent.
        return Response(status_code=HTTPStatus.SERVICE_UNAVAILABLE)
    except Exception as error:  # noqa: BLE001 -- one page must not end the others
        return _failure(environment, *_in_words(error, request))


def _in_words(error: Exception, request: Request) -> tuple[HTTPStatus, str]:
    """Return the status and the text for an error."""
    match error:
        case NotThereError():
            return HTTPStatus.NOT_FOUND, str(error) or "there is no such page"
        case FileNotFoundError():
            text = f"{error.filename}: {error.strerror}" if error.filename else str(error)
            return HTTPStatus.NOT_FOUND, text
        case LogdexError() | OSError():
            return HTTPStatus.INTERNAL_SERVER_ERROR, str(error)
        case ValueError() | TypeError():
            return HTTPStatus.BAD_REQUEST, str(error)
    _log.error("a page failed: %s", request.url.path, exc_info=error)
    text = "this is a bug in logdex; the terminal shows the error, please report it"
    return HTTPStatus.INTERNAL_SERVER_ERROR, text


def _html(environment: Environment, view: View, request: Request) -> str:
    here = request.url.path
    words = [(name, value) for name, value in request.query_params.multi_items() if name != "token"]
    base = "/overview" if here == "/" else here
    other = {form: address(base + form, dict(words)) for form in (".json", ".csv")} if view.rows is not None else {}
    template = environment.get_template(view.template)
    return template.render(view=view, here=here, other=other, query=dict(words), **view.values)


def _failure(environment: Environment, status: HTTPStatus, text: str) -> Response:
    view = View("failure.html", status.phrase)
    page = environment.get_template(view.template).render(view=view, here="", other={}, query={}, text=text)
    return HTMLResponse(page, status)


HOST = "127.0.0.1"
PORT = 8417
"""The port if none is given and it is free. A saved address stays valid as long as the token does."""
_MOST_REQUESTS = 64
_HEAD_BYTES = 16 << 10
_SHORTEST_TOKEN = 8


def browse(
    path: str | PathLike[str],
    *,
    port: int | None = None,
    open_browser: bool = True,
    token: str | None = None,
    started: Callable[[str], object] | None = None,
    storage_options: Mapping[str, str] | None = None,
    filesystem: object | None = None,
    decode: Mapping[str, str] | None = None,
    **options: Any,  # noqa: ANN401 -- those of the open call of each kind
) -> None:
    """Serve pages about a path to a browser on this machine, until Ctrl-C. Nothing at the path is changed.

    Args:
        path: A store, a Kafka log directory or an index directory: a local path, or a URL.
        port: The port on 127.0.0.1; 0: any free one. None: 8417, or any free one.
        open_browser: Open the first page in the browser, if there is a screen.
        token: The word that the first address has and a browser then keeps; None: a random one.
        started: Called with the first address as soon as it answers.
        storage_options: Options of the store of a URL; see `MessageStore.open`.
        filesystem: See `MessageStore.open`.
        decode: The formats by which pages show bodies, such as `{"body": "json"}`; see `MessageStore.messages`. Of Kafka the
            columns are `value` and `key`.
        options: `hash_slots`, `max_entries` and `commit_log`, as of `MessageStore.open`; `tiered` and `tiered_keys`, as of
            `LogDir.open`.

    Raises:
        OSError: The path cannot be read, or the port is taken.
        ValueError: The path is none of these; a token of less than 8 characters; an invalid format or schema.
    """
    if token is not None and (len(token) < _SHORTEST_TOKEN or not token.isascii() or not token.isprintable()):
        raise ValueError(f"token: expected {_SHORTEST_TOKEN} or more ASCII characters")
    token = token or secrets.token_urlsafe(16)
    root = (
        _core.locate(path, storage_options) if filesystem is None else in_filesystem(path, filesystem, storage_options)
    )
    pages = open_pages(root, str(path), decode, **options)
    with _listen(port) as listener:
        number = listener.getsockname()[1]
        first = f"http://{HOST}:{number}/?{urlencode({'token': token})}"
        config = uvicorn.Config(
            application(pages, token),
            log_level="error",
            access_log=False,
            server_header=False,
            limit_concurrency=_MOST_REQUESTS,
            h11_max_incomplete_event_size=_HEAD_BYTES,
            timeout_graceful_shutdown=1,
            lifespan="off",
            ws="none",
        )
        # The pages show the damage themselves.
        warnings.simplefilter("ignore", DamageWarning)
        if started is not None:
            started(first)
        if open_browser and _has_screen():
            opener = Timer(0.3, webbrowser.open, [first])
            opener.daemon = True
            opener.start()
        try:
            uvicorn.Server(config).run(sockets=[listener])
        finally:
            pages.close()


def _listen(port: int | None) -> socket.socket:
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        if os.name == "posix":
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((HOST, PORT if port is None else port))
        except OSError as error:
            if port is not None:
                raise OSError(error.errno, error.strerror, f"{HOST}:{port}") from None
            listener.bind((HOST, 0))
        listener.listen()
    except BaseException:
        listener.close()
        raise
    return listener


def _has_screen() -> bool:
    """Return whether a browser would open in a window. One in the terminal would cover the address."""
    return sys.platform in ("darwin", "win32") or any(os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY"))


def open_pages(
    path: Path,
    name: str,
    decode: Mapping[str, str] | None = None,
    **options: Any,  # noqa: ANN401 -- those of the open calls
) -> Pages:
    """Open a path and return the pages about it; `name` is the path as the user wrote it.

    Raises:
        OSError: The path does not exist or cannot be read.
        ValueError: The path is not a store, an index directory or a log directory; an invalid format in `decode`.
        TypeError: The call that opens this kind of path has no such option.
    """
    given = {option: value for option, value in options.items() if value is not None}
    # Keys may be texts; a page shows none.
    shown = {option: value for option, value in given.items() if option != "tiered_keys"}
    kind = kind_to_open(path, given)
    # Only the pages of one broker are imported.
    if kind is Kind.STORE:
        from logdex.browse.store_pages import StorePages  # noqa: PLC0415 -- as above
        from logdex.rocketmq import MessageStore  # noqa: PLC0415 -- as above

        return StorePages(MessageStore.open(path, **given), Place(name, shown), decode)
    if kind is Kind.INDEX:
        if decode:
            raise ValueError(f"{path}: an index directory has no bodies to decode")
        from logdex.browse.index_pages import IndexPages  # noqa: PLC0415 -- as above
        from logdex.rocketmq import IndexService  # noqa: PLC0415 -- as above

        return IndexPages(IndexService.open(path, **given), name)
    if kind is Kind.LOG_DIR:
        from logdex.browse.kafka_pages import KafkaPages  # noqa: PLC0415 -- as above
        from logdex.kafka import LogDir  # noqa: PLC0415 -- as above

        return KafkaPages(LogDir.open(path, **given), Place(name, shown), decode)
    if kind is Kind.PARTITION:
        raise ValueError(f"{path}: this is a partition's directory; give its log directory, {path.absolute().parent}")
    raise refusal(path, kind)
