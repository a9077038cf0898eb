"""`logdex copy` and `logdex recover`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import golden
from logdex.rocketmq import MessageStore, StoreWriter

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def state(root: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}


@pytest.mark.parametrize("case", golden.KILLED_STORES)
def test_recover_repairs_the_store_of_a_killed_broker(
    case: str, store: Callable[[str], Path], logdex_command: Callable[..., Any]
) -> None:
    root = store(case)
    ran = logdex_command("recover", root, "--json")
    assert ran.code == 0, ran.err
    (told,) = ran.rows
    assert told["ok"] is True
    assert told["checked"]["messages_dispatched"] > 0
    assert not (root / "abort").exists()
    assert logdex_command("verify", root).code == 0
    again = logdex_command("recover", root)
    assert (again.code, again.err) == (0, "")
    assert f"{root}: " in again.out


def test_recover_names_damage_and_changes_nothing(
    damaged_store: Callable[[str], Path], logdex_command: Callable[..., Any]
) -> None:
    root = damaged_store("crc-last-clean")
    before = state(root)
    ran = logdex_command("recover", root)
    assert ran.code == 1
    assert "valid messages behind it" in ran.err
    assert "nothing was changed" in ran.err
    (told,) = logdex_command("recover", root, "--json").rows
    assert (told["ok"], told["offset"] > 0) == (False, True)
    assert state(root) == before
    cut = logdex_command("recover", root, "--truncate")
    assert cut.code == 1
    assert "log-frame" in cut.err
    assert "messages cut off" in cut.out
    assert logdex_command("verify", root).code == 0
    assert logdex_command("recover", root).code == 0


def test_recover_wants_a_store(tmp_path: Path, logdex_command: Callable[..., Any]) -> None:
    for path in (tmp_path, tmp_path / "none"):
        ran = logdex_command("recover", path)
        assert ran.code == 2
        assert "no store" in ran.err
    assert list(tmp_path.iterdir()) == []


def test_recover_leaves_a_running_broker_alone(
    store: Callable[[str], Path], logdex_command: Callable[..., Any]
) -> None:
    root = store("sync")
    with StoreWriter.open(root, services=False):
        ran = logdex_command("recover", root)
        assert ran.code == 2
        assert "held by process" in ran.err


def test_copy_of_a_topic(store: Callable[[str], Path], tmp_path: Path, logdex_command: Callable[..., Any]) -> None:
    root, target = store("basic"), tmp_path / "copy"
    ran = logdex_command("copy", root, target, "--topic", "AaTopic", "--json")
    assert ran.code == 0, ran.err
    (told,) = ran.rows
    count = sum(row["topic"] == "AaTopic" for row in golden.rows("basic", "messages"))
    assert told["checked"]["messages"] == count
    assert logdex_command("verify", target).code == 0
    with MessageStore.open(target) as copied:
        assert copied.topics == ["AaTopic"]
    full = logdex_command("copy", root, target)
    assert full.code == 2
    assert "expected a missing or empty directory" in full.err
    none = logdex_command("copy", root, tmp_path / "none", "--topic", "nobody")
    assert none.code == 1
    assert f"{count:,} messages" in logdex_command("copy", root, tmp_path / "again", "--topic", "AaTopic").out


def test_copy_names_damage(
    damaged_store: Callable[[str], Path], tmp_path: Path, logdex_command: Callable[..., Any]
) -> None:
    ran = logdex_command("copy", damaged_store("crc-last-clean"), tmp_path / "copy")
    assert ran.code == 1
    assert "log-frame" in ran.err
