"""A command offers only the flags that it takes. The commands and their flags come from the parsers."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

import pytest

import golden_tiered
from logdex.cli import commands, parser

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


def all_commands(root: argparse.ArgumentParser, name: str = "") -> Iterator[tuple[str, argparse.ArgumentParser]]:
    """Return every command with its parser; the commands of a group by both words."""
    for action in root._actions:
        if isinstance(action, argparse._SubParsersAction):
            for word, below in action.choices.items():
                yield from all_commands(below, f"{name} {word}".strip())
            return
    yield name, root


COMMANDS = dict(all_commands(parser()))


def offers(name: str, flag: str) -> bool:
    return flag in COMMANDS[name]._option_string_actions


def test_the_parsers_are_those_of_the_registry() -> None:
    assert len(commands.names()) > 15
    assert {name.partition(" ")[0] for name in COMMANDS} == set(commands.names())
    for name in commands.names():
        assert commands.load(name).name == name


def test_options_of_an_object_store_are_for_commands_that_read_a_url() -> None:
    without = {name for name in COMMANDS if not offers(name, "--storage")}
    # The first changes a store on this machine, the second reads a broker.
    assert without == {"recover", "replicate"}


_WORDS: dict[str, Callable[[Path], list[object]]] = {
    "find": lambda _: ["plain", "key-1"],
    "explain": lambda _: ["plain", "key-1"],
    "kafka find": lambda _: ["plain", "key-1"],
    "grep": lambda new: [new / "tiered" / "after"],
    "export": lambda new: [new / "x.json"],
    "kafka build-index": lambda new: [new / "index"],
    "seal": lambda new: ["--out", new / "sealed"],
    "copy": lambda new: [new / "copy"],
    "sql": lambda _: ["SELECT count(*) FROM records"],
}


@pytest.mark.parametrize("name", [name for name in COMMANDS if offers(name, "--tiered") and name != "browse"])
def test_a_command_that_offers_tiered_reads_remote_storage(
    name: str, tmp_path: Path, logdex_command: Callable[..., Any]
) -> None:
    folder = golden_tiered.unpack("local", tmp_path / "tiered")
    words = _WORDS[name](tmp_path) if name in _WORDS else []
    ran = logdex_command(*name.split(), folder / "after", *words, "--tiered", folder / "remote")
    assert ran.code in (0, 1), ran.err
    assert ran.out + ran.err


@pytest.mark.parametrize("name", ["serve", "build-queues", "build-index", "stats", "recover"])
def test_a_command_of_rocketmq_offers_no_tiered(name: str, logdex_command: Callable[..., Any]) -> None:
    ran = logdex_command(name, "x", "y", "--tiered", "z")
    assert ran.code == 2
    assert "unrecognized arguments" in ran.err


def test_options_of_the_other_broker_are_refused_or_ignored_alike(
    store: Callable[[str], Path], logdex_command: Callable[..., Any]
) -> None:
    root = store("basic")
    ran = logdex_command("find", root, "AaTopic", "BB", "--index", root)
    assert (ran.code, ran.out) == (2, "")
    assert "expected a Kafka log directory" in ran.err
