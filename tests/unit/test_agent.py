"""The host agent over its own protocol: launching, ends, stopping, adoption, refusals."""

from __future__ import annotations

import ast
import json
import os
import pwd
import resource
import shutil
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from tests.agent_process import AGENTS, USER, WAIT_S, Agent, Start, launch_request, until
from tests.examples import try_each

root = pytest.mark.skipif(os.getuid() != 0, reason="needs root")
SH = "#!/bin/sh\n"


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def lost(agent: Agent) -> dict[str, Any] | None:
    """The only task that the agent knows, once it is lost; while some of it is left it counts as running."""
    (task,) = agent.tasks()
    return task if task["state"] == "lost" else None


def test_a_task_runs_as_its_user_with_its_environment_and_its_output_is_kept(agent: Agent) -> None:
    script = SH + 'id -un; echo "$GREETING $1" "$RM_RANK" "$CUDA_VISIBLE_DEVICES"; pwd; echo oops >&2\n'
    script += f"until [ -e {agent.state}/go ]; do sleep 0.02; done; exit 7\n"
    task = {"rank": 3, "gpus": ["GPU-a", "GPU-b"], "env": {"RM_RANK": "3"}}
    reply = agent.launch(script, args=["a b'$x"], env={"GREETING": "hi"}, tasks=[task], chdir="/usr")
    assert reply["result"]["tasks"][0]["state"] == "running"
    assert reply["result"]["chdir"] == "/usr"
    (agent.state / "go").touch()
    end = agent.event("exit", job=1, rank=3)
    assert (end["code"], end["signal"], end["why"]) == (7, 0, "")
    assert end["started_us"] <= end["ended_us"]
    assert agent.log(rank=3).splitlines() == [USER, "hi a b'$x 3 GPU-a,GPU-b", "/usr", "oops"]


def test_how_long_a_task_ran_is_told_by_a_clock_that_nobody_sets(agent: Agent, start: Start) -> None:
    def alive_us() -> int:
        return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1000

    before_us = alive_us()
    agent.launch(SH + "echo runs; until [ -e go ]; do sleep 0.02; done", chdir=str(agent.state))
    until(lambda: agent.log() == "runs\n", "the first line")
    running_us = alive_us()
    time.sleep(0.05)
    least_us = alive_us() - running_us
    (agent.state / "go").touch()
    end = agent.event("exit", job=1)
    assert least_us <= end["ran_us"] <= alive_us() - before_us
    agent.end()
    (task,) = start().tasks()  # by what is on the disk
    assert task["ran_us"] == end["ran_us"]


HEARD_LATE = """
def heard_late(self, rank, hear=Beginning.hear):
    if rank.end is not None:
        hear(self, rank)
Beginning.hear = heard_late
"""


def test_a_task_that_ends_before_its_start_is_heard_of_has_not_started_after_its_end(
    start: Start, tmp_path: Path
) -> None:
    files = tmp_path / "agents"
    shutil.copytree(AGENTS, files, ignore=shutil.ignore_patterns("__pycache__"))
    with (files / "rm_task_begin.py").open("a") as file:
        file.write(HEARD_LATE)
    agent = start(files=files)
    agent.launch(SH + "exit 7")
    end = agent.event("exit", job=1)
    assert end["code"] == 7
    assert end["started_us"] <= end["ended_us"]


def test_an_agent_that_hears_nothing_of_its_daemon_ends_and_its_tasks_do_not(
    start: Start, tmp_path: Path
) -> None:
    """Its sshd may not notice for hours that the link was cut, and there is another agent meanwhile."""
    files = tmp_path / "agents"
    shutil.copytree(AGENTS, files, ignore=shutil.ignore_patterns("__pycache__"))
    patient = (files / "rm_channel.py").read_text()
    (files / "rm_channel.py").write_text(patient.replace("SILENT_S = 300.0", "SILENT_S = 5.0"))
    agent = start()
    agent.launch(SH + "until [ -e go ]; do sleep 0.02; done", chdir=str(agent.state))
    agent.end()
    left = start(files=files)
    # an operation that would go on for long, such as one that freezes a job again and again
    left.send(b'{"id": 7, "op": "reflect", "port": 0, "duration_us": 600000000}')
    left.event("reflecting")
    assert left.process.wait(WAIT_S) == 0
    successor = start()
    assert successor.tasks()[0]["state"] == "running"
    (successor.state / "go").touch()
    assert successor.event("exit", job=1)["code"] == 0


def test_a_task_that_was_never_started_has_not_run(agent: Agent) -> None:
    agent.launch(SH + "echo", hold=True)
    agent.call("stop", job=1, attempt=1, grace_us=0, why="cancel")
    assert agent.event("exit", job=1)["ran_us"] is None


def test_a_task_can_import_the_iteration_client_and_its_reports_are_told(agent: Agent) -> None:
    script = (
        "#!/usr/bin/env python3\nfrom rm_iteration import iteration\n"
        "for _ in range(3):\n    with iteration(): pass\n"
    )
    agent.launch(script, tasks=[{"rank": 2, "gpus": [], "env": {"RM_RANK": "2", "PATH": os.environ["PATH"]}}])
    assert agent.event("exit", job=1)["code"] == 0, agent.log(rank=2)
    items = [item for e in agent.events if e["event"] == "iterations" for item in e["items"]]
    assert [(rank, n) for rank, n, *_ in items] == [(2, 0), (2, 1), (2, 2)]
    assert agent.tasks()[0]["cooperative"]


def test_a_task_that_rm_started_finds_scontrol_which_knows_its_hosts_and_requeues_its_job(
    agent: Agent,
) -> None:
    script = (
        SH + "scontrol show hostnames h[1-2]; command -v srun squeue; scontrol update x; scontrol requeue 1"
    )
    agent.launch(script, env={"PATH": "/usr/bin:/bin", "SLURM_JOB_ID": "1"})
    assert agent.event("exit", job=1)["why"] == "requeue"
    assert agent.log().splitlines() == [
        "h1",
        "h2",
        "scontrol: error: This is not a job whose script runs once: submit it with --launch=batch.",
    ]


def test_the_schedule_is_where_the_task_looks_for_it(agent: Agent) -> None:
    agent.launch(SH + 'until [ -s "$RM_SCHEDULE" ]; do sleep 0.02; done; cat "$RM_SCHEDULE"')
    agent.call("schedule", job=1, attempt=1, schedule={"seq": 1, "period_us": 5})
    agent.event("exit", job=1, code=0)
    assert agent.log() == '{"seq": 1, "period_us": 5}'


def test_output_and_error_go_to_the_users_files_and_are_read_back(agent: Agent, start: Start) -> None:
    home = agent.state / "home"
    home.mkdir()
    if os.getuid() == 0:
        os.chown(home, pwd.getpwnam(USER).pw_uid, pwd.getpwnam(USER).pw_gid)
    (home / "out.log").write_text("from an earlier run\n")
    (home / "out.log").chmod(0o666)
    agent.launch(SH + "echo one; echo two >&2", chdir=str(home), output="out.log", error=str(home / "err"))
    agent.event("exit", job=1, code=0)
    assert (home / "out.log").read_text() == "one\n"
    assert (agent.log(), agent.log(stream="err")) == ("one\n", "two\n")
    if os.getuid() == 0:
        # the user may put anything there afterwards; the agent still reads with the user's rights
        (home / "err").unlink()
        (home / "err").symlink_to("/etc/shadow")
        reply = agent.ask("logs", job=1, attempt=1, rank=0, stream="err", offset=0, limit=100)
        assert (reply["ok"], reply.get("code")) == (False, "no-log")


def test_a_log_is_followed_while_the_task_runs(agent: Agent) -> None:
    agent.launch(SH + "echo first; until [ -e go ]; do sleep 0.02; done; echo second", chdir=str(agent.state))
    until(lambda: agent.log() == "first\n", "the first line")
    first = agent.call("logs", job=1, attempt=1, rank=0, stream="out", offset=0, limit=100)
    assert (first["offset"], first["done"]) == (6, False)
    (agent.state / "go").touch()
    agent.event("exit", job=1, code=0)
    rest = agent.call("logs", job=1, attempt=1, rank=0, stream="out", offset=6, limit=100)
    assert (rest["data"], rest["offset"], rest["done"]) == ("c2Vjb25kCg==", 13, True)


def test_a_gang_is_prepared_first_and_started_later(agent: Agent) -> None:
    prepared = agent.launch(SH + "exit 0", ranks=3, hold=True)["result"]
    assert [t["state"] for t in prepared["tasks"]] == ["prepared"] * 3
    assert {t["state"] for t in agent.tasks()} == {"prepared"}
    started = agent.call("start", job=1, attempt=1)
    assert all(t["pid"] > 0 and t["started_us"] for t in started["tasks"]), agent.tasks()
    assert {agent.event("exit", job=1, rank=r)["rank"] for r in range(3)} == {0, 1, 2}
    again = agent.call("start", job=1, attempt=1)
    assert [t["pid"] for t in again["tasks"]] == [t["pid"] for t in started["tasks"]]


def test_an_agent_goes_on_hearing_after_another_has_come_and_gone(agent: Agent, start: Start) -> None:
    start().end()  # say, a playbook looked at the host meanwhile
    killed = start()
    killed.kill()
    assert agent.launch(SH + "exit 4", hold=True)["result"]["tasks"][0]["state"] == "prepared"
    agent.call("start", job=1, attempt=1)
    assert agent.event("exit", job=1)["code"] == 4


def test_a_prepared_attempt_can_be_discarded_and_is_never_launched_again(agent: Agent) -> None:
    agent.launch(SH + "echo", hold=True)
    agent.call("discard", job=1, attempt=1)
    assert agent.tasks() == []
    assert agent.launch(SH + "echo")["code"] == "discarded"
    assert not (agent.state / "jobs" / "1.1").exists()
    agent.call("discard", job=2, attempt=1)  # never heard of: its launch may still be on the way
    assert agent.launch(SH + "echo", job=2)["code"] == "discarded"


def test_what_is_stopped_before_its_start_never_runs_also_when_its_launch_comes_late(
    agent: Agent, start: Start
) -> None:
    assert agent.launch(f"{SH}echo ran", hold=True)["ok"]
    agent.call("stop", job=1, attempt=1, grace_us=0, why="cancel")
    agent.call("start", job=1, attempt=1)  # a start that was open is repeated behind the stop
    end = agent.event("exit", job=1)
    assert (end["started_us"], end["why"]) == (None, "cancel")
    for one in (agent, start()):  # as it was under way, by whichever channel
        (task,) = one.launch(f"{SH}echo ran")["result"]["tasks"]
        assert (task["state"], task["started_us"]) == ("exited", None)
    assert agent.log() == ""


def test_what_was_on_its_way_for_too_long_does_not_begin(agent: Agent) -> None:
    """This host was frozen, say: the daemon has given it up by now, and the job has run elsewhere."""
    past_us, later_us = time.time_ns() // 1000 - 1, 1 << 62
    script = f"{SH}echo ran"
    assert agent.launch(script, not_after_us=past_us)["code"] == "too-late"
    first = launch_request(script, not_after_us=past_us)
    assert agent.ask("slice", first=first, followers=[], within_us=1 << 40)["code"] == "too-late"
    assert agent.tasks() == []
    assert agent.launch(script, hold=True, not_after_us=later_us)["ok"]
    assert agent.ask("start", job=1, attempt=1, not_after_us=past_us)["code"] == "too-late"
    assert [task["state"] for task in agent.tasks()] == ["prepared"]
    agent.call("start", job=1, attempt=1, not_after_us=later_us)
    assert agent.event("exit", job=1)["code"] == 0


def test_a_log_that_another_agent_has_discarded_is_not_an_empty_one(agent: Agent, start: Start) -> None:
    agent.launch(f"{SH}echo ran")
    agent.event("exit", job=1)
    other = start()
    agent.call("discard", job=1, attempt=1)
    reply = other.ask("logs", job=1, attempt=1, rank=0, stream="out", offset=0, limit=1 << 20)
    assert reply["code"] == "discarded"


def test_orders_that_a_supervisor_has_no_room_for_are_not_taken(agent: Agent) -> None:
    agent.launch(f"{SH}exec sleep 600")
    pid = json.loads((agent.state / "jobs/1.1/meta.json").read_text())["supervisor"]
    os.kill(pid, signal.SIGSTOP)
    try:
        limit = {"job": 1, "attempt": 1, "time_limit_us": 1 << 50}
        asked = (agent.ask("limit", **limit) for _ in range(5_000))
        assert next(reply for reply in asked if not reply["ok"])["code"] == "too-late"
        stop = {"job": 1, "attempt": 1, "grace_us": 0, "why": "cancel"}
        assert agent.ask("stop", **stop)["code"] == "too-late"
    finally:
        os.kill(pid, signal.SIGCONT)
    until(lambda: agent.ask("stop", **stop)["ok"], "the supervisor reads its orders again")
    assert agent.event("exit", job=1)["why"] == "cancel"


def test_launching_twice_starts_once(agent: Agent, start: Start) -> None:
    counter = agent.state / "counter"
    counter.touch()
    counter.chmod(0o666)
    script = SH + f"echo x >>{counter}; exec sleep 60"
    first = agent.launch(script)["result"]
    assert agent.launch(script)["result"] == first
    other = start()  # a second agent on the same host, as after a half-dead connection
    assert other.launch(script)["result"]["tasks"] == first["tasks"]
    until(lambda: counter.read_text(), "the task ran")
    agent.call("stop", job=1, attempt=1, grace_us=0, why="cancel")
    other.event("exit", job=1)
    assert counter.read_text() == "x\n"


def test_an_older_leader_is_refused_also_by_the_next_agent(agent: Agent, start: Start) -> None:
    agent.call("discard", job=9, attempt=1, epoch=5)
    reply = agent.launch(SH, epoch=4)
    assert (reply["ok"], reply["code"]) == (False, "stale-epoch")
    agent.end()
    assert start().launch(SH, epoch=4)["code"] == "stale-epoch"


@pytest.mark.parametrize(
    "cgroups", ["as they are", pytest.param("v2", marks=root), pytest.param("none", marks=root)]
)
def test_stopping_ends_the_whole_tree_gently_first(start: Start, cgroups: str) -> None:
    agent = start(cgroups)
    assert cgroups == "as they are" or agent.hello["features"]["cgroup"] == cgroups.replace("none", "")
    pids = agent.state / "pids"
    pids.mkdir(mode=0o777)
    pids.chmod(0o777)
    agent.launch(
        SH + f"cd {pids}; trap 'echo told; exit 3' TERM\n"
        # a daemon of its own session, own parent, deaf to SIGTERM and without our environment
        f"setsid env -i sh -c 'trap \"\" TERM; echo $$ >deaf; while :; do sleep 0.05; done' &\n"
        "sleep 600 & echo $! >child; echo $$ >self; wait\n",
    )
    found = [
        int(until((pids / n).read_text, n)) for n in ("self", "child", "deaf") if until((pids / n).exists, n)
    ]
    stop = {"job": 1, "attempt": 1, "why": "cancel"}
    agent.call("stop", grace_us=600_000_000, **stop)
    until(lambda: not alive(found[0]), "the first one has ended as it was asked to")
    assert alive(found[2])
    agent.call("stop", grace_us=0, **stop)  # there is no grace left for the deaf one
    end = agent.event("exit", job=1)
    assert (end["code"], end["signal"], end["why"]) == (3, 0, "cancel")
    assert not any(alive(pid) for pid in found)  # the end is told when nothing is left, not before
    assert agent.log() == "told\n"


def test_what_a_finished_task_leaves_running_is_ended(agent: Agent) -> None:
    agent.launch(SH + "setsid sleep 600 & echo $!")
    assert agent.event("exit", job=1)["code"] == 0
    assert not alive(int(agent.log()))


def test_the_time_limit_ends_a_job_even_without_an_agent(agent: Agent, start: Start) -> None:
    pid = agent.launch(SH + "exec sleep 600", time_limit_us=400_000)["result"]["tasks"][0]["pid"]
    agent.kill()
    until(lambda: not alive(pid), "the time limit was kept")
    task = until(lambda: [t for t in agent_tasks(start) if t["state"] == "exited"], "its end was found")[0]
    assert (task["signal"], task["why"]) == (signal.SIGTERM, "timeout")


@pytest.mark.parametrize("hold", [False, True], ids=["running", "prepared"])
def test_another_time_limit_counts_from_the_start(agent: Agent, hold: bool) -> None:
    agent.launch(SH + "exec sleep 600", time_limit_us=600_000_000, hold=hold)
    agent.launch(SH + "exec sleep 600", job=2, time_limit_us=1_000_000_000)
    for job, limit_us in ((1, 100_000), (2, 0)):
        assert agent.call("limit", job=job, attempt=1, time_limit_us=limit_us) == {}
    if hold:
        agent.call("start", job=1, attempt=1)
    assert agent.event("exit", job=1)["why"] == "timeout"
    assert [task["state"] for task in agent.tasks() if task["job"] == 2] == ["running"]
    assert agent.ask("limit", job=2, attempt=1, time_limit_us=-1)["code"] == "bad-request"


def agent_tasks(start: Start) -> list[dict[str, object]]:
    another = start()
    try:
        return another.tasks()
    finally:
        another.end()


def test_a_signal_reaches_the_tasks(agent: Agent) -> None:
    agent.launch(SH + "trap 'echo usr1; exit 0' USR1; echo ready; while :; do sleep 0.02; done")
    until(lambda: agent.log() == "ready\n", "the trap is set")
    agent.call("signal", job=1, attempt=1, signal="USR1")
    # the shell's child, told too, may end first and make the shell say so
    assert agent.event("exit", job=1)["code"] == 0
    assert "usr1\n" in agent.log()


def test_a_new_agent_finds_the_running_task_and_tells_its_end(agent: Agent, start: Start) -> None:
    agent.launch(
        SH + "echo before; until [ -e go ]; do sleep 0.02; done; echo after; exit 5", chdir=str(agent.state)
    )
    running = agent.event("started", job=1)
    agent.process.kill()
    agent.process.wait()
    second = start()
    (task,) = second.tasks()
    assert (task["state"], task["pid"]) == ("running", running["pid"])
    (second.state / "go").touch()
    assert second.event("exit", job=1)["code"] == 5
    assert second.log() == "before\nafter\n"
    second.end()
    (task,) = start().tasks()  # and an end that nobody was there to hear is kept
    assert (task["state"], task["code"]) == ("exited", 5)


def test_a_task_without_its_supervisor_is_ended_and_told_lost(agent: Agent) -> None:
    pid = agent.launch(SH + "sleep 600 & sleep 600")["result"]["tasks"][0]["pid"]
    os.kill(int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1]), signal.SIGKILL)
    end = agent.event("exit", job=1)
    assert (end["code"], end["signal"]) == (None, None)
    assert "supervisor" in end["why"]
    assert agent.tasks()[0]["state"] == "lost"
    until(lambda: not alive(pid), "nothing runs unwatched")


def test_bad_lines_are_answered_and_do_no_harm(agent: Agent) -> None:
    for line in (b"{", b"[1]", b"\xff\xfe", b'{"id": 91, "op": "no-such-op"}', b'{"id": 92, "op": "stop"}'):
        agent.send(line)
    assert agent.ask("stop", job=77, attempt=1, why="cancel", grace_us=0)["code"] == "no-such-attempt"
    assert agent.call("ping")["now_us"] > 0
    assert agent.end() == 0


@pytest.mark.parametrize("cgroups", ["as they are", pytest.param("none", marks=root)])
def test_what_runs_without_its_folder_is_ended_before_it_is_called_lost(start: Start, cgroups: str) -> None:
    first = start(cgroups)
    first.launch(SH + "echo $$; exec sleep 600", ranks=2)
    until(lambda: first.log(rank=0) and first.log(rank=1), "both run")
    pids = [int(first.log(rank=rank)) for rank in (0, 1)]
    first.kill()
    shutil.rmtree(first.state / "jobs" / "1.1")
    second = start(cgroups)
    task = until(lambda: lost(second), "it is lost")
    assert not any(map(alive, pids))
    assert task["gpus"] is None
    assert "its folder was deleted" in task["why"]
    second.call("discard", job=1, attempt=1)
    assert second.tasks() == []


def test_an_agent_whose_folder_is_deleted_ends_and_the_next_one_goes_on(start: Start) -> None:
    first = start()
    first.launch(SH + "echo $$; exec sleep 600")
    pid = int(until(first.log, "it runs"))
    for name in os.listdir(first.state):
        path = first.state / name
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    first.process.wait(WAIT_S)
    second = start()
    until(lambda: lost(second), "it is lost")
    assert not alive(pid)
    second.launch(SH + "echo again", job=2)
    assert second.event("exit", job=2)["code"] == 0


def test_an_attempt_whose_folder_is_deleted_under_the_agent_is_ended_and_lost(agent: Agent) -> None:
    agent.launch(SH + "echo $$; exec sleep 600")
    pid = int(until(agent.log, "it runs"))
    shutil.rmtree(agent.state / "jobs" / "1.1")
    end = agent.event("exit", job=1)
    assert (end["code"], end["signal"]) == (None, None)
    assert "its folder was deleted" in end["why"]
    assert not alive(pid)


def test_what_an_attempts_folder_cannot_tell_leaves_its_tasks_running(start: Start) -> None:
    first = start()
    first.launch(SH + "echo $$; exec sleep 600")
    pid = int(until(first.log, "it runs"))
    first.kill()
    meta = first.state / "jobs" / "1.1" / "meta.json"
    told = meta.read_text()
    meta.write_text("[1]")
    second = start()
    assert alive(pid)
    assert second.tasks() == []
    second.kill()
    meta.write_text(told)
    assert [task["state"] for task in start().tasks()] == ["running"]


def test_a_host_starts_more_tasks_than_a_login_may_have_files_open(agent: Agent) -> None:
    files, hard = 64, resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.prlimit(agent.process.pid, resource.RLIMIT_NOFILE, (files, hard))
    reply = agent.launch(SH + "ulimit -n; ulimit -Hn", ranks=files)
    assert reply["ok"], reply
    for rank in range(files):
        assert agent.event("exit", job=1, rank=rank)["code"] == 0
        assert agent.log(rank=rank) == f"{files}\n{hard}\n"


def test_facts_are_the_hosts_own(agent: Agent) -> None:
    facts = agent.call("facts")
    assert facts["cpus"] == len(os.sched_getaffinity(0))
    assert facts["boot_id"] == agent.hello["boot_id"]
    assert facts["mem_bytes"] > 0
    assert "lo" in {interface["name"] for interface in facts["interfaces"]}


@root
def test_a_job_over_its_memory_is_told_out_of_memory(agent: Agent) -> None:
    if "memory limits" in agent.hello["features"]["missing"]:
        pytest.skip("this host offers no memory controller")
    agent.launch(
        SH + "exec python3 -c 'bytearray(300 << 20)'",
        mem_bytes_per_task=64 << 20,
        env={"PATH": os.environ["PATH"]},
    )
    end = agent.event("exit", job=1)
    assert (end["signal"], end["oom"]) == (signal.SIGKILL, True)


def test_agents_keep_to_the_grammar_of_python_3_8() -> None:
    try_each(sorted(AGENTS.glob("*.py")), lambda path: ast.parse(path.read_text(), feature_version=(3, 8)))


def test_a_host_has_one_name_since_its_boot(agent: Agent, start: Start) -> None:
    def name(cluster: str = "c1", **more: str) -> str:
        return str(agent.call("adopt", cluster=cluster, **more)["known_as"])

    assert (agent.hello["known_as"], name(), name(host="n1"), name(host="n2")) == ("", "", "n1", "n1")
    assert start().hello["known_as"] == "n1"
    assert name(host="n2", renamed_from="n3") == "n1"
    assert name(host="n2", renamed_from="n1") == "n2"
    (file,) = agent.state.rglob("known_as")
    file.write_text(json.dumps({"name": "n2", "boot_id": "an earlier one"}))
    assert (start().hello["known_as"], name(host="n4")) == ("", "n4")
    assert name("c2", instead_of="c1", host="n5") == "n5"


def test_a_host_obeys_one_cluster_until_it_is_taken_over(agent: Agent, start: Start) -> None:
    assert (agent.hello["cluster"], agent.hello["newest_job"]) == ("", 0)
    assert agent.call("adopt", cluster="c1", led_at="here:/run/rm.sock")["running"] == []
    first = start()
    agent.call("discard", job=9, attempt=1, epoch=5, cluster="c1")
    assert agent.launch(SH + "exec sleep 60", job=7, epoch=5, cluster="c1")["ok"]
    for op in ("launch", "stop", "discard", "adopt"):
        reply = agent.ask(op, **launch_request(SH, job=9), epoch=6, cluster="c2")
        assert (reply["ok"], reply["code"]) == (False, "foreign-cluster")
        assert "belongs to cluster c1 (led at here:/run/rm.sock)" in reply["error"]
    other = start()
    told = [other.hello[name] for name in ("cluster", "led_at", "epoch", "newest_job")]
    assert told == ["c1", "here:/run/rm.sock", 5, 9]

    wrong = agent.ask("adopt", cluster="c2", instead_of="c3", stop_jobs=True)
    assert wrong["code"] == "foreign-cluster"
    assert agent.call("adopt", cluster="c2", instead_of="c1") == {"running": [7]}
    assert agent.launch(SH, job=8, epoch=5, cluster="c1")["ok"]  # nothing has changed

    def adopted() -> bool:
        return agent.call("adopt", cluster="c2", instead_of="c1", stop_jobs=True)["running"] == []

    until(adopted, "the jobs of c1 were killed")
    assert agent.tasks() == []
    first.call("ping")
    assert first.process.wait(WAIT_S) == 0  # whoever it served does not lead this host any more
    assert agent.call("ping")
    # ids and epochs begin anew, and the cluster before is refused
    assert agent.launch(SH + "echo second", job=9, epoch=1, cluster="c2")["ok"]
    agent.event("exit", job=9)
    assert agent.log(job=9) == "second\n"
    assert agent.ask("discard", job=9, attempt=1, epoch=9, cluster="c1")["code"] == "foreign-cluster"
