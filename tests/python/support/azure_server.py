"""A real server of Azure Blob Storage on loopback (Azurite), in a process of its own. `make test-storage` installs it."""

from __future__ import annotations

import base64
import hashlib
import hmac
import http.client
import os
import re
import subprocess
from contextlib import contextmanager
from email.utils import formatdate
from pathlib import Path
from typing import TYPE_CHECKING

from logdex import _core

if TYPE_CHECKING:
    from collections.abc import Iterator

AZURITE = Path(__file__).parents[2] / "storage" / "node_modules" / "azurite" / "dist" / "src" / "blob" / "main.js"
# The account that every emulator has, with its published key.
ACCOUNT = "devstoreaccount1"
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
CONTAINER = "stores"


class Azure:
    """A running server with one container."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.options = {
            "azure_storage_endpoint": f"http://127.0.0.1:{port}/{ACCOUNT}",
            "azure_storage_account_name": ACCOUNT,
            "azure_storage_account_key": KEY,
        }

    def create_container(self) -> None:
        """Create the container."""
        headers = {"x-ms-date": formatdate(usegmt=True), "x-ms-version": "2023-11-03"}
        named = "".join(f"{name}:{value}\n" for name, value in headers.items())
        place = f"/{ACCOUNT}/{CONTAINER}"
        text = "PUT" + "\n" * 12 + f"{named}/{ACCOUNT}{place}\nrestype:container"
        signed = hmac.digest(base64.b64decode(KEY), text.encode(), hashlib.sha256)
        headers["Authorization"] = f"SharedKey {ACCOUNT}:{base64.b64encode(signed).decode()}"
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        connection.request("PUT", f"{place}?restype=container", headers={**headers, "Content-Length": "0"})
        answer = connection.getresponse()
        if answer.status != http.HTTPStatus.CREATED:
            raise OSError(f"no container: {answer.status} {answer.read().decode()}")
        connection.close()

    def put(self, name: str, root: Path) -> str:
        """Upload a directory, and return its URL."""
        url = f"az://{CONTAINER}/{name}"
        for path in sorted(root.rglob("*")):
            if path.is_file():
                _core.upload_file(path, _core.locate(f"{url}/{path.relative_to(root).as_posix()}", self.options))
        return url


@contextmanager
def serve(directory: Path) -> Iterator[Azure]:
    """Run a server until the end of the block."""
    if not AZURITE.exists():
        raise FileNotFoundError(f"{AZURITE} is missing: run `make test-storage`")
    command = [
        "node",
        str(AZURITE),
        "--blobPort",
        "0",
        "--location",
        str(directory),
        "--skipApiVersionCheck",
        "--silent",
    ]
    environment = {**os.environ, "NO_UPDATE_NOTIFIER": "1"}
    with subprocess.Popen(
        [*command, "--disableTelemetry"], stdout=subprocess.PIPE, text=True, env=environment
    ) as process:
        if process.stdout is None:
            raise ValueError("the server has no pipe")
        try:
            said = ""
            for line in process.stdout:
                said += line
                if ready := re.search(r"listens on http://127\.0\.0\.1:(\d+)", line):
                    server = Azure(int(ready[1]))
                    server.create_container()
                    yield server
                    break
            else:
                raise OSError(f"the server ended: {said}")
        finally:
            process.terminate()
            # It says good-bye, and fails if nobody reads that.
            process.stdout.read()
