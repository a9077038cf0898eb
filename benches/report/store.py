"""Results of parts, stored as JSON in build/bench: the document shows the latest result of each part."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING

from .plan import Part
from .rounds import Measured

if TYPE_CHECKING:
    from pathlib import Path


def save(folder: Path, part: Part) -> None:
    """Store the result of a part."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{part.name}.json").write_text(json.dumps(asdict(part), indent=1) + "\n")


def load(folder: Path) -> dict[str, Part]:
    """Return all stored results."""
    parts = {}
    for file in sorted(folder.glob("*.json")):
        kept = json.loads(file.read_text())
        parts[kept["name"]] = Part(**{**kept, "measured": Measured(**kept["measured"])})
    return parts
