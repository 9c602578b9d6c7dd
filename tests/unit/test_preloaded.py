"""Programs that begin in a process which has loaded rm do what `rmx` does, and tell of it as it does."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests import preloaded
from tests.cluster import until

RMX = Path(sys.executable).with_name("rmx")
WORDS = [("--version",), ("nonsense",), ("--help",), ("queue",), ("submit", "job.sh"), ("config", "show")]


@pytest.mark.parametrize("words", WORDS, ids=" ".join)
def test_a_command_does_what_the_program_does(words: tuple[str, ...], tmp_path: Path) -> None:
    (tmp_path / "rm.toml").write_text(f'[daemon]\nsocket = "{tmp_path}/none.sock"\n')
    (tmp_path / "job.sh").write_text("#!/bin/sh\n#SBATCH --nonsense\n")
    env = {**os.environ, "RM_CONFIG": "rm.toml"}
    real = subprocess.run([RMX, *words], env=env, cwd=tmp_path, input="", capture_output=True, text=True)
    done = preloaded.run([RMX, *words], env=env, cwd=tmp_path)
    assert real.stdout or real.stderr
    assert (done.returncode, done.stdout, done.stderr) == (real.returncode, real.stdout, real.stderr)


def test_a_command_reads_what_it_is_given(tmp_path: Path) -> None:
    words = [RMX, "--socket", tmp_path / "none.sock", "submit"]
    given = "#!/bin/sh\n#SBATCH --nonsense\n"
    real = subprocess.run(words, input=given, capture_output=True, text=True)
    assert "--nonsense" in real.stderr
    assert preloaded.run(words, input=given).stderr == real.stderr


def test_a_daemon_is_waited_for_and_its_end_is_told(tmp_path: Path) -> None:
    config, log = tmp_path / "rm.toml", tmp_path / "log"
    config.write_text(f'[daemon]\nsocket = "{tmp_path}/rm.sock"\nstate_dir = "{tmp_path}/state"\n')
    for number, code in ((signal.SIGTERM, 0), (signal.SIGINT, 0), (signal.SIGKILL, -signal.SIGKILL)):
        daemon = preloaded.daemon(RMX, config, log)
        until(lambda: not preloaded.run([RMX, "--config", config, "status"]).returncode, "it answers")
        assert os.readlink(f"/proc/{daemon.pid}/cwd") == "/"
        assert Path(f"/proc/{daemon.pid}/comm").read_text() == "rmx\n"
        assert daemon.poll() is None
        with pytest.raises(subprocess.TimeoutExpired):
            daemon.wait(0)
        daemon.send_signal(number)
        assert daemon.wait(60) == daemon.poll() == code
        daemon.kill()  # it has gone: nobody else hears it
    assert "leads with epoch 3" in log.read_text()
