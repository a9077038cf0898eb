"""Fixtures of the tests of servers."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
from typing import TYPE_CHECKING, Any

import pytest

from logdex import rocketmq

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from pathlib import Path


@pytest.fixture
def run(root: Path) -> Callable[..., None]:
    """Return `run(test, **options)`, which runs a coroutine with a server over the store."""

    def run(test: Callable[[rocketmq.Server], Coroutine[Any, Any, None]], **options: Any) -> None:
        async def body() -> None:
            async with rocketmq.serve(root, port=0, **options) as server:
                await test(server)

        asyncio.run(body())

    return run


@pytest.fixture
def certificate(tmp_path: Path) -> tuple[Path, Path]:
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("needs openssl to make a certificate")
    files = tmp_path / "cert.pem", tmp_path / "key.pem"
    request = [openssl, "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=localhost"]
    subprocess.run([*request, "-keyout", files[1], "-out", files[0]], check=True, capture_output=True)
    return files
