"""The start of the command line: `python -m logdex` and `logdex`."""

from __future__ import annotations

import sys

INTERRUPTED = 130
"""Exit code after Ctrl-C, as a shell gives it."""


def main() -> int:
    """Run the command line with the process's own words, and give its exit code."""
    try:
        # Imports take a moment, in which people change their mind, too.
        from logdex.cli import main as run  # noqa: PLC0415

        return run()
    except KeyboardInterrupt:
        if sys.stderr is not None:
            sys.stderr.write("logdex: interrupted\n")
        return INTERRUPTED


if __name__ == "__main__":
    sys.exit(main())
