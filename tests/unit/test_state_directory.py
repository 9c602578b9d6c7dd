"""The daemon's own directory."""

import os
import stat
from pathlib import Path

from rm.bootstrap.process import make_state_dir


def test_under_no_umask_others_enter_it(tmp_path: Path) -> None:
    """Under umask 0 everybody could put another database in place of the daemon's."""
    before = os.umask(0)
    try:
        make_state_dir(tmp_path / "state")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "state").stat().st_mode) == 0o700
