"""`logdex info` and `verify` of the parts of a store, of a log directory, of a key index."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import golden
import golden_kafka

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


@pytest.fixture
def told(logdex_command: Callable[..., Any]) -> Callable[[object], dict[str, Any]]:
    """Return a function that gives what `info --json` tells; the text form must end as well."""

    def tell(path: object) -> dict[str, Any]:
        ran = logdex_command("info", path, "--json")
        assert (ran.code, logdex_command("info", path).code) == (0, 0), ran.err
        (row,) = ran.rows
        return dict(row)

    return tell


@pytest.mark.parametrize("case", ["basic", "cqext", "v5-basic", "killed"])
def test_every_part_of_a_store_is_known(
    case: str, store: Callable[[str], Path], told: Callable[[object], dict[str, Any]]
) -> None:
    root = store(case)
    foreign = {"abort.bak", "compaction", "position-checkpoint", "transactionMetrics", "transactionMetrics.bak"}
    paths = [path for path in (root, *root.rglob("*")) if path.name not in foreign]
    kinds = {told(path)["kind"] for path in paths}
    assert {"RocketMQ queue", "RocketMQ queues", "RocketMQ file of a queue", "RocketMQ file of a commit log"} < kinds
    assert all(kind.startswith("RocketMQ ") for kind in kinds)
    assert ("RocketMQ queue extension" in kinds) == (case == "cqext")
    assert ("RocketMQ marker of a broker that runs or did not stop cleanly" in kinds) == (case == "killed")


def test_queues_are_told_and_checked(
    store: Callable[[str], Path], logdex_command: Callable[..., Any], told: Callable[[object], dict[str, Any]]
) -> None:
    root = store("v5-basic")
    compared = 0
    for row in golden.rows("v5-basic", "queues"):
        if row["maxOffset"] > row["minOffset"]:
            places = [
                root / folder / row["topic"] / str(row["queueId"]) for folder in ("consumequeue", "batchconsumequeue")
            ]
            described = told(next(place for place in places if place.is_dir()))
            assert (described["min_offset"], described["max_offset"]) == (row["minOffset"], row["maxOffset"])
            compared += 1
    assert compared == 26
    assert logdex_command("verify", root / "consumequeue").code == 0
    file = root / "consumequeue" / "t" / "0" / f"{0:020}"
    file.write_bytes(file.read_bytes()[:-7])
    for path in (file.parent, root / "consumequeue" / "t", root / "consumequeue"):
        ran = logdex_command("verify", path, "--json")
        assert (ran.code, ran.rows[0]["path"], ran.rows[0]["kind"]) == (1, str(file), "file-size")


def test_a_file_of_the_log_is_placed(store: Callable[[str], Path], told: Callable[[object], dict[str, Any]]) -> None:
    row = next(row for row in golden.rows("basic", "messages") if row["physicalOffset"] >= 131_072)
    described = told(store("basic") / "commitlog" / f"{131_072:020}")
    assert (described["begin_offset"], described["end_offset"]) == (131_072, 196_608)
    assert described["first_message_timestamp"] == row["storeTimestamp"]


def test_parts_have_no_rows(store: Callable[[str], Path], logdex_command: Callable[..., Any]) -> None:
    root = store("basic")
    for path in (root / "checkpoint", root / "consumequeue", root / "commitlog" / f"{0:020}"):
        ran = logdex_command("cat", path)
        assert (ran.code, ran.out) == (2, "")
        assert "it has no messages; expected a store" in ran.err
    assert logdex_command("verify", root / "checkpoint").code == 2


@pytest.mark.parametrize("case", ["transactions", "killed"])
def test_every_part_of_a_log_directory_is_known(
    case: str, tmp_path: Path, told: Callable[[object], dict[str, Any]]
) -> None:
    root = golden_kafka.unpack(case, tmp_path)
    described = [told(path) for path in (root, *root.rglob("*"))]
    assert all(row["kind"].startswith("Kafka ") for row in described)
    assert {row.get("broker") for row in described} - {None} == {
        "stopped cleanly"
        if case == "transactions"
        else "stopped without warning, or running elsewhere (.kafka_cleanshutdown is missing)"
    }
    if case == "killed":
        return  # its untrimmed indexes have rows for slots that no entry fills
    entries = {
        "Kafka offset index": golden_kafka.rows(case, "index"),
        "Kafka index of aborted transactions": golden_kafka.rows(case, "txnindex"),
    }
    for kind, rows in entries.items():
        assert sum(row["entries"] for row in described if row["kind"] == kind) == len(rows) > 0


def test_times_of_a_partition_are_those_of_its_records(
    tmp_path: Path, told: Callable[[object], dict[str, Any]]
) -> None:
    root = golden_kafka.unpack("timestamps", tmp_path)
    rows = golden_kafka.rows("timestamps", "records")
    compared = 0
    for partition in told(root)["partitions"]:
        place = (partition["topic"], partition["partition"])
        times = [row["timestamp"] for row in rows if (row["topic"], row["partition"]) == place]
        assert (partition["begin_timestamp"], partition["end_timestamp"]) == (times[0], max(times))
        (first, *_) = told(root / "-".join(map(str, place)))["segments"]
        assert first["begin_timestamp"] == times[0]
        compared += 1
    assert compared == 10


def test_checkpoints_are_checked(tmp_path: Path, logdex_command: Callable[..., Any]) -> None:
    root = golden_kafka.unpack("follower", tmp_path)
    for path in (*root.glob("*-offset-checkpoint"), *root.glob("*/leader-epoch-checkpoint")):
        assert logdex_command("verify", path).code == 0
        path.write_bytes(path.read_bytes() + b"x\n")
        finding, _ = logdex_command("verify", path, "--json").rows
        assert (finding["path"], finding["kind"]) == (str(path), "file-content")
        assert logdex_command("info", path).code == 2


@pytest.mark.parametrize(("case", "suffix"), [("damaged-snapshot", "snapshot"), ("damaged-indexodd", "index")])
def test_a_damaged_part_is_a_finding(
    case: str, suffix: str, tmp_path: Path, logdex_command: Callable[..., Any]
) -> None:
    root = golden_kafka.unpack(case, tmp_path)
    codes = {path: logdex_command("verify", path).code for path in root.glob(f"*/*.{suffix}")}
    damaged = golden_kafka.info(case)["damage"][0]["file"]
    assert {path.name for path, code in codes.items() if code} == {damaged}
    assert set(codes.values()) == {0, 1}
    assert all(logdex_command("kafka", "verify", path).code == code for path, code in codes.items())


def test_a_key_index_is_told_and_checked(
    tmp_path: Path, logdex_command: Callable[..., Any], told: Callable[[object], dict[str, Any]]
) -> None:
    root = golden_kafka.unpack("follower", tmp_path / "logs")
    *_, report = logdex_command("kafka", "build-index", root, tmp_path / "index", "--json").rows
    described = told(tmp_path / "index")
    assert (described["kind"], described["entries"]) == ("Kafka key index", report["checked"]["entries"])
    assert len(described["partitions"]) == report["checked"]["partitions"]
    assert logdex_command("verify", tmp_path / "index").code == 0


def test_what_is_damaged_can_be_passed_over(
    tmp_path: Path, logdex_command: Callable[..., Any], caplog: pytest.LogCaptureFixture
) -> None:
    root = golden_kafka.unpack("damaged-crc", tmp_path)
    assert logdex_command("cat", root, "--json", "--no-skip-damaged").code == 2
    ran = logdex_command("cat", root, "--json", "--skip-damaged")
    assert logdex_command("cat", root, "--json") == ran
    before = golden_kafka.rows("damaged-crc", "records-before")
    assert ran.code == 1
    assert len(before) - len(ran.rows) == 2
    assert {row["offset"] for row in ran.rows} < {row["offset"] for row in before}
    assert "at byte 1332" in caplog.text
    file = tmp_path / "rest.parquet"
    (told,) = logdex_command("export", root, file, "--json", "--skip-damaged").rows
    assert told["rows"] == len(ran.rows)
