"""Asks a question of a small real store with nothing installed but the wheel: no pyspark, no pyarrow, no pytest.

scripts/check_wheel.sh runs it.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "python" / "support"))

from arro3.core import Table

import golden
import logdex
from logdex.rocketmq import IndexFile, MessageStore, index_key

FOREIGN = ("pyspark", "pyarrow", "pandas", "polars", "numpy")


def main() -> None:
    """Find one message by its key, and the same offset through the index file alone."""
    assert not [name for name in FOREIGN if importlib.util.find_spec(name)]
    hash_slots, max_entries = golden.geometry("basic")
    wanted = next(row for row in golden.rows("basic", "messages") if row.get("uniqKey") and len(row["topic"]) < 40)
    topic, key, offset = wanted["topic"], wanted["uniqKey"], wanted["physicalOffset"]
    with tempfile.TemporaryDirectory() as folder:
        root = golden.unpack("basic", Path(folder))
        oldest = min((root / "index").iterdir())
        with IndexFile.open(oldest, hash_slots=hash_slots, max_entries=max_entries) as file:
            assert offset in file.select_phy_offset(index_key(topic, key))
            assert file.select_batch([index_key(topic, key)]).to_pylist() == [
                file.select_phy_offset(index_key(topic, key))
            ]
        store = MessageStore.open(root)
        found = store.find(topic, key, scan=False)
        assert [message.phy_offset for message in found] == [offset]
        assert found[0].uniq_key == key
        # Streams that Python makes, which the oldest arro3-core takes for no stream.
        assert sum(batch.num_rows for batch in store.messages(topic=topic)) >= 1
        (hits,) = store.find_batch(topic, [key], scan=False)
        assert hits["phy_offset"].to_pylist() == [offset]
        assert Table.from_arrow(store.messages(topic=topic)).num_rows >= 1
    # Spark imports these to find formats: without it they must not fail.
    for name in ("pyspark_logdex", "pyspark_logdex_index", "pyspark_logdex_kafka"):
        assert not hasattr(importlib.import_module(name), "DefaultSource")
    assert not [name for name in FOREIGN if name in sys.modules]
    # What the pages of `logdex browse` need beside modules is in the wheel, too.
    web = Path(logdex.__file__).parent / "browse"
    for part in ("templates/base.html", "static/style.css", "static/htmx.min.js", "static/htmx.LICENSE.txt"):
        assert (web / part).is_file(), part
    arro3 = importlib.metadata.version("arro3-core")
    print(f"wheel alone: {topic} {key} found at {offset} (arro3-core {arro3}, Python {sys.version.split()[0]})")  # noqa: T201


if __name__ == "__main__":
    main()
