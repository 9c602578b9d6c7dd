"""`scontrol` and `sinfo` on rm's client."""

from __future__ import annotations

import dataclasses
import io
import re
import sys
from pathlib import Path

import pytest

from rm.cli.slurm.control.update import OPTIONS, REFUSED
from rm.core.model.asked.array import Array
from rm.core.model.host import HostState
from rm.core.model.job import Job, JobState, Task
from rm.core.model.reasons import Reason, ReasonCode
from rm.errors import IllegalTransition
from tests import builders
from tests.command_line import Rmx
from tests.fake_service import Daemon, FakeService
from tests.slurm_program import Slurm

# in the order of Slurm 22.05
NODE_FIELDS = """
NodeName Arch CoresPerSocket CPUAlloc CPUEfctv CPUTot CPULoad AvailableFeatures ActiveFeatures Gres
NodeAddr NodeHostName Port Version OS RealMemory AllocMem FreeMem Sockets Boards State
ThreadsPerCore TmpDisk Weight Owner MCS_label Partitions BootTime SlurmdStartTime LastBusyTime
CfgTRES AllocTRES CapWatts CurrentWatts AveWatts ExtSensorsJoules ExtSensorsWatts ExtSensorsTemp
Reason"""


@pytest.fixture(autouse=True)
def world(daemon: Daemon, rmx: Rmx) -> None:
    """1 runs on h1, 2 is an array of which 2_1 runs as 3; h1 and h2 are in partition fast, h3 is drained."""
    rmx(
        "submit",
        "--job-name=one",
        "-n2",
        "--mem=1G",
        "--time=90",
        "-o",
        "%x-%j.txt",
        "-w",
        "h1",
        "--wrap=true",
    )
    rmx("submit", "--job-name=many", "--array=0-5%2", "--comment=c", "--wrap=true")
    rmx("submit", "--job-name=many", "--wrap=true")
    service = daemon.service
    service.run(1)
    service.put(2, array=Array(waiting="0,2-5", running="1", limit=2))
    service.run(3, "h2")
    service.put(3, array_job=2, array_task=1)
    hosts = service.inventory
    for name in ("h1", "h2"):
        hosts[name] = dataclasses.replace(hosts[name], partitions=("fast",))
    hosts["h3"] = builders.host(
        "h3",
        drained_by="bad disk (alice)",
        drained_us=1_700_000_000_000_000,
        state=HostState.DRAINED,
        machine="x86_64",
        kernel="6.1.0",
    )


def record(slurm: Slurm, *words: str) -> dict[str, str]:
    """The fields of one record, also of one with `-o`."""
    done = slurm("scontrol", *words)
    assert (done.code, done.err) == (0, "")
    return dict(re.findall(r"(\S+?)=(.*?)(?=\s+\S+?=|\s*$)", done.out.strip()))


@pytest.mark.usefixtures("a_minute_later")
def test_a_job_has_slurms_fields(slurm: Slurm) -> None:
    found = record(slurm, "show", "job", "1")
    assert found == record(slurm, "-o", "show", "job", "1")
    assert found == record(slurm, "show", "jobid=1") == record(slurm, "show", "JobId", "1")
    wanted = {
        "JobId": "1", "JobName": "one", "UserId": "root(0)", "JobState": "RUNNING", "Reason": "None",
        "ExitCode": "0:0", "Restarts": "0", "TimeLimit": "01:30:00", "NodeList": "h1", "BatchHost": "h1",
        "ReqNodeList": "h1", "NumNodes": "1", "NumCPUs": "2", "NumTasks": "2",
        "TRES": "cpu=2,mem=1G,node=1,billing=2", "MinMemoryNode": "1G", "StartTime": "1970-01-01T00:00:05",
        "Partition": "(null)", "RunTime": "00:01:00",
    }  # fmt: skip
    assert wanted.items() <= found.items()
    assert found["StdOut"] == found["StdErr"] == f"{Path.cwd()}/one-1.txt"
    lines = slurm("scontrol", "show", "job", "1").out.splitlines()
    assert lines[0] == "JobId=1 JobName=one"
    assert all(line.startswith("   ") for line in lines[1:-1])
    assert lines[-1] == ""


def test_an_array_and_its_elements_are_shown(slurm: Slurm) -> None:
    array, element = slurm("scontrol", "-o", "show", "job", "2").out.splitlines()
    assert array.startswith("JobId=2 ArrayJobId=2 ArrayTaskId=0,2-5%2 ArrayTaskThrottle=2 JobName=many ")
    assert " Comment=c " in array
    assert element.startswith("JobId=3 ArrayJobId=2 ArrayTaskId=1 JobName=many ")
    assert len(slurm("scontrol", "-o", "show", "jobs").out.splitlines()) == 3
    assert slurm("scontrol", "show", "job", "99").err == (
        "scontrol: error: slurm_load_jobs error: Invalid job id specified.\n"
    )


def test_details_name_the_gpus_of_each_host(slurm: Slurm, daemon: Daemon) -> None:
    daemon.service.put(1, tasks=(Task(0, "h1", (0, 1)), Task(1, "h2", (3,))))
    assert " JOB_GRES=" not in slurm("scontrol", "-o", "show", "job", "1").out
    lines = slurm("scontrol", "-d", "show", "job", "1").out.splitlines()
    at = lines.index("   JOB_GRES=gpu:2,gpu:1")
    assert lines[at + 1 : at + 3] == [
        "     Nodes=h1 CPU_IDs=N/A Mem=1024 GRES=gpu:2(IDX:0-1)",
        "     Nodes=h2 CPU_IDs=N/A Mem=1024 GRES=gpu:1(IDX:3)",
    ]


def test_the_gpus_that_jobs_have_are_told_by_type_and_index(slurm: Slurm) -> None:
    assert "GresUsed=" not in slurm("scontrol", "show", "node", "h1").out
    assert record(slurm, "-d", "show", "node", "h1")["GresUsed"] == "gpu:a100:1(IDX:0)"
    assert record(slurm, "-d", "show", "node", "h2")["GresUsed"] == "(null)"
    used = slurm("sinfo", "-h", "-N", "-n", "h[1-2]", "-O", "NodeHost:|,GresUsed:|").out
    assert used == "h1|gpu:a100:1(IDX:0)|\nh2|(null)|\n"


def test_hosts_partitions_and_settings_are_shown(slurm: Slurm) -> None:
    host = record(slurm, "show", "node", "h1")
    wanted = {
        "NodeName": "h1", "CPUAlloc": "2", "CPUTot": "8", "RealMemory": "32768", "State": "MIXED",
        "Partitions": "fast", "Gres": "gpu:a100:2", "AllocTRES": "cpu=2,gres/gpu=1",
        "AvailableFeatures": "a100",
    }  # fmt: skip
    assert wanted.items() <= host.items()
    assert record(slurm, "show", "nodes", "h3")["State"] == "IDLE+DRAIN"
    assert "Reason=bad disk [alice@" in slurm("scontrol", "show", "node", "h3").out
    names = re.findall(r"(?:^|\s)(\w+)=", slurm("scontrol", "show", "node", "h3").out)
    assert names == NODE_FIELDS.split()
    assert "Node h9 not found." in slurm("scontrol", "show", "node", "h9").err
    partition = record(slurm, "show", "partition")
    wanted = {"PartitionName": "fast", "Nodes": "h[1-2]", "TotalCPUs": "16", "Default": "NO"}
    assert wanted.items() <= partition.items()
    assert "Partition slow not found." in slurm("scontrol", "show", "partition", "slow").err
    config = slurm("scontrol", "show", "config").out
    assert re.search(r"^ *MaxArraySize +=+ 100001$", config, re.M)
    assert re.search(r"^ *MinJobAge +=+ 300 sec$", config, re.M)


def test_lists_of_hosts_need_no_daemon(slurm: Slurm, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RM_DAEMON__SOCKET", "/nowhere.sock")
    assert slurm("scontrol", "show", "hostnames", "a[1-2],b07") == (0, "a1\na2\nb07\n", "")
    assert slurm("scontrol", "show", "hostlist", "b2,a1,a2").out == "b2,a[1-2]\n"
    assert slurm("scontrol", "show", "hostlistsorted", "b2,a1,a2").out == "a[1-2],b2\n"
    monkeypatch.setenv("SLURM_JOB_NODELIST", "h[3,1]")
    assert slurm("scontrol", "show", "hostname").out == "h3\nh1\n"
    monkeypatch.delenv("SLURM_JOB_NODELIST")
    assert "No hosts are named." in slurm("scontrol", "show", "hostnames").err


def test_jobs_are_held_released_and_requeued_without_a_word(slurm: Slurm, daemon: Daemon) -> None:
    table = daemon.service.table
    assert slurm("scontrol", "hold", "1,2") == (0, "", "")
    assert (table[1].held, table[2].held, table[3].held) == (True, True, False)
    assert slurm("scontrol", "release", "jobid=1", "Job=2") == (0, "", "")
    assert (table[1].held, table[2].held) == (False, False)
    assert slurm("scontrol", "update", "job", "1", "Comment=again") == (0, "", "")
    assert table[1].spec.comment == "again"
    assert slurm("scontrol", "update", "JobId=1", "Priority=0") == (0, "", "")
    assert table[1].held
    refused = slurm("scontrol", "update", "JobId=1", "Priority=5")
    assert (refused.code, table[1].held) == (1, True)
    assert refused.err.startswith("scontrol: error: Job is in held state, pending scheduler release")
    for _ in range(2):  # one that is suspended stays so
        assert slurm("scontrol", "suspend", "1") == (0, "", "")
        assert table[1].state is JobState.SUSPENDED
    given_way = Reason(ReasonCode.PREEMPTED, "suspended for job 2")
    daemon.call(lambda: daemon.service.put(1, reason=given_way))
    assert slurm("scontrol", "suspend", "1").code == 1  # it goes on by itself
    assert slurm("scontrol", "resume", "1") == (0, "", "")
    assert slurm("scontrol", "requeue", "1") == (0, "", "")
    assert table[1].tasks == ()
    failed = slurm("scontrol", "hold", "99", "3")
    assert failed.code == 1
    assert failed.err.startswith("scontrol: error: Invalid job id specified for job 99. There is no job")
    assert table[3].held


@pytest.mark.parametrize("verb", ["hold", "requeue", "release", "suspend"])
def test_an_empty_name_is_no_jobs(verb: str, slurm: Slurm, daemon: Daemon) -> None:
    before = dict(daemon.service.table)
    done = slurm("scontrol", verb, "jobname=")
    assert (done.code, done.out) == (1, "")
    assert "no job that has not ended has the name ''" in done.err
    assert daemon.service.table == before


@pytest.mark.parametrize("name", ["2_1", "3"])
def test_a_job_requeues_itself_without_a_daemon(
    name: str, slurm: Slurm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reports = tmp_path / "reports"
    reports.write_bytes(b"")
    inside = {"RM_JOB_ID": "3", "SLURM_ARRAY_JOB_ID": "2", "SLURM_ARRAY_TASK_ID": "1"}
    for variable, value in {**inside, "RM_REPORTS": str(reports), "RM_DAEMON__SOCKET": "/no.sock"}.items():
        monkeypatch.setenv(variable, value)
    assert slurm("scontrol", "requeue", name) == (0, "", "")
    assert reports.read_bytes() == b'\n["requeue"]\n'
    assert slurm("scontrol", "requeue", "1").code == 1  # another job is the daemon's


def test_how_many_hosts_a_job_that_waits_asks_for(slurm: Slurm, rmx: Rmx) -> None:
    """Compared with Slurm 22.05."""
    rmx("submit", "--hold", "-N2-4", "--ntasks-per-node=2", "--wrap=true")
    rmx("submit", "--hold", "-n4", "--ntasks-per-node=2", "--wrap=true")
    assert record(slurm, "show", "job", "4")["NumNodes"] == "2-4"
    assert record(slurm, "show", "job", "4")["NtasksPerN:B:S:C"] == "2:0:*:*"
    assert record(slurm, "show", "job", "5")["NumNodes"] == "2"


def test_each_field_of_jobs_that_slurm_names_is_changed_or_refused_by_a_sentence() -> None:
    """The fields of scontrol(1) of Slurm 22.05, "UPDATE COMMAND"."""
    fields = (
        "Account AdminComment ArrayTaskThrottle BurstBuffer Clusters ClusterFeatures Comment Contiguous "
        "CoreSpec CPUsPerTask Deadline DelayBoot Dependency EligibleTime EndTime ExcNodeList Features "
        "Gres JobName Licenses MailType MailUser MinCPUsNode MinMemoryCPU MinMemoryNode MinTmpDiskNode "
        "TimeMin Name Nice NodeList NumCPUs NumNodes NumTasks OverSubscribe Partition Priority QOS "
        "ReqNodeList ReqNodes ReqProcs ReqSockets ReqThreads Requeue ReservationName ResetAccrueTime "
        "SiteFactor StdOut Shared StartTime Switches wait-for-switch TresBind TresFreq TresPerJob "
        "TresPerNode TresPerSocket TresPerTask ThreadSpec TimeLimit UserID WCKey WorkDir "
    )
    own = {"arraytaskthrottle", "endtime", "oversubscribe", "shared"}
    assert {name.lower() for name in fields.split()} - own <= {*OPTIONS, *REFUSED}
    assert not OPTIONS.keys() & REFUSED.keys()


def test_parameters_are_updated(slurm: Slurm, daemon: Daemon) -> None:
    service = daemon.service
    assert slurm("scontrol", "update", "jobid=2", "ArrayTaskThrottle=5") == (0, "", "")
    array = service.table[2].array
    assert array is not None
    assert array.limit == 5
    words = ["JobName=x", "TimeLimit=+30", "Features=a100", "TresPerNode=gres:gpu:2", "Nice=5"]
    assert slurm("scontrol", "update", "JobId=1", *words) == (0, "", "")
    spec = service.table[1].spec
    assert (spec.name, spec.time_limit_us, spec.nice) == ("x", 120 * 60_000_000, 5)
    assert (spec.constraint, spec.gpus_per_host) == ("a100", 2)
    assert slurm("scontrol", "update", "JobName=x", "Account=lab", "QOS=high", "Nice") == (0, "", "")
    spec = service.table[1].spec
    assert (spec.account, spec.qos, spec.nice) == ("lab", "high", 100)
    assert slurm("scontrol", "update", "JobId=1", "ReqNodes=1-2", "ReservationName=r") == (0, "", "")
    assert (service.table[1].spec.hosts_max, service.table[1].spec.reservation) == (2, "r")
    assert slurm("scontrol", "update", "JobId=1", "EndTime=1970-01-01T02:00:05") == (0, "", "")
    assert service.table[1].spec.time_limit_us == 2 * 3600 * 1_000_000
    service.put(1, stood_us=600 * 1_000_000)
    assert slurm("scontrol", "update", "JobId=1", "EndTime=1970-01-01T02:00:05") == (0, "", "")
    assert service.table[1].spec.time_limit_us == (2 * 3600 - 600) * 1_000_000, "it stood for ten minutes"
    assert slurm("scontrol", "update", "node=h[1-2]", "State=drain", "Reason=hot") == (0, "", "")
    assert [service.inventory[name].drained_by for name in ("h1", "h2")] == ["hot (root)"] * 2
    assert slurm("scontrol", "update", "nodename=h1", "state=RESUME") == (0, "", "")
    assert service.inventory["h1"].drained_by == ""


@pytest.mark.parametrize(
    ("asked", "value", "whole", "of_user"),
    [
        ({}, "NO", False, False),
        ({"exclusive": True}, "0", True, False),
        ({"exclusive": True}, "yes", False, False),
        ({"exclusive": True}, "2", False, False),
        ({"exclusive_user": True}, "", False, False),
        ({"exclusive_user": True}, "YES", False, False),
    ],
)
def test_whole_hosts_are_given_up_by_sharing_and_got_by_nothing(
    slurm: Slurm, daemon: Daemon, asked: dict[str, bool], value: str, whole: bool, of_user: bool
) -> None:
    """As Slurm 22.05 does: NumCPUs of a job with Shared=NO are what it asked for."""
    daemon.service.put(2, spec=dataclasses.replace(daemon.service.table[2].spec, **asked))
    assert slurm("scontrol", "update", "JobId=2", f"Shared={value}") == (0, "", "")
    spec = daemon.service.table[2].spec
    assert (spec.exclusive, spec.exclusive_user) == (whole, of_user)
    for wrong in ("USER", "EXCLUSIVE", "OK", "-1"):
        refused = slurm("scontrol", "update", "JobId=2", f"OverSubscribe={wrong}")
        assert (refused.code, refused.err.split(". ")[0]) == (
            1, f"scontrol: error: Invalid OverSubscribe value: {wrong}",
        )  # fmt: skip


def test_commands_are_taken_at_a_prompt(slurm: Slurm, monkeypatch: pytest.MonkeyPatch) -> None:
    """Slurm's shows what it reads where that is no terminal, and ends with 1 once a command has failed."""
    lines = "show hostnames a[1-2]\n\n!!\noneliner\nshow job 1\nbogus\nshow 'job\nexit\nversion\n"
    monkeypatch.setattr(sys, "stdin", io.StringIO(lines))
    found = slurm("scontrol")
    shown = found.out.splitlines()
    assert shown[:5] == ["scontrol: show hostnames a[1-2]", "a1", "a2", "scontrol: ", "scontrol: !!"]
    assert shown[5:9] == ["a1", "a2", "scontrol: oneliner", "scontrol: show job 1"]
    assert (shown[9].split()[0], shown[10:]) == (
        "JobId=1", ["scontrol: bogus", "scontrol: show 'job", "scontrol: exit"],
    )  # fmt: skip
    assert [line.partition(". ")[0] for line in found.err.splitlines()] == [
        "scontrol: error: invalid keyword: bogus", "scontrol: error: No closing quotation.",
    ]  # fmt: skip
    assert found.code == 1
    monkeypatch.setattr(sys, "stdin", io.StringIO(""))
    assert slurm("scontrol") == (0, "scontrol: \n", "")
    monkeypatch.setattr(sys, "stdin", io.StringIO("ONELI\nshow job 1\nexi\nbogus\n"))
    shortened = slurm("scontrol")
    assert (shortened.code, len(shortened.out.splitlines()), shortened.err) == (0, 4, "")
    assert slurm("scontrol", "quit") == (0, "", "")
    assert slurm("scontrol", "help").out == slurm("scontrol", "--help").out == slurm("scontrol", "-h").out


def test_jobs_are_held_in_lists_and_by_name_and_requeued_so(slurm: Slurm, daemon: Daemon) -> None:
    table = daemon.service.table
    assert slurm("scontrol", "hold", "2,3") == (0, "", "")
    assert (table[2].held, table[3].held) == (True, True)
    assert slurm("scontrol", "release", "jobname=many") == (0, "", "")
    assert not any(job.held for job in table.values())
    assert slurm("scontrol", "requeuehold", "1") == (0, "", "")
    assert (table[1].state, table[1].held) == (JobState.PENDING, True)
    assert slurm("scontrol", "requeue", "3") == (0, "", "")
    assert (table[3].state, table[3].held) == (JobState.PENDING, False)
    assert slurm("scontrol", "hold", "9,2").code == 1
    assert table[2].held, "a job that is not there does not keep the others"


def test_the_release_of_a_job_that_runs_is_no_error(
    slurm: Slurm, daemon: Daemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def release(job_id: int, by: str, array_tasks: str = "", *, as_admin: bool = False) -> Job:
        raise IllegalTransition(f"Job {job_id} cannot be released: only pending jobs are held.")

    monkeypatch.setattr(daemon.service, "release", release)
    assert slurm("scontrol", "release", "1,3") == (0, "", "")
    daemon.service.finish(1, 0)
    assert "only pending jobs are held" in slurm("scontrol", "release", "1").err


def test_jobs_that_are_ending_are_told(slurm: Slurm, daemon: Daemon) -> None:
    assert slurm("scontrol", "completing") == (0, "", "")
    daemon.service.put(1, state=JobState.COMPLETING)
    said = slurm("scontrol", "completing").out
    assert re.fullmatch(r"JobId=1 EndTime=\S+ StartTime=1970-\S+ Nodes\(COMPLETING\)=h1\n", said)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["foo"], "invalid keyword: foo."),
        (["create", "reservation=x"], "'create' is not supported. `rmx reservation create`"),
        (["delete", "reservation=x"], "'delete' is not supported. `rmx reservation delete`"),
        (["suspend", "9"], "Invalid job id specified for job 9. There is no job 9"),
        (["top", "1"], "'top' is not supported."),
        (["hold", "abc"], "Invalid job id specified for job abc. 'abc' is not a job id."),
        (["release", "jobname=none"], "Invalid job id specified: no job that has not"),
        (["show"], "invalid entity:  for keyword: show."),
        (["show", "weather"], "invalid entity: weather for keyword: show."),
        (["hold"], "too few arguments: no job is named."),
        (
            ["update", "JobId=1", "WorkDir=/x"],
            "Update of this parameter is not supported: WorkDir=/x. Files and directories",
        ),
        (["update", "JobId=1", "TimeLimit=soon"], "'soon' is not a time limit"),
        (["update", "JobId=2", "TimeLimit=+5"], "The job has no time limit that a difference could change"),
        (["update", "JobId=1"], "The request changes nothing."),
        (["update", "JobId=1", "EndTime=1970-01-01"], "EndTime=1970-01-01 is before the job's start."),
        (["update", "JobId=2", "EndTime=now"], "EndTime is of a job that runs."),
        (["update", "NodeName=", "State=DRAIN", "Reason=x"], "No JobId, JobName, NodeName or PartitionName"),
        (["update", "JobId=", "JobName=many", "Nice=5"], "No JobId, JobName, NodeName or PartitionName"),
        (["update", "PartitionName=", "State=DOWN"], "No JobId, JobName, NodeName or PartitionName"),
        (["update", "JobId=2_3", "ArrayTaskThrottle=4"], "ArrayTaskThrottle is the whole array's."),
        (
            ["update", "JobId=1", "NumCPUs=4"],
            "Update of this parameter is not supported: NumCPUs=4. NumTasks and",
        ),
        (["update", "JobId=1", "Bogus=4"], "Update of this parameter is not supported: Bogus=4. docs/slurm"),
        (
            ["update", "JobName=nosuch", "Nice"],
            "Invalid job id specified: no job that has not ended has the name",
        ),
        (["update", "JobId=1", "word"], "Update of this parameter is not supported: word."),
        (["update", "Reason=x"], "No JobId, JobName, NodeName or PartitionName is named."),
        (["update", "NodeName=h1", "State=DRAIN"], "You must specify a reason when DRAINING a node."),
        (["update", "NodeName=h1", "State=FAIL"], "Update of this parameter is not supported: State=FAIL."),
        (["update", "NodeName=h9", "State=RESUME"], "There is no host h9"),
        (
            ["-M", "other", "ping"],
            "No cluster 'other' known by database. The cluster of this daemon is 'rm'.",
        ),
    ],
    ids=str,
)
def test_what_is_wrong_is_an_error_of_scontrol(words: list[str], sentence: str, slurm: Slurm) -> None:
    done = slurm("scontrol", *words)
    assert (done.code, done.out) == (1, "")
    assert done.err.startswith(f"scontrol: error: {sentence}")


def test_the_daemon_is_asked_whether_it_is_there(
    slurm: Slurm, daemon: Daemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert slurm("scontrol", "ping") == (0, f"Slurmctld(primary) at {daemon.socket} is UP\n", "")
    monkeypatch.setenv("RM_DAEMON__SOCKET", "/nowhere.sock")
    assert slurm("scontrol", "ping").code == 1


def test_licences_are_counted(slurm: Slurm, monkeypatch: pytest.MonkeyPatch) -> None:
    done = slurm("scontrol", "-o", "show", "lic")
    assert done.out.splitlines() == [
        "LicenseName=ansys Total=2 Used=0 Free=2 Reserved=0 Remote=no",
        "LicenseName=matlab Total=10 Used=4 Free=6 Reserved=0 Remote=no",
    ]
    lines = slurm("scontrol", "show", "lic").out.splitlines()
    assert lines[:3] == [
        "LicenseName=ansys", "    Total=2 Used=0 Free=2 Reserved=0 Remote=no", "LicenseName=matlab",
    ]  # fmt: skip
    assert record(slurm, "show", "license", "matlab")["Free"] == "6"
    assert "License none not found" in slurm("scontrol", "show", "licenses", "none").err
    told = FakeService.status
    monkeypatch.setattr(FakeService, "status", lambda self: {**told(self), "licenses": []})
    assert slurm("scontrol", "show", "licenses").out == "No licenses configured in Slurm.\n"


def test_what_is_elsewhere_is_named(slurm: Slurm) -> None:
    done = slurm("scontrol", "show", "topology")
    assert (done.code, done.out) == (1, "")
    assert "show topology is not supported" in done.err
    assert "rmx network" in done.err


def test_reservations_are_shown(slurm: Slurm, rmx: Rmx, daemon: Daemon) -> None:
    assert slurm("sinfo", "-T").out.strip() == "No reservations in the system"
    assert slurm("scontrol", "show", "reservations").out == "No reservations in the system\n"
    made = rmx("reservation", "create", "course", "--hosts", "h1", "--users", "root,nobody", "--start",
               "2030-01-31T09:00", "--duration", "2:00:00")  # fmt: skip
    assert made.out == "reservation course is made: h1, 2030-01-31T09:00:00 to 2030-01-31T11:00:00\n"
    lines = slurm("sinfo", "-T").out.splitlines()
    assert lines == [
        "RESV_NAME     STATE           START_TIME             END_TIME     DURATION  NODELIST",
        "course     INACTIVE  2030-01-31T09:00:00  2030-01-31T11:00:00     02:00:00  h1",
    ]
    shown = slurm("scontrol", "show", "reservation", "course").out.split()
    for field in ("ReservationName=course", "Nodes=h1", "NodeCnt=1", "Users=root,nobody", "State=INACTIVE"):
        assert field in shown
    assert "course" in rmx("reservation", "show").out
    assert "is changed" in rmx("reservation", "set", "course", "--users", "daemon").out
    for words in (["set", "course"], ["create", "other", "--hosts", "h1", "--duration", "1:00:00"]):
        refused = rmx("reservation", *words, "--users", "daemon,no-such-user")
        assert (refused.code, refused.out) == (2, "")
        assert "is for 'no-such-user', who is no user of this machine." in refused.err
    assert "is deleted" in rmx("reservation", "delete", "course").out
    assert rmx("reservation", "show", "course").code == 2


def test_words_are_abbreviated(slurm: Slurm) -> None:
    assert slurm("scontrol", "sho", "hostn", "h[1-2]").out == "h1\nh2\n"
    assert slurm("scontrol", "show", "res").out == "No reservations in the system\n"
    assert "invalid keyword: re" in slurm("scontrol", "re", "1").err
    assert slurm("scontrol", "show", "conf").out.splitlines()[1].startswith("ClusterName ")


def test_an_array_that_has_ended_is_its_elements(slurm: Slurm, daemon: Daemon) -> None:
    daemon.service.put(2, array=Array(waiting="", running="1", limit=2))
    found = slurm("scontrol", "-o", "show", "job", "2").out.splitlines()
    assert [line.split()[0] for line in found] == ["JobId=3"]


def test_a_script_is_written_to_a_file(slurm: Slurm, tmp_path: Path) -> None:
    script = "#!/bin/sh\n# made by --wrap\ntrue\n"
    assert slurm("scontrol", "write", "batch_script", "1", "-").out == script
    file = tmp_path / "one.sh"
    assert slurm("scontrol", "write", "batch_script", "1", str(file)).code == 0
    assert file.read_text() == script
    assert "cannot be written" in slurm("scontrol", "write", "batch", "1", "/proc/x").err
    assert "Nothing is named" in slurm("scontrol", "write", "config").err


def test_waiting_for_a_job_ends_when_it_runs_or_has_ended(slurm: Slurm, daemon: Daemon) -> None:
    assert slurm("scontrol", "wait_job", "1").err == "Nodes are ready for job 1\n"
    daemon.service.finish(1, 0)
    assert slurm("scontrol", "wait_job", "1") == (1, "", "scontrol: error: Job 1 no longer running.\n")


def test_a_job_is_named_short_in_an_update(slurm: Slurm, daemon: Daemon) -> None:
    assert slurm("scontrol", "update", "job=1", "comment=short").code == 0
    assert daemon.service.table[1].spec.comment == "short"


def test_no_text_of_a_user_commands_the_terminal_of_who_looks(slurm: Slurm, rmx: Rmx) -> None:
    evil = "\x1b[2Jred\u202e"
    named = [f"--job-name={evil}", f"--comment={evil}\nx"]
    job = rmx("submit", "--parsable", "--hold", *named, "--wrap=true").out.strip()
    for words in (("show", "job", job), ("-o", "show", "job", job)):
        shown = slurm("scontrol", *words).out
        assert shown.count("?[2Jred?") == 2
        assert not {"\x1b", "\u202e"} & set(shown)
    refused = slurm("scontrol", "update", f"jobid={job}", f"{evil}=1")
    assert refused.code != 0
    assert "?[2Jred?" in refused.err
    assert not {"\x1b", "\u202e"} & set(refused.err)


def test_a_name_that_no_job_may_have_is_refused_with_a_sentence(slurm: Slurm) -> None:
    refused = slurm("scontrol", "update", "jobid=1", "jobname=a/b")
    assert (refused.code, refused.out) == (1, "")
    assert "The field 'name' of the request is wrong" in refused.err


def test_memory_is_told_exactly(slurm: Slurm, rmx: Rmx) -> None:
    """Larger units where halves of them are whole; parts of a megabyte count as one."""
    told = {"1K": "1M", "3999": "3999M", "1000": "1000M", "1536": "1.50G", "2048": "2G"}
    for number, (asked, shown) in enumerate(told.items(), 4):
        assert rmx("submit", f"--mem={asked}", "--wrap=true").code == 0
        assert record(slurm, "show", "job", str(number))["MinMemoryNode"] == shown


def test_mail_and_gpus_of_a_job_are_shown(slurm: Slurm, rmx: Rmx) -> None:
    rmx("submit", "--mail-type=ALL,TIME_LIMIT_80", "--mail-user=a@b.org", "--gpus-per-node=2", "--wrap=true")
    found = record(slurm, "show", "job", "4")
    assert (found["MailUser"], found["TresPerNode"]) == ("a@b.org", "gres:gpu:2")
    assert found["MailType"] == "INVALID_DEPEND,BEGIN,END,FAIL,REQUEUE,TIME_LIMIT_80"
    assert not {"MailUser", "TresPerNode", "TresPerTask"} & record(slurm, "show", "job", "1").keys()


def test_a_job_that_waits_for_a_time_starts_then(slurm: Slurm, rmx: Rmx) -> None:
    rmx("submit", "--begin=2100-01-01", "--hold", "--wrap=true")
    found = record(slurm, "show", "job", "4")
    assert found["StartTime"] == found["EligibleTime"] == "2100-01-01T00:00:00"
    assert slurm("squeue", "-h", "-j4", "-o%S").out == "2100-01-01T00:00:00\n"
    assert slurm("squeue", "-h", "-j2", "-tPD", "-o%S").out == "N/A\n"


def test_a_job_that_waits_is_shown_with_its_expected_start(slurm: Slurm, rmx: Rmx) -> None:
    rmx("submit", "--time=10", "--wrap=true")
    rmx("submit", "--hold", "--time=10", "--wrap=true")
    waits, held = (record(slurm, "show", "job", number) for number in ("4", "5"))
    assert waits["SchedNodeList"] == "h1"
    assert (
        waits["StartTime"]
        == slurm("squeue", "--start", "-h", "-j4", "-o%S").out.strip()
        == "2033-05-18T03:33:20"
    )
    assert waits["EndTime"] == "2033-05-18T03:43:20"
    assert (held["StartTime"], held["EndTime"]) == ("Unknown", "Unknown")
    assert "SchedNodeList" not in held


def test_a_host_that_is_not_there_does_not_hide_the_others(slurm: Slurm) -> None:
    done = slurm("scontrol", "show", "node", "h1,h8,h2")
    assert (done.code, re.findall(r"NodeName=(\w+)", done.out)) == (1, ["h1", "h2"])
    assert done.err == "scontrol: error: Node h8 not found.\n"


def test_the_script_of_a_job_that_runs_is_a_step(slurm: Slurm, daemon: Daemon) -> None:
    assert re.findall(r"StepId=(\S+)", slurm("scontrol", "show", "step").out) == ["1.batch", "2_1.batch"]
    said = slurm("scontrol", "show", "step", "1.batch").out
    assert "Nodes=1 CPUs=2 Tasks=1 Name=batch" in said
    assert re.findall(r"(\w+)=", said) == [
        "StepId", "UserId", "StartTime", "TimeLimit", "State", "Partition", "NodeList", "Nodes", "CPUs",
        "Tasks", "Name", "Network", "TRES", "ResvPorts", "CPUFreqReq", "Pid",
    ]  # fmt: skip
    assert re.search(r" UserId=(\d+|\(null\)) ", said)
    daemon.service.finish(1)
    gone = slurm("scontrol", "show", "step", "1.batch")
    assert (gone.code, gone.err) == (1, "scontrol: error: Job step 1.batch not found.\n")
