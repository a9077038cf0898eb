"""`logdex kafka`: the lines of the real kafka-dump-log, and what the other commands print and return."""

from __future__ import annotations

import base64
import json
import lzma
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import golden_kafka
from logdex._core import dump_file
from logdex.cli import main
from logdex.kafka import LogDir

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

# One question to the real tool: its files, then what it printed.
_RUN = re.compile(
    r"^### kafka-dump-log (?P<options>\S+) --files \S+\n--- exit (?P<exit>\d)[^\n]*\n"
    r"--- stdout\n(?P<stdout>.*?)\n?--- stderr$",
    re.MULTILINE | re.DOTALL,
)
_DUMPING = re.compile(r"^Dumping (\S+/\d{20}\.\w+)\n", re.MULTILINE)
_LINE = re.compile(r"\n(?=Log starting|baseOffset: |offset: |\| offset: |timestamp: |version: |producerId: |Found )")
# Keys and payloads may hold line ends, and what was no UTF-8 was replaced when the answers were written down.
_DATA = re.compile(r" (key|payload): .*\Z", re.DOTALL)


@pytest.fixture
def logs(tmp_path: Path) -> Callable[[str], Path]:
    """Return a factory: the unpacked log directory of a case."""

    def unpack(case: str) -> Path:
        return golden_kafka.unpack(case, tmp_path / case)

    return unpack


def _real_dumps(case: str) -> Iterator[tuple[str, list[str]]]:
    """Return each file with the lines that the real tool printed for it, without keys and payloads."""
    text = golden_kafka.text(case, "dump.txt")
    for run in _RUN.finditer(text):
        if run["options"] != "--print-data-log" or run["exit"] != "0":
            continue
        _, *parts = _DUMPING.split(run["stdout"] + "\n")
        for name, printed in zip(parts[::2], parts[1::2], strict=True):
            yield name, [_DATA.sub("", line) for line in _LINE.split(printed.rstrip("\n")) if _is_real(line, name)]


def _is_real(line: str, name: str) -> bool:
    """Return whether a line tells something: the real tool takes the first zeros of an unused index for an entry."""
    base = int(name.rpartition("/")[2].partition(".")[0])
    return bool(line) and line not in (f"offset: {base} position: 0", f"timestamp: 0 offset: {base}")


@pytest.mark.parametrize("case", golden_kafka.SOUND)
def test_lines_are_those_of_kafka_dump_log(logs: Callable[[str], Path], case: str) -> None:
    root = logs(case)
    compared = 0
    for name, expected in _real_dumps(case):
        pieces: list[str] = []
        report = dump_file(root / name, pieces.append, records=True)
        lines = [line for line in "".join(pieces).split("\n")[:-1] if not line.endswith(" is empty.")]
        # A line stays one line, whatever its header names hold.
        assert lines == [line.replace("\n", "\\n") for line in expected if not line.endswith(" is empty.")], name
        assert not report.findings
        compared += len(lines)
    assert compared >= 500


def test_keys_and_payloads_are_printed_on_request(
    logs: Callable[[str], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    root = logs("follower")
    assert main(["kafka", "dump", str(root / "fo-a-0"), "--print-data-log"]) == 0
    printed = capsys.readouterr().out
    plain = 0
    for row in golden_kafka.rows("follower", "records"):
        value = base64.b64decode(row["value"] or "")
        if row["topic"] == "fo-a" and value.isascii() and value.decode().isprintable() and value:
            assert f"payload: {value.decode()}\n" in printed
            plain += 1
    assert plain > 20


_RESTORE = Path(__file__).parents[3] / "golden" / "kafka-restore"


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a directory with the log directories of brokers of two releases."""
    home = tmp_path_factory.mktemp("brokers")
    for release in ("3.9.2", "4.3.1"):
        golden_kafka.unpack_archive(_RESTORE / f"dead-{release}.tar.xz", home / f"dead-{release}")
    return home


def test_internal_topics_are_dumped_as_by_the_decoders_of_the_tool(
    brokers: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(brokers)
    wanted = lzma.decompress((_RESTORE / "dump-internal.txt.xz").read_bytes()).decode().splitlines()
    files = [line.removeprefix("Dumping ") for line in wanted if line.startswith("Dumping ")]
    assert len(files) == 16
    for file in files:
        assert main(["kafka", "dump", "--print-data-log", file]) == 0
    # The type of this control record is all that is printed.
    wanted = [re.sub("LeaderChange: .*", "controlType: LEADER_CHANGE(2)", line) for line in wanted]
    assert capsys.readouterr().out.splitlines() == wanted
    assert sum('"data":{' in line for line in wanted) > 400


def test_internal_records_as_json(brokers: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = brokers / "dead-4.3.1" / "__transaction_state-0" / "00000000000000000000.log"
    assert main(["kafka", "dump", "--print-data-log", "--json", str(file)]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    states = [row for row in rows if row["type"] == "record"]
    assert {state["key"]["type"] for state in states} == {"0"}
    assert {state["value"]["data"]["transactionTimeoutMs"] for state in states} == {60_000}


def test_cat_shows_internal_records(brokers: Path, capsys: pytest.CaptureFixture[str]) -> None:
    logs = str(brokers / "dead-3.9.2")
    assert main(["cat", logs, "-t", "__consumer_offsets"]) == 0
    lines = capsys.readouterr().out.splitlines()
    commit = (
        '    {"version":"3","data":{"offset":0,"leaderEpoch":0,"metadata":"txn 0","commitTimestamp":1795469447987}}'
    )
    assert commit in lines
    assert main(["cat", logs, "-t", "__consumer_offsets", "--json"]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    with LogDir.open(logs) as log_dir:
        stored = pa.table(log_dir.records("__consumer_offsets", columns=["value"])).column("value").to_pylist()
    assert len(rows) == len(stored) > 20
    assert {json.loads(row["key"])["type"] for row in rows} == {"1", "2"}
    assert [row["value"] is None for row in rows] == [value is None for value in stored]
    # Other topics, and columns without the topic, have the bytes.
    assert main(["cat", logs, "-t", "orders", "-n", "3", "--body"]) == 0
    assert '"data"' not in capsys.readouterr().out
    assert main(["cat", logs, "-t", "__consumer_offsets", "--columns", "value", "-n", "1"]) == 0
    assert '"data"' not in capsys.readouterr().out


def _json(capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def test_dump_as_json(logs: Callable[[str], Path], capsys: pytest.CaptureFixture[str]) -> None:
    folder = logs("transactions") / "tx-one-0"
    assert main(["kafka", "dump", str(folder), "--print-data-log", "--json"]) == 0
    rows = _json(capsys)
    batches = [row for row in golden_kafka.rows("transactions", "batches") if row["dir"] == "tx-one-0"]
    assert [row["position"] for row in rows if row["type"] == "batch"] == [row["position"] for row in batches]
    data = [row for row in golden_kafka.rows("transactions", "records") if row["topic"] == "tx-one"]
    records = [row for row in rows if row["type"] == "record"]
    assert [row["offset"] for row in records if "control" not in row] == [row["offset"] for row in data]
    assert {row["control"]["type"] for row in records if "control" in row} == {"ABORT", "COMMIT"}
    assert {row["type"] for row in rows} == {"log", "batch", "record", "index", "entry", "producer"}


@pytest.mark.parametrize(
    "case", ["damaged-crc", "damaged-cut", "damaged-indexorder", "damaged-snapshot", "damaged-txnindex"]
)
def test_dump_and_verify_say_what_is_wrong(
    logs: Callable[[str], Path], capsys: pytest.CaptureFixture[str], case: str
) -> None:
    root = logs(case)
    (folder,) = [path for path in root.iterdir() if path.is_dir()]
    assert main(["kafka", "dump", str(folder), "--deep"]) == 1
    damaged = golden_kafka.info(case)["damage"][0]["file"]
    assert damaged in capsys.readouterr().err
    for path in (root, folder):
        assert main(["kafka", "verify", str(path)]) == 1
        assert damaged in capsys.readouterr().out
    assert main(["kafka", "verify", str(root), "--json"]) == 1
    assert not _json(capsys)[-1]["ok"]


@pytest.mark.parametrize("options", [(), ("--deep",)])
def test_dump_says_each_thing_once(
    logs: Callable[[str], Path], logdex_command: Callable[..., Any], options: tuple[str, ...]
) -> None:
    for case in ("damaged-crc", "damaged-cut", "damaged-zerotail"):
        ran = logdex_command("kafka", "dump", *logs(case).glob("*-0/*"), "--json", *options)
        found = [(row["path"], row["offset"]) for row in ran.rows if row["type"] == "finding"]
        assert ran.code == 1
        assert len(found) == len(set(found)) > 0


def test_dump_of_what_is_no_segment_is_2(
    logs: Callable[[str], Path], logdex_command: Callable[..., Any], tmp_path: Path
) -> None:
    root = logs("follower")
    missing = root / "fo-a-0" / "00000000000000000007.log"
    for path in (tmp_path / "nowhere", missing, root, root / "meta.properties", root / "fo-a-0" / "partition.metadata"):
        ran = logdex_command("kafka", "dump", path)
        assert (ran.code, ran.out) == (2, "")
        assert str(path) in ran.err


def test_what_is_no_kafka_is_not_sound(
    logs: Callable[[str], Path], logdex_command: Callable[..., Any], tmp_path: Path
) -> None:
    root = logs("follower")
    before = sorted(root.rglob("*"))
    empty = tmp_path / "empty"
    empty.mkdir()
    for words in (
        ("build-index", empty, tmp_path / "new"),
        ("build-index", root / "fo-a-0", tmp_path / "new"),
        ("build-index", root, tmp_path / "new", "--topic", "no-such-topic"),
        ("build-index", root, root),
        ("rebuild-index", empty, "--to", tmp_path / "new"),
        ("rebuild-index", root, "--to", tmp_path / "new"),
        ("find", root, "fo-a", "key", "--index", tmp_path / "new"),
    ):
        ran = logdex_command("kafka", *words)
        assert (ran.code, ran.out) == (2, ""), words
        assert len(ran.err.splitlines()) == 1
    assert not (tmp_path / "new").exists()
    assert sorted(root.rglob("*")) == before


def test_keys_that_are_no_text_are_found(logs: Callable[[str], Path], logdex_command: Callable[..., Any]) -> None:
    rows = [row for row in golden_kafka.rows("codecs", "records") if row["topic"] == "cod-none" and row.get("key")]
    keys = {row["key"]: base64.b64decode(row["key"]) for row in rows}
    key, content = next((key, content) for key, content in keys.items() if b"\0" not in content and max(content) > 0x7F)
    ran = logdex_command("kafka", "find", logs("codecs"), "cod-none", os.fsdecode(content), "--json")
    assert ran.code == 0
    assert {row["key_base64"] for row in ran.rows if row["key"] is None} <= {key}
    assert len(ran.rows) == sum(row["key"] == key for row in rows)


def test_verify_of_what_is_sound(logs: Callable[[str], Path], capsys: pytest.CaptureFixture[str]) -> None:
    root = logs("codecs")
    assert main(["kafka", "verify", str(root), "--json"]) == 0
    assert _json(capsys)[-1]["checked"]["segments"] == 33
    assert main(["kafka", "verify", str(root / "cod-none-0" / "00000000000000000000.log")]) == 0


def test_find_with_and_without_an_index(
    logs: Callable[[str], Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root, index = str(logs("codecs")), str(tmp_path / "index")
    rows = [row for row in golden_kafka.rows("codecs", "records") if row["topic"] == "cod-none" and row.get("key")]
    row = next(row for row in rows if base64.b64decode(row["key"]).isalnum())
    key = base64.b64decode(row["key"]).decode()
    offsets = {(other["partition"], other["offset"]) for other in rows if other["key"] == row["key"]}
    assert main(["kafka", "build-index", root, index, "--topic", "cod-none"]) == 0
    capsys.readouterr()
    for options in ([], ["--index", index]):
        assert main(["kafka", "find", root, "cod-none", key, "--json", *options]) == 0
        found = _json(capsys)
        assert {(each["partition"], each["offset"]) for each in found} == offsets
        assert {each["key"] for each in found} == {key}
        assert "value" not in found[0]
    assert main(["kafka", "find", root, "cod-none", "no such key", "--index", index]) == 1
    assert main(["kafka", "find", root, "no-such-topic", key]) == 2


def test_rebuild_index(logs: Callable[[str], Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = logs("codecs") / "cod-none-0"
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    rebuild = ["kafka", "rebuild-index", str(folder), "--index-interval-bytes", "300"]
    assert main([*rebuild, "--to", str(tmp_path / "new")]) == 0
    made = {path.name: path.read_bytes() for path in (tmp_path / "new").iterdir()}
    assert made == {name: content for name, content in before.items() if name.endswith("index")}
    assert main([*rebuild, "--to", str(tmp_path / "new")]) == 2
    assert "File exists" in capsys.readouterr().err
    index = folder / "00000000000000000000.index"
    index.write_bytes(bytes(80))
    assert main([*rebuild, "--in-place"]) == 0
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
    assert main(["kafka", "rebuild-index", str(folder)]) == 2


def test_commands_for_any_path_take_kafkas(logs: Callable[[str], Path], capsys: pytest.CaptureFixture[str]) -> None:
    root = logs("codecs")
    assert main(["info", str(root), "--json"]) == 0
    (described,) = _json(capsys)
    assert (described["kind"], described["topics"], len(described["partitions"])) == ("Kafka log directory", 8, 13)
    assert main(["cat", str(root), "--topic", "cod-none", "--queue", "1", "--json", "--body"]) == 0
    offsets = [row["offset"] for row in _json(capsys)]
    rows = golden_kafka.rows("codecs", "records")
    assert offsets == [row["offset"] for row in rows if (row["topic"], row["partition"]) == ("cod-none", 1)]
    assert main(["verify", str(root / "cod-none-0")]) == 0


# One control batch of each of KRaft's records, written by MemoryRecordsBuilder of 3.9.2.
_METADATA = (
    "0000000000000000000000bc0000000102fb1c931e0020000000040000018bcfe568000000018bcfe56800ffffffffffffffffffffffffffff000000052a"
    "00000008000000031600000000018bcfe567ff00001e00000208000000050a000000010000820100000408000000066e0000020000000100000000000000"
    "010000000000000002020b434f4e54524f4c4c45520a6c6f63616c686f737423850000000001000000001a00000608000000040600000000260000080800"
    "0000021200000000000101010000"
)
_METADATA_LINES = """\
baseOffset: 0 lastOffset: 4 count: 5 baseSequence: -1 lastSequence: -1 producerId: -1 producerEpoch: -1 partitionLeaderEpoch: 1 \
isTransactional: false isControl: true deleteHorizonMs: OptionalLong.empty position: 0 CreateTime: 1700000000000 size: 200 \
magic: 2 compresscodec: none crc: 4212953886 isvalid: true
| offset: 0 CreateTime: 1700000000000 keySize: 4 valueSize: 11 sequence: -1 headerKeys: [] SnapshotHeader \
{"version":0,"lastContainedLogTimestamp":1699999999999}
| offset: 1 CreateTime: 1700000000000 keySize: 4 valueSize: 5 sequence: -1 headerKeys: [] KRaftVersion \
{"version":0,"kRaftVersion":1}
| offset: 2 CreateTime: 1700000000000 keySize: 4 valueSize: 55 sequence: -1 headerKeys: [] KRaftVoters {"version":0,"voters":\
[{"voterId":1,"voterDirectoryId":"AAAAAAAAAAEAAAAAAAAAAg","endpoints":[{"name":"CONTROLLER","host":"localhost","port":9093}],\
"kRaftVersionFeature":{"minSupportedVersion":0,"maxSupportedVersion":1}}]}
| offset: 3 CreateTime: 1700000000000 keySize: 4 valueSize: 3 sequence: -1 headerKeys: [] SnapshotFooter {"version":0}
| offset: 4 CreateTime: 1700000000000 keySize: 4 valueSize: 9 sequence: -1 headerKeys: [] controlType: LEADER_CHANGE(2)
"""


@pytest.mark.parametrize(
    ("name", "beginning"),
    [
        ("00000000000000000003-0000000001.checkpoint", "Snapshot end offset: 3, epoch: 1"),
        ("bootstrap.checkpoint", "KRaft bootstrap snapshot"),
        ("00000000000000000000.log", "Log starting offset: 0"),
    ],
)
def test_snapshots_of_kraft_are_dumped_as_by_the_real_tool(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, beginning: str
) -> None:
    path = tmp_path / name
    path.write_bytes(bytes.fromhex(_METADATA))
    assert main(["kafka", "dump", str(path), "--deep"]) == 0
    assert capsys.readouterr().out == f"Dumping {path}\n{beginning}\n{_METADATA_LINES}"
    assert main(["kafka", "dump", str(path), "--deep", "--json"]) == 0
    controls = [row["control"] for row in _json(capsys) if row["type"] == "record"]
    assert controls[0]["value"] == {"version": 0, "lastContainedLogTimestamp": 1_699_999_999_999}


def test_a_file_of_another_kind_is_named(
    logs: Callable[[str], Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = tmp_path / "notes.txt"
    other.touch()
    segment = min((logs("codecs") / "cod-none-0").glob("*.log"))
    assert main(["kafka", "dump", str(other), str(segment)]) == 0
    shown = capsys.readouterr()
    assert shown.out.startswith(f"Dumping {segment}\nLog starting offset: 0\n")
    assert f"ignoring {other}" in shown.err
    assert main(["kafka", "dump", str(segment.parent)]) == 0


@pytest.mark.parametrize("command", [["dump"], ["rebuild-index", "--to", "new"]])
def test_a_log_directory_is_not_taken_for_a_partition(
    logs: Callable[[str], Path], tmp_path: Path, capsys: pytest.CaptureFixture[str], command: list[str]
) -> None:
    words = [str(tmp_path / word) if word == "new" else word for word in command]
    assert main(["kafka", *words, str(logs("codecs"))]) == 2
    shown = capsys.readouterr()
    assert not shown.out
    assert "partition's directory" in shown.err
    assert not (tmp_path / "new").exists()


def test_seal_is_used_by_the_other_commands(
    logs: Callable[[str], Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root, out = logs("codecs"), str(tmp_path / "sealed")
    assert main(["seal", str(root)]) == 2
    assert "--out DIR" in capsys.readouterr().err
    header = "no-such-header"
    assert main(["seal", str(root), "--out", out, "--header", header, "--json"]) == 0
    counts = json.loads(capsys.readouterr().out)["checked"]
    assert counts["entries"] > 100
    keys = ((row["topic"], base64.b64decode(row["key"] or "")) for row in golden_kafka.rows("codecs", "records"))
    topic, key = next((topic, key) for topic, key in keys if key.isascii() and len(key) > 1)
    for command in (["kafka", "find"], ["find"]):
        found = []
        for sealed in ("never", out):
            assert main([*command, str(root), topic, key.decode(), "--sealed", sealed, "--json"]) == 0
            printed = capsys.readouterr()
            found.append(printed.out)
            assert ("scanned" in printed.err) == (sealed == "never")
        assert found[0] == found[1]
    assert main(["info", str(root), "--sealed", out]) == 0
    assert f"{counts['entries']:,} entries" in capsys.readouterr().out
    assert main(["kafka", "verify", str(root), "--sealed", out]) == 0
    assert f"{counts['entries']:,} sealed_rows" in capsys.readouterr().out
    assert main(["seal", str(tmp_path), "--header", header]) == 2
    assert "expected a Kafka log directory" in capsys.readouterr().err


def test_explain_shows_the_search_in_each_partition(logdex_command: Callable[..., Any], tmp_path: Path) -> None:
    logs = golden_kafka.unpack("transactions", tmp_path)
    ran = logdex_command("explain", logs, "tx-two", "absent")
    lines = ran.out.splitlines()
    assert (ran.code, lines[0]) == (1, "no record of tx-two carries absent")
    assert [line.split(":")[0] for line in lines[2:]] == [f"  partition {number}" for number in range(3)]
    (said,) = logdex_command("explain", logs, "tx-two", "absent", "--json").rows
    assert (said["found"], said["partitions"], len(said["steps"])) == (False, 3, 3)
