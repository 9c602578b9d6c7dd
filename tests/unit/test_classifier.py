"""Which packets are a job's, where the kernel offers only the user id to tell them by."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from tests.agent_process import AGENTS

sys.path.insert(0, str(AGENTS))
import rm_shape

sys.path.remove(str(AGENTS))

Rules = dict[tuple[int, int], dict[str, Any]]
ALICE = [("skuid", "meta skuid 1001")]


@pytest.fixture
def rules(monkeypatch: pytest.MonkeyPatch) -> Rules:
    """The rules of a host without cgroups, on which every job is alice's."""
    rules: Rules = {}
    monkeypatch.setattr(rm_shape.rm_kernel, "job_cgroup", lambda job, attempt: "")
    monkeypatch.setattr(rm_shape.rm_kernel, "cgroup_mounts", lambda *kind: [])
    monkeypatch.setattr(rm_shape, "_owners", lambda job, attempt: {1001})
    monkeypatch.setattr(rm_shape, "_rules", lambda: rules)
    return rules


def test_a_user_id_stands_for_one_job_at_a_time(rules: Rules) -> None:
    missing: list[str] = []
    assert list(rm_shape._matches(1, 1, missing)) == ALICE
    rules[(1, 2)] = {"handle": 1, "attempt": 1, "classifier": "skuid", "minor": 16}
    assert list(rm_shape._matches(1, 1, missing)) == ALICE  # by its own rule
    assert list(rm_shape._matches(2, 1, missing)) == []
    rules[(1, 2)]["classifier"] = "cgroupv2"
    assert list(rm_shape._matches(2, 1, missing)) == ALICE
