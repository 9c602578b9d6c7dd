"""A daemon that a fault outside of Python ends tells its log where."""

from __future__ import annotations

import signal
import subprocess
import sys

PROGRAM = """
import os, signal
from rm.bootstrap.logs import start_logging
from rm.config import load_config

def at_work():
    os.kill(os.getpid(), signal.SIGSEGV)

start_logging(load_config())
at_work()
"""


def test_a_daemon_that_crashes_says_where() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False)
    assert done.returncode == -signal.SIGSEGV, done.stderr
    assert "Segmentation fault" in done.stderr
    assert "in at_work" in done.stderr
