"""`python -m logdex`: the command line."""

import sys

from logdex.cli import main

if __name__ == "__main__":
    sys.exit(main())
