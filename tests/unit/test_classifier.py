"""Which packets are a job's: by the user id, where the kernel offers no more, and by an interface."""

from __future__ import annotations

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


@pytest.mark.parametrize("name", ['lo:"\nflush', "lo:0", "lo\0", "", "nosuch0"])
def test_an_interface_has_exactly_its_name(name: str) -> None:
    """It becomes a word of what nft and tc read."""
    assert rm_classify.rm_kernel.interface_index("lo") > 0
    with pytest.raises(rm_classify.rm_kernel.KernelRefused, match="there is no interface"):
        rm_classify.rm_kernel.interface_index(name)
