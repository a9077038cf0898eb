"""Serves the pages of one path on this machine."""

from __future__ import annotations

import os
import secrets
import socket
import sys
import warnings
import webbrowser
from threading import Timer
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

import uvicorn

from logdex import _core
from logdex.errors import DamageWarning
from logdex.web.opened import open_pages
from logdex.web.site import application

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from os import PathLike

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
        options: `hash_slots`, `max_entries` and `commit_log`, as of `MessageStore.open`.

    Raises:
        OSError: The path cannot be read, or the port is taken.
        ValueError: The path is none of these; a token of less than 8 characters.
    """
    if token is not None and (len(token) < _SHORTEST_TOKEN or not token.isascii() or not token.isprintable()):
        raise ValueError(f"token: expected {_SHORTEST_TOKEN} or more ASCII characters")
    token = token or secrets.token_urlsafe(16)
    pages = open_pages(_core.locate(path, storage_options), str(path), **options)
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
