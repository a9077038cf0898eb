"""The pages as a web application: routes, formats and error pages."""

from __future__ import annotations

import asyncio
import logging
import secrets
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from starlette.applications import Starlette
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from logdex import _core
from logdex.errors import LogdexError, printable
from logdex.report import size_text
from logdex.web.guard import Guard
from logdex.web.pictures import share
from logdex.web.view import NotThereError, Query, StoppedError, View, address

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from starlette.requests import Request

_log = logging.getLogger(__name__)

_HOME = Path(__file__).parent
_THREADS = 8
"""Requests that are read at the same time. The others wait."""
_MOST_SECONDS = 30.0
_FORMS = {"": "text/html", ".json": "application/json", ".csv": "text/csv"}


class Download(Exception):  # noqa: N818 -- it ends a page, and is no error
    """Bytes for a file, instead of a page."""

    def __init__(self, content: bytes, name: str) -> None:
        super().__init__(name)
        self.content = content
        self.name = name


class Pages(Protocol):
    """The pages about one path.

    Attributes:
        path: The path as the user wrote it.
    """

    path: str

    @property
    def kind(self) -> str:
        """Return the kind of the path."""

    @property
    def menu(self) -> Sequence[tuple[str, str]]:
        """Return the addresses and names of the pages in the menu."""

    @property
    def views(self) -> Mapping[str, Callable[[Query], View]]:
        """Return the pages by address."""

    @property
    def actions(self) -> Mapping[str, Callable[[], str]]:
        """Return the actions that change the state of this process, by address; each returns the next page."""

    def close(self) -> None:
        """Close the files."""


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
    environment.filters["time"] = lambda value: "-" if value is None else (_core.time_text(value) or "-")
    environment.filters["size"] = lambda value: "-" if value is None else size_text(value)
    environment.filters["number"] = lambda value: "-" if value is None else f"{value:,}"
    environment.globals.update(pages=pages, action_key=key, address=address, share=share, version=_core.__version__)
    return environment


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
