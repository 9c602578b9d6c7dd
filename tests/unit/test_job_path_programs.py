"""The programs that are first in the PATH of jobs, as the agent writes them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "agents"))
import rm_stream_hub

# in the place of a program
SHOWS = """import subprocess

def main(words):
    return subprocess.run(["bash", "-c", *words]).returncode
"""


def test_functions_that_a_shell_exports_pass_through_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As environment modules export theirs, beside a shell's options, which are not the program's own."""
    if not Path("/bin/bash").exists():
        pytest.skip("functions are exported by bash")
    shows = tmp_path / "shows.py"
    shows.write_text(SHOWS)
    state = tmp_path / "state"
    monkeypatch.setattr(rm_stream_hub, "PROGRAMS", (("srun", "shows"),))
    monkeypatch.setattr(rm_stream_hub, "__file__", str(tmp_path / "rm_stream_hub.py"))
    rm_stream_hub.programs(str(state))
    exports = "module() { echo module $*; }; export -f module; set -o pipefail; export SHELLOPTS"
    asks = "'module load cuda; echo $SHELLOPTS; exit 5'"
    script = f"{exports}; bash -c {asks}; export BASH_ENV={tmp_path}/loud; {state}/bin/srun {asks}"
    (tmp_path / "loud").write_text("case $0 in */bin/srun) echo loud ;; esac")
    plain = {"PATH": "/usr/bin:/bin"}  # a `python3` that is itself a shell's script changes SHELLOPTS
    done = subprocess.run(["bash", "-c", script], env=plain, capture_output=True, text=True)
    said = done.stdout.splitlines()
    assert (done.returncode, said[:2], done.stderr) == (5, said[2:], "")
    assert said[0] == "module load cuda"
    assert {"pipefail", "privileged"} & set(said[1].split(":")) == {"pipefail"}
