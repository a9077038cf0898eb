"""Stores with contradictory answers, redirects or no answers: every wrong result raises an error."""

from __future__ import annotations

import base64
import contextlib
import os
import signal
import socket
import threading
import time
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

import odd_server
from logdex.rocketmq import MessageStore

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    import object_store


@pytest.fixture
def odd(store: Callable[[str], Path]) -> Iterator[odd_server.OddServer]:
    """Return a server with a store at `bucket/store`."""
    with odd_server.serve() as server:
        server.put("bucket/store", store("basic"))
        yield server


def opened(server: odd_server.OddServer, kind: str, **options: str) -> MessageStore:
    """Open the store by S3 or by WebDAV."""
    if kind == "s3":
        return MessageStore.open("s3://bucket/store", storage_options=server.options(**options))
    return MessageStore.open(f"{server.url}/bucket/store", storage_options={"retry_timeout": "5s", **options})


def offsets(store: MessageStore) -> list[int]:
    """Return the offsets of all messages."""
    return [
        each for batch in store.messages(columns=["phy_offset"]) for each in pa.array(batch["phy_offset"]).to_pylist()
    ]


class TestReplaced:
    """An object that is replaced during a read by another one of the same length."""

    @pytest.mark.parametrize("kind", ["s3", "dav"])
    @pytest.mark.parametrize("etag_in_lists", [False, True])
    @pytest.mark.parametrize("etag_in_answers", [False, True])
    def test_old_and_new_bytes_are_not_mixed(
        self, odd: odd_server.OddServer, kind: str, *, etag_in_lists: bool, etag_in_answers: bool
    ) -> None:
        odd.etag_in_lists, odd.etag_in_answers = etag_in_lists, etag_in_answers
        with opened(odd, kind) as store:
            for path, (content, _) in list(odd.objects.items()):
                if "/commitlog/" in path:
                    odd.objects[path] = (bytes(byte ^ 1 for byte in content), 1_700_009_999)
            with pytest.raises(OSError, match="found another one"):
                offsets(store)

    @pytest.mark.parametrize("kind", ["s3", "dav"])
    @pytest.mark.parametrize("etag_in_lists", [False, True])
    def test_answers_that_nothing_can_be_compared_with_are_refused(
        self, odd: odd_server.OddServer, kind: str, *, etag_in_lists: bool
    ) -> None:
        odd.etag_in_lists, odd.etag_in_answers, odd.time_in_answers = etag_in_lists, not etag_in_lists, False
        with pytest.raises(OSError, match="neither its ETag nor its Last-Modified"), opened(odd, kind) as store:
            offsets(store)

    @pytest.mark.parametrize("kind", ["s3", "dav"])
    def test_an_etag_on_one_side_alone_is_enough_with_a_time(
        self, odd: odd_server.OddServer, store: Callable[[str], Path], kind: str
    ) -> None:
        with MessageStore.open(store("basic")) as local:
            expected = offsets(local)
        for odd.etag_in_lists, odd.etag_in_answers in ((True, False), (False, True)):
            with opened(odd, kind, retry_timeout=f"{5 + odd.etag_in_lists}s") as remote:
                assert offsets(remote) == expected


class TestRedirects:
    """A redirect is followed only within an HTTP server."""

    @pytest.mark.parametrize(("kind", "command"), [("s3", "GET"), ("dav", "GET"), ("dav", "PROPFIND")])
    def test_no_other_server_is_asked(self, odd: odd_server.OddServer, kind: str, command: str) -> None:
        with odd_server.serve() as other:
            other.objects = odd.objects
            odd.hook = lambda asked: asked.command == command and asked.answer(307, Location=f"{other.url}{asked.path}")
            with pytest.raises(OSError, match=r"307 Temporary Redirect.*not followed"):
                opened(odd, kind)
            assert other.seen == []

    def test_s3_is_not_followed_within_a_server(self, odd: odd_server.OddServer) -> None:
        odd.hook = lambda asked: (
            "moved" not in asked.path and asked.answer(307, Location=f"{odd.url}/moved{asked.path}")
        )
        with pytest.raises(OSError, match=r"307 Temporary Redirect.*not followed"):
            opened(odd, "s3")
        assert not [asked for asked in odd.seen if "moved" in asked.path]

    def test_http_is_followed_within_a_server(self, odd: odd_server.OddServer, store: Callable[[str], Path]) -> None:
        odd.objects = {f"moved/{path}": found for path, found in odd.objects.items()}

        def hook(asked: odd_server.Answers) -> bool:
            is_moved = asked.path.startswith("/moved") or asked.command == "PROPFIND"
            return not is_moved and asked.answer(302, Location=f"/moved{asked.path}")

        odd.objects |= {path.removeprefix("moved/"): found for path, found in odd.objects.items()}
        odd.hook = hook
        with opened(odd, "dav") as remote, MessageStore.open(store("basic")) as local:
            assert offsets(remote) == offsets(local)
        assert [asked for asked in odd.seen if asked.path.startswith("/moved/")]


class TestListings:
    """Listings that are incomplete or that the client could not parse."""

    def test_a_directory_that_is_empty_once_is_asked_again(
        self, odd: odd_server.OddServer, store: Callable[[str], Path]
    ) -> None:
        empty: list[str] = []

        def hook(asked: odd_server.Answers) -> bool:
            prefix = asked.path_and_query[1].get("prefix", "")
            if not prefix.endswith("/commitlog/") or empty:
                return False
            empty.append(prefix)
            return asked.answer(200, b"<ListBucketResult><IsTruncated>false</IsTruncated></ListBucketResult>")

        odd.hook = hook
        with opened(odd, "s3") as remote, MessageStore.open(store("basic")) as local:
            assert offsets(remote) == offsets(local) != []
        assert empty

    def test_a_directory_that_stays_empty_is_an_error(self, odd: odd_server.OddServer) -> None:
        odd.hook = lambda asked: (
            asked.path_and_query[1].get("prefix", "").endswith("/commitlog/")
            and asked.answer(200, b"<ListBucketResult><IsTruncated>false</IsTruncated></ListBucketResult>")
        )
        with pytest.raises(OSError, match="its own listing is empty"), opened(odd, "s3") as store:
            offsets(store)

    def test_the_mark_of_a_directory_makes_an_empty_one(self, odd: odd_server.OddServer) -> None:
        odd.objects = {path: found for path, found in odd.objects.items() if "/consumequeue/" not in path}
        odd.objects["bucket/store/consumequeue/"] = (b"", 1_700_000_000)
        with opened(odd, "s3") as store:
            assert list((store.root / "consumequeue").iterdir()) == []

    @pytest.mark.parametrize("name", ["../commitlog/zz", "./zz", "/zz"])
    def test_an_object_whose_name_is_no_path_is_left_out(
        self, odd: odd_server.OddServer, store: Callable[[str], Path], name: str
    ) -> None:
        odd.objects[f"bucket/store/commitlog/{name}"] = (b"zz", 1_700_000_000)
        with opened(odd, "s3") as remote, MessageStore.open(store("basic")) as local:
            assert offsets(remote) == offsets(local)


class TestNothingThere:
    """Errors for a missing store."""

    def test_a_missing_bucket_is_no_missing_prefix(self, server: object_store.ObjectStore) -> None:
        with pytest.raises(FileNotFoundError, match=r"no RocketMQ store|no such"):
            MessageStore.open("s3://stores/nothing-here", storage_options=server.options)
        with pytest.raises(OSError, match="no such bucket") as error:
            MessageStore.open("s3://no-such-bucket-at-all/store", storage_options=server.options)
        assert not isinstance(error.value, FileNotFoundError)

    def test_a_refused_connection_says_so_and_where(self) -> None:
        with contextlib.closing(socket.socket()) as bound:
            bound.bind(("127.0.0.1", 0))
            address = f"127.0.0.1:{bound.getsockname()[1]}"
            with pytest.raises(OSError, match=rf"http://{address}/x.*Connection refused"):
                MessageStore.open(f"http://{address}/x", storage_options={"retry_timeout": "300ms"})


class TestPasswords:
    """An HTTP server that requires a user name and a password."""

    def test_user_and_password_are_options(self, odd: odd_server.OddServer, store: Callable[[str], Path]) -> None:
        expected = f"Basic {base64.b64encode(b'bob:PW/@:').decode()}"
        odd.hook = lambda asked: asked.headers.get("Authorization") != expected and asked.answer(401)
        with pytest.raises(OSError, match=r"401|403|authenti"):
            opened(odd, "dav", retry_timeout="1s")
        with (
            opened(odd, "dav", username="bob", password="PW/@:") as remote,  # noqa: S106 -- of this test
            MessageStore.open(store("basic")) as local,
        ):
            assert offsets(remote) == offsets(local)
            assert "PW" not in f"{remote}{remote.root!r}{remote.overview()}"


class TestSignals:
    """Ctrl-C ends each wait for a store."""

    @pytest.mark.parametrize("waits_for", ["a list", "a path", "an object"])
    def test_a_wait_ends(self, odd: odd_server.OddServer, waits_for: str) -> None:
        ended, armed, sent = threading.Event(), threading.Event(), list[float]()

        def hook(asked: odd_server.Answers) -> bool:
            if not armed.is_set() or ("list-type" in asked.path) != (waits_for != "an object"):
                return False
            if not sent:
                sent.append(time.monotonic())
                os.kill(os.getpid(), signal.SIGINT)
            return ended.wait(60)

        odd.hook = hook
        store = opened(odd, "s3", retry_timeout="60s")
        calls: dict[str, Callable[[], object]] = {
            "a list": lambda: opened(odd, "s3", retry_timeout="61s"),
            "a path": (store.root / "config" / "other").is_dir,
            "an object": lambda: offsets(store),
        }
        armed.set()
        try:
            with store, pytest.raises(KeyboardInterrupt):
                calls[waits_for]()
            assert time.monotonic() - sent[0] < 3
        finally:
            ended.set()
