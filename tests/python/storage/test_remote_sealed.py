"""A sealed index in a bucket: few requests, and the answers of the disk."""

from __future__ import annotations

import shutil
import time
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import pyarrow as pa
import pytest

import golden
import golden_kafka
import golden_tiered
import store_answers
from kafka_search import find
from logdex.kafka import LogDir
from logdex.rocketmq import IndexService, MessageStore, StoreWriter
from slow_proxy import SlowProxy

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import object_store

DELAY_S = 0.05


def searched(store: MessageStore, keys: list[tuple[str, str]]) -> list[Any]:
    """Return what a store finds."""
    columns = [list(column) for column in zip(*keys, strict=True)]
    together = pa.table(store.find_batch(*columns)).select(["query_row", "phy_offset"]).to_pylist()
    return [together, *([message.phy_offset for message in store.find(*each)] for each in keys[:30])]


@pytest.mark.parametrize("case", golden.STORES)
def test_a_golden_store_that_was_sealed_in_the_bucket_answers_alike(
    server: object_store.ObjectStore, store: Callable[[str], Path], case: str
) -> None:
    root = store(case)
    url = server.put(f"sealed-{case}", root)
    with MessageStore.open(url, sealed="never", storage_options=server.options) as plain:
        report = plain.seal()
        assert report.ok
    with MessageStore.open(root) as local, MessageStore.open(url, storage_options=server.options) as remote:
        assert f"{report.checked['entries']:,} entries" in str(remote.sealed)
        keys = store_answers.keys_of(pa.table(local.messages()))[::3]
        assert len(keys) > 100
        assert searched(remote, keys) == searched(local, keys)


@pytest.mark.parametrize("files", [10, 1000])
def test_opening_and_one_search_are_at_most_five_requests(
    server: object_store.ObjectStore, tmp_path: Path, files: int
) -> None:
    root = tmp_path / "store"
    with StoreWriter.open(root, hash_slots=10, max_entries=41, file_size=1 << 26, services=False) as writer:
        for number in range(20 * files):
            writer.put_message("orders", b"body %d" % number, keys=f"order-{number}", uniq_key=f"unique-{number}")
    assert len(list((root / "index").iterdir())) == files
    shutil.rmtree(root / "consumequeue")
    url = server.put(f"many-{files}", root)
    with MessageStore.open(url, sealed="never", storage_options=server.options) as plain:
        assert plain.seal().checked["entries"] == 40 * files
    with SlowProxy(server.port, DELAY_S) as proxy:
        options = {**server.options, "aws_endpoint": proxy.endpoint}
        begun = time.perf_counter()
        with MessageStore.open(url, storage_options=options) as remote:
            found = remote.find("orders", f"order-{7 * files}")
            seconds = time.perf_counter() - begun
            assert [message.body for message in found] == [b"body %d" % (7 * files)]
            assert found.complete
        assert len(proxy.requests) <= 5, [(request.method, request.target, request.range) for request in proxy.requests]
    # 0.3 s on an idle machine.
    assert seconds < 5, seconds


@pytest.mark.parametrize("sealed", ["auto", "never"])
def test_without_a_sealed_index_the_root_is_listed_beside_the_first_reads(
    server: object_store.ObjectStore, store: Callable[[str], Path], sealed: str
) -> None:
    url = server.put(f"unsealed-{sealed}", store("basic"))
    with SlowProxy(server.port, DELAY_S) as proxy:
        with MessageStore.open(url, sealed=sealed, storage_options={**server.options, "aws_endpoint": proxy.endpoint}):
            pass
        lists = [request for request in proxy.requests if "list-type" in request.target]
        reads = [request for request in proxy.requests if "/commitlog/" in request.target and request not in lists]
    asked = [unquote(request.target.rpartition("prefix=")[2]) for request in lists]
    root = unquote(url.rpartition("//")[2].partition("/")[2])
    assert sorted(asked[:2]) == [f"{root}/commitlog/", f"{root}/index/"]
    assert asked[2:] == [f"{root}/"]
    assert all(read.ended is not None and lists[2].began < read.ended for read in reads)
    assert reads


def test_files_that_came_later_and_changed_are_seen(server: object_store.ObjectStore, tmp_path: Path) -> None:
    root = tmp_path / "store"
    url = ""
    for number in range(2):
        with StoreWriter.open(root, hash_slots=10, max_entries=41, file_size=1 << 26, services=False) as writer:
            for each in range(100 * number, 100 * number + 100):
                writer.put_message("orders", b"body %d" % each, keys=f"order-{each % 130}")
        if not number:
            with MessageStore.open(root) as local:
                local.seal()
            # Another copy has other times.
            url = server.put("later", root)
            with MessageStore.open(url, storage_options=server.options) as remote:
                assert remote.sealed is None
                remote.seal()
            shutil.copytree(root / "_logdex", tmp_path / "old")
    with MessageStore.open(url, storage_options=server.options) as remote:
        assert remote.sealed is not None
        assert [message.body for message in remote.find("orders", "order-0")] == [b"body 0"]
    for path in sorted((root / "index").iterdir()):
        server.put(f"later/index/{path.name}", path)
    for path in sorted((root / "commitlog").iterdir()):
        server.put(f"later/commitlog/{path.name}", path)
    time.sleep(1.1)
    with MessageStore.open(url, storage_options=server.options) as remote, MessageStore.open(root) as local:
        assert [message.body for message in remote.find("orders", "order-0")] == [b"body 130", b"body 0"]
        keys = [("orders", f"order-{number}") for number in range(130)]
        assert searched(remote, keys) == searched(local, keys)


def test_a_sealed_index_may_be_elsewhere(
    server: object_store.ObjectStore, store: Callable[[str], Path], tmp_path: Path
) -> None:
    root = store("basic")
    url = server.put("elsewhere-basic", root)
    with MessageStore.open(url, sealed="never", storage_options=server.options) as plain:
        plain.seal(tmp_path)
        keys = store_answers.keys_of(pa.table(plain.messages()))[::10]
        with MessageStore.open(url, sealed=tmp_path, storage_options=server.options) as sealed:
            assert "index files" in str(sealed.sealed)
            assert searched(sealed, keys) == searched(plain, keys)
    with MessageStore.open(root) as local, IndexService.open(root / "index") as index:
        local.seal(f"{url}-keys", storage_options=server.options)
        entries = sum(map(len, index.files))
    with (
        MessageStore.open(root, sealed=f"{url}-keys", storage_options=server.options) as sealed,
        MessageStore.open(root) as plain,
    ):
        assert f"{entries:,} entries" in str(sealed.sealed)
        assert searched(sealed, keys) == searched(plain, keys)


def test_a_kafka_log_directory_is_sealed_in_the_bucket(server: object_store.ObjectStore, tmp_path: Path) -> None:
    root = golden_kafka.unpack("transactions", tmp_path / "logs")
    url = server.put("sealed-kafka", root)
    with LogDir.open(url, storage_options=server.options) as plain:
        assert plain.sealed is None
        report = plain.seal()
        assert report.ok
        rows = pa.table(plain.records(columns=["topic", "key"])).to_pylist()
    asked = {(row["topic"], row["key"]) for row in rows if row["key"] is not None}
    assert report.checked["entries"] > len(asked) > 20
    with (
        LogDir.open(root) as local,
        LogDir.open(url, storage_options=server.options) as remote,
        LogDir.open(url, sealed="never", storage_options=server.options) as scanned,
    ):
        assert f"{report.checked['entries']:,} entries" in str(remote.sealed)
        for topic, key in sorted(asked)[::3]:
            found = find(remote, topic, key)
            assert found.scanned_offsets == 0 < find(scanned, topic, key).scanned_offsets
            assert list(found) == list(find(local, topic, key))


def test_segments_in_remote_storage_are_sealed_elsewhere(tmp_path: Path) -> None:
    folder = golden_tiered.unpack("aiven", tmp_path)
    with LogDir.open(folder / "after", tiered=folder / "remote") as logs:
        with pytest.raises(ValueError, match="expected out="):
            logs.seal()
        assert logs.sealed is None
        report = logs.seal(tmp_path / "sealed")
        assert report.ok
        rows = pa.table(logs.records(columns=["topic", "key"])).to_pylist()
        asked = sorted({(row["topic"], row["key"]) for row in rows if row["key"] is not None})[::5]
        assert len(asked) > 20
        expected = [list(find(logs, *each)) for each in asked]
    with LogDir.open(folder / "after", tiered=folder / "remote", sealed=tmp_path / "sealed") as sealed:
        found = [find(sealed, *each) for each in asked]
    assert [list(each) for each in found] == expected
    assert {each.scanned_offsets for each in found} == {0}
