"""What elements of a slice hand on to one another, and what they do not; tasks started without a fork."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.agent_process import Agent, agents, until
from tests.unit.test_agent_lease import gone
from tests.unit.test_agent_slices import SH, Start, folders, hand_out, states

SEEN = SH + (
    'env | grep -v "^RM_\\|^N=\\|^SLURM_TASK_PID=" | sort; [ "$SLURM_TASK_PID" = $$ ] && echo "its own id"\n'
    "id; pwd; umask; ulimit -n; ulimit -Hn; cd /proc/$$/fd; readlink 0 3 4 5\n"
    'grep "^Sig[BIC]\\|^ShdPnd\\|^Seccomp" /proc/self/status\n'
    '[ "$(cut -d" " -f6 /proc/$$/stat)" = $$ ] && echo "a session of its own"; [ -t 2 ] || echo told >&2\n'
)


@pytest.fixture
def start() -> Iterator[Start]:
    with agents() as starter:
        yield starter


@pytest.fixture
def agent(start: Start) -> Agent:
    return start()


def forgotten(agent: Agent, jobs: range) -> dict[str, Any]:
    """The answer, when nothing is left of the slice: its supervisor may have been about to end."""
    answer = agent.call("forget", attempts=[[job, 1] for job in jobs])

    def is_gone() -> bool:
        agent.call("forget", attempts=[[jobs[0], 1]])
        return folders(agent, "slices") == []

    until(is_gone, "nothing is left of the slice")
    return answer


def test_elements_that_leave_nothing_have_one_folder_and_their_ends_are_kept(
    agent: Agent, start: Start
) -> None:
    hand_out(agent, range(1, 5), SH + "exit $N\n")
    assert [agent.event("exit", job=job)["code"] for job in range(1, 5)] == [1, 2, 3, 4]
    assert folders(agent, "jobs") == []
    assert agent.log(2) == ""
    agent.call("schedule", job=2, attempt=1, schedule={})  # it came too late
    agent.kill()
    second = start()
    ends = {task["job"]: (task["state"], task["code"], task["why"]) for task in second.tasks()}
    assert ends == {job: ("exited", job, "") for job in range(1, 5)}
    assert forgotten(second, range(1, 5)) == {"left": []}
    assert second.tasks() == []


def test_nothing_that_an_element_leaves_is_the_next_ones(agent: Agent) -> None:
    script = SH + (
        "case $N in\n1) echo '[0, 1, 1, 1, 0, null]' >>$RM_REPORTS;;\n2) echo 'exit 9' >>$0;;\n"
        "3) chmod 755 $0;;\n4) setsid sleep 600 & echo $! >left;;\n5) exit $(wc -c <$RM_REPORTS);;\n"
        "6) echo '[\"requeue\"]' >>$RM_REPORTS;;\nesac\n"
    )
    agent.state.chmod(0o777)
    hand_out(agent, range(1, 8), script)
    ends = [agent.event("exit", job=job) for job in range(1, 8)]
    assert [end["code"] for end in ends] == [0, 9, 0, 0, 0, 0, 0]  # a shell reads on in its script
    assert [end["why"] for end in ends] == [""] * 5 + ["requeue", ""]
    assert folders(agent, "jobs") == ["1.1", "2.1", "3.1", "6.1"]
    left = int((agent.state / "left").read_text())
    assert gone(left)


def test_a_killed_supervisor_s_element_is_ended_in_the_group_that_it_shares(
    agent: Agent, start: Start
) -> None:
    script = SH + '[ "$N" != "$STOPS" ] || { setsid sleep 600 & echo $! >left; sleep 600; }\n'
    agent.state.chmod(0o777)
    hand_out(agent, range(1, 5), script, env={"STOPS": "3"})
    pid = agent.event("started", job=3)["pid"]
    left = int(until(lambda: (agent.state / "left").exists() and (agent.state / "left").read_text(), "left"))
    supervisor = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    agent.kill()
    os.kill(supervisor, signal.SIGKILL)
    second = start()
    until(lambda: states(second)[3] == "lost", "the loss")
    assert states(second) == {1: "exited", 2: "exited", 3: "lost", 4: "exited"}
    assert gone(left)
    forgotten(second, range(1, 5))
    assert folders(second, "jobs") == []


def test_a_task_started_without_a_fork_is_like_one_that_was_forked(agent: Agent) -> None:
    env = {"A": "a b", "EMPTY": "", "B": "é"}
    assert agent.launch(SEEN, 1, chdir="/usr", env=env)["ok"]
    # what has limits of its own is forked, since they are set in the child
    assert agent.launch(SEEN, 2, chdir="/usr", env=env, fence={"limits": [["core", -1, -1]]})["ok"]
    for job in (1, 2):
        assert agent.event("exit", job=job)["code"] == 0
    assert agent.log(1) == agent.log(2)
    assert {"its own id", "a session of its own", "told", "/usr", "B=é"} <= set(agent.log(1).splitlines())


def test_what_fails_before_exec_is_told_in_a_sentence(agent: Agent) -> None:
    agent.launch("#!/no/such/interpreter\n", 1)
    assert "/no/such/interpreter" in agent.event("exit", job=1)["why"]
    agent.launch(SH + "pwd\n", 2, chdir="/no/such/directory", chdir_required=True)
    assert "/no/such/directory" in agent.event("exit", job=2)["why"]
    assert "/no/such/directory" in agent.launch(SH + "pwd\n", 3, chdir="/no/such/directory")["result"]["note"]
    assert agent.event("exit", job=3)["code"] == 0
