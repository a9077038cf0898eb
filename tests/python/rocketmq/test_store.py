"""MessageStore.find: every indexed message that carries the key, once, and nothing else."""

from __future__ import annotations

import pickle
import shutil
from collections import defaultdict
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest

import golden
import logdex
from index_inputs import snapshot
from logdex.kafka import Log, LogDir
from logdex.rocketmq import IndexService, MessageStore, StoreWriter

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

_ROLLED_BACK = 12


def indexed_messages(case: str) -> dict[tuple[str, str], list[dict[str, Any]]]:
    """Return the messages that an index refers to, newest first, by topic and key; from the real store's own list."""
    found = defaultdict(list)
    for message in reversed(golden.rows(case, "messages")):
        if message["sysFlag"] & _ROLLED_BACK != _ROLLED_BACK:
            for key in {message["uniqKey"], *(message["keys"] or "").split(" ")} - {None, ""}:
                found[message["topic"], key].append(message)
    return found


def offsets(messages: Any) -> list[int]:
    return [getattr(message, "phy_offset", None) or 0 for message in messages]


@pytest.mark.parametrize("case", golden.STORES)
def test_find_gives_every_message_with_the_key_once(case: str, store: Callable[[str], Path]) -> None:
    truth = indexed_messages(case)
    asked = {(row["topic"], row["key"]) for row in golden.rows(case, "queries")} | set(truth)
    hits = 0
    with MessageStore.open(store(case)) as opened:
        for topic, key in sorted(asked):
            result = opened.find(topic, key)
            assert offsets(result) == [row["physicalOffset"] for row in truth.get((topic, key), [])], (topic, key)
            assert result.complete
            assert not result.truncated
            hits += len(result)
    assert hits == sum(len(rows) for rows in truth.values()) > 0


@pytest.mark.parametrize("case", golden.STORES)
def test_find_in_the_time_ranges_of_the_golden_questions(case: str, store: Callable[[str], Path]) -> None:
    truth = indexed_messages(case)
    compared = 0
    with MessageStore.open(store(case)) as opened:
        questions = golden.rows(case, "queries")
        for row in questions:
            begin, end = row["begin"], row["end"]
            result = opened.find(row["topic"], row["key"], begin=begin, end=end)
            expected = [
                message["physicalOffset"]
                for message in truth.get((row["topic"], row["key"]), [])
                if begin <= message["storeTimestamp"] <= end
            ]
            assert offsets(result) == expected, row
            compared += 1
    assert compared == len(questions)


@pytest.mark.parametrize("case", ["basic", "v5-basic"])
def test_find_without_scan_gives_what_the_index_covers(case: str, store: Callable[[str], Path]) -> None:
    truth = indexed_messages(case)
    with MessageStore.open(store(case)) as opened:
        for (topic, key), rows in truth.items():
            result = opened.find(topic, key, scan=False)
            assert offsets(result) == [row["physicalOffset"] for row in rows]
            assert result.scanned_bytes == 0


def test_find_by_each_message_s_own_time(store: Callable[[str], Path]) -> None:
    with MessageStore.open(store("rolled")) as opened:
        for (topic, key), rows in list(indexed_messages("rolled").items())[:400]:
            time = rows[0]["storeTimestamp"]
            moment = datetime.fromtimestamp(time // 1000, timezone.utc).replace(microsecond=time % 1000 * 1000)
            for bound in (time, moment):
                found = opened.find(topic, key, begin=bound, end=bound)
                expected = [row["physicalOffset"] for row in rows if row["storeTimestamp"] == time]
                assert offsets(found) == expected


def test_find_says_when_there_are_more(store: Callable[[str], Path]) -> None:
    with MessageStore.open(store("basic")) as opened:
        everything = opened.find("AaTopic", "BB")
        assert len(everything) > 2
        for max_num, truncated in ((0, True), (1, True), (len(everything), False), (len(everything) + 1, False)):
            result = opened.find("AaTopic", "BB", max_num=max_num)
            assert (offsets(result), result.truncated) == (offsets(everything)[:max_num], truncated)
        with pytest.raises(ValueError, match="negative"):
            opened.find("AaTopic", "BB", max_num=-1)


def test_compat_searches_no_further_than_the_broker_and_says_so(store: Callable[[str], Path]) -> None:
    root = store("basic")
    with MessageStore.open(root) as opened, MessageStore.open(root, compat="4.9.3") as capped:
        assert opened.index is not None
        assert len(opened.index.query_offset("AaTopic", "BB").phy_offsets) > 64
        everything, some = opened.find("AaTopic", "BB"), capped.find("AaTopic", "BB", scan=False)
        assert (everything.truncated, some.truncated) == (False, True)
        assert offsets(some) == offsets(everything)[: len(some)]
        assert some.rejected < everything.rejected


def test_a_colliding_key_is_rejected_where_the_broker_answers_with_it(store: Callable[[str], Path]) -> None:
    # The real client, asked for one message of this key, reported that there is none: B13.
    failed = [row for row in golden.rows("basic", "client_queries") if row["maxNum"] == 1 and row["exception"]]
    assert failed
    with MessageStore.open(store("basic")) as opened:
        for row in failed:
            result = opened.find(row["topic"], row["key"], max_num=1)
            expected = indexed_messages("basic").get((row["topic"], row["key"]), [])
            assert offsets(result) == [message["physicalOffset"] for message in expected[:1]]
        result = opened.find("AaTopic", "BB")
        assert result.rejected > 0
        assert {(message.topic, "BB" in (message.keys or "").split(" ")) for message in result} == {("AaTopic", True)}


def test_an_empty_key_is_nobody_s(store: Callable[[str], Path]) -> None:
    with MessageStore.open(store("basic")) as opened:
        for topic in sorted({row["topic"] for row in golden.rows("basic", "messages")}):
            assert len(opened.find(topic, "")) == 0


def test_a_key_repeated_in_a_message_brings_it_once(store: Callable[[str], Path]) -> None:
    with MessageStore.open(store("basic")) as opened:
        repeated = [
            (message, key)
            for (_, key), rows in indexed_messages("basic").items()
            for message in rows
            if (message["keys"] or "").split(" ").count(key) > 1
        ]
        assert repeated
        for message, key in repeated:
            assert opened.index is not None
            candidates = opened.index.query_offset(message["topic"], key).phy_offsets
            assert candidates.count(message["physicalOffset"]) > 1
            assert offsets(opened.find(message["topic"], key)).count(message["physicalOffset"]) == 1


def test_without_an_index_the_log_is_read_once(damaged_store: Callable[[str], Path]) -> None:
    root = damaged_store("no-index")
    for remove in (False, True):
        if remove:
            (root / "index").rmdir()
        with MessageStore.open(root) as opened:
            size = opened.commit_log.max_offset - opened.commit_log.min_offset
            blind = opened.find("AaTopic", "BB", scan=False)
            assert (len(blind), blind.complete, blind.unscanned) == (0, False, [(0, size)])
            truth = indexed_messages("basic")
            for place, ((topic, key), rows) in enumerate(truth.items()):
                result = opened.find(topic, key)
                assert offsets(result) == [row["physicalOffset"] for row in rows]
                assert (result.complete, result.unscanned) == (True, [])
                # A range that was read once is searched, also by a call that reads nothing.
                again = opened.find(topic, key, scan=False)
                assert (offsets(again), again.complete, again.scanned_bytes) == (offsets(result), True, 0)
                assert result.scanned_bytes == (size if place == 0 else 0)


@pytest.mark.parametrize("lost", range(6))
def test_what_a_lost_index_file_covered_is_read(store: Callable[[str], Path], lost: int) -> None:
    root = store("basic")
    files = sorted((root / "index").iterdir())
    assert len(files) == 6
    files[lost].unlink()
    with MessageStore.open(root) as opened:
        assert opened.find("AaTopic", "BB", scan=False).complete is False
        for (topic, key), rows in indexed_messages("basic").items():
            result = opened.find(topic, key, scan=True)
            assert offsets(result) == [row["physicalOffset"] for row in rows]
            assert result.complete


def test_the_budget_of_a_call_is_kept_and_the_next_goes_on(
    damaged_store: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("logdex.rocketmq.find._SCAN_BUDGET_BYTES", 40_000)
    truth = indexed_messages("basic")["AaTopic", "BB"]
    with MessageStore.open(damaged_store("no-index")) as opened:
        total = 0
        for _ in range(20):
            result = opened.find("AaTopic", "BB")
            total += result.scanned_bytes
            left = sum(end - begin for begin, end in result.unscanned)
            assert total + left == opened.commit_log.max_offset
            assert result.complete == (left == 0)
            if result.complete:
                break
        else:
            pytest.fail("twenty calls did not read the log")
        assert offsets(result) == [row["physicalOffset"] for row in truth]


def test_damage_in_the_log_is_not_hidden(damaged_store: Callable[[str], Path]) -> None:
    root = damaged_store("crc-early-clean")
    for path in (root / "index").iterdir():
        path.unlink()
    with MessageStore.open(root) as opened:
        first = opened.find("AaTopic", "BB")
        assert not first.complete
        assert first.unscanned
        again = opened.find("AaTopic", "BB")
        assert again.scanned_bytes == 0
        assert offsets(again) == offsets(first)


def test_a_damaged_index_loses_no_message(damaged_store: Callable[[str], Path]) -> None:
    truth = indexed_messages("basic")
    repeated = {asked: rows for asked, rows in truth.items() if len(rows) > 1}
    assert repeated
    for name in golden.DAMAGED:
        if not name.startswith("index-"):
            continue
        with MessageStore.open(damaged_store(name)) as opened:
            for (topic, key), rows in [*repeated.items(), *list(truth.items())[:: len(golden.DAMAGED)]]:
                assert offsets(opened.find(topic, key)) == [row["physicalOffset"] for row in rows], (name, topic, key)


def test_find_batch_gives_rows_in_the_order_of_the_keys(store: Callable[[str], Path]) -> None:
    truth = indexed_messages("basic")
    asked = [*list(truth)[:300], ("none", "none")]
    expected = [(i, row["physicalOffset"]) for i, key in enumerate(asked) for row in truth.get(key, [])]
    with MessageStore.open(store("basic")) as opened:
        topics, keys = [topic for topic, _ in asked], [key for _, key in asked]
        table = pa.table(opened.find_batch(topics, pa.array(keys), batch_size=100))
        assert table.column_names[:2] == ["query_row", "topic"]
        assert list(zip(table["query_row"].to_pylist(), table["phy_offset"].to_pylist(), strict=True)) == expected
        one = pa.table(opened.find_batch("AaTopic", ["BB", None, "Aa"], max_num=1))
        assert one["query_row"].to_pylist() == [0, 2]
        assert one["body"].to_pylist() == [opened.find("AaTopic", key)[0].body for key in ("BB", "Aa")]
        assert pa.table(opened.find_batch("none", ["none"])).num_rows == 0
        with pytest.raises(ValueError, match="1 keys, 2 topics"):
            opened.find_batch(["a", "b"], ["k"])
        for wrong in (0, -1):
            with pytest.raises(ValueError, match=f"batch_size={wrong}: expected 1 or more"):
                opened.find_batch("AaTopic", ["BB"], batch_size=wrong)


def test_find_batch_refuses_what_is_no_key_before_it_reads(store: Callable[[str], Path]) -> None:
    with MessageStore.open(store("basic")) as opened:
        for topics, keys in (("t", ["k", 5]), (["t", 5], ["k", "k"]), ("t", pa.array([1])), ("t", "k"), (["t"], b"k")):
            with pytest.raises(TypeError, match=r"(keys|topics): "):
                opened.find_batch(topics, keys)


@pytest.mark.filterwarnings("ignore::logdex.DamageWarning")
def test_topics_behind_damage_are_topics(damaged_store: Callable[[str], Path]) -> None:
    """Only the log has the entry: a message after damage is found without its topic, too."""
    root = damaged_store("crc-early-clean")
    for name in ("consumequeue", "config"):
        shutil.rmtree(root / name)
    rows = [row for row in golden.rows("basic", "messages") if row["physicalOffset"] != 98_616]
    with MessageStore.open(root) as opened:
        assert opened.topics == sorted({row["topic"] for row in rows})
        last = next(row for row in reversed(rows) if row["uniqKey"])
        found = opened.find(None, last["uniqKey"], scan=False)
        assert last["physicalOffset"] in offsets(found)
    with MessageStore.open(root, compat="4.9.3") as opened:
        before = {row["topic"] for row in rows if row["physicalOffset"] < 98_616}
        assert opened.topics == sorted(before) != sorted({row["topic"] for row in rows})


def test_a_table_of_topics_that_is_damaged_is_none(store: Callable[[str], Path]) -> None:
    root = store("basic")
    for text in ("", "null", "[" * 100_000, '{"topicConfigTable": 5}', "\ud800"):
        (root / "config" / "topics.json").write_text(text, encoding="utf-8", errors="surrogatepass")
        with MessageStore.open(root) as opened:
            assert len(opened.find(None, "BB")) >= len(opened.find("AaTopic", "BB")) > 0


def test_message_by_offset_id_and_by_offset(store: Callable[[str], Path]) -> None:
    for case in ("basic", "ipv6"):
        rows = golden.rows(case, "messages")
        with MessageStore.open(store(case)) as opened:
            for row in rows:
                for key in (row["msgId"], row["msgId"].lower(), row["physicalOffset"]):
                    message = opened.message(key)
                    assert message is not None
                    assert (message.msg_id, message.phy_offset) == (row["msgId"], row["physicalOffset"])
            assert opened.message(np.int64(rows[1]["physicalOffset"])) == opened.message(rows[1]["msgId"])
            assert opened.message(1) is None
            assert opened.message("F" + rows[0]["msgId"][1:]) is None
            for wrong in ("7F", "x" * 32, "order-1"):
                with pytest.raises(ValueError, match="hex"):
                    opened.message(wrong)


@pytest.mark.parametrize("access", ["mmap", "pread"])
def test_reading_a_store_changes_nothing(store: Callable[[str], Path], access: Any) -> None:
    root = store("killed")
    before = snapshot(root)
    with MessageStore.open(root, access=access) as opened:
        opened.find("AaTopic", "BB")
        list(opened.find_batch("AaTopic", ["BB"]))
        opened.message(0)
    assert snapshot(root) == before


def test_a_store_pickles_by_its_path(store: Callable[[str], Path]) -> None:
    with MessageStore.open(store("basic")) as opened:
        copy = pickle.loads(pickle.dumps(opened))  # noqa: S301 -- our own bytes
        with copy:
            assert offsets(copy.find("AaTopic", "BB")) == offsets(opened.find("AaTopic", "BB"))


def test_use_after_close_is_an_error(store: Callable[[str], Path]) -> None:
    opened = MessageStore.open(store("basic"))
    opened.close()
    opened.close()
    for call in (
        lambda: opened.find("t", "k"),
        lambda: opened.find_batch("t", ["k"]),
        lambda: opened.message(0),
        lambda: opened.index,
        lambda: opened.commit_log,
    ):
        with pytest.raises(ValueError, match="closed"):
            call()


def test_a_result_is_a_sequence(store: Callable[[str], Path]) -> None:
    with MessageStore.open(store("basic")) as opened:
        result = opened.find("AaTopic", "BB")
        assert result[0] == next(iter(result))
        assert result[0] in result
        assert result[-1] == list(result)[-1]
        assert len(result[:2]) == 2
        assert repr(result).startswith(f"FindResult({len(result)} messages")
        assert not opened.find("AaTopic", "none")


def test_open_opens_a_store_and_names_what_is_none(store: Callable[[str], Path], tmp_path: Path) -> None:
    root = store("basic")
    with logdex.open(root) as opened:
        assert isinstance(opened, MessageStore)
    with logdex.open(root / "index") as index:
        assert isinstance(index, IndexService)
    with pytest.raises(ValueError, match="IndexFile"):
        logdex.open(next((root / "index").iterdir()))
    with pytest.raises(ValueError, match="commitlog"):
        logdex.open(tmp_path)
    for call in (logdex.open, MessageStore.open):
        with pytest.raises(FileNotFoundError):
            call(tmp_path / "none")


def test_tags_of_a_range_that_is_not_indexed_are_found_only_if_the_index_holds_tags(tmp_path: Path) -> None:
    with StoreWriter.open(tmp_path / "store") as writer:
        writer.put_message("T", b"1", keys="first", tags="red")
        writer.put_message("T", b"2", keys="second")
        writer.dispatch()
        writer.put_message("T", b"3", keys="third", tags="red")
        writer.flush()
        with MessageStore.open(tmp_path / "store") as store:
            assert [message.body for message in store.find("T", "third", scan=True)] == [b"3"]
            assert not store.find("T", "T#red", scan=True)
            assert not store.indexes_tags


def test_a_star_is_every_topic(store: Callable[[str], Path]) -> None:
    with MessageStore.open(store("basic")) as opened:
        message = opened.find("AaTopic", "BB")[0]
        assert message.uniq_key is not None
        assert opened.find("*", message.uniq_key) == opened.find(None, message.uniq_key)
        assert len(opened.find("*", message.uniq_key)) > 0
        with pytest.raises(ValueError, match=r"expected the topic of each key; find\(None, key\)"):
            opened.find_batch("*", ["BB"])
        with pytest.raises(ValueError, match=r"expected one topic; find\(None, key\)"):
            opened.explain("*", "BB")


def test_a_class_called_with_a_path_says_what_to_call(store: Callable[[str], Path]) -> None:
    root = store("basic")
    for kind in (MessageStore, IndexService, StoreWriter, LogDir, Log):
        for path in (root, str(root)):
            with pytest.raises(TypeError, match=rf"^{kind.__name__}\('{root}'\): call {kind.__name__}\.open$"):
                kind(path)  # type: ignore[call-arg, arg-type]
