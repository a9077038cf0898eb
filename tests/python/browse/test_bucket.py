"""Pages over a bucket show what they show over the same files on the disk."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import browsing
import golden
import golden_kafka
import object_store

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from browsing import Site


@pytest.fixture(scope="module")
def server() -> Iterator[object_store.ObjectStore]:
    """Return an S3 server."""
    with object_store.serve() as running:
        yield running


@pytest.mark.parametrize(
    ("name", "paths"), [("store", browsing.STORE), ("logs", browsing.KAFKA), ("index", browsing.INDEX)]
)
def test_pages_over_a_bucket_are_those_of_the_disk(
    server: object_store.ObjectStore, tmp_path: Path, name: str, paths: tuple[str, ...]
) -> None:
    root = golden_kafka.unpack("transactions", tmp_path) if name == "logs" else golden.unpack("basic", tmp_path)
    root = object_store.whole_seconds(root / "index" if name == "index" else root)
    url = server.put(f"browse-{name}", root)
    words = [word for option in server.options.items() for word in ("--storage", "=".join(option))]
    compared = 0
    with browsing.serve(root) as local, browsing.serve(url, *words) as remote:
        for path in paths:
            here, there = local.ask(path), remote.ask(path)
            assert there.status == here.status, path
            assert object_store.SECRET not in there.text
            assert object_store.ACCESS_KEY not in there.text
            if here.status == 200 and (rows := rows_of(local, path, str(root))) is not None:
                assert rows_of(remote, path, url) == rows, path
                compared += 1
    assert compared == {"store": 19, "logs": 11, "index": 2}[name]


def rows_of(site: Site, path: str, place: str) -> str | None:
    """Return the rows of a page as JSON, without the place of the store; None: it has none."""
    page, mark, query = path.partition("?")
    answer = site.ask(f"{'/overview' if page == '/' else page}.json{mark}{query}")
    return answer.text.replace(place, "PLACE") if answer.status == 200 else None
