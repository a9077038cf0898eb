"""Run the quick start and the guides of docs/guides, and compare their output with the output that they show.

    python scripts/run_guides.py            # run all; exit 1 if a guide shows another output
    python scripts/run_guides.py --write    # write the output into the guides

A block `sh` is run by a shell, a block `python` in one interpreter for each guide, both in an empty directory with a link to
`examples`. A block `text` right after it shows the output.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import re
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from document_shell import run_shell

HOME = Path(__file__).resolve().parents[1]
GUIDES = [HOME / "docs" / "quickstart.md", *sorted((HOME / "docs" / "guides").glob("*.md"))]

_BLOCK = re.compile(r"^```(sh|python|text)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_COLUMNS = 80


@dataclass
class Difference:
    """A place where a guide shows another output than it prints."""

    guide: Path
    code: str
    shown: str
    printed: str


def run_guide(guide: Path, directory: Path) -> tuple[str, list[Difference]]:
    """Run one guide in a directory.

    Returns:
        The guide's text with the current output, and the places where it shows another output.

    Raises:
        subprocess.CalledProcessError: A shell block failed.
    """
    if not (directory / "examples").exists():
        (directory / "examples").symlink_to(HOME / "examples")
    names: dict[str, object] = {"__name__": "__main__"}
    text = guide.read_text(encoding="utf-8")
    parts: list[str] = []
    differences: list[Difference] = []
    end = 0
    printed, code = "", ""
    for block in _BLOCK.finditer(text):
        parts.append(text[end : block.start()])
        end = block.end()
        kind, content = block.groups()
        if kind == "text":
            # Only right after the block that printed it.
            if code and not parts[-1].strip():
                if content != printed:
                    differences.append(Difference(guide, code, content, printed))
                parts.append(f"```text\n{printed}```")
            else:
                parts.append(block.group())
            code = ""
            continue
        code = content
        printed = (
            run_shell(content, directory, columns=_COLUMNS) if kind == "sh" else _run_python(content, names, directory)
        )
        parts.append(block.group())
    return "".join([*parts, text[end:]]), differences


def _run_python(code: str, names: dict[str, object], directory: Path) -> str:
    out = io.StringIO()
    before = Path.cwd()
    os.chdir(directory)
    try:
        with contextlib.redirect_stdout(out):
            exec(compile(code, "guide", "exec"), names)  # noqa: S102 -- our own documents
    finally:
        os.chdir(before)
    return out.getvalue()


def main() -> int:
    """Run all guides."""
    parser = argparse.ArgumentParser(description="Run the guides of docs/guides as they stand.")
    parser.add_argument("--write", action="store_true", help="write the output into the guides")
    write = parser.parse_args().write
    found = 0
    for guide in GUIDES:
        with tempfile.TemporaryDirectory(prefix="logdex-guide-") as directory:
            text, differences = run_guide(guide, Path(directory))
        if write:
            guide.write_text(text, encoding="utf-8")
        for difference in differences:
            found += 1
            sys.stderr.write(f"{guide.name}: {difference.code}shows\n{difference.shown}prints\n{difference.printed}")
    return 1 if found and not write else 0


if __name__ == "__main__":
    sys.exit(main())
