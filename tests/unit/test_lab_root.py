"""What a lab's host sees of this machine."""

import subprocess
import sys
from pathlib import Path

import pytest

SEEN = """
import os, sys
from rm.lab import host_root, syscalls
base = sys.argv[1]
syscalls.mount("layers", f"{base}/layers", "tmpfs")
host_root.overlay(f"{base}/var", f"{base}/layers/var", f"{base}/seen", True, without="lib/rm")
print(*sorted(os.listdir(f"{base}/seen/lib")))
os.mkdir(f"{base}/seen/lib/rm")
print(*os.listdir(f"{base}/seen/lib/rm"))
"""


def test_a_host_begins_without_the_state_of_an_rm_on_this_machine(tmp_path: Path) -> None:
    """A user's hosts could not even read it."""
    apart = ["unshare", "--user", "--map-root-user", "--mount"]
    if subprocess.run([*apart, "true"], capture_output=True).returncode != 0:
        pytest.skip("this system lets users make no user namespace to try it in")
    for name in ("var/lib/rm", "var/lib/dpkg", "layers", "seen"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "var/lib/rm/rm.sqlite3").touch()
    seen = subprocess.run(
        [*apart, sys.executable, "-c", SEEN, str(tmp_path)], capture_output=True, text=True, check=True
    )
    assert seen.stdout.splitlines() == ["dpkg", ""]
    assert (tmp_path / "var/lib/rm/rm.sqlite3").exists()
