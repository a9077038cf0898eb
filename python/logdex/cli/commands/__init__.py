"""The commands, in modules of commands that belong together.

Each module has `add_parsers(subparsers)`. A parser sets `run`, a function from the parsed arguments to the exit code:
0 found or valid, 1 nothing found or faults found, 2 wrong use or unreadable.
"""
