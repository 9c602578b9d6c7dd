"""`rmx show`, `rmx why` and `rmx logs` against the real HTTP API: what is told of a job."""

import re
from dataclasses import replace
from typing import Any

import pytest

from rm.core.jobs.chain import Chain, Link
from rm.core.model.asked.array import Array
from rm.core.model.asked.dependency import Dependency, Standing
from rm.core.model.earlier_attempt import EarlierAttempt
from rm.core.model.job import JobState, Task
from rm.core.scheduling.queue_position import QueuePosition
from tests import builders
from tests.command_line import Rmx
from tests.fake_service import Daemon, FakeService


def test_show_tells_the_story(daemon: Daemon, rmx: Rmx) -> None:
    rmx("submit", "train.sh")
    rmx("submit", "--period=196ms", "--duty-cycle=0.5", "--bandwidth=80Mbit", "--mem=4G", "--wrap=true")
    daemon.service.run(2)
    daemon.service.put(2, history=((1_000_000, "submitted by ann"),))
    text = rmx("show", "2").out
    for line in (
        "State:       RUNNING",
        "MemPerHost:  4 GiB",
        "Traffic:     every 196ms: 98ms at 80Mbps from 0s",
        "Schedule:    shifted by 40ms, an iteration every 200ms, 4ms idle added",
        "Remaining:   59:00, by its iterations",
    ):
        assert line in text
    assert "submitted by ann" in text
    assert rmx("show", "--job=1", "--json").json["job"]["spec"]["name"] == "train"
    assert "Mean:        201ms" in rmx("iterations", "2").out
    assert rmx("iterations", "2", "--json").json["count"] == 7
    assert "GpusPerTask" not in text
    assert "PROCESSORS" not in text
    task = daemon.service.table[2].tasks[0]
    daemon.service.put(2, tasks=(replace(task, cores=(0, 1, 2, 8)),))
    assert "0-2,8" in rmx("show", "2").out
    rmx("submit", "--gpus=a100:1", "--gpu-mem=16G", "--expect=2h", "--iterations=6000", "--wrap=true")
    spec = daemon.service.table[3].spec
    assert (spec.gpu_mem_bytes, spec.expected_us, spec.iterations) == (16 << 30, 7_200_000_000, 6000)
    text = rmx("show", "3").out
    for line in (
        "GpusPerTask: a100:1, shared, 16 GiB of each",
        "Expected:    2:00:00",
        "Iterations:  6000",
    ):
        assert line in text


def test_show_says_which_file_of_which_host_the_output_is(daemon: Daemon, rmx: Rmx) -> None:
    rmx(
        "submit",
        "-o",
        "out/%x-%4j.txt",
        "-e",
        "/var/tmp/%t.err",
        "-D",
        "/data",
        "-n2",
        "-Jfit",
        "--wrap=true",
    )
    rmx("submit", "-o", "/dev/null", "--wrap=true")
    assert "Output:      out/%x-%4j.txt\n" in rmx("show", "1").out  # no task is anywhere yet
    daemon.service.run(1)
    daemon.service.run(2)
    assert (
        "Output:      /data/out/fit-0001.txt on h1\nError:       /var/tmp/0.err on h1\n"
        in rmx("show", "1").out
    )
    assert "Output:      /dev/null\n" in rmx("show", "2").out
    first = daemon.service.table[1].tasks[0]
    daemon.service.put(1, tasks=(first, replace(first, rank=1, host="h2")))
    shown = rmx("show", "1").out
    assert "Output:      /data/out/fit-0001.txt on h[1-2]\nError:       /var/tmp/%t.err on h[1-2]\n" in shown


def test_show_names_the_file_to_which_the_log_of_a_job_without_output_is_copied(
    daemon: Daemon, rmx: Rmx
) -> None:
    def output_of(job: int, **fields: Any) -> str:
        spec = daemon.service.table[job].spec
        given = {"chdir": "/home/ann", "deliver": "rm-%j.out", "submit_host": "login", **fields}
        daemon.service.put(job, spec=replace(spec, **given))
        said = re.findall(r"^Output: *(.*)", rmx("show", str(job)).out, re.M)
        return said[0] if said else ""

    for tasks in ("1", "2"):
        rmx("submit", "-n", tasks, "--wrap=true")
    copy = "on login (a copy of the log, made at the end)"
    assert output_of(1) == f"/home/ann/rm-1.out {copy}"
    daemon.service.run(1)
    assert output_of(1, deliver="%N.out") == f"/home/ann/h1.out {copy}"
    assert output_of(1, output="/dev/null") == "/dev/null"
    assert output_of(1, deliver="", output="") == ""
    assert output_of(2, launch="tasks") == f"/home/ann/rm-2.%t.out {copy}"
    assert output_of(2, launch="batch") == f"/home/ann/rm-2.out {copy}"


WORDS = ("hello", "world")


def test_logs_are_bytes_and_can_be_followed(daemon: Daemon, rmx: Rmx) -> None:
    rmx("submit", "train.sh")
    assert rmx("logs", "1").out == "hello\nworld\n"
    assert rmx("logs", "--job=1", "--task=1", "--offset=6").out == "world\n"
    assert rmx("logs", "1", "--stderr").out == "oops\n"
    assert rmx("logs", "1", "--task=9").code == 4
    daemon.call(daemon.service.finish, 1, waiting=1)
    assert rmx("logs", "1", "--follow").out == "hello\nworld\nmore\n"


def test_why_names_every_blocker_with_its_numbers(daemon: Daemon, rmx: Rmx) -> None:
    rmx("submit", "train.sh")
    text = rmx("why", "1").out
    assert "Job 1 is PENDING.\n  (Resources) No host has 9 free processors. [wanted=9, free=8]\n" in text
    assert rmx("why", "1", "--json").json["verdicts"][0]["host"] == "h1"


@pytest.mark.parametrize(
    ("jobs_ahead", "named", "told"),
    [
        (0, (), "Position 1 in the queue."),
        (1, (7,), "Position 2 in the queue. Ahead of it: job 7 (alice)."),
        (2, (7, 8), "Position 3 in the queue. Ahead of it: jobs 7 (alice), 8 (alice)."),
        (9, (7, 8), "Position 10 in the queue. Ahead of it: jobs 7 (alice), 8 (alice) and 7 more."),
        (1, (), "Position 2 in the queue. Ahead of it: 1 job."),
        (3, (), "Position 4 in the queue. Ahead of it: 3 jobs."),
    ],
)
def test_why_of_a_waiting_job_tells_who_is_ahead_of_it(
    daemon: Daemon,
    rmx: Rmx,
    monkeypatch: pytest.MonkeyPatch,
    jobs_ahead: int,
    named: tuple[int, ...],
    told: str,
) -> None:
    place = QueuePosition(jobs_ahead, tuple(builders.job(number) for number in named))
    monkeypatch.setattr("tests.fake_service.POSITION", place)
    rmx("submit", "train.sh")
    assert f"Job 1 is PENDING.\n  {told}\n" in rmx("why", "1").out


def test_why_of_a_job_that_waits_for_others_shows_the_chain(
    daemon: Daemon, rmx: Rmx, monkeypatch: pytest.MonkeyPatch
) -> None:
    rmx("submit", "-J", "prepare", "--wrap", "true")
    assert rmx("submit", "-d", "afterok:1", "--wrap", "true").out == "Submitted batch job 2\n"
    assert daemon.service.table[2].spec.dependency == "afterok:1"
    links = (
        Link(2, "afterok", 1, Standing.UNFULFILLED, JobState.RUNNING, "prepare"),
        Link(2, "afterany", 77, Standing.FULFILLED, None, None, "3-9"),
    )
    why = FakeService.why

    async def with_chain(self: FakeService, job: int, array_tasks: str = "") -> Any:
        return {**await why(self, job), "chain": Chain(links, 3)}

    monkeypatch.setattr(FakeService, "why", with_chain)
    told = rmx("why", "2").out
    assert "The chain in front of it:" in told
    lines = [line.split() for line in told.splitlines()]
    assert ["2", "afterok", "1", "RUNNING", "unfulfilled", "prepare"] in lines
    assert ["2", "afterany", "77_[3-9]", "not", "known", "fulfilled", "-"] in lines
    assert "  and 3 more" in told.splitlines()
    assert rmx("why", "2", "--json").json["chain_left_out"] == 3


def test_show_has_each_dependency_with_what_came_of_it(daemon: Daemon, rmx: Rmx) -> None:
    rmx("submit", "-d", "after:1+5?singleton", "--wrap", "true")
    dependencies = (
        Dependency("after", 1, 300_000_000, Standing.FULFILLED, 9),
        Dependency("singleton", standing=Standing.UNFULFILLED),
    )
    daemon.service.table[1] = replace(daemon.service.table[1], dependencies=dependencies)
    told = "after:1+5(fulfilled)?singleton(unfulfilled)"
    assert f"Dependency:  {told}\n" in rmx("show", "1").out


def test_why_of_a_placed_job_tells_the_decision_as_it_was_taken(daemon: Daemon, rmx: Rmx) -> None:
    rmx("submit", "train.sh")
    daemon.call(daemon.service.finish, 1)
    lines = rmx("why", "1").out.splitlines()
    placed = next(line for line in lines if "Placed on 1 host at " in line)
    assert placed.endswith(" by the policy zone.")
    assert "  Hosts refused then: 4. Hosts that fitted but were not chosen: 2." in lines
    at = lines.index("Candidates compared: 3")
    assert [line.split()[:4] for line in lines[at + 1 : at + 3]] == [
        ["HOSTS", "SCORE", "COMPATIBILITY", "TAKEN"],
        ["h1", "87.5", "-", "taken"],
    ]


def test_why_says_when_a_placement_was_not_recorded(
    daemon: Daemon, rmx: Rmx, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tests.fake_service.CHOICE", None)
    rmx("submit", "train.sh")
    daemon.call(daemon.service.finish, 1)
    assert "There is no record of how it was placed" in rmx("why", "1").out


def test_logs_of_all_tasks_carry_their_ranks(daemon: Daemon, rmx: Rmx) -> None:
    rmx("submit", "--ntasks=3", "--wrap=true")
    assert rmx("logs", "1", "-l").out == "".join(f"{rank}: {word}\n" for rank in range(3) for word in WORDS)
    daemon.service.output["out"] = b"no end"
    assert rmx("logs", "1", "--label", "--stderr").out == "0: oops\n1: oops\n2: oops\n"
    assert rmx("logs", "1", "--label").out == "0: no end\n1: no end\n2: no end\n"
    daemon.call(daemon.service.finish, 1, waiting=3)
    followed = rmx("logs", "1", "-l", "-f").out.splitlines()
    assert sorted(followed) == sorted(f"{rank}: no endmore" for rank in range(3))


@pytest.fixture
def array_of_four(daemon: Daemon, rmx: Rmx) -> None:
    """1 is an array, of which 2 was 1_0 and 3 runs as 1_1; two wait, two are held, one was cancelled."""
    rmx("submit", "--array=0-6", "--wrap=true")
    for job, task in ((2, 0), (3, 1)):
        rmx("submit", "--wrap=true")
        daemon.service.put(job, array_job=1, array_task=task)
    daemon.service.run(3)
    sets = Array(waiting="2-5", held="4-5", running="1", completed="0", dropped="6")
    daemon.service.put(1, array=sets)


@pytest.mark.usefixtures("array_of_four")
def test_logs_of_an_array_are_those_of_the_elements_that_have_begun(daemon: Daemon, rmx: Rmx) -> None:
    said = b"".join(f"{word}\n".encode() for word in WORDS).decode()
    whole = rmx("logs", "1")
    assert (whole.code, whole.out) == (0, f"==> 1_0 <==\n{said}==> 1_1 <==\n{said}")
    assert whole.err == "rmx: Job 1_[2-6] has not begun, and has no output.\n"
    assert rmx("logs", "1_[0,4]").out == f"==> 1_0 <==\n{said}"
    assert rmx("logs", "1_1").out == said
    lost = rmx("logs", "1_[0-1]", "--task=3")
    assert (lost.code, lost.out, lost.err.count("has no task 3")) == (4, "", 2)
    daemon.call(daemon.service.finish, 3)
    lines = rmx("logs", "1_[1-2]", "-f").out.splitlines()
    assert lines == [f"1_1: {word}" for word in WORDS]


@pytest.mark.usefixtures("array_of_four")
@pytest.mark.parametrize(
    ("words", "code", "sentence"),
    [
        (["logs", "1_4"], 6, "Job 1_4 has not begun, and has no output."),
        (["logs", "1_[7-9]"], 4, "Job array 1 has no element 7-9."),
        (["logs", "2_[0-1]"], 4, "Job 2 is no job array. Leave the index out."),
        (["logs", "1", "--label"], 2, "--label prints the tasks of one job. Name one element of the array."),
        (["why", "1_[7-9]"], 4, "Job array 1 has no element 7-9."),
        (["why", "2_[0-1]"], 4, "Job 2 is no job array. Leave the index out."),
    ],
)
def test_elements_without_output_or_jobs_are_refused(
    rmx: Rmx, words: list[str], code: int, sentence: str
) -> None:
    found = rmx(*words)
    assert (found.code, found.err) == (code, f"rmx: {sentence}\n")


@pytest.mark.usefixtures("array_of_four")
def test_why_of_several_elements_tells_alike_ones_together(daemon: Daemon, rmx: Rmx) -> None:
    heads = [line for line in rmx("why", "1_[0-6]").out.splitlines() if line.startswith("Job ")]
    assert heads == [
        "Job 1_0 is PENDING.",
        "Job 1_1 is RUNNING.",
        "Job 1_[2-3] is PENDING.",
        "Job 1_[4-5] is PENDING.",
        "Job 1_6 is CANCELLED.",
    ]
    assert rmx("why", "1_3").out.startswith("Job 1_3 is PENDING.\n")
    told = rmx("why", "1_[1,6]", "--json").json["elements"]
    assert [(one["elements"], one["why"]["state"]) for one in told] == [
        ("1_1", "RUNNING"),
        ("1_6", "CANCELLED"),
    ]
    each = Dependency("aftercorr", 3, undecided="2-5")
    daemon.service.put(1, dependencies=(each,))
    assert "Job 1_2 is PENDING." in rmx("why", "1_[2-3]").out


def test_a_log_that_is_lost_fails_and_hides_no_other(daemon: Daemon, rmx: Rmx) -> None:
    rmx("submit", "--ntasks=5", "--wrap=true")
    found = rmx("logs", "1", "-l")
    assert (found.code, found.err) == (4, "rmx: The log of task 3 of job 1, attempt 1 is lost: a fire.\n")
    assert [line[0] for line in found.out.splitlines()] == list("00112244")
    assert rmx("logs", "1", "--task=3").code == 4


def test_logs_of_an_attempt_and_their_last_lines(daemon: Daemon, rmx: Rmx) -> None:
    rmx("submit", "train.sh")
    daemon.service.notes[2] = "The log of task 0 of job 1, attempt 2 is not complete: its end is missing – é."
    found = rmx("logs", "1", "--attempt=2", "--tail=1")
    assert (found.code, found.out) == (0, "world\n")
    assert found.err == f"rmx: {daemon.service.notes[2]}\n"
    assert daemon.service.log[-1] == ("logs", 1, 0, "out", 0, False, 1, 2)
    assert rmx("logs", "1", "--tail=1", "--offset=3").code == 2
    assert rmx("logs", "1", "--label", "--task=0").code == 2


def test_lines_of_a_shared_file_cannot_be_labelled(daemon: Daemon, rmx: Rmx) -> None:
    rmx("submit", "--ntasks=2", "--output=all.out", "--wrap=true")
    refused = rmx("logs", "1", "-l")
    assert (refused.code, refused.out) == (2, "")
    assert "share the file all.out" in refused.err
    rmx("submit", "--ntasks=2", "--output=%x.%4t", "--wrap=true")
    assert len(rmx("logs", "2", "-l").out.splitlines()) == 4


def test_show_of_a_failed_job_ends_with_the_last_lines_of_the_task_that_failed(
    daemon: Daemon, rmx: Rmx
) -> None:
    rmx("submit", "--ntasks=3", "--wrap=false")
    daemon.service.output["out"] = "".join(f"line {n}\n" for n in range(100)).encode() + b"bad \x1b[31m\xff\n"
    ends = ((9, 0, 0), (8, 1, 0), (7, 0, 9))
    tasks = [
        Task(i, "h1", started_us=1, ended_us=at, exit_code=c, exit_signal=s)
        for i, (at, c, s) in enumerate(ends)
    ]
    daemon.service.put(1, tasks=tuple(tasks), attempt=1)
    assert "last lines" not in rmx("show", "1").out
    daemon.service.finish(1, code=1)
    shown = rmx("show", "1").out
    assert "\nThe last lines that task 2 wrote:\n" in shown
    assert "  line 99\n  bad ?[31m\ufffd\n" in shown
    assert "line 90\n" not in shown
    assert daemon.service.log[-1] == ("logs", 1, 2, "out", 0, False, 10, 0)


@pytest.mark.parametrize(
    ("said", "program"),
    [
        ("/var/lib/rm/jobs/1.1/script: line 3: scontrol: command not found", "scontrol"),
        ("script: line 2: exec: my prog: not found", "my prog"),
        ("/x/script: 4: srun: not found", "srun"),
        ("/x/script: 4: exec: srun: not found", "srun"),
        ("sh: foo: not found", "foo"),
        ("/x/script: 4: foo: Permission denied", "foo"),
        ("script:3: command not found: module", "module"),
        ("/usr/bin/env: \u2018python\u2019: No such file or directory", "python"),
        ("python: Command not found.", "python"),
        ("the result was not found", ""),
    ],
)
def test_show_names_the_program_that_a_shell_did_not_find(
    daemon: Daemon, rmx: Rmx, said: str, program: str
) -> None:
    rmx("submit", "--wrap=x")
    daemon.service.output["out"] = f"begins\n{said}\n".encode()
    for code in (127, 1):
        daemon.service.put(1, tasks=(Task(0, "h1", started_us=1, exit_code=code),), attempt=1)
        daemon.service.finish(1, code=code)
        named = f"The program {program} was not found on h1: install it there" in rmx("show", "1").out
        assert named == (code == 127 and bool(program))


def test_show_of_a_job_that_never_started_asks_for_no_log(daemon: Daemon, rmx: Rmx) -> None:
    rmx("submit", "--wrap=true")
    daemon.service.put(1, tasks=(Task(0, "h1", exit_code=1, note="no /bin/csh"),), attempt=1)
    daemon.service.finish(1, code=1)
    shown = rmx("show", "1")
    assert (shown.code, shown.err) == (0, "")
    assert "no /bin/csh" in shown.out
    assert all(entry[0] != "logs" for entry in daemon.service.log)


def test_show_of_a_failed_job_does_not_say_who_wrote_what_tasks_share(daemon: Daemon, rmx: Rmx) -> None:
    rmx("submit", "--ntasks=2", "--output=all.out", "--wrap=false")
    daemon.service.put(
        1, tasks=(Task(0, "h1", started_us=1), Task(1, "h2", started_us=1, exit_code=1)), attempt=1
    )
    daemon.service.finish(1, code=1)
    assert "\nThe last lines of the file on h2 that the tasks share:\n  hello\n" in rmx("show", "1").out


def test_show_tells_the_earlier_attempts(daemon: Daemon, rmx: Rmx) -> None:
    rmx("submit", "train.sh")
    assert "ATTEMPT" not in rmx("show", "1").out
    earlier = EarlierAttempt(1, ("h1", "h2"), 5_000_000, 9_000_000, 0, 15, "host h1 was lost")
    daemon.service.put(1, attempt=2, earlier=(earlier,))
    shown = rmx("show", "1").out
    (line,) = [line for line in shown.splitlines() if line.lstrip().startswith("1  h[1-2]")]
    assert line.endswith("0:15  host h1 was lost")
    assert rmx("show", "1", "--json").json["job"]["earlier"][0]["hosts"] == ["h1", "h2"]
