"""Loads the golden data under tests/golden: stores of real brokers, and the brokers' own answers about them.

tests/golden/README.md says where the data comes from and what every file of a case means. Nothing here imports logdex: what
a test compares with must not pass through the code under test.
"""

from __future__ import annotations

import json
import lzma
import os
import shutil
import tarfile
from decimal import Decimal
from pathlib import Path, PurePosixPath
from typing import Any

ROOT = Path(__file__).resolve().parents[2] / "golden" / "rocketmq"

CLEAN_STORES = ("basic", "cqext", "ipv6", "pool", "rolled", "sync", "v5-3-3", "v5-basic")
KILLED_STORES = ("killed", "rolled-killed", "v5-killed")
STORES = tuple(sorted(CLEAN_STORES + KILLED_STORES))
"""Cases with a store, by the name of their folder."""


def _names(folder: str, suffix: str) -> tuple[str, ...]:
    names = {file.name.split(".", 1)[0] for file in (ROOT / folder).iterdir() if suffix in file.name}
    return tuple(sorted(names))


DAMAGED = _names("damaged", ".json")
"""Exact damages of the store `basic`."""

INDEX_FILES = tuple(name for name in _names("indexfile", ".json") if name != "large")
"""Single index files with their puts and answers, without `large`, whose puts follow from a rule."""


def path(case: str) -> Path:
    """Return the folder of a case."""
    folder = ROOT / case
    if not folder.is_dir():
        raise ValueError(f"no such golden case: {case}")
    return folder


def _read(folder: str, name: str) -> bytes:
    plain = ROOT / folder / name
    return plain.read_bytes() if plain.exists() else lzma.decompress(plain.with_name(f"{name}.xz").read_bytes())


def has_rows(case: str, name: str) -> bool:
    """Return whether a case has a file NAME.jsonl or NAME.jsonl.xz."""
    return any((path(case) / f"{name}.jsonl{suffix}").exists() for suffix in ("", ".xz"))


def rows(case: str, name: str) -> list[dict[str, Any]]:
    """Read NAME.jsonl or NAME.jsonl.xz of a case, one dict a line; never an empty list.

    Strings may hold lone surrogates where a broker's own string held them.
    """
    lines = [json.loads(line) for line in _read(case, f"{name}.jsonl").splitlines()]
    if not lines:
        raise ValueError(f"{case}/{name}.jsonl is empty, so a test over it would compare nothing")
    return lines


def info(case: str) -> dict[str, Any]:
    """Read case.json: broker, store properties, zone, files, and what a load of the store says."""
    value: dict[str, Any] = json.loads(_read(case, "case.json"))
    return value


def geometry(case: str) -> tuple[int, int]:
    """Return hash slots and maximum entries of a store's index files."""
    store = info(case)["store"]
    return store["maxHashSlotNum"], store["maxIndexNum"]


def unpack(case: str, directory: Path) -> Path:
    """Unpack the store of a case as `directory/store`, file times kept to the nanosecond, and return that path.

    Look-ups by time in 4.9.3 go by the times of the files. `tarfile` itself keeps only what a float holds, so the times are
    taken from the archive's own text.
    """
    root = directory / "store"
    times: list[tuple[Path, int]] = []
    with tarfile.open(path(case) / "store.tar.xz") as archive:
        for member in archive:
            relative = PurePosixPath(member.name)
            if relative.parts[0] != "store" or ".." in relative.parts:
                raise ValueError(f"{case}/store.tar.xz: {member.name} lies outside of store/")
            target = directory.joinpath(*relative.parts)
            if member.isdir():
                target.mkdir(parents=True)
            else:
                content = archive.extractfile(member)
                if content is None:
                    raise ValueError(f"{case}/store.tar.xz: {member.name} is neither file nor folder")
                with content, target.open("xb") as file:
                    shutil.copyfileobj(content, file)
            times.append((target, int(Decimal(member.pax_headers.get("mtime", str(member.mtime))) * 1_000_000_000)))
    # Folders after what lies in them: writing a file changes the time of its folder.
    for target, ns in reversed(times):
        os.utime(target, ns=(ns, ns))
    return root


def damaged(name: str) -> dict[str, Any]:
    """Read a case of damaged/: the patches, and what the real store then answers and does."""
    value: dict[str, Any] = json.loads(_read("damaged", f"{name}.json"))
    return value


def unpack_damaged(name: str, directory: Path) -> Path:
    """Unpack the store that a case of damaged/ starts from, apply its patches in order, and return the store's path."""
    case = damaged(name)
    root = unpack(case["base"].removeprefix("../"), directory)
    for patch in case["patches"]:
        _apply(root.joinpath(*PurePosixPath(patch["path"]).parts), patch)
    return root


def _apply(target: Path, patch: dict[str, Any]) -> None:
    content = bytes.fromhex(patch.get("hex", ""))
    match patch["op"]:
        case "truncate":
            os.truncate(target, patch["size"])
        case "write":
            with target.open("r+b") as file:
                file.seek(patch["offset"])
                if "was" in patch and file.read(len(content)) != bytes.fromhex(patch["was"]):
                    raise ValueError(f"{target} does not hold the bytes that the patch replaces")
                file.seek(patch["offset"])
                file.write(content)
        case "create":
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(content)
        case "mkdir":
            target.mkdir(parents=True)
        case "delete":
            if target.is_dir():
                shutil.rmtree(target)
            else:
                target.unlink()
        case other:
            raise ValueError(f"unknown patch: {other}")


def index_file(name: str) -> dict[str, Any]:
    """Read a case of indexfile/: geometry, seeds, puts with their results, questions with the real class's answers."""
    value: dict[str, Any] = json.loads(_read("indexfile", f"{name}.json"))
    return value


def index_file_bytes(name: str) -> bytes:
    """Read the bytes that the real class left for a case of indexfile/."""
    return _read("indexfile", f"{name}.bin")
