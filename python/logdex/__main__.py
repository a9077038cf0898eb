"""The entry point of `python -m logdex` and `logdex`."""

from __future__ import annotations

import sys

_INTERRUPTED = 130
"""Exit code after Ctrl-C, as in a shell."""


def main() -> int:
    """Run the command line with the arguments of the process; return the exit code."""
    try:
        # Imports take a moment, in which Ctrl-C must be quiet, too.
        from logdex.cli import main as run  # noqa: PLC0415

        return run()
    except KeyboardInterrupt:
        if sys.stderr is not None:
            sys.stderr.write("logdex: interrupted\n")
        return _INTERRUPTED


if __name__ == "__main__":
    sys.exit(main())
