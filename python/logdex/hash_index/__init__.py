"""The key index: files of hashed keys in a directory. Which file to use, when to roll; the bytes are Rust's."""

from logdex._core import IndexFile, IndexHeader, index_key, key_hash
from logdex.hash_index.index_directory import IndexDirectory, QueryOffsetResult

__all__ = ["IndexDirectory", "IndexFile", "IndexHeader", "QueryOffsetResult", "index_key", "key_hash"]
