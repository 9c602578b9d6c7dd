"""A fenced attempt ends by itself on a host that hears no daemon, whatever becomes of the agent there."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.agent_process import AGENTS, Agent, Start, until

sys.path.insert(0, str(AGENTS))
import rm_lease

FOREVER = "#!/bin/sh\nexec sleep 600\n"
# for a launch, and for a script that sets a trap
SHORT_US, LONG_US = 3_000_000, 600_000_000


def gone(pid: int) -> bool:
    """Has it ended, whether or not somebody has looked?"""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def fenced(agent: Agent, script: str, **args: Any) -> dict[str, Any]:
    """How a task ended that was fenced after it had said that it has set its trap, which takes a busy machine
    longer than one lease now and then."""
    for job, lease_us in enumerate((SHORT_US, 4 * SHORT_US, 16 * SHORT_US), start=1):
        agent.launch(script, job=job, lease_us=lease_us, **args)
        end = agent.event("exit", job=job)
        if "trapped\n" in agent.log(job):
            return dict(end)
    raise AssertionError(f"a script has set no trap within {lease_us} us")


def test_a_lease_counts_from_when_the_daemon_was_heard_and_a_late_renewal_changes_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = [1_000]
    monkeypatch.setattr(rm_lease, "alive_us", lambda: now[0])
    lease = rm_lease.Lease(100, 50, 0)
    assert (lease.left_us(), lease.grace_left_us()) == (100, 150)
    lease.renew(1_030)
    lease.renew(1_020)  # was under way for longer
    assert lease.left_us() == 130
    now[0] = 1_160
    assert (lease.left_us(), lease.grace_left_us(), lease.look_in_s()) == (-30, 20, 0)
    now[0] = 9_000  # the machine slept: nobody waits for them any more
    assert lease.grace_left_us() == 0
    assert rm_lease.Lease(100, 50, 950).left_us() == 950 + 100 - 9_000


def test_tasks_end_when_no_daemon_is_heard(agent: Agent) -> None:
    pid = agent.launch(FOREVER, ranks=2, lease_us=SHORT_US)["result"]["tasks"][0]["pid"]
    for rank in (0, 1):
        end = agent.event("exit", job=1, rank=rank)
        assert (end["signal"], end["why"]) == (signal.SIGTERM, "fence")
    assert gone(pid)
    assert {task["why"] for task in agent.tasks()} == {"fence"}


def test_a_task_that_ends_well_when_its_lease_is_over_was_fenced_all_the_same(agent: Agent) -> None:
    script = "#!/bin/sh\ntrap 'exit 0' TERM\necho trapped\nsleep 600 & wait\n"
    end = fenced(agent, script, grace_us=LONG_US)
    assert (end["code"], end["signal"], end["why"]) == (0, 0, "fence")


def test_tasks_that_do_not_end_are_killed_after_the_grace(agent: Agent) -> None:
    end = fenced(agent, "#!/bin/sh\ntrap '' TERM\necho trapped\nsleep 600\n", grace_us=1_000_000)
    assert (end["signal"], end["why"]) == (signal.SIGKILL, "fence")


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
def test_tasks_end_without_an_agent_and_beside_one_that_hangs(
    agent: Agent, start: Start, how: signal.Signals
) -> None:
    pid = agent.launch(FOREVER, lease_us=1_000_000)["result"]["tasks"][0]["pid"]
    os.kill(agent.process.pid, how)
    until(lambda: gone(pid), "the supervisor ends its task")
    os.kill(agent.process.pid, signal.SIGKILL)
    again = start()
    until(lambda: again.tasks()[0]["state"] == "exited", "the end is recorded")
    assert again.tasks()[0]["why"] == "fence"


def test_a_renewed_lease_goes_on_and_an_unfenced_attempt_needs_none(agent: Agent) -> None:
    agent.launch(FOREVER, job=2)
    heard_us = agent.call("renew", heard_us=0)["alive_us"]
    left_us = 6_000_000
    script = "#!/bin/sh\nsleep 7\n"
    agent.launch(script, lease_us=heard_us + left_us, heard_us=1)  # as if heard at its boot and never since
    agent.call("renew", heard_us=agent.call("renew", heard_us=0)["alive_us"])
    end = agent.event("exit", job=1)
    assert (end["code"], end["why"]) == (0, "")
    assert {task["job"]: task["state"] for task in agent.tasks()}[2] == "running"
    agent.call("stop", job=2, attempt=1, grace_us=0, why="cancel")
    agent.event("exit", job=2)


def test_a_renewal_that_counts_from_before_the_launch_renews_nothing(agent: Agent) -> None:
    agent.launch(FOREVER, lease_us=1_000_000)
    agent.call("renew", heard_us=agent.hello["alive_us"])
    assert agent.event("exit", job=1)["why"] == "fence"


def test_a_prepared_gang_ends_and_is_not_started_any_more(agent: Agent) -> None:
    agent.launch(FOREVER, hold=True, lease_us=1_000_000)
    end = agent.event("exit", job=1)
    assert (end["why"], end["started_us"]) == ("fence", None)
    assert agent.call("start", job=1, attempt=1)["tasks"][0]["state"] == "exited"


def test_a_launch_whose_lease_is_over_is_refused(agent: Agent) -> None:
    reply = agent.launch(FOREVER, lease_us=1, heard_us=1)
    assert reply["code"] == "too-late"
    assert agent.tasks() == []


def test_nobody_renews_but_the_leader_of_this_hosts_cluster(agent: Agent) -> None:
    agent.call("adopt", cluster="ours")
    assert agent.call("renew", epoch=5, cluster="ours", heard_us=1)["alive_us"] > 0
    assert agent.ask("renew", epoch=4, cluster="ours", heard_us=1)["code"] == "stale-epoch"
    assert agent.ask("renew", epoch=6, cluster="theirs", heard_us=1)["code"] == "foreign-cluster"
    assert agent.ask("renew", epoch=5, cluster="ours", heard_us=1 << 52)["code"] == "bad-request"
