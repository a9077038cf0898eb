"""A disk whose writes and flushes are recorded, so that the power can be cut afterwards at any moment.

A FUSE file system with two files: `disk` holds the blocks of a file system on a loop device, and what is written to `notes` is
recorded among its writes. It needs root and Linux's FUSE and loop devices, nothing else.

    python block_device.py MOUNT BYTES RECORD
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import struct
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import random
    from collections.abc import Iterator

DISK, NOTES = "disk", "notes"
WRITE, FLUSH, NOTE = range(3)
_ENTRY = struct.Struct("<BQI")
"""Kind, offset and length of an entry in the record; its bytes follow."""
_PAGE = 4096

# The FUSE protocol, version 7.31: operations by their numbers.
_HEAD = struct.Struct("<IIQQIIIHH")
_LOOKUP, _GETATTR, _SETATTR, _OPEN, _READ, _WRITE, _STATFS, _RELEASE, _FSYNC = 1, 3, 4, 14, 15, 16, 17, 18, 20
_FLUSH, _INIT, _OPENDIR, _READDIR, _RELEASEDIR, _FALLOCATE = 25, 26, 27, 28, 29, 43
_NO_ANSWER = (2, 36, 42)
"""FORGET, INTERRUPT, BATCH_FORGET."""
_FOREVER = 1 << 30
_DIRECT_IO = 1
_MOST_BYTES = 131_072
_ROOT_NODE, _DISK_NODE, _NOTES_NODE = 1, 2, 3


class Entry(NamedTuple):
    """An entry of the record: a write, a flush, or a note."""

    kind: int
    offset: int
    data: bytes


def _attributes(node: int, size: int) -> bytes:
    mode = 0o40755 if node == _ROOT_NODE else 0o100600
    length = size if node == _DISK_NODE else 0
    return struct.pack("<6Q10I", node, length, length // 512, 0, 0, 0, 0, 0, 0, mode, 1, 0, 0, 0, _PAGE, 0)


def serve(mount: str, size: int, record: str) -> None:
    """Mount the file system and serve it until it is unmounted."""
    device = os.open("/dev/fuse", os.O_RDWR)
    options = f"fd={device},rootmode=40000,user_id=0,group_id=0,max_read={_MOST_BYTES}".encode()
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mount(b"block_device", mount.encode(), b"fuse", 0, options):
        raise OSError(ctypes.get_errno(), "mount", mount)
    disk = bytearray(size)
    with Path(record).open("wb", buffering=1 << 20) as out:

        def note(kind: int, offset: int = 0, data: bytes = b"") -> None:
            out.write(_ENTRY.pack(kind, offset, len(data)) + data)

        sys.stdout.write("mounted\n")
        sys.stdout.flush()
        while True:
            try:
                request = os.read(device, 1 << 20)
            except OSError as error:
                if error.errno == errno.ENODEV:
                    return
                continue
            _, operation, unique, node, *_ = _HEAD.unpack_from(request)
            if operation in _NO_ANSWER:
                continue
            answer, failure = _answer(operation, node, request[_HEAD.size :], disk, note)
            with contextlib.suppress(FileNotFoundError):
                # The caller of an interrupted request is gone.
                os.write(device, struct.pack("<IiQ", 16 + len(answer), -failure, unique) + answer)


def _answer(operation: int, node: int, body: bytes, disk: bytearray, note) -> tuple[bytes, int]:  # type: ignore[no-untyped-def]  # noqa: ANN001, C901, PLR0911
    size = len(disk)
    if operation == _INIT:
        return struct.pack("<4I2H2I2H2I24x", 7, 31, _MOST_BYTES, 1 << 5, 16, 12, _MOST_BYTES, 1, 32, 0, 0, 0), 0
    if operation == _LOOKUP:
        found = {DISK.encode(): _DISK_NODE, NOTES.encode(): _NOTES_NODE}.get(body.rstrip(b"\0"))
        if found is None:
            return b"", errno.ENOENT
        return struct.pack("<4Q2I", found, 0, _FOREVER, _FOREVER, 0, 0) + _attributes(found, size), 0
    if operation in (_GETATTR, _SETATTR):
        return struct.pack("<Q2I", _FOREVER, 0, 0) + _attributes(node, size), 0
    if operation in (_OPEN, _OPENDIR):
        return struct.pack("<QIi", node, _DIRECT_IO if node == _NOTES_NODE else 0, 0), 0
    if operation == _READ:
        _, offset, length = struct.unpack_from("<2QI", body)
        return (bytes(disk[offset : offset + length]) if node == _DISK_NODE else b""), 0
    if operation == _WRITE:
        _, offset, length = struct.unpack_from("<2QI", body)
        data = body[40 : 40 + length]
        if node == _DISK_NODE:
            disk[offset : offset + length] = data
        note(WRITE if node == _DISK_NODE else NOTE, offset, data)
        return struct.pack("<2I", length, 0), 0
    if operation == _FSYNC and node == _DISK_NODE:
        note(FLUSH)
    if operation == _STATFS:
        return struct.pack("<5Q4I24x", size // _PAGE, 0, 0, 2, 0, _PAGE, 255, _PAGE, 0), 0
    known = (_FSYNC, _FLUSH, _RELEASE, _RELEASEDIR, _READDIR)
    return b"", 0 if operation in known else errno.EOPNOTSUPP if operation == _FALLOCATE else errno.ENOSYS


def _run(*command: object) -> str:
    done = subprocess.run([*map(str, command)], check=True, capture_output=True, text=True)
    return done.stdout.strip()


@contextlib.contextmanager
def mounted(image: Path, mount: Path) -> Iterator[Path]:
    """Mount the file system of an image on a loop device."""
    mount.mkdir(exist_ok=True)
    loop = _run("losetup", "-f", "--show", image)
    try:
        _run("mount", loop, mount)
        try:
            yield mount
        finally:
            _run("umount", mount)
    finally:
        _run("losetup", "-d", loop)


@contextlib.contextmanager
def recorded(home: Path, size: int, record: Path) -> Iterator[tuple[Path, Path]]:
    """Mount an empty ext4 on a recorded disk; yield its directory and the file of the notes."""
    device = home / "device"
    device.mkdir()
    command = [sys.executable, __file__, str(device), str(size), str(record)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as server:
        assert server.stdout is not None
        assert server.stdout.readline() == b"mounted\n"
        try:
            _run("mkfs.ext4", "-q", "-b", _PAGE, device / DISK)
            with mounted(device / DISK, home / "disk") as directory:
                _run("sync", "-f", directory)
                # The first moment at which the power may be cut.
                (device / NOTES).write_bytes(b"mounted\n")
                yield directory, device / NOTES
        finally:
            # The loop device may be released a little later.
            _run("umount", "--lazy", device)


def entries(record: Path) -> list[Entry]:
    """Return the entries of a record."""
    data = record.read_bytes()
    found, at = [], 0
    while at < len(data):
        kind, offset, length = _ENTRY.unpack_from(data, at)
        at += _ENTRY.size
        found.append(Entry(kind, offset, data[at : at + length]))
        at += length
    return found


def cuts(record: list[Entry], size: int, count: int, choice: random.Random) -> Iterator[tuple[bytes, bytearray]]:
    """Yield the notes up to a moment, and the disk after a cut there: any blocks written since the last flush."""
    disk, done = bytearray(size), 0
    first = next(number for number, entry in enumerate(record) if entry.kind == NOTE)
    for moment in sorted(choice.randrange(first, len(record)) for _ in range(count)):
        flushed = max((number for number in range(done, moment) if record[number].kind == FLUSH), default=done)
        for entry in record[done:flushed]:
            if entry.kind == WRITE:
                disk[entry.offset : entry.offset + len(entry.data)] = entry.data
        done = flushed
        cut, kept = bytearray(disk), choice.choice([0.0, 1.0, choice.random(), choice.random()])
        for entry in record[done:moment]:
            for at in range(0, len(entry.data) if entry.kind == WRITE else 0, _PAGE):
                if choice.random() < kept:
                    block = entry.data[at : at + _PAGE]
                    cut[entry.offset + at : entry.offset + at + len(block)] = block
        yield b"".join(entry.data for entry in record[:moment] if entry.kind == NOTE), cut


if __name__ == "__main__":
    serve(sys.argv[1], int(sys.argv[2]), sys.argv[3])
