"""The record of a job's steps on its host, also where the disk was full for a while."""

from __future__ import annotations

import resource
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "agents"))
import rm_step_records

PART = {"host": "h1", "ranks": [0], "holds": (1, ())}


@pytest.mark.parametrize("anew", [False, True])
def test_a_record_that_a_full_disk_cut_spoils_no_later_one(tmp_path: Path, anew: bool) -> None:
    """The next one was written behind its piece, and neither could be read."""
    folder = SimpleNamespace(at=lambda name: str(tmp_path / name))
    records = rm_step_records.Records(folder)

    def begin(step: int) -> None:
        records.begun(step, [PART], lambda hosts: ",".join(hosts), "a step", "srun step")

    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20, limits[1]))
    try:
        begin(0)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert (tmp_path / rm_step_records.FILE).stat().st_size == 20
    if anew:
        records = rm_step_records.Records(folder)
    begin(1)
    begin(2)
    found, _, more = rm_step_records.read(folder, 0)
    assert ([one["step"] for one in found], more) == ([1, 2], False)
