"""Opens the path of a command. Only the modules of one broker are imported."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from logdex._core import locate
from logdex.cli.arguments import open_options, settle_times
from logdex.source import Kind, kind_to_open, refusal

if TYPE_CHECKING:
    import argparse
    from pathlib import Path

    from logdex.cli.sources.opened import Opened, Part

_TAKEN = {
    Kind.STORE: ("hash_slots", "max_entries", "commit_log", "sealed"),
    Kind.INDEX: ("hash_slots", "max_entries"),
    Kind.INDEX_FILE: ("hash_slots", "max_entries"),
    Kind.LOG_DIR: ("tiered", "tiered_keys", "sealed"),
    Kind.PARTITION: ("tiered", "tiered_keys"),
    Kind.SEGMENT: (),
}
"""The options to open each kind; the others are ignored."""


def open_path(arguments: argparse.Namespace) -> Opened:
    """Open the path of a command, and replace times before the end (`end-2h`) by times.

    Raises:
        OSError: The path does not exist or cannot be read.
        ValueError: Nothing at the path can be opened.
    """
    path, options = locate(arguments.path), open_options(arguments)
    kind = kind_to_open(path, options)
    if kind is None:
        opened: Opened | None = _open_part(path)
        if opened is None:
            raise refusal(path)
    else:
        taken = {name: value for name, value in options.items() if name in _TAKEN[kind]}
        opened = _open_kind(kind, path, taken)
    if hasattr(arguments, "begin"):
        topic = getattr(arguments, "topic", None)
        topics = [topic] if kind is not None and kind.is_kafka and isinstance(topic, str) else None
        settle_times(arguments, lambda: opened.held(topics)[1])
    return opened


def _open_kind(kind: Kind, path: Path, options: dict[str, Any]) -> Opened:
    if kind.is_kafka:
        from logdex.cli.sources import kafka  # noqa: PLC0415 -- one broker's modules, not both

        return kafka.open_kind(kind, path, options)
    from logdex.cli.sources import rocketmq  # noqa: PLC0415 -- as above

    return rocketmq.open_kind(kind, path, options)


def _open_part(path: Path) -> Part | None:
    """Open a part of a store or of a log directory."""
    from logdex.cli.sources import rocketmq  # noqa: PLC0415 -- as above

    part = rocketmq.open_part(path)
    if part is not None:
        return part
    from logdex.cli.sources import kafka  # noqa: PLC0415 -- as above

    return kafka.open_part(path)
