"""Alternatives that map a key to an offset, each one tuned for this use."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from .dictionary import Dictionary
from .duckdb_table import DuckDB
from .lmdb_tree import Lmdb
from .logdex_file import Logdex
from .rocksdb_table import RocksDB
from .sqlite_table import SQLite

if TYPE_CHECKING:
    from .peer import Peer

PEERS: list[type[Peer]] = [Logdex, Lmdb, RocksDB, SQLite, DuckDB, Dictionary]
if sys.version_info >= (3, 11):  # lexindex has no build for Python 3.10
    from .lexindex_hash import LexindexCompact, LexindexPerfect

    PEERS += [LexindexPerfect, LexindexCompact]
