"""The index of a store that is open for writing: its slots and entries, its tags, its end."""

from __future__ import annotations

import errno
import shutil
from typing import TYPE_CHECKING, Any

import pytest

from logdex.hash_index import index_writer
from logdex.rocketmq import CommitLog, IndexService, MessageStore, StoreWriter

if TYPE_CHECKING:
    from pathlib import Path

SMALL: dict[str, Any] = {
    "file_size": 65_536,
    "hash_slots": 100,
    "max_entries": 11,
    "zone": "UTC",
    "services": False,
}


def entry_counts(root: Path) -> list[int]:
    """Return the entries of each index file of a valid store."""
    with MessageStore.open(root) as store:
        assert store.verify().ok
        assert store.index is not None
        return [len(file) for file in store.index.files]


@pytest.mark.parametrize(("slots", "most"), [(7, 70), (50, 1010), (200, 2000), (105, 999)])
@pytest.mark.parametrize("last_exit_ok", [None, False])
def test_other_slots_and_entries_are_refused(tmp_path: Path, slots: int, most: int, *, last_exit_ok: bool) -> None:
    options = SMALL | {"max_entries": 1000}
    with StoreWriter.open(tmp_path, **options) as writer:
        for i in range(5):
            writer.put_message("A", keys=f"k{i}")
    files = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    options |= {"hash_slots": slots, "max_entries": most, "last_exit_ok": last_exit_ok}
    with pytest.raises(ValueError, match="100 slots and 1000 entries"):
        StoreWriter.open(tmp_path, **options)
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == files


@pytest.mark.parametrize("lost", [1, 2, 3])
@pytest.mark.parametrize("compat", [None, "5.5.0"])
def test_an_index_that_ends_early_after_a_clean_stop_goes_on_where_it_ends(
    tmp_path: Path, lost: int, compat: Any
) -> None:
    with StoreWriter.open(tmp_path, **SMALL, compat=compat) as writer:
        for i in range(25):
            writer.put_message("A", keys=f"k{i}")
            writer.put_message("A", b"without a key")
    for path in sorted((tmp_path / "index").iterdir())[-lost:]:
        path.unlink()
    with StoreWriter.open(tmp_path, **SMALL) as writer:
        assert writer.recovered.checked["messages_indexed"] == [5, 15, 25][lost - 1]
        writer.put_message("A", keys="new")
    assert entry_counts(tmp_path) == [10, 10, 6]
    # The messages after the last entry have no keys.
    with StoreWriter.open(tmp_path, **SMALL) as writer:
        writer.put_message("A", b"without a key")
    with StoreWriter.open(tmp_path, **SMALL) as writer:
        assert writer.recovered.checked["messages_indexed"] == 0
    assert entry_counts(tmp_path) == [10, 10, 6]


@pytest.mark.parametrize("compat", [None, "5.5.0"])
def test_dispatch_goes_on_behind_what_was_indexed_before_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, compat: Any
) -> None:
    def refuse(names: list[str], *_: object) -> None:
        raise OSError(errno.ENOSPC, f"no space for a file beside {len(names)}")

    keys = ["a b c d", "e f g h", "i i i j", "k l m n"]
    with StoreWriter.open(tmp_path, **SMALL, compat=compat) as writer:
        writer.dispatch()
        for key in keys[:2]:
            writer.put_message("A", keys=key)
        writer.dispatch()
        # The first file has space for two more keys, and there is none for a second file.
        for key in keys[2:]:
            writer.put_message("A", keys=key)
        with monkeypatch.context() as patch:
            patch.setattr(index_writer, "create_next", refuse)
            for _ in range(3):
                with pytest.raises(OSError, match="no space"):
                    writer.dispatch()
        assert writer.dispatch() == 2
    assert entry_counts(tmp_path) == [10, 6]


def put_tagged(root: Path, sessions: list[tuple[int, str | None]], *, compat: Any, **options: Any) -> None:
    """Put messages with unique keys and these tags; the store is opened again for each pair."""
    for number, (count, tags) in enumerate(sessions):
        with StoreWriter.open(root, **{**SMALL, **options}, compat=compat) as writer:
            for i in range(count):
                writer.put_message("A", keys=f"k{number}-{i}", tags=tags)


@pytest.mark.parametrize(
    ("sessions", "expected"),
    [
        # The newest file has only one message.
        ([(1, "t"), (50, "t")], 102),
        ([(5, "t"), (1, "t"), (50, "t")], 112),
        # Until the first tags nothing shows whether tags are indexed.
        ([(1, None), (5, "t"), (5, "t")], 21),
        ([(25, None), (1, "t"), (5, "t")], 37),
        ([(3, "t"), (25, None), (5, "t")], 41),
    ],
)
def test_an_index_with_tags_goes_on_with_tags(
    tmp_path: Path, sessions: list[tuple[int, str | None]], expected: int
) -> None:
    put_tagged(tmp_path, sessions, compat="5.5.0")
    assert sum(entry_counts(tmp_path)) == expected
    # The existing index decides, not the option.
    put_tagged(tmp_path, [(1, "t")], compat=None)
    assert sum(entry_counts(tmp_path)) == expected + 2


def test_an_index_without_tags_goes_on_without_them(tmp_path: Path) -> None:
    put_tagged(tmp_path, [(1, "t")], compat=None)
    put_tagged(tmp_path, [(5, "t"), (5, None), (5, "t")], compat="5.5.0")
    assert sum(entry_counts(tmp_path)) == 16


def test_tags_are_indexed_again_after_a_crash_where_nothing_tells(tmp_path: Path) -> None:
    put_tagged(tmp_path, [(3, None)], compat="5.5.0")
    with StoreWriter.open(tmp_path, **SMALL) as writer:
        writer.put_messages({"topic": ["A"] * 4, "tags": ["t"] * 4})
    with StoreWriter.open(tmp_path, **SMALL, compat="5.5.0", last_exit_ok=False):
        pass
    assert entry_counts(tmp_path) == [7]


@pytest.mark.parametrize("plain", [range(2), range(8, 10), range(4, 6)])
def test_messages_whose_tags_alone_are_not_indexed_are_no_fault(tmp_path: Path, plain: range) -> None:
    put_tagged(tmp_path, [(10, "t")], compat=None)
    shutil.rmtree(tmp_path / "index")
    # As brokers of two releases leave it.
    with (
        CommitLog.open(tmp_path / "commitlog") as log,
        IndexService.open(tmp_path / "index", mode="a", hash_slots=100, max_entries=100) as index,
    ):
        (messages,) = log.scan()
        for row in range(messages.num_rows):
            index.build_index(messages.slice(row, 1), tags=row not in plain)
    assert entry_counts(tmp_path) == [18]
