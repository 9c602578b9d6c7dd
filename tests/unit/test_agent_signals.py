"""What a job hears before its time limit, and says when it wants to be requeued, by the host agent alone."""

from __future__ import annotations

import signal
from functools import partial
from pathlib import Path

import pytest

from tests.agent_process import agents, until

SH = "#!/bin/sh\n"
LIMIT_US = 3_600_000_000
WARNED = {"time_limit_us": LIMIT_US, "warn_before_us": LIMIT_US, "warn_signal": int(signal.SIGUSR1)}
ASK = "printf '%s\\n' '[\"requeue\"]' >> $RM_REPORTS\n"
TWO = """#!/bin/sh
trap heard=yes USR1
sh -c 'trap "echo child heard it; exit" USR1; trap "echo child is asked; exit" USR2; echo ready
    while :; do sleep 0.02; done' &
until [ "$heard" ]; do sleep 0.02; done
echo first heard it
$NEXT
wait
"""


def test_a_job_gets_its_signal_before_the_time_limit() -> None:
    with agents() as start:
        agent = start()
        agent.launch(SH + "sleep 1000", ranks=2, **WARNED)
        for rank in (0, 1):  # nobody handles it
            end = agent.event("exit", job=1, rank=rank)
            assert (end["signal"], end["why"]) == (signal.SIGUSR1, "")


@pytest.mark.parametrize(
    ("batch", "next", "said"), [(False, ":", "child heard it"), (True, "kill -USR2 $!", "child is asked")]
)
def test_the_children_get_it_unless_the_job_says_so(batch: bool, next: str, said: str) -> None:
    with agents() as start:
        agent = start()
        for job, after_us in enumerate((500_000, 5_000_000, 50_000_000), 1):
            warned = {**WARNED, "warn_before_us": LIMIT_US - after_us, "warn_batch": batch}
            agent.launch(TWO.replace("$NEXT", next), job=job, **warned)
            agent.event("exit", job=job)
            lines = agent.log(job=job).splitlines()
            if "ready" in lines:  # else it came before there was a handler, and the machine is slow
                break
        assert {"first heard it", said} <= {*lines}
        assert len({"child heard it", "child is asked"} & {*lines}) == 1


def test_another_time_limit_moves_the_signal_before_it() -> None:
    with agents() as start:
        agent = start()
        script = SH + "trap 'echo heard' USR1\necho ready\nwhile :; do sleep 0.02; done"
        agent.launch(script, **{**WARNED, "warn_before_us": LIMIT_US // 2})
        until(lambda: "ready" in agent.log(), "its handler is there")
        agent.call("limit", job=1, attempt=1, time_limit_us=LIMIT_US // 2)
        until(lambda: "heard" in agent.log(), "it is warned")
        agent.call("limit", job=1, attempt=1, time_limit_us=LIMIT_US // 3)
        agent.call("limit", job=1, attempt=1, time_limit_us=1)
        assert agent.event("exit", job=1)["why"] == "timeout"
        assert agent.log().count("heard") == 1


def test_a_job_that_is_stopped_first_gets_no_signal() -> None:
    with agents() as start:
        agent = start()
        late = {**WARNED, "warn_before_us": 0}
        agent.launch(SH + "sleep 1000", **late)
        agent.call("stop", job=1, attempt=1, grace_us=0, why="cancel")
        end = agent.event("exit", job=1)
        assert (end["why"], end["signal"] == signal.SIGUSR1) == ("cancel", False)


SAVES = SH + "trap 'echo saved; exit' USR1\necho ready\nwhile :; do sleep 0.02; done"
BUSY = SH + "trap 'echo saved' USR1\ntrap 'echo asked; exit' TERM\necho ready\nwhile :; do sleep 0.02; done"


def test_a_job_that_is_preempted_gets_its_signal_and_the_time_to_save_its_work() -> None:
    with agents() as start:
        agent = start()
        late = {**WARNED, "warn_before_us": 0}
        stop = partial(agent.call, "stop", attempt=1, grace_us=60_000_000, why="abort")
        for job, script in enumerate((SAVES, BUSY, SAVES.replace("USR1", "TERM")), 1):
            agent.launch(script, job=job, **(late if job < 3 else {}))
            until(lambda job=job: "ready" in agent.log(job=job), "its handler is there")
        stop(job=1, warn_us=3_600_000_000)
        assert (agent.event("exit", job=1)["why"], "saved" in agent.log(job=1)) == ("abort", True)
        for _ in range(2):  # said again it is no second signal
            stop(job=2, warn_us=200_000)
        assert agent.event("exit", job=2)["why"] == "abort"
        lines = [line for line in agent.log(job=2).splitlines() if line in ("ready", "saved", "asked")]
        assert lines == ["ready", "saved", "asked"]
        stop(job=3, warn_us=3_600_000_000)  # it has no signal of its own
        assert (agent.event("exit", job=3)["why"], "saved" in agent.log(job=3)) == ("abort", True)


def test_a_job_that_stands_still_is_let_go_on_to_be_preempted() -> None:
    with agents() as start:
        agent = start()
        agent.launch(SAVES, **{**WARNED, "warn_before_us": 0})
        until(lambda: "ready" in agent.log(), "its handler is there")
        agent.call("freeze", job=1, attempt=1, frozen=True, order=1)
        agent.call("stop", job=1, attempt=1, grace_us=0, why="abort", warn_us=3_600_000_000)
        assert (agent.event("exit", job=1)["why"], "saved" in agent.log()) == ("abort", True)


def test_a_signal_that_there_is_not_is_refused() -> None:
    with agents() as start:
        answer = start().launch(SH + "true", **{**WARNED, "warn_signal": 99})
        assert answer["code"] == "bad-request"


@pytest.mark.parametrize("then", ["sleep 1000", "exit 3"])
def test_a_task_asks_for_a_requeue(then: str) -> None:
    with agents() as start:
        agent = start()
        agent.launch(SH + ASK + then)
        assert agent.event("exit", job=1)["why"] == "requeue"


def test_a_task_asks_for_a_requeue_from_python() -> None:
    script = (
        "#!/usr/bin/env python3\nimport rm_iteration\nassert rm_iteration.requeue()\nraise SystemExit(3)\n"
    )
    with agents() as start:
        agent = start()
        agent.launch(script)
        assert agent.event("exit", job=1)["why"] == "requeue"


def test_who_asks_again_in_answer_to_the_sigterm_hears_it_once() -> None:
    """A handler that saves, and asks for the requeue, would be called once more by each of its own wishes."""
    reported = "echo '[0, 1, 1, 1, 0, null]' >> $RM_REPORTS\n"
    script = SH + "heard=\ntrap 'heard=yes; echo heard' TERM\ntrap 'echo over; exit' WINCH\n" + ASK
    script += f'until [ "$heard" ]; do sleep 0.02; done\n{ASK}{reported}while :; do sleep 0.02; done'
    with agents() as start:
        agent = start()
        agent.launch(script)
        agent.event("iterations", job=1)  # it has read the second wish, too
        agent.call("signal", job=1, attempt=1, signal="WINCH")  # after SIGTERM, if both are due
        assert agent.event("exit", job=1)["why"] == "requeue"
        assert agent.log().splitlines().count("heard") == 1


def test_the_wish_counts_also_while_the_job_is_stopped_at_its_time_limit() -> None:
    script = SH + f"ask() {{\n{ASK}exit 1\n}}\ntrap ask TERM\necho ready\nwhile :; do sleep 0.02; done"
    with agents() as start:
        agent = start()
        agent.launch(script)
        until(lambda: agent.log() == "ready\n", "the handler is there")
        agent.call("stop", job=1, attempt=1, grace_us=600_000_000, why="timeout")
        assert agent.event("exit", job=1)["why"] == "requeue"
        agent.end()
        (task,) = start().tasks()  # by what is on the disk
        assert (task["state"], task["why"]) == ("exited", "requeue")


def test_a_job_that_stands_still_does_nothing_and_its_time_limit_waits() -> None:
    with agents() as start:
        agent = start()
        launched = agent.launch(SH + "while :; do :; done", time_limit_us=LIMIT_US)["result"]
        pid = launched["tasks"][0]["pid"]
        stands, worked = partial(is_frozen, launched["cgroup"], pid), partial(processor_ticks, pid)
        until(lambda: worked() > 2, "it runs")
        agent.call("freeze", job=1, attempt=1, frozen=True, order=1)
        until(stands, "it stands still")
        agent.call("limit", job=1, attempt=1, time_limit_us=1)  # over long ago, if it ran
        agent.call("freeze", job=1, attempt=1, frozen=True, order=1)
        before = worked()
        agent.call("limit", job=1, attempt=1, time_limit_us=LIMIT_US)
        assert stands()
        assert worked() == before
        agent.call("freeze", job=1, attempt=1, frozen=False, order=2)
        agent.call("freeze", job=1, attempt=1, frozen=True, order=1)  # repeated late: it changes nothing
        until(lambda: not stands() and worked() > before + 2, "it goes on")
        agent.call("freeze", job=1, attempt=1, frozen=True, order=3)
        until(stands, "it stands still again")
        agent.call("stop", job=1, attempt=1, grace_us=60_000_000, why="cancel")
        end = agent.event("exit", job=1)
        assert (end["signal"], end["why"]) == (signal.SIGTERM, "cancel")


def is_frozen(group: str, pid: int) -> bool:
    """By its control group, or stopped by a signal where there is none that freezes. By one of version 1 its
    processes sleep as if they waited for a disk."""
    events = Path(group, "cgroup.events")
    if group and events.exists():
        return "frozen 1" in events.read_text()
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "TD"


def processor_ticks(pid: int) -> int:
    """How long it has used a processor."""
    user, system = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]
    return int(user) + int(system)
