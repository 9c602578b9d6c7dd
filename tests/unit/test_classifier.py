"""Which packets are a job's: by the user id, where the kernel offers no more, and by an interface."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

import pytest

from tests.agent_process import AGENTS

sys.path.insert(0, str(AGENTS))
import rm_classify

sys.path.remove(str(AGENTS))

ALICE = [("skuid", "meta skuid 1001")]


@pytest.fixture(autouse=True)
def host(monkeypatch: pytest.MonkeyPatch) -> None:
    """A host without cgroups, on which every job is alice's."""
    monkeypatch.setattr(rm_classify.rm_kernel, "job_cgroup", lambda job, attempt: "")
    monkeypatch.setattr(rm_classify.rm_kernel, "cgroup_mounts", lambda *kind: [])
    monkeypatch.setattr(rm_classify, "_owners", lambda job, attempt: {1001})


def test_a_user_id_stands_for_one_job_at_a_time() -> None:
    missing: list[str] = []
    assert list(rm_classify.matches(1, 1, missing, {})) == ALICE
    assert list(rm_classify.matches(1, 1, missing, {1: 1})) == ALICE  # by its own rule
    assert list(rm_classify.matches(2, 1, missing, {1: 1})) == []


@pytest.mark.parametrize("name", ['lo:"\nflush', "lo:0", "lo\0", "lo ", "", "nosuch0"])
def test_nothing_follows_the_name_of_an_interface(name: str) -> None:
    """It becomes a word of what nft and tc read."""
    assert rm_classify.rm_kernel.interface_index("lo") > 0
    with pytest.raises(rm_classify.rm_kernel.KernelRefused, match="there is no interface"):
        rm_classify.rm_kernel.interface_index(name)


ALTERNATIVE = """
import rm_kernel
print(rm_kernel.interface_index("first0"), rm_kernel.interface_name("first0"), rm_kernel.interface_name("lo"),
      rm_kernel.interface_counters("first0"))
"""


@pytest.mark.skipif(os.getuid() != 0 or not shutil.which("ip"), reason="needs root and ip")
def test_an_interface_is_known_by_another_name_of_its_own() -> None:
    """Linux 5.5; what nft compares with, and where counters stand, is the kernel's own name."""
    script = 'ip link property add dev lo altname first0 && exec "$0" -c "$1"'
    command = ["unshare", "-n", "sh", "-c", script, sys.executable, ALTERNATIVE]
    done = subprocess.run(command, cwd=AGENTS, capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("1 lo lo (0, 0)\n", "")
