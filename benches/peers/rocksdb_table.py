"""RocksDB (rocksdict): one sorted table, ingested whole, with filter and hash index for point lookups."""

from __future__ import annotations

from importlib.metadata import version
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from rocksdict import (
    AccessType,
    BlockBasedOptions,
    Cache,
    DataBlockIndexType,
    DBCompressionType,
    Options,
    Rdict,
    SstFileWriter,
)

from .peer import Peer, ascii_keys, eight_bytes

if TYPE_CHECKING:
    from numpy.typing import NDArray


class RocksDB(Peer):
    """Keys and values are bytes; a batch is `get` of a list, which is MultiGet."""

    name: ClassVar[str] = "RocksDB"

    @property
    def version(self) -> str:
        return f"rocksdict {version('rocksdict')}"

    def rows(self, keys: Any, offsets: Any) -> list[tuple[bytes, bytes]]:
        return sorted(zip(ascii_keys(keys), eight_bytes(offsets), strict=True))

    def build(self, rows: list[tuple[bytes, bytes]]) -> None:
        table = self.folder / "sorted.sst"
        store = Rdict(str(self.folder / "store"), _options())
        writer = SstFileWriter(_options())
        writer.open(str(table))
        for key, value in rows:
            writer[key] = value
        writer.finish()
        store.ingest_external_file([str(table)])
        store.close()
        table.unlink(missing_ok=True)

    def open(self) -> None:
        self._store = Rdict(str(self.folder / "store"), _options(), access_type=AccessType.read_only())

    def close(self) -> None:
        self._store.close()

    def singles(self, keys: Any) -> list[bytes]:
        return ascii_keys(keys)

    def get(self, keys: list[bytes]) -> int:
        get = self._store.get
        return sum(int.from_bytes(get(key), "little") for key in keys)

    def batch(self, keys: Any) -> list[bytes]:
        return ascii_keys(keys)

    def get_batch(self, keys: list[bytes]) -> NDArray[np.int64]:
        return np.frombuffer(b"".join(self._store.get(keys)), "<i8")


def _options() -> Any:
    blocks = BlockBasedOptions()
    blocks.set_bloom_filter(10, False)  # noqa: FBT003 - its only form
    blocks.set_block_cache(Cache(1 << 30))
    blocks.set_data_block_index_type(DataBlockIndexType.binary_and_hash())
    blocks.set_data_block_hash_ratio(0.75)
    options = Options(raw_mode=True)
    options.prepare_for_bulk_load()
    options.set_compression_type(DBCompressionType.none())
    options.set_allow_mmap_reads(True)
    options.set_block_based_table_factory(blocks)
    return options
