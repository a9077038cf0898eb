"""Searches in a log directory that may be open or a path."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from logdex.kafka import LogDir

if TYPE_CHECKING:
    from os import PathLike

    from logdex.kafka import FindResult, KeyExplanation


def find(log_dir: str | PathLike[str] | LogDir, topic: str, key: str | bytes, **options: Any) -> FindResult:
    """Call `LogDir.find`."""
    with _opened(log_dir) as logs:
        return logs.find(topic, key, **options)


def explain(log_dir: str | PathLike[str] | LogDir, topic: str, key: str | bytes, **options: Any) -> KeyExplanation:
    """Call `LogDir.explain`."""
    with _opened(log_dir) as logs:
        return logs.explain(topic, key, **options)


def _opened(log_dir: str | PathLike[str] | LogDir) -> contextlib.AbstractContextManager[LogDir]:
    return contextlib.nullcontext(log_dir) if isinstance(log_dir, LogDir) else LogDir.open(log_dir)
