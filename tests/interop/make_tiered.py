"""Make the cases of tests/golden/kafka-tiered: what a broker and its plugin for remote storage wrote, and what a consumer read.

    python tests/interop/make_tiered.py DIR                    Kafka's own test plugin: the case `local`
    python tests/interop/make_tiered.py DIR --aiven JARS       Aiven's plugin, whose jars are in a directory: the other cases

`make interop` fetches Kafka. The keys of an encrypted case are made here, for this case alone.
"""

from __future__ import annotations

import argparse
import json
import lzma
import shutil
import subprocess
import tarfile
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tiered_cluster

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_KAFKA = "3.9.2"
_AIVEN = "1.0.0"
_CHUNK_BYTES = 1_000
_KEYS = ("key-1", "key-2")
_CASES: dict[str, dict[str, object]] = {
    "aiven": {},
    "aiven-zstd": {"compression.enabled": "true", "compression.heuristic.enabled": "true"},
    "aiven-encrypted": {"encryption.enabled": "true"},
    "aiven-encrypted-zstd": {"encryption.enabled": "true", "compression.enabled": "true"},
}


def main() -> None:
    """Make the cases."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--aiven", type=Path)
    arguments = parser.parse_args()
    for case in ["local"] if arguments.aiven is None else list(_CASES):
        target: Path = arguments.directory / case
        shutil.rmtree(target, ignore_errors=True)
        target.mkdir(parents=True)
        with tempfile.TemporaryDirectory() as home:
            _make(case, target, Path(home), arguments.aiven)
        print(case, sum(file.stat().st_size for file in target.iterdir()))  # noqa: T201 - a script


def _make(case: str, target: Path, home: Path, jars: Path | None) -> None:
    remote = home / "remote"
    remote.mkdir()
    settings = {} if jars is None else _CASES[case]
    keys = target if "encryption.enabled" in settings else None
    if keys is not None:
        for name in _KEYS:
            _make_key(keys / f"{name}.pem", home / f"{name}.public.pem")

    def plugin(phase: int) -> Mapping[str, object]:
        return tiered_cluster.local_plugin(remote) if jars is None else _aiven(jars, home, settings, keys, phase)

    tiered = tiered_cluster.run(home, plugin, remote)
    for name, directory in (("before", tiered.before), ("after", tiered.after), ("remote", tiered.remote)):
        _pack(directory, target / f"{name}.tar.xz", _wanted(directory, name))
    uncommitted, committed = tiered.served["before read_uncommitted"], tiered.served["before read_committed"]
    kept = {_place(row) for row in committed}
    same = tiered.served["after read_uncommitted"] == uncommitted and tiered.served["after read_committed"] == committed
    rows = [{**row, "readCommitted": _place(row) in kept} for row in uncommitted]
    text = "".join(json.dumps(row) + "\n" for row in rows)
    (target / "records.jsonl.xz").write_bytes(lzma.compress(text.encode(), preset=9))
    info: dict[str, Any] = {
        "kafka": _KAFKA,
        "plugin": "kafka-storage:test LocalTieredStorage" if jars is None else "Aiven tiered-storage-for-apache-kafka",
        "pluginVersion": _KAFKA if jars is None else _AIVEN,
        "settings": settings | ({} if jars is None else {"chunk.size": _CHUNK_BYTES}),
        "consumerReadTheSameAfterwards": same,
        "records": len(rows),
        "offsets": tiered.offsets,
    }
    (target / "case.json").write_text(json.dumps(info, indent=1) + "\n", encoding="ascii")


def _aiven(jars: Path, home: Path, settings: Mapping[str, object], keys: Path | None, phase: int) -> dict[str, object]:
    config = {"chunk.size": _CHUNK_BYTES, **settings}
    if keys is not None:
        # The last phase has another key, as after a rotation.
        config |= {"encryption.key.pair.id": _KEYS[phase == tiered_cluster.PHASES - 1]}
        config |= {"encryption.key.pairs": ",".join(_KEYS)}
        for name in _KEYS:
            config |= {f"encryption.key.pairs.{name}.private.key.file": keys.absolute() / f"{name}.pem"}
            config |= {f"encryption.key.pairs.{name}.public.key.file": home / f"{name}.public.pem"}
    return {
        "remote.log.storage.manager.class.name": "io.aiven.kafka.tieredstorage.RemoteStorageManager",
        "remote.log.storage.manager.class.path": f"{jars.absolute()}/*",
        "rsm.config.storage.backend.class": "io.aiven.kafka.tieredstorage.storage.filesystem.FileSystemStorage",
        "rsm.config.storage.root": home / "remote",
        **{f"rsm.config.{name}": value for name, value in config.items()},
    }


def _make_key(private: Path, public: Path) -> None:
    openssl = shutil.which("openssl") or "openssl"
    options = ["-algorithm", "RSA", "-pkeyopt", "rsa_keygen_bits:2048", "-out", str(private)]
    subprocess.run([openssl, "genpkey", *options], check=True, capture_output=True)
    subprocess.run([openssl, "pkey", "-in", str(private), "-pubout", "-out", str(public)], check=True)


def _place(row: Mapping[str, Any]) -> tuple[str, int, int]:
    return row["topic"], row["partition"], row["offset"]


def _wanted(directory: Path, name: str) -> list[Path]:
    """Return the files of a case: of a log directory, the partitions of the topics and the files beside them."""
    files = sorted(file for file in directory.rglob("*") if file.is_file())
    if name == "remote":
        return files
    partitions = {f"{topic}-{number}" for topic, (count, _) in tiered_cluster.TOPICS.items() for number in range(count)}
    return [file for file in files if file.parent == directory or file.parent.name in partitions]


def _pack(directory: Path, archive: Path, files: Iterable[Path]) -> None:
    def plain(entry: tarfile.TarInfo) -> tarfile.TarInfo:
        entry.uid = entry.gid = 0
        entry.uname = entry.gname = ""
        return entry

    with tarfile.open(archive, "w:xz", preset=9) as tar:
        for file in files:
            tar.add(file, arcname=file.relative_to(directory).as_posix(), filter=plain)


if __name__ == "__main__":
    main()
