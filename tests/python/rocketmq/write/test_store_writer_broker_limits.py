"""A writer takes what the broker that is going to load the store takes. tests/interop has the real 4.9.3 store as the judge."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from logdex.cli import main
from logdex.rocketmq import MessageStore, StoreWriter, copy_messages

if TYPE_CHECKING:
    from pathlib import Path

SIZES: dict[str, Any] = {
    "file_size": 16 << 20,
    "hash_slots": 100,
    "max_entries": 400,
    "zone": "UTC",
    "services": False,
}
LATER: list[dict[str, Any]] = [
    {"topic": "%RETRY%" + "g" * 121},
    {"topic": "%RETRY%" + "g" * 248},
    {"sys_flag": 0x101, "body": b"lz4"},
    {"sys_flag": 0x201, "body": b"zstd"},
    {"sys_flag": 0x80, "properties": {"INNER_NUM": "2"}},
    {"body": b"b" * (4 << 20)},
]
"""What brokers of 5.x take, and 4.9.3 does not."""
NEVER: list[dict[str, Any]] = [
    {"topic": "t" * 128},
    {"topic": "%RETRY%" + "g" * 249},
    {"topic": "a b"},
    {"topic": "a.b"},
    {"topic": "\u8ba2\u5355"},
    {"topic": "\x1b[2J"},
    {"topic": ""},
    {"sys_flag": 0x701},
    {"body": b"b" * ((4 << 20) + 1)},
    {"properties": {"p": "v" * 32_766}},
    {"properties": {"DELAY": "soon"}},
]


@pytest.mark.parametrize("compat", [None, "4.9.3", "5.3.3", "5.5.0"])
def test_what_the_release_refuses_is_refused(tmp_path: Path, compat: Any) -> None:
    later = compat in ("5.3.3", "5.5.0")
    with StoreWriter.open(tmp_path, compat=compat, **SIZES) as writer:
        before = writer.max_offset
        for message in NEVER if later else [*NEVER, *LATER]:
            with pytest.raises(ValueError, match=r"expected|at most"):
                writer.put_message(**{"topic": "T"} | message)
        assert writer.max_offset == before
        taken = [writer.put_message(**{"topic": "T"} | message) for message in (LATER if later else [])]
        taken.append(writer.put_message("azAZ09%|-_", b"", keys="k", sys_flag=0x300))
    with MessageStore.open(tmp_path) as store:
        assert [store.message(put.phy_offset) is not None for put in taken] == [True] * len(taken)


def test_the_error_names_the_limit_and_the_way_out(tmp_path: Path) -> None:
    with StoreWriter.open(tmp_path, **SIZES) as writer:
        with pytest.raises(
            ValueError, match=r"of 128 bytes: expected 1 to 127 .* a 4\.9\.3 broker does; with compat of a later"
        ):
            writer.put_message("t" * 128)
        with pytest.raises(
            ValueError, match=r"row 1: a message of 4194305 bytes: expected at most 4194304 bytes \(max_m"
        ):
            writer.put_messages({"topic": ["T", "T"], "body": [b"", b"b" * ((4 << 20) - 91)]})
        assert writer.max_offset == 0


def test_the_largest_message_is_the_broker_s_setting(tmp_path: Path) -> None:
    with StoreWriter.open(tmp_path, max_message_size=1_000, **SIZES) as writer:
        writer.put_message("T", b"b" * (1_000 - 92))
        with pytest.raises(ValueError, match="at most 1000 bytes"):
            writer.put_message("T", b"b" * (1_000 - 91))
    with StoreWriter.open(tmp_path, max_message_size=8 << 20, **SIZES) as writer:
        writer.put_message("T", b"b" * (5 << 20))
    with pytest.raises(ValueError, match="max_message_size=0: expected 1 or more"):
        StoreWriter.open(tmp_path, max_message_size=0, **SIZES)


@pytest.fixture
def later_store(tmp_path: Path) -> Path:
    root = tmp_path / "later"
    with StoreWriter.open(root, compat="5.3.3", max_message_size=8 << 20, **SIZES) as writer:
        writer.put_message("T", b"first", keys="k")
        for message in LATER:
            writer.put_message(**{"topic": "T"} | message)
        writer.put_message("T", b"b" * (5 << 20), keys="large")
        writer.put_message("T", b"last", keys="k")
    return root


def test_a_copy_reports_what_the_release_refuses(later_store: Path, tmp_path: Path) -> None:
    with MessageStore.open(later_store) as store:
        report = copy_messages(store, tmp_path / "old", zone="UTC")
        assert {finding.kind for finding in report.findings} == {"log-message"}
        # All but the body that is only larger than the setting: a broker reads messages of every size.
        assert len(report.findings) == len(LATER) - 1
        assert all(" 4.9.3 broker does" in finding.found for finding in report.findings)
        assert report.checked["messages"] == 4
        whole = copy_messages(store, tmp_path / "new", zone="UTC", compat="5.3.3")
        assert (whole.findings, whole.checked["messages"]) == ([], 3 + len(LATER))
    with MessageStore.open(tmp_path / "old") as copy:
        assert [message.body for message in copy.find("T", "k")] == [b"last", b"first"]
        assert len(copy.find("T", "large")) == 1


def test_the_command_line_names_the_release(
    later_store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def copy(*words: str) -> int:
        return main(["copy", str(later_store), str(tmp_path / f"copy{len(words)}"), *words])

    assert copy() == 1
    assert "log-message in" in capsys.readouterr().err
    assert copy("--compat", "5.3.3") == 0
