"""Writers whose process may not do what they want: a limit on the length of files, and a fork."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from typing import TYPE_CHECKING

import pytest

from logdex.rocketmq import MessageStore

if TYPE_CHECKING:
    from pathlib import Path

SMALL = 'file_size=16384, hash_slots=20, max_entries=50, zone="UTC", services=False'


def run(program: str) -> list[str]:
    """Run a program in a process of its own; give the lines that it prints."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", textwrap.dedent(program)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.skipif(sys.platform == "win32", reason="no limits")
def test_a_queue_file_that_cannot_have_its_length_is_not_begun(tmp_path: Path) -> None:
    lines = run(f"""
        import os, resource
        from pathlib import Path
        from logdex.rocketmq import StoreWriter
        root = Path({str(tmp_path)!r})
        writer = StoreWriter.open(root, {SMALL}, extension_file_size=50000)
        for size in (1_000_000, 20_000):
            resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))
            writer.put_message("T", tags="t", keys="k")
            try:
                writer.flush()
            except OSError as error:
                print(error.filename)
        print([path for path in root.glob("consumequeue*/*/*/*") if path.stat().st_size not in (6_000_000, 50_000)])
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2)
        writer.close()
        print(*(path.stat().st_size for path in sorted(root.glob("consumequeue*/*/*/*"))))
    """)
    assert lines[2:] == ["[]", "6000000 50000"]
    assert lines[:2] == [str(tmp_path / "consumequeue/T/0/00000000000000000000")] * 2
    with MessageStore.open(tmp_path, hash_slots=20, max_entries=50) as store:
        assert store.verify().ok
