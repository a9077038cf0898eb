"""Consume queues against the answers of real brokers for their own: units, bounds, times, and rebuilt queues."""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING, Any

import pytest

import golden
from logdex._core import CommitLog, ConsumeQueue, ConsumeQueueWriter, StoreCheckpoint

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    Store = Callable[[str], Path]


def _directory(root: Path, topic: str, queue_id: int) -> Path | None:
    folders = (root / folder / topic / str(queue_id) for folder in ("consumequeue", "batchconsumequeue"))
    return next((folder for folder in folders if folder.is_dir()), None)


def _queues(root: Path, case: str, **options: Any) -> Iterator[tuple[dict[str, Any], ConsumeQueue]]:
    """Return the queues of a case that have files, each with the broker's row for it."""
    log = CommitLog.open(root / "commitlog", compat=options.get("compat"))
    for row in golden.rows(case, "queues"):
        if (directory := _directory(root, row["topic"], row["queueId"])) is not None:
            yield row, ConsumeQueue.open(directory, commit_log=log, **options)


def _rows(batch: Any, *names: str) -> list[list[Any]]:
    return [list(row) for row in zip(*(batch.column(name).to_pylist() for name in names), strict=True)]


@pytest.mark.parametrize("case", golden.STORES)
def test_units_and_bounds_are_the_broker_s(store: Store, case: str) -> None:
    root = store(case)
    units = {(row["topic"], row["queueId"]): row for row in golden.rows(case, "units")}
    for compat in (None, golden.info(case)["broker"]):
        compared = 0
        for row, queue in _queues(root, case, compat=compat):
            assert (queue.min_offset, queue.max_offset) == (row["minOffset"], row["maxOffset"]), row["topic"]
            wanted = units[row["topic"], row["queueId"]]
            batch = queue.units(wanted["firstOffset"])
            batched = wanted.get("kind") == "batch"
            assert queue.kind == ("batch" if batched else "plain")
            extra = ("queue_offset", "messages") if batched else ()
            assert _rows(batch, "phy_offset", "size", "tags_code", *extra) == wanted["units"]
            if not batched:
                first = wanted["firstOffset"]
                assert batch.column("queue_offset").to_pylist() == list(range(first, first + len(wanted["units"])))
                middle = (row["minOffset"] + row["maxOffset"]) // 2
                part = queue.units(middle, middle + 3).column("queue_offset").to_pylist()
                assert part == list(range(middle, min(middle + 3, row["maxOffset"])))
            compared += batch.num_rows
        assert compared > 200


@pytest.mark.parametrize("case", golden.STORES)
def test_compat_answers_times_as_the_broker(store: Store, case: str) -> None:
    asked = 0
    for row, queue in _queues(store(case), case, compat=golden.info(case)["broker"]):
        for answer in row["byTime"]:
            assert queue.offset_by_time(answer["timestamp"]) == answer["offset"], (row["topic"], answer)
            if "offsetUpper" in answer:
                assert queue.offset_by_time(answer["timestamp"], boundary="upper") == answer["offsetUpper"]
            asked += 1
    assert asked > 100


@pytest.mark.parametrize("case", golden.STORES)
def test_default_finds_the_very_message_of_a_time(store: Store, case: str) -> None:
    times: dict[tuple[str, int], list[tuple[int, int]]] = {}
    for message in golden.rows(case, "messages"):
        if message["sysFlag"] & 12 in {0, 8}:
            batch = message["sysFlag"] & 0x80
            offset = int(message["properties"]["INNER_BASE"]) if batch else message["queueOffset"]
            times.setdefault((message["topic"], message["queueId"]), []).append((offset, message["storeTimestamp"]))
    asked = 0
    for row, queue in _queues(store(case), case):
        known = times.get((row["topic"], row["queueId"]), [])
        for t in {time + step for _, time in known[::7] for step in (-1, 0, 1, 10_000_000)}:
            lower = min((offset for offset, time in known if time >= t), default=row["maxOffset"])
            upper = max((offset for offset, time in known if time <= t), default=row["minOffset"])
            assert queue.offset_by_time(t) == lower
            assert queue.offset_by_time(t, boundary="upper") == upper
            asked += 1
    assert asked > 100


def test_extension_units_hold_tags_and_times(store: Store) -> None:
    root = store("cqext")
    messages = {row["physicalOffset"]: row for row in golden.rows("cqext", "messages")}
    compared = 0
    for row in golden.rows("cqext", "queues"):
        directory = _directory(root, row["topic"], row["queueId"])
        if directory is None:
            continue
        extension = root / "consumequeue_ext" / row["topic"] / str(row["queueId"])
        queue = ConsumeQueue.open(directory, extension=extension)
        units = queue.units()
        found = queue.extension_units(units.column("tags_code"))
        times = [int(time.timestamp() * 1000 + 0.5) for time in found.column("store_timestamp").to_pylist()]
        for offset, time in zip(units.column("phy_offset").to_pylist(), times, strict=True):
            assert time == messages[offset]["storeTimestamp"]
            compared += 1
        assert queue.extension_units([0, 5, None, -(2**63) + 1]).column("tags_code").to_pylist() == [None] * 4
        with pytest.raises(ValueError, match="extension"):
            ConsumeQueue.open(directory).extension_units([0])
    assert compared > 200


@pytest.mark.parametrize("case", [case for case in golden.STORES if case != "rolled"])
def test_queues_made_anew_are_the_broker_s_byte_for_byte(store: Store, case: str) -> None:
    root = store(case)
    log = CommitLog.open(root / "commitlog")
    settings = golden.info(case)["store"]
    folders = ("consumequeue", "batchconsumequeue", "consumequeue_ext")
    wanted = {
        file.relative_to(root): file for folder in folders for file in (root / folder).rglob("*") if file.is_file()
    }
    batch_sizes = {file.stat().st_size for name, file in wanted.items() if name.parts[0] == "batchconsumequeue"}
    writer = ConsumeQueueWriter.create(
        root / "new",
        file_size=settings["mappedFileSizeConsumeQueue"],
        batch_file_size=max(batch_sizes, default=13_800_000),
        multi_dispatch=settings.get("enableMultiDispatch", False),
        extension_file_size=settings.get("mappedFileSizeConsumeQueueExt"),
    )
    units = sum(writer.append_batch(batch) for batch in log.scan(columns=writer.columns))
    report = writer.finish()
    assert report.ok
    assert report.checked["units"] == units == sum(len(row["units"]) for row in golden.rows(case, "units"))
    made = {file.relative_to(root / "new"): file for file in (root / "new").rglob("*") if file.is_file()}
    assert made.keys() == wanted.keys()
    assert (case == "cqext") == any(name.parts[0] == "consumequeue_ext" for name in made)
    for name, file in wanted.items():
        assert made[name].read_bytes() == file.read_bytes(), name
    with pytest.raises(ValueError, match="finished"):
        writer.finish()
    with pytest.raises(FileExistsError):
        ConsumeQueueWriter.create(root / "new")


def test_extension_files_are_refused_where_some_are_or_no_unit_fits(tmp_path: Path) -> None:
    (tmp_path / "consumequeue_ext").mkdir()
    with pytest.raises(FileExistsError, match="consumequeue_ext"):
        ConsumeQueueWriter.create(tmp_path, extension_file_size=24)
    with pytest.raises(ValueError, match="23 bytes"):
        ConsumeQueueWriter.create(tmp_path, extension_file_size=23)
    ConsumeQueueWriter.create(tmp_path).finish()


def test_a_queue_whose_beginning_expired_begins_with_filling(store: Store) -> None:
    root = store("rolled")
    log = CommitLog.open(root / "commitlog")
    writer = ConsumeQueueWriter.create(root / "new", file_size=1000)
    for batch in log.scan(columns=writer.columns):
        writer.append_batch(batch)
    assert writer.finish().ok
    for row in golden.rows("rolled", "queues"):
        directory = _directory(root / "new", row["topic"], row["queueId"])
        if directory is None:
            continue
        queue = ConsumeQueue.open(directory, commit_log=log)
        assert (queue.min_offset, queue.max_offset) == (row["minOffset"], row["maxOffset"])
        assert queue.units().column("queue_offset").to_pylist()[0] == row["minOffset"]
        blank = queue.min_offset - queue.min_offset % 50
        first = next(iter(queue.files)).read_bytes()
        assert first[: (queue.min_offset - blank) * 20] == bytes.fromhex(
            "0000000000000000 7fffffff 0000000000000000"
        ) * (queue.min_offset - blank)


_OPENING = [
    name
    for name in golden.DAMAGED
    if golden.damaged(name).get("storeOpen", {}).get("ok") and not name.startswith("index")
]


@pytest.mark.parametrize("name", _OPENING)
def test_damaged_stores_recover_as_the_broker_s(damaged_store: Store, name: str) -> None:
    root, case = damaged_store(name), golden.damaged(name)
    log = CommitLog.open(root / "commitlog", compat="4.9.3")
    checkpoint = root / "checkpoint"
    directories = sorted((root / "consumequeue").glob("*/*"))
    begin, end, dispatch = log.recovery(
        StoreCheckpoint.open(checkpoint) if checkpoint.exists() else None,
        last_exit_ok=not (root / "abort").exists(),
        queue_end=max(ConsumeQueue.open(directory).log_end for directory in directories),
    )
    assert end == case["storeOpen"]["maxPhyOffset"]
    assert dispatch == (begin if (root / "abort").exists() else end)
    compared = 0
    for row in case["queues"]:
        if (directory := _directory(root, row["topic"], row["queueId"])) is not None:
            queue = ConsumeQueue.open(directory, commit_log=log, compat="4.9.3", log_end=end)
            assert (queue.min_offset, queue.max_offset) == (row["minOffset"], row["maxOffset"]), row
            compared += 1
    assert compared > 20


@pytest.mark.parametrize("case", golden.STORES)
def test_recovery_begins_and_ends_where_the_broker_s_does(store: Store, case: str) -> None:
    root, info = store(case), golden.info(case)
    log = CommitLog.open(root / "commitlog", compat=info["broker"])
    killed = (root / "abort").exists()
    found = log.recovery(StoreCheckpoint.open(root / "checkpoint"), last_exit_ok=not killed, queue_end=2**62)
    assert found[1] == info["load"]["opened"][0]["maxPhyOffset"]
    assert killed == (case in golden.KILLED_STORES) == (found[2] < found[1])
    if not killed and info["broker"] == "4.9.3":
        starts = sorted(int(file.name) for file in (root / "commitlog").iterdir() if file.name.isdecimal())
        assert found[0] == starts[-3:][0]


@pytest.mark.parametrize(
    ("name", "kind", "offset"),
    [("cq-truncated", "file-size", 333), ("cq-zero-unit", "queue-unit", 140)],
)
def test_damaged_queues_are_findings_and_hide_nothing(damaged_store: Store, name: str, kind: str, offset: int) -> None:
    root = damaged_store(name)
    queue = ConsumeQueue.open(root / "consumequeue" / "TopicTest" / "0", commit_log=CommitLog.open(root / "commitlog"))
    report = queue.check_files()
    assert [(finding.kind, finding.offset) for finding in report.findings] == [(kind, offset)]
    assert queue.max_offset == 129
    lost = {"cq-truncated": 50 - 333 // 20, "cq-zero-unit": 1}[name]
    assert queue.units().num_rows == 129 - lost


@pytest.mark.parametrize(
    ("name", "kinds"),
    [("log-stray-file", ["file-name"]), ("log-truncated", ["file-size"]), ("log-zero-length", ["file-empty"])],
)
def test_damaged_log_directories_are_findings(damaged_store: Store, name: str, kinds: list[str]) -> None:
    root = damaged_store(name)
    log = CommitLog.open(root / "commitlog")
    assert [finding.kind for finding in log.check_files().findings] == kinds
    # The truncated file ends within its last message.
    assert sum(batch.num_rows for batch in log.scan()) == (552 if name == "log-truncated" else 553)
    (root / "commitlog" / "00000000000000131072").unlink()
    assert "file-gap" in [finding.kind for finding in log.check_files().findings]


def test_a_log_of_one_empty_file_says_what_is_expected(tmp_path: Path) -> None:
    (tmp_path / ("0" * 20)).touch()
    (finding,) = CommitLog.open(tmp_path).check_files().findings
    assert (finding.kind, finding.expected) == ("file-empty", "a file that is not empty")


@pytest.mark.parametrize("name", ["crc-early-clean", "crc-last-clean", "magic-last"])
def test_salvage_loses_one_message_of_a_damaged_log(damaged_store: Store, name: str) -> None:
    case = golden.damaged(name)
    with CommitLog.open(damaged_store(name) / "commitlog") as log:
        reader = log.scan(columns=["phy_offset"], stop="salvage")
        assert reader.schema.names == ["phy_offset", "suspect"]
        rows = [row for batch in reader for row in _rows(batch, "phy_offset", "suspect")]
        assert [(finding.kind) for finding in reader.report.findings] == ["log-frame"]
        assert reader.end_offset is not None
        broker = log.scan(columns=["phy_offset"])
        before = [row[0] for batch in broker for row in _rows(batch, "phy_offset")]
        assert broker.end_offset == case["walk"]["nextOffset"]
    wanted = [row["physicalOffset"] for row in golden.rows("basic", "messages")]
    assert len(rows) == len(wanted) - 1
    assert {offset for offset, _ in rows} < set(wanted)
    assert [offset for offset, suspect in rows if suspect is None] == before
    assert {suspect for _, suspect in rows if suspect} == {"after-stop"}


def test_what_a_scan_met_is_known_once_it_was_read_to_a_table(damaged_store: Store) -> None:
    with CommitLog.open(damaged_store("magic-last") / "commitlog") as log:
        reader = log.scan(columns=["phy_offset"], stop="salvage")
        assert (reader.report.findings, reader.end_offset) == ([], None)
        assert reader.read_all().num_rows > 0
        assert reader.closed
        assert [finding.kind for finding in reader.report.findings] == ["log-frame"]
        assert reader.end_offset is not None


@pytest.mark.parametrize("case", golden.STORES)
def test_threads_and_salvage_read_what_one_walk_reads(store: Store, case: str) -> None:
    log = CommitLog.open(store(case) / "commitlog")
    rows = [row for batch in log.scan() for row in _rows(batch, "phy_offset", "topic", "keys", "properties", "body")]
    threaded = log.scan(threads=3, batch_size=50)
    assert [
        row for batch in threaded for row in _rows(batch, "phy_offset", "topic", "keys", "properties", "body")
    ] == rows
    salvaged = log.scan(columns=["phy_offset"], stop="salvage")
    found = [row for batch in salvaged for row in _rows(batch, "phy_offset", "suspect")]
    # Clock steps look like damage, but are none.
    words = {word for _, suspect in found for word in (suspect or "").split()}
    assert words <= ({"time-back"} if case.startswith("rolled") else set())
    assert [offset for offset, _ in found][: len(rows)] == [row[0] for row in rows]
    assert salvaged.report.ok


def test_queues_pickle_and_close(store: Store) -> None:
    root = store("basic")
    log = CommitLog.open(root / "commitlog")
    directory = root / "consumequeue" / "TopicTest" / "0"
    with ConsumeQueue.open(directory, commit_log=log, compat="4.9.3") as queue:
        copy = pickle.loads(pickle.dumps(queue))  # noqa: S301 -- our own bytes
        assert copy.offset_by_time(1_795_260_605_432) == queue.offset_by_time(1_795_260_605_432)
        assert (copy.path, copy.file_size) == (directory, 1000)
    assert queue.closed
    with pytest.raises(ValueError, match="closed"):
        queue.units()
    with pytest.raises(ValueError, match="commit log"):
        ConsumeQueue.open(directory).offset_by_time(0)
    with pytest.raises(FileNotFoundError):
        ConsumeQueue.open(root / "consumequeue" / "none" / "0")


def test_a_log_over_several_directories_is_one_log(store: Store, tmp_path: Path) -> None:
    root = store("basic")
    other = tmp_path / "other"
    other.mkdir()
    for file in sorted((root / "commitlog").iterdir())[1::2]:
        file.rename(other / file.name)
    log = CommitLog.open(f"{root / 'commitlog'},{other}")
    assert sum(batch.num_rows for batch in log.scan()) == 553
    assert log.check_files().ok
    assert log.max_offset == 313165
