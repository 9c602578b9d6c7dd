"""The benchmark of faults, played for some seconds: the leader is killed, a host and PostgreSQL crash."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.conftest import _unavailable
from tests.postgres import binaries

pytestmark = [pytest.mark.lab, pytest.mark.postgres]
REPOSITORY = Path(__file__).parents[2]


def test_no_job_is_lost_or_doubled_in_some_seconds_of_faults(tmp_path: Path) -> None:
    if reason := _unavailable() or (binaries() is None and "no PostgreSQL server here"):
        pytest.skip(str(reason))
    argv = [sys.executable, "-m", "bench", "nemesis", "--minutes", "0.4", "--seed", "22", "--hosts", "2"]
    argv += ["--database", "postgresql", "--keep", str(tmp_path)]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, cwd=REPOSITORY)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Nothing was lost, doubled, stuck or begun after its cancellation." in done.stdout
    for kind in ("daemon killed", "host crashed", "database crashed"):
        assert f"1 × {kind}" in done.stdout
    assert list((tmp_path / "notes").iterdir())  # real tasks ran
