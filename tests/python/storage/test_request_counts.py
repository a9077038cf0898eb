"""A search through the command line makes the requests of the same search through the Python interface, in as many rounds."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

import logdex
from logdex.cli import main
from logdex.kafka import LogDir
from logdex.rocketmq import MessageStore, StoreWriter
from slow_proxy import SlowProxy

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import object_store

DELAY_S = 0.1
FILES = 10


@dataclass(frozen=True)
class Counted:
    """The requests of one search: method, object and range of each, sorted; and the rounds that they took."""

    requests: list[tuple[str, str, str | None]]
    rounds: int


@pytest.fixture(scope="module", params=["unsealed", "sealed"])
def url(request: pytest.FixtureRequest, server: object_store.ObjectStore, tmp_path_factory: Any) -> str:
    """Return the URL of a store with ten index files."""
    root: Path = tmp_path_factory.mktemp("ten") / "store"
    with StoreWriter.open(root, hash_slots=10, max_entries=41, file_size=1 << 26, services=False) as writer:
        for number in range(20 * FILES):
            writer.put_message("orders", b"body %d" % number, keys=f"order-{number}", uniq_key=f"unique-{number}")
    assert len(list((root / "index").iterdir())) == FILES
    shutil.rmtree(root / "consumequeue")
    url = server.put(f"counted-{request.param}", root)
    if request.param == "sealed":
        with MessageStore.open(url, sealed="never", storage_options=server.options) as plain:
            assert plain.seal().ok
    return url


def counted(server: object_store.ObjectStore, search: Callable[[dict[str, str]], None]) -> Counted:
    """Run a search through a proxy of its own, whose address also makes its caches its own."""
    with SlowProxy(server.port, DELAY_S) as proxy:
        search({**server.options, "aws_endpoint": proxy.endpoint})
        requests = sorted((each.method, each.target, each.range) for each in proxy.requests)
        return Counted(requests, proxy.rounds)


def command(*words: str) -> Callable[[dict[str, str]], None]:
    """Return a search through the command line."""

    def search(options: dict[str, str]) -> None:
        assert main([*words, *(word for pair in options.items() for word in ("--storage", "=".join(pair)))]) in (0, 1)

    return search


def test_a_search_in_a_store_costs_the_same_in_each_way(
    server: object_store.ObjectStore, url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    def by_class(options: dict[str, str]) -> None:
        with MessageStore.open(url, storage_options=options) as store:
            assert [message.body for message in store.find("orders", "order-70")] == [b"body 70"]

    def by_open(options: dict[str, str]) -> None:
        with logdex.open(url, storage_options=options) as store:
            assert len(store.find("orders", "order-70")) == 1

    expected = counted(server, by_class)
    assert expected.requests
    assert counted(server, by_open) == expected
    assert counted(server, command("find", url, "orders", "order-70")) == expected
    assert "orders/0" in capsys.readouterr().out


@pytest.mark.parametrize("sealed", [False, True])
def test_a_search_in_a_log_directory_waits_one_round_more_to_know_the_broker(
    server: object_store.ObjectStore, tmp_path: Path, sealed: bool
) -> None:
    import golden_kafka  # noqa: PLC0415 -- unpacks

    logs = golden_kafka.unpack("codecs", tmp_path / "logs")
    (logs / "meta.properties").unlink()
    url = server.put(f"counted-logs-{sealed}", logs)
    if sealed:
        with LogDir.open(url, storage_options=server.options) as plain:
            assert plain.seal().ok

    def by_class(options: dict[str, str]) -> None:
        with LogDir.open(url, storage_options=options) as opened:
            opened.find("cod-none", "absent")

    def by_open(options: dict[str, str]) -> None:
        with logdex.open(url, storage_options=options) as opened:
            opened.find("cod-none", "absent")

    direct, opened, through = (
        counted(server, each) for each in (by_class, by_open, command("find", url, "cod-none", "absent"))
    )
    more = {target for _, target, _ in opened.requests} - {target for _, target, _ in direct.requests}
    assert opened.rounds <= direct.rounds + 1
    # Whether there is a commitlog, which takes a list and a head, and an index.
    assert len(more) == 3
    assert all("commitlog" in target or "index" in target for target in more)
    # A message that nothing is found names the times of the topic, which costs more reads.
    assert {*opened.requests} <= {*through.requests}
