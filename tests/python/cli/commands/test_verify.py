"""The verdict of `logdex verify`: what is lost, whether the real broker started, and the next command, which helps."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import golden
import golden_kafka
from logdex.kafka import LogDirWriter
from logdex.report import MEANINGS
from logdex.rocketmq import MessageStore

if TYPE_CHECKING:
    from collections.abc import Callable

DAMAGED = sorted(path.name.removesuffix(".json.xz") for path in golden.path("damaged").glob("*.json.xz"))
GEOMETRY = ("--hash-slots", 64, "--max-entries", 256)


@pytest.mark.parametrize("case", DAMAGED)
def test_a_verdict_is_what_the_broker_did(case: str, tmp_path: Path, logdex_command: Callable[..., Any]) -> None:
    root = golden.unpack_damaged(case, tmp_path)
    (*rows, last) = logdex_command("verify", root, "--json", *GEOMETRY).rows
    assert rows
    assert all(row["severity"] in MEANINGS for row in rows)
    whole = len(golden.rows("basic", "messages"))
    assert last["lost"] == (None if last["checked"]["messages"] == whole else "at least 1 message")
    opened = golden.damaged(case).get("storeOpen", {"ok": True})
    assert last["broker_starts"]["4.9.3"] == opened["ok"]
    text = logdex_command("verify", root, *GEOMETRY)
    assert text.code == 1
    verdict = text.out.split("\nverdict: ")[1]
    assert ("(4.9.3" in verdict.split("\n")[0]) == (not opened["ok"])
    # A broker that truncated the log was announced.
    if opened["ok"] and opened.get("maxPhyOffset", 313_165) < 313_165:
        assert "truncate" in verdict
        assert "next      logdex copy " in verdict


def test_the_next_command_keeps_all_messages(tmp_path: Path, logdex_command: Callable[..., Any]) -> None:
    followed = 0
    for number, case in enumerate(DAMAGED):
        root = golden.unpack_damaged(case, tmp_path / str(number))
        (*_, last) = logdex_command("verify", root, "--json", *GEOMETRY).rows
        if not last["next"]:
            assert set(last["severities"]) == {"harmless"} or not all(last["broker_starts"].values()), case
            continue
        for place, command in enumerate(last["next"]):
            new = tmp_path / f"{number}-new-{place}"
            words = shlex.split(command.replace("NEW_STORE", str(new)).replace("NEW_DIR", str(new)))[1:]
            ran = logdex_command(*words, *(() if words[0] in ("copy", "build-queues") else GEOMETRY))
            # A copy reports the damage, too, and a repair in place that would lose messages is refused.
            assert ran.code in ((0, 1) if last["lost"] else (0,)), (case, command, ran.err)
            followed += 1
            if words[0] == "copy":
                with MessageStore.open(new) as copied:
                    assert copied.verify().ok
                    assert sum(batch.num_rows for batch in copied.messages()) == last["checked"]["messages"]
    assert followed > 15


def test_a_verdict_of_an_index(tmp_path: Path, logdex_command: Callable[..., Any]) -> None:
    root = golden.unpack_damaged("index-wild-prev", tmp_path)
    for path in (root / "index", *(root / "index").glob("20261121193006196")):
        out = logdex_command("verify", path, *GEOMETRY).out
        assert "\nverdict: nothing is lost, but a broker misses messages or answers wrongly until a repair\n" in out
        assert f"  next      logdex build-index {root} NEW_DIR\n" in out
    alone = (root / "index").rename(tmp_path / "alone")
    assert "next      logdex build-index STORE NEW_DIR\n" in logdex_command("verify", alone, *GEOMETRY).out


def test_a_valid_store_has_no_verdict(store: Callable[[str], Path], logdex_command: Callable[..., Any]) -> None:
    root = store("basic")
    assert "verdict" not in logdex_command("verify", root).out
    (last,) = logdex_command("verify", root, "--json").rows
    assert (last["severities"], last["lost"], last["next"]) == ({}, None, [])
    assert last["broker_starts"] == {"4.9.3": True, "5.5.0": True}


def test_missing_log_files_are_named(store: Callable[[str], Path], logdex_command: Callable[..., Any]) -> None:
    root = store("basic")
    (root / "commitlog" / "00000000000000131072").unlink()
    (*_, last) = logdex_command("verify", root, "--json").rows
    rows = golden.rows("basic", "messages")
    gone = [row for row in rows if 131_072 <= row["physicalOffset"] < 196_608]
    assert last["lost"] == f"at least {len(gone)} messages and the messages of 1 missing part of the log"


KAFKA_CASES = sorted(path.name for path in golden_kafka.path("codecs", "log.tar.xz").parents[1].glob("damaged-*"))


@pytest.mark.parametrize("case", KAFKA_CASES)
def test_a_verdict_of_a_kafka_log(case: str, tmp_path: Path, logdex_command: Callable[..., Any]) -> None:
    root = golden_kafka.unpack(case, tmp_path / case)
    ran = logdex_command("verify", root, "--json")
    (*rows, last) = ran.rows
    assert rows
    lost = {row["kind"] for row in rows if row["severity"] == "lost"}
    assert bool(lost) == (last["lost"] is not None)
    text = logdex_command("verify", root).out.split("\nverdict: ")[1]
    assert ("damaged batch" in text.split("\n")[0] or "missing segment" in text.split("\n")[0]) == bool(lost)
    (command,) = last["next"]
    words = shlex.split(command)[1:]
    assert words[0] == "recover"
    assert Path(words[1]).is_dir()


def test_what_stops_a_kafka_broker(tmp_path: Path, logdex_command: Callable[..., Any]) -> None:
    root = tmp_path / "logs"
    with LogDirWriter.open(root) as writer:
        writer.create_topic("t", 1, topic_id="bG9nZGV4LXRvcGljLWlkMA")
        writer.append("t", 0, {"value": [b"x"], "timestamp": [1_700_000_000_000]})

    def starts() -> bool:
        last = logdex_command("verify", root, "--json").rows[-1]
        (answer,) = last["broker_starts"].values()
        return bool(answer)

    assert starts()
    for name in (
        "replication-offset-checkpoint",
        "recovery-point-offset-checkpoint",
        "t-0/leader-epoch-checkpoint",
        "t-0/partition.metadata",
    ):
        path = root / name
        before = path.read_bytes() if path.exists() else None
        path.write_bytes(bytes(20))
        assert not starts(), name
        if before is None:
            path.unlink()
        else:
            path.write_bytes(before)
        assert starts(), name
    (root / "lost+found").mkdir()
    assert not starts()
    ran = logdex_command("verify", root)
    assert ran.code == 1
    assert "\nverdict: a broker (4.3.1) does not start; nothing is lost\n" in ran.out
    assert f"4.3.1: does not start; move it away: {root / 'lost+found'} at byte 0" in ran.out
    ran = logdex_command("recover", root)
    assert ran.code == 1
    assert "a broker does not start with this log directory; left to do by hand:\n  move away or restore " in ran.out
    (root / "lost+found").rmdir()
    assert starts()
    assert logdex_command("recover", root).out.endswith("\na broker starts with this log directory\n")


def test_recover_reports_what_is_lost(store: Callable[[str], Path], logdex_command: Callable[..., Any]) -> None:
    root = store("basic")
    log = root / "commitlog" / "00000000000000000000"
    content = bytearray(log.read_bytes())
    content[1_131 + 300] ^= 1
    log.write_bytes(content)
    ran = logdex_command("recover", root, "--dry-run", "--json")
    (finding, last) = ran.rows
    assert (finding["kind"], finding["severity"], finding["repaired"]) == ("log-frame", "lost", False)
    assert last["severities"] == {"lost": {"log-frame": 1}}
    assert f"lost: 1 log-frame: {MEANINGS['lost']}\n" in logdex_command("recover", root, "--dry-run").out
    json.dumps(last)
