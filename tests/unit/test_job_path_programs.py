"""The programs that are first in the PATH of jobs, as the agent writes them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "agents"))
import rm_stream_hub


def test_functions_that_a_shell_exports_pass_through_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As environment modules export theirs."""
    if not Path("/bin/bash").exists():
        pytest.skip("functions are exported by bash")
    shows = tmp_path / "shows.py"  # in the place of the program
    shows.write_text("import subprocess\nsubprocess.run(['bash', '-c', 'module load cuda'])\n")
    state = tmp_path / "state"
    monkeypatch.setattr(rm_stream_hub, "PROGRAMS", (("srun", "shows"),))
    monkeypatch.setattr(rm_stream_hub, "__file__", str(tmp_path / "rm_stream_hub.py"))
    rm_stream_hub.programs(str(state))
    exports = "module() { echo module $*; }; export -f module"
    script = f"{exports}; export BASH_ENV={tmp_path}/loud; {state}/bin/srun"
    (tmp_path / "loud").write_text("case $0 in */bin/srun) echo loud ;; esac")
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("module load cuda\n", "")
