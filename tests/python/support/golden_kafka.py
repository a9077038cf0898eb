"""Loads the golden data under tests/golden/kafka: logs of real Kafka brokers, and the real classes' own answers about them.

tests/golden/kafka/README.md says where the data comes from and what every file of a case means. Nothing here imports logdex:
what a test compares with must not pass through the code under test.
"""

from __future__ import annotations

import functools
import json
import lzma
import os
import tarfile
from decimal import Decimal
from pathlib import Path, PurePosixPath
from typing import Any

ROOT = Path(__file__).resolve().parents[2] / "golden" / "kafka"

CASES = tuple(sorted(folder.name for folder in ROOT.iterdir() if folder.is_dir()))
"""All cases, by the name of their folder."""

DAMAGED = tuple(case for case in CASES if case.startswith("damaged-"))
"""Cases whose files were damaged after the broker stopped."""

SOUND = tuple(case for case in CASES if case not in DAMAGED)
"""Cases whose files are as a broker, stopped or killed, left them."""

_ZERO_BLOCK = bytes(1 << 16)


def path(case: str, name: str) -> Path:
    """Return a file of a case, which may be stored with a further ending .xz."""
    plain = ROOT / case / name
    return plain if plain.exists() else plain.with_name(f"{name}.xz")


def text(case: str, name: str) -> str:
    """Read a text file of a case; bytes that are no UTF-8 become surrogates."""
    file = path(case, name)
    content = file.read_bytes()
    return (lzma.decompress(content) if file.suffix == ".xz" else content).decode(errors="surrogateescape")


def has_rows(case: str, name: str) -> bool:
    """Return whether a case has a file NAME.jsonl."""
    return path(case, f"{name}.jsonl").exists()


@functools.lru_cache(maxsize=64)
def rows(case: str, name: str) -> list[dict[str, Any]]:
    """Read NAME.jsonl of a case, one dict a line; never an empty list. Do not change what it gives."""
    lines = [json.loads(line) for line in text(case, f"{name}.jsonl").splitlines()]
    if not lines:
        raise ValueError(f"{case}/{name}.jsonl is empty, so a test over it would compare nothing")
    return lines


def info(case: str) -> dict[str, Any]:
    """Read case.json: the release, topics, damage, and what the case is for."""
    value: dict[str, Any] = json.loads(text(case, "case.json"))
    return value


def release(case: str) -> str:
    """Return the Kafka release that wrote a case and answered for it."""
    value: str = info(case)["kafka"]
    return value


def segment_path(directory: Path, row: dict[str, Any], suffix: str = "log") -> Path:
    """Return the file of a segment that a row of answers is about."""
    return Path(directory, row["dir"], f"{row['segment']:020d}.{suffix}")


def unpack(case: str, directory: Path, archive: str = "log.tar.xz") -> Path:
    """Unpack an archive of a case into `directory`, file times kept, and return that path.

    The times matter: a segment without timestamps takes part in a search by time with that of its file. Blocks of zeros
    become holes, as in the untrimmed indexes of a killed broker.
    """
    return unpack_archive(ROOT / case / archive, directory)


def unpack_archive(archive: Path, directory: Path) -> Path:
    """Unpack an archive into `directory`, as `unpack` does."""
    times: list[tuple[Path, int]] = []
    with tarfile.open(archive) as tar:
        for member in tar:
            relative = PurePosixPath(member.name)
            if relative.is_absolute() or ".." in relative.parts:
                raise ValueError(f"{archive}: {member.name} lies outside")
            target = directory.joinpath(*relative.parts)
            if member.isdir():
                target.mkdir(parents=True, exist_ok=True)
            else:
                target.parent.mkdir(parents=True, exist_ok=True)
                _write_sparse(tar, member, target)
            times.append((target, int(Decimal(member.pax_headers.get("mtime", str(member.mtime))) * 1_000_000_000)))
    # Folders after what lies in them: writing a file changes the time of its folder.
    for target, ns in reversed(times):
        os.utime(target, ns=(ns, ns))
    return directory


def _write_sparse(tar: tarfile.TarFile, member: tarfile.TarInfo, target: Path) -> None:
    content = tar.extractfile(member)
    if content is None:
        raise ValueError(f"{member.name} is neither file nor folder")
    with content, target.open("xb") as file:
        while block := content.read(len(_ZERO_BLOCK)):
            if block == _ZERO_BLOCK[: len(block)]:
                file.seek(len(block), os.SEEK_CUR)
            else:
                file.write(block)
        file.truncate(member.size)
