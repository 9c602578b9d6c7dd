"""The daemon raises its own limit of open files."""

import subprocess
import sys

SAYS = """
import resource
from rm.bootstrap.process import raise_descriptors
raise_descriptors()
print(*resource.getrlimit(resource.RLIMIT_NOFILE))
"""


def test_the_soft_limit_is_raised_to_what_the_hard_one_allows() -> None:
    limited = ["prlimit", "--nofile=100:2000", sys.executable, "-c", SAYS]
    said = subprocess.run(limited, capture_output=True, text=True, check=True).stdout
    assert said.split() == ["2000", "2000"]
