"""A real S3 server on loopback (moto), in a process of its own, that holds copies of directories.

The server reads the directories itself, so that no upload passes through HTTP. Times of files become times of objects, in
whole seconds: a broker's look-up by time may go by the time of a file.
"""

from __future__ import annotations

import contextlib
import logging
import os
import subprocess
import sys
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

REGION = "eu-west-1"
ACCESS_KEY = "AKIALOGDEXTEST"
SECRET = "a-secret-that-no-message-may-hold"  # noqa: S105 -- of a server that lives as long as the tests
BUCKET = "stores"


def options(endpoint: str) -> dict[str, str]:
    """Return the storage options of a server."""
    return {
        "aws_endpoint": endpoint,
        "aws_region": REGION,
        "aws_access_key_id": ACCESS_KEY,
        "aws_secret_access_key": SECRET,
    }


@dataclass
class ObjectStore:
    """A running server with one bucket."""

    port: int
    _process: subprocess.Popen[str]
    _held: set[str] = field(default_factory=set)

    @property
    def options(self) -> dict[str, str]:
        """The storage options of the server."""
        return options(f"http://127.0.0.1:{self.port}")

    def put(self, name: str, directory: Path) -> str:
        """Copy a directory or a file into the bucket, unless the name is there, and return its URL."""
        if name not in self._held:
            self._call("put", name, str(directory))
            self._held.add(name)
        return f"s3://{BUCKET}/{name}"

    def replace(self, name: str, file: Path) -> None:
        """Put a file in the place of an object."""
        self._call("put", name, str(file))

    def delete(self, name: str) -> None:
        """Delete one object."""
        self._call("delete", name)

    def _call(self, *words: str) -> None:
        commands, answers = self._process.stdin, self._process.stdout
        if commands is None or answers is None:
            raise ValueError("the server has no pipes")
        commands.write("\t".join(words) + "\n")
        commands.flush()
        if answers.readline() != "done\n":
            raise OSError(f"the server ended at {words}")


@contextlib.contextmanager
def serve() -> Iterator[ObjectStore]:
    """Run a server; it ends with the block, or with this process."""
    with subprocess.Popen(
        [sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        if process.stdout is None or process.stdin is None:
            raise ValueError("the server has no pipes")
        yield ObjectStore(int(process.stdout.readline()), process)
        process.stdin.close()


def whole_seconds(root: Path) -> Path:
    """Set the times of all files below a directory to whole seconds, as objects have them."""
    for path in sorted(root.rglob("*"), reverse=True):
        seconds = int(path.stat().st_mtime)
        os.utime(path, (seconds, seconds))
    return root


def _main() -> None:
    from moto.s3.models import s3_backends  # noqa: PLC0415 -- imported by the server's process only
    from moto.server import ThreadedMotoServer  # noqa: PLC0415 -- as above

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    backend: Any = s3_backends["123456789012"]["aws"]
    backend.create_bucket(BUCKET, REGION)
    _, port = server.get_host_and_port()
    sys.stdout.write(f"{port}\n")
    sys.stdout.flush()
    for line in sys.stdin:
        command, name, *places = line.rstrip("\n").split("\t")
        if command == "delete":
            backend.delete_object(BUCKET, name)
        for place in map(Path, places):
            for path in [place] if place.is_file() else sorted(place.rglob("*")):
                if path.is_file():
                    key = "/".join((name, *path.relative_to(place).parts))
                    placed = backend.put_object(BUCKET, key, path.read_bytes())
                    changed = datetime.fromtimestamp(int(path.stat().st_mtime), timezone.utc)
                    placed.last_modified = changed.replace(tzinfo=None)
        sys.stdout.write("done\n")
        sys.stdout.flush()
    server.stop()


if __name__ == "__main__":
    _main()
