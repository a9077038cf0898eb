"""Secrets of storage options are in no message, no repr and no log."""

from __future__ import annotations

import contextlib
import logging
import socket
import traceback
from typing import TYPE_CHECKING

import pytest

from logdex.cli import main
from logdex.rocketmq import MessageStore
from slow_proxy import SlowProxy

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import object_store
    from slow_proxy import Fault

CREDENTIALS = {
    "aws_secret_access_key": "HIDDEN-one/with+signs==",
    "aws_session_token": "HIDDEN-two%20token",
    "aws_access_key_id": "HIDDENID0003",
}


def free_port() -> int:
    """Return a port on which nobody listens."""
    with contextlib.closing(socket.socket()) as bound:
        bound.bind(("127.0.0.1", 0))
        port: int = bound.getsockname()[1]
        return port


def failed(url: str, options: dict[str, str], caplog: pytest.LogCaptureFixture) -> str:
    """Return all that an open says which fails."""
    with caplog.at_level(logging.DEBUG), pytest.raises((OSError, ValueError)) as error:
        MessageStore.open(url, storage_options={**CREDENTIALS, **options})
    return everything(error.value, caplog)


def everything(error: BaseException, caplog: pytest.LogCaptureFixture) -> str:
    """Return all that is said of an error, without the lines of this program."""
    said = "".join(traceback.format_exception_only(error))
    return f"{said}{error!r}{error.args}{getattr(error, 'filename', '')}{caplog.text}"


def assert_silent(said: str) -> None:
    """Assert that no secret was said, in whole, in part or encoded."""
    for word in ("HIDDEN", "with+signs", "token=", "Signature", "X-Amz"):
        assert word not in said, said


@pytest.mark.parametrize("fault", ["403", "404", "500", "cut", "cut in head", "stall"])
def test_refusals_tell_no_secret(
    server: object_store.ObjectStore, caplog: pytest.LogCaptureFixture, fault: Fault
) -> None:
    with SlowProxy(server.port, choose=lambda _: fault, stall_s=5) as proxy:
        options = {"aws_endpoint": proxy.endpoint, "aws_region": "x", "retry_timeout": "500ms"}
        said = failed(f"s3://secret-{fault.replace(' ', '-')}/store", options, caplog)
    assert_silent(said)
    assert f"s3://secret-{fault.replace(' ', '-')}/store" in said


@pytest.mark.parametrize(
    ("url", "options", "what"),
    [
        ("s3://no-such-bucket/store", {}, "NoSuchBucket|no such"),
        ("s3://refused/store", {"aws_endpoint": "http://127.0.0.1:PORT"}, "error sending request|onnect"),
        ("s3://unknown-option/store", {"aws_sekret": "HIDDEN-four"}, 'storage option "aws_sekret"'),
        (
            "s3://addresses/store",
            {"randomize_addresses": "true"},
            'storage option "randomize_addresses": not supported',
        ),
        ("s3://bad-endpoint/store", {"aws_endpoint": "HIDDEN-five://"}, "aws_endpoint.*expected a URL"),
        ("s3://user:HIDDEN-six@bucket/..", {}, "expected a path without"),
        ("http://user:HIDDEN-seven@127.0.0.1:PORT/x?HIDDEN-eight", {}, "expected a URL without"),
        ("http://127.0.0.1:PORT/x", {}, "127.0.0.1"),
        ("gs://bucket/x", {"google_service_account_key": "HIDDEN-nine"}, "gs://bucket"),
        (
            "az://container/x",
            {"azure_storage_account_name": "a", "azure_storage_account_key": "HIDDEN-ten"},
            "az://container",
        ),
        ("s3n://HIDDEN-eleven:x@bucket/y", {}, "s3n"),
        (
            "s3a://KEY:HIDDEN/twelve@bucket/y",
            {},
            r"s3a://\*\*\*@bucket/y: expected a URL without user name and password",
        ),
        ("http://HIDDEN-thirteen@127.0.0.1:PORT/x", {}, "the storage options username and password"),
        ("hdfs://user:HIDDEN-fourteen@host:1/x", {}, "expected a URL without user name"),
        ("abfss://container:HIDDEN-fifteen@account/x", {}, "expected a URL without user name"),
        ("s3://bucket/x", {"aws_endpoint": "http://user:HIDDEN-sixteen@127.0.0.1:PORT"}, "without user and password"),
    ],
)
def test_errors_tell_no_secret(
    server: object_store.ObjectStore, caplog: pytest.LogCaptureFixture, url: str, options: dict[str, str], what: str
) -> None:
    port = str(free_port())
    basis = (
        {"aws_endpoint": f"http://127.0.0.1:{server.port}", "aws_region": "x", **CREDENTIALS}
        if url.startswith("s3:")
        else {}
    )
    given = {
        name: value.replace("PORT", port) for name, value in {**basis, **options, "retry_timeout": "300ms"}.items()
    }
    with caplog.at_level(logging.DEBUG), pytest.raises((OSError, ValueError), match=what) as error:
        MessageStore.open(url.replace("PORT", port), storage_options=given)
    assert_silent(everything(error.value, caplog))


def test_handles_and_commands_tell_no_secret(
    server: object_store.ObjectStore, store: Callable[[str], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    root = store("ipv6")
    url = server.put("ipv6", root)
    options = {**server.options, **CREDENTIALS}
    with MessageStore.open(url, storage_options=options) as opened:
        index = opened.index
        assert index is not None
        shown = [opened, opened.layout, opened.commit_log, index, *index.files, opened.root, opened.overview()]
        shown += [opened.verify(), opened.explain(opened.topics[0], "absent"), opened.commit_log.files]
        assert_silent("".join(f"{each!r}{each}" for each in shown))
    words = [word for pair in options.items() for word in ("--storage", "=".join(pair))]
    assert main(["info", url, *words]) == 0
    assert main(["info", f"{url}/none", *words]) == 2
    assert main(["info", url, "--storage", "HIDDEN-without-a-sign"]) == 2
    for command in ("info", "verify", "cat", "find", "explain"):
        words = ["orders", "key"] if command in ("find", "explain") else []
        assert main([command, "http://bob:HIDDEN-in-a-url@127.0.0.1:9/x", *words]) == 2
    assert main(["recover", "http://bob:HIDDEN-in-a-url@127.0.0.1:9/x"]) == 2
    assert_silent("".join(capsys.readouterr()))
