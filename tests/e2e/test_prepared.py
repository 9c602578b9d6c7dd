"""Hosts that tests prepare without the playbook are as the playbook leaves them."""

from __future__ import annotations

import time

import pytest

from rm.lab import Lab
from tests import prepared
from tests.cluster import ssh_settings
from tests.e2e.conftest import MakeLab
from tests.e2e.equivalence.snapshot import CHANGED, State, look, since, snapshot

pytestmark = pytest.mark.lab


def test_what_bootstrap_yml_did_to_one_host_another_has_too(
    make_lab: MakeLab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prepared, "_made", [])
    monkeypatch.setattr(prepared, "shared", None)
    by_playbook, by_copy = (_changed(make_lab(zones=1, hosts=1)) for _ in range(2))
    assert any(line.startswith("+ rmjob:") for line in by_playbook["/etc/passwd"]["content"])
    assert {"/opt/rm/agents/rm_agent.py", "/opt/rm/agents/VERSION", "/var/lib/rm"} <= by_playbook.keys()
    assert by_copy == by_playbook, "does MADE of tests/prepared.py name all that bootstrap.yml makes?"


def _changed(lab: Lab) -> State:
    """What the preparation changes on the lab's only host."""
    since_s, (host,) = time.time(), lab.hosts
    before = {**look(lab, host.name, CHANGED), **snapshot(lab, host.name, since_s)}
    prepared.prepare(lab, ssh_settings(lab))
    after = snapshot(lab, host.name, since_s)
    return {path: since(fact, before.get(path)) for path, fact in after.items() if fact != before.get(path)}
