"""Which packets are a job's, where the kernel offers only the user id to tell them by."""

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
