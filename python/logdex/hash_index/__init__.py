"""The key index: which file of a directory, when to roll, which files a time range needs. The bytes are Rust's."""

from logdex._core import IndexFile, IndexHeader, index_key, key_hash
from logdex.hash_index.index_service import IndexService
from logdex.hash_index.query import QueryOffsetResult

__all__ = ["IndexFile", "IndexHeader", "IndexService", "QueryOffsetResult", "index_key", "key_hash"]
