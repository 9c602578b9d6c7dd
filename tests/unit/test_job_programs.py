"""Prolog and epilog: what the agent runs around a job, and what the core makes of their failures."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest

from rm.core.jobs import events as ev
from rm.core.model.job import JobState
from rm.protocol.codes import Code
from tests.agent_process import Agent, agents, launch_request, until
from tests.unit.test_job_arrays import Cluster

S = JobState
SH = "#!/bin/sh\n"


@pytest.fixture
def notes(tmp_path: Path) -> Path:
    return tmp_path / "notes"


def program(notes: Path, name: str, text: str) -> str:
    """An executable of the host's, which notes that it ran."""
    path = notes.parent / name
    path.write_text(f"{SH}echo {name} $SLURM_JOB_ID $SLURM_JOB_USER $RM_PROGRAM $SECRET >> {notes}\n{text}\n")
    path.chmod(0o755)
    return str(path)


def ran(notes: Path) -> list[str]:
    return [line.split()[0] for line in notes.read_text().splitlines()]


def test_they_run_before_the_first_task_and_after_the_last_process(notes: Path) -> None:
    with agents() as start:
        agent = start()
        user = launched(
            agent, notes, "exit 0", "sleep 600 & exit 3", env={"SECRET": "x", "SLURM_JOB_ID": "1"}
        )
        end = agent.event("exit", job=1)
        assert (end["code"], end["why"], end["epilog"]) == (3, "", "")
        assert notes.read_text().splitlines() == [f"prolog 1 {user} prolog", f"epilog 1 {user} epilog"]
        assert agent.call("discard", job=1, attempt=1) == {}


def test_a_daemon_that_a_prolog_leaves_stays_and_keeps_no_job(notes: Path) -> None:
    """It is no process of the job, though it stands below the same supervisor."""
    left, ready = notes.parent / "left", notes.parent / "ready"
    stays = f"setsid sh -c 'echo $$ >{left}; touch {ready}.1; exec sleep 600' &"
    goes = f"sh -c 'echo $$ >>{ready}.pid; touch {ready}.2; exec sleep 600' &"
    waits = f"until [ -e {ready}.1 ] && [ -e {ready}.2 ]; do sleep 0.02; done"
    with agents() as start:
        agent = start()
        launched(agent, notes, f"{stays} {goes} {waits}", "exit 3")
        assert agent.event("exit", job=1)["code"] == 3
        os.kill(int(left.read_text()), signal.SIGKILL)  # it is still there
        gone = Path("/proc", ready.with_suffix(".pid").read_text().strip())
        until(lambda: not gone.exists(), "what it left in its own group was killed")


def launched(agent: Agent, notes: Path, prolog: str, script: str, **more: object) -> str:
    """The user's name; `prolog` is the rest of that program."""
    reply = agent.launch(
        SH + script,
        prolog=program(notes, "prolog", prolog),
        epilog=program(notes, "epilog", ""),
        **more,
    )
    assert reply["ok"], reply
    return next(line.split()[2] for line in notes.read_text().splitlines())


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("echo broken disk >&2; exit 4", "exited with code 4: broken disk"),
        ("kill -9 $$", "was killed by signal 9."),
        ("exec sleep 600", "did not end within 3 s."),
    ],
)
def test_a_prolog_that_fails_leaves_nothing_to_be_run(notes: Path, text: str, said: str) -> None:
    with agents() as start:
        agent = start()
        path = program(notes, "prolog", text)
        programs = {"prolog": path, "epilog": program(notes, "epilog", "")}
        within_us = 3_000_000 if "600" in text else 60_000_000  # enough for the epilog, too
        reply = agent.launch(SH + f"echo task >> {notes}", program_us=within_us, **programs)
        assert (reply["ok"], reply["code"]) == (False, "prolog-failed")
        assert reply["error"].startswith(f"The prolog {path} on ")
        assert reply["error"].endswith(said)
        assert ran(notes)[-1] == "epilog"
        assert "task" not in ran(notes)
        assert agent.tasks() == []


def test_a_program_that_is_not_there_is_a_failure(notes: Path) -> None:
    with agents() as start:
        agent = start()
        reply = agent.launch(SH + "true", prolog="/nowhere/prolog")
        assert reply["code"] == "prolog-failed"
        assert reply["error"].endswith("exited with code 126: No such file or directory")
        assert "absolute path" in agent.launch(SH + "true", job=2, prolog="prolog")["error"]


def test_an_epilog_that_fails_is_told_with_the_end(notes: Path) -> None:
    with agents() as start:
        agent = start()
        agent.launch(SH + "exit 0", ranks=2, epilog=program(notes, "epilog", "exit 5"))
        ends = [agent.event("exit", job=1, rank=rank) for rank in (0, 1)]
        assert [end["code"] for end in ends] == [0, 0]
        assert any(end["epilog"].endswith("exited with code 5.") for end in ends)
        assert any(task["epilog"] for task in agent.tasks())


def test_a_job_is_stopped_while_its_prolog_runs(notes: Path) -> None:
    with agents() as start:
        agent = start()
        programs = {
            "prolog": program(notes, "prolog", "exec sleep 600"),
            "epilog": program(notes, "epilog", ""),
        }
        agent.begin("launch", **launch_request(SH + f"echo task >> {notes}", **programs))
        until(lambda: notes.exists() and ran(notes), "the prolog runs")
        agent.call("stop", job=1, attempt=1, grace_us=60_000_000, why="cancel")
        assert agent.event("exit", job=1)["why"] == "cancel"
        assert ran(notes) == ["prolog", "epilog"]


def test_a_failed_prolog_drains_the_host_and_the_job_goes_elsewhere() -> None:
    cluster = Cluster(hosts=2)
    job = cluster.submit("")
    for _ in range(3):  # however often: it is not the job's fault
        record = cluster.state.jobs[job]
        host = record.tasks[0].host
        cluster.do(ev.LaunchFailed(job, record.attempt, host, Code.PROLOG, "The prolog failed."))
        assert cluster.state.hosts[host].drained_by == "The prolog failed. (rm)"
        if all(host.drained_by for host in cluster.state.hosts.values()):
            break
    record = cluster.state.jobs[job]
    assert (record.state, record.launch_failures) == (S.PENDING, 0)
    assert all(not host.unwritable for host in cluster.state.hosts.values())


def test_a_failed_epilog_drains_the_host_and_the_job_ends_as_it_would_have() -> None:
    cluster = Cluster()
    job = cluster.submit("")
    cluster.do(ev.TasksStarted(job, 1, "h1", 100, (0,)))
    end = ev.TaskExited(job, 1, "h1", 0, 0, 0, 100, 200, epilog="The epilog failed.")
    cluster.do(ev.HostDrained("h1", "ann", "fan"))
    cluster.do(ev.HostResumed("h1", "ann"))
    cluster.do(end)
    assert cluster.state.jobs[job].state is S.COMPLETED
    assert cluster.state.hosts["h1"].drained_by == "The epilog failed. (rm)"
    assert "The epilog failed." in [what for _, what in cluster.state.jobs[job].history]


def supervisor_of(agent: Agent, job: int = 1) -> int:
    return int(json.loads((agent.state / f"jobs/{job}.1/meta.json").read_text())["supervisor"])


def test_the_epilog_of_a_killed_supervisor_runs_once_and_how_it_failed_is_told(notes: Path) -> None:
    with agents() as start:
        agent = start()
        launched(agent, notes, "exit 0", "exec sleep 600")
        fails = program(notes, "fails", "echo no >&2; exit 5")
        agent.launch(SH + "exec sleep 600", job=2, ranks=2, epilog=fails)
        for job in (1, 2):
            os.kill(supervisor_of(agent, job), signal.SIGKILL)
        end = agent.event("exit", job=1)
        assert (end["code"], end["epilog"]) == (None, "")
        ends = [agent.event("exit", job=2, rank=rank) for rank in (0, 1)]
        assert [end["code"] for end in ends] == [None, None]
        assert sorted(end["epilog"].rpartition(" exited ")[2] for end in ends) == ["", "with code 5: no"]
        agent.end()
        assert [task["state"] for task in start().tasks()] == ["lost"] * 3
        assert sorted(ran(notes)) == ["epilog", "fails", "prolog"]


def test_an_agent_that_is_started_runs_the_epilog_that_is_due(notes: Path) -> None:
    """Of the supervisor and of what it has written down only the disk is left."""
    with agents() as start:
        agent = start()
        programs = {
            "prolog": program(notes, "prolog", "exec sleep 600"),
            "epilog": program(notes, "epilog", f"echo $$ > {notes}.pid; exec sleep 600"),
        }
        agent.begin("launch", **launch_request(SH + "true", program_us=2_000_000_000, **programs))
        until(lambda: notes.exists() and ran(notes), "the prolog runs")
        supervisor = supervisor_of(agent)
        agent.kill()
        os.kill(supervisor, signal.SIGKILL)
        agent = start()
        asleep = until(lambda: pid_in(Path(f"{notes}.pid")), "the epilog runs")
        assert [task["state"] for task in agent.tasks()] == ["launching"]
        agent.call("stop", job=1, attempt=1, grace_us=0, why="cancel")
        agent.kill()
        keeper = int(Path(f"/proc/{asleep}/status").read_text().partition("PPid:")[2].split()[0])
        agent = start()
        assert [task["state"] for task in agent.tasks()] == ["launching"]
        os.kill(keeper, signal.SIGKILL)
        assert "ended is unknown" in agent.event("exit", job=1)["epilog"]
        assert ran(notes) == ["prolog", "epilog"]
        os.kill(asleep, signal.SIGKILL)


def pid_in(path: Path) -> int:
    return int(path.read_text().strip() or 0) if path.exists() else 0


def test_nothing_begins_before_the_prolog_is_over_though_the_agent_is_started_again(notes: Path) -> None:
    with agents() as start:
        agent = start()
        gate = notes.parent / "gate"
        os.mkfifo(gate)
        prolog = program(notes, "prolog", f"read go < {gate}")
        agent.begin("launch", **launch_request(SH + "echo task", prolog=prolog))
        until(lambda: notes.exists() and ran(notes), "the prolog runs")
        agent.kill()
        agent = start()
        assert [task["state"] for task in agent.tasks()] == ["launching"]
        early = agent.begin("start", job=1, attempt=1)
        again = agent.begin("launch", **launch_request(SH + "echo task", prolog=prolog))
        gate.write_text("go\n")
        assert agent.answer(early)["ok"]
        assert agent.answer(again)["ok"]
        assert agent.event("exit", job=1)["code"] == 0
        assert agent.log() == "task\n"


def test_an_epilog_during_which_its_supervisor_is_killed_does_not_run_again(notes: Path) -> None:
    with agents() as start:
        agent = start()
        agent.launch(SH + "exit 0", epilog=program(notes, "epilog", f"echo $$ > {notes}.pid; exec sleep 600"))
        asleep = until(lambda: pid_in(Path(f"{notes}.pid")), "the epilog runs")
        os.kill(supervisor_of(agent), signal.SIGKILL)
        end = agent.event("exit", job=1)
        assert (end["code"], ran(notes)) == (None, ["epilog"])
        assert end["epilog"].startswith(f"How the epilog {notes.parent}/epilog on ")
        os.kill(asleep, signal.SIGKILL)


def test_a_lost_task_whose_epilog_failed_drains_the_host() -> None:
    cluster = Cluster(hosts=2)
    job = cluster.submit("")
    host = cluster.state.jobs[job].tasks[0].host
    cluster.do(ev.TasksStarted(job, 1, host, 100, (0,)))
    cluster.do(ev.TasksLost(job, 1, host, (0,), "killed", "The epilog failed."))
    assert cluster.state.hosts[host].drained_by == "The epilog failed. (rm)"
    assert "The epilog failed." in [what for _, what in cluster.state.jobs[job].history]
    cluster.do(ev.HostResumed(host, "ann"))
    cluster.do(ev.TasksLost(job, 1, host, (0,), "killed", "The epilog failed."))  # said twice
    assert not cluster.state.hosts[host].drained_by
