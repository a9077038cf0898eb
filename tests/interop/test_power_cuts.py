"""The power is cut under a writer that acknowledges what is on the disk: nothing acknowledged is missing, and the broker starts.

The disk is a recorded one (`block_device.py`), so that one run of a writer can be cut at many moments. LOGDEX_INTEROP_CUTS
(environment) is the number of cuts of each kind of writer. It needs Linux, root, FUSE and loop devices.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import crash_writer
from block_device import cuts, entries, mounted, recorded

if TYPE_CHECKING:
    from collections.abc import Callable

CUTS = int(os.environ.get("LOGDEX_INTEROP_CUTS", "10"))
SEED = 20261124
DISK_BYTES = 96 << 20
SECONDS = 3.0

pytestmark = pytest.mark.skipif(
    not (Path("/dev/fuse").exists() and Path("/dev/loop-control").exists() and os.geteuid() == 0),
    reason="needs root, FUSE and loop devices",
)


@pytest.mark.timeout(120 + 5 * CUTS)
@pytest.mark.parametrize("kind", crash_writer.KINDS)
def test_nothing_acknowledged_is_missing(kind: str, tmp_path: Path, say: Callable[[str], None]) -> None:
    record, image = tmp_path / "record", tmp_path / "image"
    with recorded(tmp_path, DISK_BYTES, record) as (directory, notes):
        command = [crash_writer.__file__, "writes", kind, str(directory / "data"), str(notes), str(SECONDS)]
        subprocess.run([sys.executable, *command], check=True)
    acknowledged = checked = 0
    for lines, disk in cuts(entries(record), DISK_BYTES, CUTS, random.Random(SEED)):
        image.write_bytes(disk)
        noted = crash_writer.noted(lines)
        # The mount replays the journal.
        with mounted(image, tmp_path / "cut") as directory:
            writer, put = crash_writer.open_writer(kind, directory / "data", truncate=True)
            put("9-9-9", 0)
            writer.close()
            assert crash_writer.missing(kind, directory / "data", noted) == []
        acknowledged, checked = max(acknowledged, len(noted)), checked + len(noted)
    assert acknowledged > CUTS
    say(f"{CUTS} power cuts under a sync writer, {kind}: all of up to {acknowledged:,} acknowledged messages are there")
