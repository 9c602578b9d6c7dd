"""A command's configuration is read by msgspec alone."""

import subprocess
import sys

PROGRAM = """
import sys
from rm.cli.session import Session
assert Session(None, None).config.ssh.connect_timeout_s > 0
assert "msgspec" in sys.modules
assert "typing_extensions" not in sys.modules
import typing_extensions
assert typing_extensions.TypedDict
"""


def test_a_command_reads_its_configuration_without_typing_extensions() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
