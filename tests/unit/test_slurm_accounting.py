"""`sacct` on rm's client."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from datetime import datetime

import pytest

from rm.api.jobs import FullJob
from rm.arrays import JobId
from rm.cli.slurm.accounting.sacct_fields import FIELDS
from rm.cli.slurm.asking import Asking
from rm.core.model.asked.array import Array
from rm.core.model.job import JobState
from rm.core.model.job_step import JobStep, StepName
from rm.core.model.step_used import Spread, StepUsed
from rm.errors import UsageError
from rm.submission.begin import past_moment
from tests.command_line import Rmx
from tests.fake_service import Daemon
from tests.slurm_program import Slurm
from tests.submitting import submitted


@pytest.fixture(autouse=True)
def jobs(daemon: Daemon) -> None:
    """1 has failed, 2 runs, 3 is an array of which 3_1 has ended as 4, 5 waits: all in January 1970."""
    submitted(daemon, "--job-name=averylongname", "--mem=1G", "--time=90")
    submitted(daemon, "--job-name=two", "-n2", "--partition=fast")
    submitted(daemon, "--job-name=many", "--array=0-5%2")
    submitted(daemon, "--job-name=many")
    submitted(daemon, "--job-name=five", "-N3")
    service = daemon.service
    for number in (1, 2, 4):
        service.run(number)
    service.finish(1, 3)
    service.put(3, array=Array(waiting="0,2-5", completed="1", limit=2))
    service.put(4, array_job=3, array_task=1)
    service.finish(4)


def test_the_usual_table_is_slurms(slurm: Slurm) -> None:
    assert slurm("sacct", "-S", "1970-01-01").out.splitlines() == [
        "JobID           JobName  Partition    Account  AllocCPUS      State ExitCode ",
        "------------ ---------- ---------- ---------- ---------- ---------- -------- ",
        "1            averylong+                                1     FAILED      3:0 ",
        "1.batch           batch                                1     FAILED      3:0 ",
        "2                   two       fast                     2    RUNNING      0:0 ",
        "2.batch           batch                                2    RUNNING      0:0 ",
        "3_1                many                                1  COMPLETED      0:0 ",
        "3_1.batch         batch                                1  COMPLETED      0:0 ",
        "3_[0,2-5%2]        many                                0    PENDING      0:0 ",
        "5                  five                                0    PENDING      0:0 ",
    ]


def test_a_cancelled_job_has_no_code_but_its_script_has(slurm: Slurm, daemon: Daemon) -> None:
    daemon.service.put(1, state=JobState.CANCELLED)
    told = slurm("sacct", "-nPj1", "-o", "JobID,State,ExitCode").out.splitlines()
    assert told == ["1|CANCELLED|0:0", "1.batch|CANCELLED|3:0"]
    daemon.service.put(1, state=JobState.TIMEOUT)
    assert slurm("sacct", "-nXPj1", "-o", "State,ExitCode").out == "TIMEOUT|0:0\n"
    assert slurm("sacct", "-nXPj1", "-S", "1970-01-01", "-s", "F,BF,DL,RQ,SE") == (0, "", "")


def test_tables_are_parsable(slurm: Slurm) -> None:
    words = ("sacct", "-j", "1", "-X", "-o", "JobID,State,Elapsed,NodeList,Start,ReqMem")
    row = "1|FAILED|00:00:04|h1|1970-01-01T00:00:05|1G"
    header = "JobID|State|Elapsed|NodeList|Start|ReqMem"
    assert slurm(*words, "-P").out == f"{header}\n{row}\n"
    assert slurm(*words, "-p").out == f"{header}|\n{row}|\n"
    assert slurm(*words, "-n", "--parsable2", "--delimiter=;").out == row.replace("|", ";") + "\n"
    assert slurm("sacct", "-nXj1", "-o", "nodelist%-6,state%3").out == "h1     FA+ \n"


@pytest.mark.parametrize(
    ("words", "ids"),
    [
        (["-i", "1"], "1 2 3_1"),
        (["--nnodes=2-4"], ""),
        (["-I", "2"], "2"),
        (["--ncpus=1-9"], "1 2 3_1"),
        (["-k", "90"], "1"),
        (["-k", "10", "-K", "2:00:00"], "1"),
        (["-K", "10"], "1 2 3_1 3_[0,2-5%2] 5"),
        (["-k", "1", "-K", "UNLIMITED"], "1 2 3_1 3_[0,2-5%2] 5"),
        (["-C", "ib,a100"], "6"),
        (["-C", "a10"], ""),
        (["-L", "--federation", "--use-local-uid", "--whole-hetjob=no", "-i1"], "1 2 3_1"),
    ],
    ids=str,
)
def test_jobs_are_chosen_by_what_they_had_and_asked_for(
    words: list[str], ids: str, slurm: Slurm, rmx: Rmx, daemon: Daemon
) -> None:
    if "-C" in words:
        rmx("submit", "--constraint=a100&ib", "--wrap=true")
    done = slurm("sacct", "-S", "1970-01-01", "-X", "-n", "-P", "-o", "JobID", *words)
    assert (done.out.split(), done.err) == (ids.split(), "")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["-i", "2-1"], "--nnodes is '2-1'."),
        (["-I", "many"], "--ncpus is 'many'."),
        (["-k", "soon"], "'soon' is not a time limit"),
        (["-B"], "--batch-script needs --jobs."),
        (["-x", "4"], "--associations is not supported."),
    ],
)
def test_choices_that_cannot_be_read_are_refused(words: list[str], said: str, slurm: Slurm) -> None:
    done = slurm("sacct", *words)
    assert (done.code, done.out) == (1, "")
    assert done.err.startswith(f"sacct: error: {said}")


def test_the_script_of_a_job_is_printed(slurm: Slurm) -> None:
    said = slurm("sacct", "-B", "-j", "1").out
    assert said.startswith(f"Batch Script for 1\n{'-' * 80}\n#!/bin/sh\n")
    assert said.endswith("\ntrue\n")


def test_the_script_of_an_array_is_printed_for_its_elements(
    slurm: Slurm, rmx: Rmx, daemon: Daemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    service = daemon.service
    service.put(5, array_job=3, array_task=2)
    asked: list[str] = []
    usual = Asking.job

    def job(self: Asking, job_id: JobId) -> FullJob:
        asked.append(str(job_id))
        return usual(self, job_id)

    monkeypatch.setattr(Asking, "job", job)
    said = slurm("sacct", "-B", "-j", "3").out
    assert re.findall(r"^Batch Script for (\S+)\n-{80}\n#!/bin/sh\n", said, re.M) == [
        "3_1", "3_2", "3_[0,2-5%2]",
    ]  # fmt: skip
    assert "NONE" not in said
    assert asked == ["3"]
    service.put(3, array=Array(completed="0-5"))  # then it has no line of its own
    assert slurm("sacct", "-B", "-j", "3").out == said[: said.index("Batch Script for 3_[")]
    assert asked == ["3"] * 3  # to find the elements, and once for the script of all
    service.put(3, array=Array(waiting="0,3-5", completed="1", running="2"))
    assert slurm("sacct", "-B", "-j", "3_0").out == ""


def test_a_script_has_the_processors_of_its_own_host(slurm: Slurm, daemon: Daemon) -> None:
    job = daemon.service.table[2]
    first = job.tasks[0]
    spec = replace(job.spec, launch="batch", cpus_per_task=3)
    daemon.service.put(2, spec=spec, tasks=(first, replace(first, rank=1, host="h2")))
    words = ("sacct", "-n", "-P", "-j2", "-o", "JobID,AllocCPUS,NCPUS,NodeList")
    assert slurm(*words).out == "2|6|6|h[1-2]\n2.batch|3|3|h1\n"


def test_what_srun_ran_is_a_line_of_its_own(slurm: Slurm, daemon: Daemon) -> None:
    service = daemon.service
    service.put(2, spec=replace(service.table[2].spec, launch="batch"))
    attempt = service.table[2].attempt
    of_4 = JobStep(StepName(4, 1, 0), "never asked for: its script runs for each task")
    service.job_step_table = [
        JobStep(StepName(2, attempt, 0), "train.py", "h[1-2]", 2, 4, 8, 6_000_000, 9_000_000, 0, 0),
        JobStep(StepName(2, attempt, 1), "bad", "h1", 1, 1, 1, 6_000_000, 8_000_000, 3, 0),
        JobStep(StepName(2, attempt, 2), "killed", "h1", 1, 1, 0, 6_000_000, 7_000_000, 0, 15),
        JobStep(StepName(2, attempt, 3), "runs", "h1", 1, 1, 0, 6_000_000),
        JobStep(StepName(2, attempt + 1, 0), "another attempt's"),
        of_4,
    ]
    words = ("sacct", "-n", "-P", "-o", "JobID,JobName,State,ExitCode,NodeList,NTasks,AllocCPUS,Start,End")
    begun = "1970-01-01T00:00:06"
    batch = slurm(*words, "-j2.batch").out.split("|")
    assert (batch[:5], batch[5]) == (["2.batch", "batch", "RUNNING", "0:0", "h1"], "1")
    assert slurm(*words, "-j2").out.splitlines()[2:] == [
        f"2.0|train.py|COMPLETED|0:0|h[1-2]|4|8|{begun}|1970-01-01T00:00:09",
        f"2.1|bad|FAILED|3:0|h1|1|1|{begun}|1970-01-01T00:00:08",
        f"2.2|killed|CANCELLED|0:15|h1|1|0|{begun}|1970-01-01T00:00:07",
        f"2.3|runs|RUNNING|0:0|h1|1|0|{begun}|Unknown",
    ]
    assert slurm(*words, "-j2.1").out == f"2.1|bad|FAILED|3:0|h1|1|1|{begun}|1970-01-01T00:00:08\n"
    for named, lines in {
        "2.1,1": ["1", "1.batch", "2.1"],  # the step of one job hides nothing of another
        "2.1,2": ["2", "2.batch", "2.0", "2.1", "2.2", "2.3"],
        "2.1,3_1": ["2.1", "3_1", "3_1.batch"],
        "2.1,3_1.batch": ["2.1", "3_1.batch"],
    }.items():
        assert slurm("sacct", "-nP", "-oJobID", f"-j{named}").out.split() == lines
    assert len(slurm(*words, "-X", "-j2").out.splitlines()) == 1
    # a code is more than any signal; where the script runs for each task, the tasks are the step
    assert slurm("sacct", "-nPX", "-oDerivedExitCode", "-j2").out == "3:0\n"
    assert slurm("sacct", "-nP", "-oJobID,DerivedExitCode", "-j1").out == "1|3:0\n1.batch|\n"
    assert "\n   DerivedExitCode=3:0\n" in slurm("scontrol", "-d", "show", "job", "2").out
    assert "never asked for" not in slurm(*words, "-S1970-01-01").out
    listed = slurm("squeue", "--steps", "-h", "-o", "%i %j %u %N").out.splitlines()
    assert [line for line in listed if line.startswith("2.")] == ["2.3 runs root h1", "2.batch batch root h1"]
    assert slurm("squeue", "-s", "2.3", "-h", "-o", "%i %A %l").out == "2.3 1 UNLIMITED\n"
    named = "StepID:8,StepName:6,StepState:8,NumTasks:2,JobID:2,ArrayJobID"
    assert slurm("squeue", "-s", "2.3", "-h", "-O", named).out == f"2.3     runs  RUNNING 1 2 N/A{' ' * 17}\n"
    last = slurm("squeue", "-s", "-h", "-j2", "-S", "-j", "-o", "%j").out
    assert last == "runs\nbatch\n"
    refused = slurm("squeue", "-s", "-S", "x")
    assert (refused.code, refused.out) == (1, "")
    assert "Invalid sort specification: x." in refused.err
    assert len(slurm("squeue", "-s", "-l", "-j2").out.splitlines()) == 4
    assert slurm("squeue", "-s", "-h", "-w", "h2", "-j2").out == ""
    shown = slurm("scontrol", "show", "step", "2.0").out
    assert "StepId=2.0 UserId=" in shown
    assert "State=COMPLETED Partition=fast NodeList=h[1-2]" in shown
    assert slurm("scontrol", "-o", "show", "step").out.startswith("StepId=2.batch ")
    assert re.findall(r"StepId=(2\S+)", slurm("scontrol", "show", "step").out) == ["2.batch", "2.3"]
    assert slurm("scontrol", "show", "step", "2.7").err == "scontrol: error: Job step 2.7 not found.\n"
    service.finish(2)
    ended = slurm(*words, "-j2.3").out
    assert ended.startswith("2.3|runs|CANCELLED|0:0|")
    assert "Unknown" not in ended


def spread(total: int, most: int, least: int) -> Spread:
    return Spread(total, most, "h2", 3, least, "h1", 0)


STEP_USED = StepUsed(
    4, 5_000_000, 250_000, spread(5_250_000, 4_000_000, 1_000_000), spread(8192 << 10, 5224 << 10, 9),
    spread(400, 300, 0), spread(4096, 2048, 0),
)  # fmt: skip


@pytest.fixture
def step(daemon: Daemon) -> JobStep:
    """2.0, which runs."""
    service = daemon.service
    service.put(2, spec=replace(service.table[2].spec, launch="batch"))
    name = StepName(2, service.table[2].attempt, 0)
    step = JobStep(name, "train.py", "h[1-2]", 2, 4, 8, 6_000_000)
    service.job_step_table = [step]
    return step


def test_a_step_has_its_own_numbers(slurm: Slurm, daemon: Daemon, step: JobStep, rmx: Rmx) -> None:
    daemon.service.job_step_table = [replace(step, ended_us=9_000_000, code=0, signal=0, used=STEP_USED)]
    words = ("sacct", "-n", "-P", "-j2.0", "-o")
    fields = "MaxRSS,MaxRSSNode,MaxRSSTask,AveRSS,AveCPU,MinCPU,MinCPUNode,TotalCPU,UserCPU,SystemCPU,Elapsed"
    assert slurm(*words, fields).out == (
        "5224K|h2|3|2M|00:00:01|00:00:01|h1|00:05.250|00:05.000|00:00.250|00:00:03\n"
    )
    disks = "MaxDiskRead,AveDiskRead,MaxDiskWrite,TRESUsageInTot,TRESUsageOutMax"
    assert slurm(*words, disks).out == "300|100|2K|cpu=00:00:05,fs/disk=400,mem=8M|fs/disk=2K\n"
    told = json.loads(slurm("sacct", "-j2", "--json").out)["jobs"][0]["steps"][1]["time"]
    assert told["total"] == {"seconds": 5, "microseconds": 250_000}
    shown = rmx("show", "2").out
    assert "00:05" in shown or "0:05" in shown
    assert "5.1 MiB" in shown
    assert slurm(*words, "ConsumedEnergyRaw").out == "\n"
    gpus = {"gpu_us": 4_000_000, "gpu_busy_us": 1_000_000, "gpu_mem_bytes": 1 << 30, "energy_mj": 9_999}
    seen = replace(STEP_USED, **gpus, host_bytes=6 << 20)
    daemon.service.job_step_table = [replace(step, ended_us=9_000_000, code=0, signal=0, used=seen)]
    assert slurm(*words, "TRESUsageInTot,ConsumedEnergyRaw").out == (
        "cpu=00:00:05,energy=9,fs/disk=400,gres/gpumem=1G,gres/gpuutil=25,mem=8M|9\n"
    )
    shown = rmx("show", "2").out
    assert "6 MiB" in shown
    assert "25 %" in shown
    daemon.service.job_step_table = [replace(step, ended_us=9_000_000, code=0, signal=0)]
    assert slurm(*words, "MaxRSS,AveCPU,TotalCPU").out == "||00:00:00\n"  # by an agent that told nothing


def test_sstat_shows_what_runs(slurm: Slurm, daemon: Daemon, step: JobStep, rmx: Rmx) -> None:
    service = daemon.service
    over = replace(step, name=StepName(2, step.name.attempt, 1), ended_us=7_000_000)
    later = replace(step, name=StepName(2, step.name.attempt, 2), tasks=1, hosts="h1")
    service.job_step_table = [step, over, later]
    script = StepUsed(1, 1_000_000, 0, spread(1_000_000, 1_000_000, 0), spread(1 << 20, 1 << 20, 0))
    service.using[2] = [(-1, script), (0, STEP_USED), (2, script)]
    words = ("sstat", "-n", "-P", "-o", "JobID,MaxRSS,AveCPU,NTasks,Nodelist", "-j")
    first = "2.0|5224K|00:00:01|4|h[1-2]\n"
    last = "2.2|1M|00:00:01|1|h1\n"
    assert slurm(*words, "2").out == first
    assert slurm(*words, "2.batch").out == "2.batch|1M|00:00:01|1|h1\n"
    assert slurm(*words, "2", "-a").out == first + last
    assert slurm(*words, "2.2,2.0").out == last + first
    assert rmx("sstat", "-n", "-P", "-o", "jobid%9", "-j", "2").out == "2.0\n"
    table = slurm("sstat", "-j", "2", "--format", "JobID,MaxRSS").out.splitlines()
    assert table == ["JobID            MaxRSS ", "------------ ---------- ", "2.0               5224K "]
    gone = slurm(*words, "2.1,2")
    assert (gone.code, gone.out) == (1, first)
    assert gone.err.startswith("sstat: error: couldn't get steps for job 2.1.")
    assert slurm(*words, "5").code == 1  # it waits
    assert slurm("sstat").err.startswith("sstat: error: You didn't give me any jobs to stat.")
    assert slurm("sstat", "-i", "-j2").code == 1
    assert "Invalid field requested" in slurm("sstat", "-j2", "-o", "Elapsed").err
    assert "AveCPUFreq" in slurm("sstat", "--helpformat").out
    service.silent = ["h2"]
    assert "h2 does not tell what job 2 uses" in slurm(*words, "2").err
    service.silent, service.job_step_table = [], [over]
    service.using[2].append((1, script))
    assert slurm(*words, "2", "-a").out.split("\n")[0].startswith("2.0|5224K|"), "nobody has recorded it yet"
    assert slurm(*words, "2.1").code == 1, "it is over"


def test_jobs_are_named(slurm: Slurm) -> None:
    def ids(*words: str) -> list[str]:
        return slurm("sacct", "-n", "-P", "-o", "JobID", *words).out.split()

    assert ids("-X", "-j", "1,99", "-j", "2") == ["1", "2"]
    assert ids("-j", "2") == ["2", "2.batch"]
    assert ids("-j", "2.batch") == ["2.batch"]
    assert ids("-j", "2.0") == []
    assert ids("-X", "-j", "3") == ["3_1", "3_[0,2-5%2]"]
    assert ids("-X", "-j", "3_1") == ids("-X", "-j", "3_[1-2]") == ["3_1"]
    assert ids("-X", "-j", "3_2") == []  # as in Slurm: it waits, and has no record of its own
    assert slurm("sacct", "-X", "-n", "-P", "-o", "JobIDRaw", "-j", "4").out == "4\n"
    assert slurm("sacct", "-j", "x").err.startswith("sacct: error: 'x' is not a job id.")


def test_jobs_are_selected(slurm: Slurm) -> None:
    def ids(*words: str) -> list[str]:
        return slurm("sacct", "-X", "-n", "-P", "-o", "JobIDRaw", *words).out.split()

    everything = ("-S", "1970-01-01")
    assert ids(*everything) == ["1", "2", "4", "3", "5"]
    assert ids(*everything, "-E", "now", "-s", "F,CD") == ["1", "4"]
    assert ids(*everything, "-E", "now", "-s", "F", "-s", "CD") == ["1", "4"]
    assert ids("-j4", "-o", "JobIDRaw") == ["4|4"]
    assert ids(*everything, "--name", "many", "--name", "two") == ["2", "4", "3"]
    assert ids(*everything, "--name", "many,two") == ["2", "4", "3"]
    assert ids(*everything, "-r", "fast") == ["2"]
    assert ids(*everything, "-N", "h[1-9]") == ["1", "2", "4"]
    assert ids(*everything, "-u", "root") == ["1", "2", "4", "3", "5"]
    assert ids(*everything, "-u", "daemon") == []
    assert ids(*everything, "-a", "--clusters", "all") == ["1", "2", "4", "3", "5"]
    assert ids() == ["2", "3", "5"]  # what had not ended before today
    assert ids("-S", "1970-01-01", "-E", "1970-01-01T00:00:02") == ["1", "2"]
    assert ids("-S", "1970-01-01T00:00:10", "-E", "now") == ["2", "3", "5"]


def test_each_field_shows_each_line(slurm: Slurm) -> None:
    names = [field.name for field in FIELDS]
    lines = slurm("sacct", "-P", "-S", "1970-01-01", "-o", ",".join(names)).out.splitlines()
    assert lines[0].split("|") == names
    rows = [dict(zip(names, line.split("|"), strict=True)) for line in lines[1:]]
    failed, batch = rows[:2]
    wanted = {
        "JobName": "averylongname", "User": "root", "UID": "0", "Timelimit": "01:30:00", "TimelimitRaw": "90",
        "Submit": "1970-01-01T00:00:01", "End": "1970-01-01T00:00:09", "Planned": "00:00:04", "NNodes": "1",
        "AllocTRES": "billing=1,cpu=1,mem=1G,node=1", "CPUTimeRAW": "4", "ElapsedRaw": "4", "NTasks": "",
    }  # fmt: skip
    assert wanted.items() <= failed.items()
    of_a_step = {"JobID": "1.batch", "JobName": "batch", "User": "", "NTasks": "1", "ExitCode": "3:0"}
    assert of_a_step.items() <= batch.items()
    assert rows[-1]["ReqNodes"] == "3"
    assert slurm("sacct", "--helpformat").out.split() == names


def test_what_the_network_cost_and_interleaving_saved_stands_on_the_line_of_the_job(
    slurm: Slurm, daemon: Daemon
) -> None:
    slowed = ((40, 120_000_000), (41, 71_500_000), (0, 3_600_000_000))
    daemon.service.put(1, slowed=slowed, saved_us=250_900_000)
    fields = "JobID,NetSlowed,NetSlowedRaw,NetSlowedBy,NetSaved,NetSavedRaw"
    assert slurm("sacct", "-n", "-P", "-j", "1,2", "-o", fields).out.splitlines() == [
        "1|01:03:11|3791|40=120,41=71,0=3600|00:04:10|250",
        "1.batch|||||",
        "2|||||",
        "2.batch|||||",
    ]


@pytest.mark.parametrize(
    ("words", "ids"),
    [
        # compared with Slurm 22.05; 1 ran from second 5 to 9, 4 ran as the only element of 3 that has started
        (["-s", "R"], "2"),
        (["-s", "PD"], "3 5"),
        (["-s", "F"], ""),
        (["-s", "F", "-S", "1970-01-01"], ""),
        (["-s", "F", "-S", "1970-01-01", "-E", "now"], "1"),
        (["-s", "F", "-j", "1,2"], "1"),
        (["-s", "R", "-S", "1970-01-01", "-E", "now"], "1 2 4"),
        (["-s", "R", "-S", "1970-01-01T00:00:08"], "1 2 4"),
        (["-s", "R", "-S", "1970-01-01", "-E", "1970-01-01T00:00:02"], ""),
        (["-s", "PD", "-S", "1970-01-01T00:00:03", "-E", "1970-01-01T00:00:04"], "1 2 4 3"),
    ],
    ids=str,
)
def test_states_are_those_of_the_time_that_is_asked_for(words: list[str], ids: str, slurm: Slurm) -> None:
    done = slurm("sacct", "-X", "-n", "-P", "-o", "JobIDRaw", *words)
    assert (done.code, done.out.split(), done.err) == (0, ids.split(), "")


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("2026-01-31T16:00:05", "2026-01-31 16:00:05"),
        ("2026-01-31T16:00", "2026-01-31 16:00:00"),
        ("2026-01-31", "2026-01-31 00:00:00"),
        ("01/31/26", "2026-01-31 00:00:00"),
        ("013126", "2026-01-31 00:00:00"),
        ("0131", "2026-01-31 00:00:00"),
        ("now", "2026-11-22 12:30:00"),
        ("now-2days", "2026-11-20 12:30:00"),
        ("now-1hour", "2026-11-22 11:30:00"),
        ("now+90", "2026-11-22 12:31:30"),
        ("now - 3 minutes", "2026-11-22 12:27:00"),
        ("now-1week", "2026-11-15 12:30:00"),
        ("1122", "2026-11-22 00:00:00"),
        ("1231", "2025-12-31 00:00:00"),
        ("1123", "2026-11-23 00:00:00"),
        ("01.31", "2026-01-31 00:00:00"),
        ("01/31/26-10:20", "2026-01-31 10:20:00"),
        ("013126-10:20:30", "2026-01-31 10:20:30"),
        ("0131-16:00", "2026-01-31 16:00:00"),
        ("4:15pm", "2026-11-22 16:15:00"),
        ("tomorrow", "2026-11-23 00:00:00"),
        ("teatime", "2026-11-22 16:00:00"),
        ("fika", "2026-11-22 15:00:00"),
        ("today", "2026-11-22 00:00:00"),
        ("yesterday", "2026-11-21 00:00:00"),
        ("noon", "2026-11-22 12:00:00"),
        ("8:15", "2026-11-22 08:15:00"),
    ],
)
def test_times_are_read(text: str, moment: str) -> None:
    assert str(past_moment(text, datetime(2026, 11, 22, 12, 30))) == moment


@pytest.mark.parametrize("text", ["soon", "25:00", "now-2moons", "2026-13-01", ""])
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="Invalid time specification"):
        past_moment(text, datetime(2026, 11, 22))


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["-o", "JobID,Colour"], 'Invalid field requested: "Colour"'),
        (["-o", "JobID%x"], 'Invalid field requested: "JobID%x"'),
        (["-s", "SLEEPY"], "Invalid state: SLEEPY."),
        (["-u", "nobody-of-this-name"], "Invalid user id: nobody-of-this-name"),
        (["-S", "soon"], "Invalid time specification: soon."),
        (
            ["-S", "2020-01-02", "-E", "2020-01-01"],
            "Start time (2020-01-02T00:00:00) requested is after end time (2020-01-01T00:00:00).",
        ),
        (["-S", "now+1hour"], "Start time ("),
        (["-E", "1970-01-02"], "Start time ("),
        (["-M", "other"], "No cluster 'other' known by database. The cluster of this daemon is 'rm'."),
        (["-W", "key"], "--wckeys is not supported."),
        (["42"], "Unrecognized option: 42."),
    ],
    ids=str,
)
def test_what_is_wrong_is_an_error_of_sacct(words: list[str], sentence: str, slurm: Slurm) -> None:
    done = slurm("sacct", *words)
    assert (done.code, done.out) == (1, "")
    assert done.err.startswith(f"sacct: error: {sentence}")


def test_a_time_may_name_its_zone(slurm: Slurm) -> None:
    of_zone, local = (
        slurm("sacct", "-nX", "-o", "jobid", "-S", f"1970-01-01T00:00{zone}") for zone in ("Z", "")
    )
    assert of_zone == local
    assert (local.code, len(local.out.split()) > 1) == (0, True)


def test_jobs_are_chosen_by_account_and_qos(daemon: Daemon, slurm: Slurm) -> None:
    for number, account, qos in ((1, "physics", "fast"), (2, "physics", "slow"), (5, "chess", "slow")):
        daemon.service.put(number, account=account, qos=qos)

    def listed(*words: str) -> list[str]:
        return slurm(*words).out.split()

    sacct = ("sacct", "-S", "1970-01-01", "-X", "-n", "-o", "JobID")
    assert listed(*sacct, "-A", "physics") == ["1", "2"]
    assert listed(*sacct, "-A", "physics,chess", "-q", "slow") == ["2", "5"]
    squeue = ("squeue", "-h", "-o", "%i/%a/%q")
    assert listed(*squeue, "-A", "physics") == ["2/physics/slow"]
    assert listed(*squeue, "-q", "slow") == ["5/chess/slow", "2/physics/slow"]
    assert slurm("scancel", "-q", "slow", "-A", "chess").code == 0
    assert [job.id for job in daemon.service.table.values() if job.state is JobState.CANCELLED] == [5]


def told(slurm: Slurm, job: int, fields: str) -> list[list[str]]:
    out = slurm("sacct", "-n", "-P", f"-j{job}", "-o", fields).out
    return [line.split("|") for line in out.splitlines()]


def test_the_document_has_jobs_with_their_steps(slurm: Slurm, daemon: Daemon) -> None:
    found = json.loads(slurm("sacct", "--json", "-j", "2").out)
    assert (found["errors"], [job["job_id"] for job in found["jobs"]]) == ([], [2])
    (job,) = found["jobs"]
    assert next(step["step"]["id"] for step in job["steps"]) == "batch"
    assert job["state"]["current"] == daemon.service.table[2].state.name
    assert {"name", "user", "exit_code", "time", "tres", "nodes"} <= job.keys()


def test_every_field_of_slurm_is_known(slurm: Slurm) -> None:
    assert len(slurm("sacct", "-P", "--format=all", "-j", "1").out.splitlines()[0].split("|")) == len(FIELDS)
    assert slurm("sacct", "-n", "-P", "-o", "ConsumedEnergy,MaxDiskRead,User", "-X", "-j1").out == "||root\n"


def test_sizes_are_written_in_the_unit_that_is_asked_for(slurm: Slurm) -> None:
    def sizes(*words: str) -> str:
        fields = ("-o", "JobName,ReqMem,AllocTRES", "-S", "1970-01-01")
        return slurm("sacct", "-j", "1", "-X", "-n", "-P", *fields, *words).out.strip()

    assert sizes() == "averylongname|1G|billing=1,cpu=1,mem=1G,node=1"
    assert sizes("--units=M") == "averylongname|1024M|billing=1,cpu=1,mem=1024M,node=1"
    assert sizes("--units", "t") == "averylongname|0.00T|billing=1,cpu=1,mem=0.00T,node=1"
    assert slurm("sacct", "--units=X").err.startswith("sacct: error: --units is 'X'. Write one of K, M,")


def test_what_was_typed_is_told_of_jobs_and_elements(slurm: Slurm) -> None:
    """Also of those that are listed, not named."""
    line = "rmx submit --job-name=many --array=0-5%2 --wrap=true"
    for words in (["-j", "3"], ["-S", "1970-01-01", "--name=many"]):
        told = slurm("sacct", "-nPX", "-oJobID,SubmitLine", *words).out.splitlines()
        assert told == [f"3_1|{line}", f"3_[0,2-5%2]|{line}"]
    assert slurm("sacct", "-nP", "-oSubmitLine", "-j", "2").out.splitlines()[1:] == [""]  # of its script


def test_of_a_step_the_line_of_its_srun_is_told(slurm: Slurm, daemon: Daemon, step: JobStep) -> None:
    daemon.service.job_step_table = [replace(step, submit_line="srun -l train.py 'a b'")]
    assert slurm("sacct", "-nP", "-oSubmitLine", "-j2.0").out == "srun -l train.py 'a b'\n"
