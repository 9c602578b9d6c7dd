"""Options to a job specification: per host to per task, exactly or not at all."""

import json
import re
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from rm.core.model.job import JobSpec
from rm.errors import UsageError
from rm.submission import directives, specification, traffic_file
from rm.submission.remarks import Remarks
from rm.web.wire import spec_from

NOW = datetime(2030, 1, 31, 15, 30)
G = 2**30


def build(**values: Any) -> dict[str, Any]:
    return specification.build(values, {"PATH": "/bin", "HOME": "/h"}, "/data/here", lambda: NOW)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({}, {"ntasks": 1, "cpus_per_task": 1}),
        ({"nodes": "2"}, {"ntasks": 2, "hosts_min": 2, "hosts_max": 2}),
        (
            {"nodes": "2-4", "ntasks_per_node": "3"},
            {"ntasks": 6, "hosts_min": 2, "hosts_max": 4, "tasks_per_host": 3},
        ),
        ({"nodes": "2", "gres": "gpu:8"}, {"ntasks": 2, "gpus_per_host": 8, "tasks_per_host": None}),
        (
            {"nodes": "2", "ntasks_per_node": "8", "gres": "gpu:h100:8"},
            {"ntasks": 16, "gpus_per_host": 8, "gpus_per_task": None, "gpu_type": "h100"},
        ),
        ({"open_mode": "append"}, {"open_mode": "append"}),
        ({"mail_type": "all"}, {"mail_events": "BEGIN,END,FAIL,REQUEUE,INVALID_DEPEND", "mail_user": None}),
        ({"mail_type": "fail,END", "mail_user": "a@b"}, {"mail_events": "END,FAIL", "mail_user": "a@b"}),
        ({"mail_type": "NONE", "mail_user": "a@b"}, {"mail_events": "", "mail_user": "a@b"}),
        ({"mail_user": "a@b"}, {"mail_events": None, "mail_user": "a@b"}),  # hears of idle GPUs
        ({"mail_user": "a b"}, {"mail_events": None, "mail_user": None}),
        ({"open_mode": "T"}, {"open_mode": "truncate"}),
        ({"gres": "gpu"}, {"gpus_per_host": 1}),
        ({"gres": "gres/gpu:a100"}, {"gpus_per_host": 1, "gpu_type": "a100"}),
        ({"gres": "gpu=2"}, {"gpus_per_host": 2}),
        ({"gres": "none"}, {"gpus_per_host": None}),
        ({"gpus_per_node": "a100:2"}, {"gpus_per_host": 2, "gpu_type": "a100"}),
        ({"gpus_per_socket": "2", "sockets_per_node": "2"}, {"gpus_per_host": 4, "gpu_type": None}),
        ({"gpus_per_socket": "a100:1", "sockets_per_node": "2"}, {"gpus_per_host": 2, "gpu_type": "a100"}),
        *(
            (
                {"gpus_per_socket": of_socket, "sockets_per_node": "2", "gpus_per_node": of_node},
                {"gpus_per_host": 4, "gpu_type": kind},
            )
            for of_socket, of_node, kind in (
                ("2", "4", None),
                ("2", "04", None),
                ("02", "4", None),
                ("2", "a100:4", "a100"),
                ("2", "a100=4", "a100"),
                ("a100:2", "4", "a100"),
                ("a100=2", "a100:4", "a100"),
            )
        ),
        ({"ntasks": "8", "gres": "gpu:2"}, {"ntasks": 8, "gpus_per_host": 2, "hosts_min": None}),
        ({"nodes": "1", "ntasks": "4", "gres": "gpu:1"}, {"ntasks": 4, "gpus_per_host": 1, "hosts_max": 1}),
        ({"ntasks": "4", "gpus": "8"}, {"gpus_per_task": 2, "gpu_bind": "none"}),
        ({"nodes": "2", "ntasks": "8", "gpus": "4"}, {"gpus_per_host": 2}),
        ({"gpus": "3"}, {"gpus_per_task": 3, "gpu_bind": "none"}),
        ({"ntasks": "4", "gpus": "1"}, {"gpus_per_host": 1, "hosts_min": 1, "hosts_max": 1}),
        ({"gpus": "8", "gpus_per_node": "4"}, {"gpus_per_host": 4, "hosts_min": 2, "ntasks": 2}),
        ({"ntasks": "4", "gpus": "8", "gpus_per_task": "2"}, {"gpus_per_task": 2, "gpu_bind": None}),
        ({"gpus": "8", "gpus_per_task": "2"}, {"ntasks": 4, "gpus_per_task": 2}),
        ({"nodes": "1", "gres": "gpu:4", "gpu_bind": "closest"}, {"gpus_per_host": 4, "gpu_bind": None}),
        ({"gpus_per_task": "1", "gpu_bind": "none"}, {"gpus_per_task": 1, "gpu_bind": "none"}),
        (
            {"nodes": "2", "gpus_per_node": "4", "gpus_per_task": "1"},
            {"ntasks": 8, "tasks_per_host": 4, "gpus_per_task": 1, "hosts_max": 2},
        ),
        (
            {"nodes": "2", "gpus_per_node": "2", "ntasks_per_gpu": "1"},
            {"ntasks": 4, "gpus_per_task": 1, "tasks_per_host": 2, "hosts_min": 2},
        ),
        (
            {"nodes": "2", "gpus_per_node": "2", "ntasks_per_gpu": "3"},
            {"ntasks": 12, "gpus_per_host": 2, "ntasks_per_gpu": 3, "tasks_per_host": 6, "hosts_min": 2},
        ),
        ({"ntasks": "4", "ntasks_per_gpu": "4"}, {"gpus_per_host": 1, "ntasks_per_gpu": 4, "hosts_max": 1}),
        ({"gpus": "4", "ntasks_per_gpu": "1"}, {"ntasks": 4, "gpus_per_task": 1}),
        (
            {"nodes": "1", "gres": "gpu:4", "ntasks_per_node": "4", "gpu_bind": "single:1"},
            {"ntasks": 4, "gpus_per_task": 1, "tasks_per_host": 4},
        ),
        (
            {"nodes": "2", "gres": "gpu:4", "ntasks_per_node": "2", "gpu_bind": "verbose,per_task:2"},
            {"ntasks": 4, "gpus_per_task": 2, "tasks_per_host": 2},
        ),
        ({"nodelist": "a,b"}, {"hosts_only": ["a", "b"], "hosts_min": 2, "hosts_max": 2, "ntasks": 2}),
        ({"nodelist": "a,b", "ntasks": "3"}, {"hosts_min": 2, "hosts_max": 2, "ntasks": 3}),
        ({"nodes": "4", "ntasks": "2"}, {"hosts_min": 2, "hosts_max": 2, "ntasks": 2}),
        ({"nodes": "2-4", "ntasks": "3"}, {"hosts_min": 2, "hosts_max": 4, "ntasks": 3}),
        ({"nodes": "2", "ntasks": "1", "gpus_per_node": "2"}, {"hosts_max": 1, "gpus_per_host": 2}),
        ({"nodelist": "a,b", "ntasks_per_node": "4"}, {"hosts_min": 2, "ntasks": 8}),
        ({"nodelist": "a,b", "nodes": "1-4"}, {"hosts_min": 2, "hosts_max": 2}),
        ({"mem": "4G"}, {"mem_bytes_per_host": 4 * G}),
        ({"mem": "4G", "ntasks": "4"}, {"mem_bytes_per_host": 4 * G, "hosts_min": None}),
        ({"mem": "0"}, {"mem_all": True}),
        ({"mem_per_gpu": "8G", "gres": "gpu:2"}, {"mem_bytes_per_host": 16 * G}),
        ({"distribution": "cyclic"}, {"distribution": "cyclic"}),
        ({"distribution": "block:cyclic"}, {"distribution": None}),
        ({"distribution": "plane=04"}, {"distribution": "plane=4"}),
        ({"partition": "short, long"}, {"partition": "short,long"}),
        ({"exclusive": ""}, {"exclusive": True}),
        ({"exclusive": "user"}, {"exclusive_user": True}),
        ({"time": "0"}, {"time_limit_us": None}),
        ({"mem_per_cpu": "512", "cpus_per_task": "4"}, {"mem_bytes_per_task": 2 * G, "cpus_per_task": 4}),
        ({"mem_per_gpu": "8G", "gpus": "2"}, {"mem_bytes_per_task": 16 * G}),
        ({"gpus": "2", "gpu_mem": "16G"}, {"gpus_per_task": 2, "gpu_mem_bytes": 16 * G}),
        ({"gpus": "2", "gpu_mem": "0"}, {"gpus_per_task": 2, "gpu_mem_bytes": None}),
        ({"expect": "2h", "iterations": "6000"}, {"expected_us": 7_200_000_000, "iterations": 6000}),
        ({"expect": "1:30"}, {"expected_us": 90_000_000, "time_limit_us": None}),
        ({"expect": "UNLIMITED"}, {"expected_us": None}),
        ({"fence": "60s"}, {"fence_us": 60_000_000}),
        ({"fence": "0"}, {"fence_us": 0}),
        ({"time": "1-0"}, {"time_limit_us": 86_400_000_000}),
        ({"time": "UNLIMITED"}, {"time_limit_us": None}),
        ({"constraint": " a&b ", "prefer": "[c|d]"}, {"constraint": "a&b", "prefer": "[c|d]"}),
        ({"licenses": "b:2,a"}, {"licenses": "b:2,a"}),
        ({"nice": ""}, {"nice": 100, "priority": None}),
        ({"nice": "7"}, {"nice": 7}),
        ({"gpus_per_task": "2", "cpus_per_gpu": "6"}, {"cpus_per_task": 12}),
        ({"gres": "gpu:4", "cpus_per_gpu": "6"}, {"cpus_per_task": 24, "gpus_per_host": 4}),
        ({"nodes": "2", "ntasks": "4", "gres": "gpu:4", "cpus_per_gpu": "6"}, {"cpus_per_task": 12}),
        ({"signal": "USR1"}, {"warn_signal": 10, "warn_before_us": 60_000_000, "warn_batch": False}),
        ({"signal": "b:SIGTERM@0"}, {"warn_signal": 15, "warn_before_us": 0, "warn_batch": True}),
        ({"signal": "12@90"}, {"warn_signal": 12, "warn_before_us": 90_000_000}),
        ({"priority": "high"}, {"priority": 100}),
        ({"priority": "-7"}, {"priority": -7}),
        ({"nodelist": "g[1-2]", "exclude": "g3"}, {"hosts_only": ["g1", "g2"], "hosts_excluded": ["g3"]}),
        ({"nodelist": "g1", "nodes": "1"}, {"hosts_only": ["g1"], "ntasks": 1}),
        ({"chdir": "../x"}, {"chdir": "/data/x"}),
        ({"output": "none"}, {"output": ""}),
        (
            {"period": "200ms", "duty_cycle": "40%", "bandwidth": "100Mbit"},
            {
                "traffic": {
                    "period_us": 200_000,
                    "phases": [{"offset_us": 0, "duration_us": 80_000, "rate_bps": 10**8}],
                }
            },
        ),
    ],
)
def test_what_is_asked_for(values: dict[str, str], expected: dict[str, Any]) -> None:
    spec = build(**values)
    assert {key: spec.get(key) for key in expected} == expected
    made = spec_from({"name": "j", "script": "#!/bin/sh\n", **spec}, "ann", {})
    assert isinstance(made, JobSpec)


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"nodes": "3-2"}, "range such as"),
        ({"ntasks": "x"}, "--ntasks is 'x'"),
        ({"ntasks": "3", "gpus": "8"}, "shared equally by 3 tasks"),
        ({"nodes": "3", "ntasks": "5", "gpus": "8"}, "shared equally by 3 hosts"),
        ({"nodelist": "a,b", "nodes": "4"}, "more hosts than the 2 that --nodelist names"),
        ({"nodelist": "a,b", "nodes": "1"}, "fewer hosts than the 2 that --nodelist names"),
        ({"nodelist": "a,b", "ntasks": "1"}, "1 task cannot use the hosts that --nodelist names"),
        ({"gres": "gpu:2,nvme:1"}, "asks for 'nvme:1', which rm does not know"),
        ({"gres": "gpu:a100:1,gpu:v100:1"}, "names GPUs twice"),
        ({"gpus_per_node": "2", "gres": "gpu:1"}, "different numbers of GPUs on a host"),
        ({"gpu_bind": "map_gpu:0"}, "--gpu-bind=map_gpu:0 is not supported"),
        ({"gpus_per_task": "2", "ntasks_per_gpu": "1"}, "are mutually exclusive"),
        ({"ntasks_per_gpu": "2"}, "neither the number of GPUs nor of tasks"),
        ({"ntasks": "8", "ntasks_per_gpu": "2"}, "needs the number of hosts"),
        ({"nodes": "3", "gpus": "4", "gpus_per_node": "2"}, "make 2 hosts, not 3"),
        ({"nodes": "3", "ntasks": "8", "gpus_per_node": "4", "gpus_per_task": "1"}, "make 2 hosts, and"),
        ({"distribution": "block:foo"}, "Invalid --distribution specification: block:foo"),
        ({"nodes": "2", "ntasks": "1", "constraint": "[a*1&b*1]"}, "1 task cannot use 2 hosts"),
        ({"distribution": "plane=0"}, "--distribution=plane=0 is not supported"),
        ({"distribution": "plane"}, "--distribution=plane is not supported"),
        ({"distribution": "arbitrary"}, "give it to srun"),
        ({"distribution": "block,Pack"}, "give it to srun"),
        ({"constraint": "a&b|c"}, "--constraint: .* need parentheses"),
        ({"licenses": "a|b"}, "--licenses: 'a|b' is no list of licences"),
        ({"nice": "-5"}, "--priority raises a job"),
        ({"gpus": "1", "cpus_per_gpu": "2", "cpus_per_task": "2"}, "are mutually exclusive"),
        ({"cpus_per_gpu": "2"}, "asks for no GPU"),
        ({"ntasks": "3", "gres": "gpu:2", "cpus_per_gpu": "4"}, "shared equally by the"),
        ({"signal": "R:USR1"}, r"Write \[B:\]SIGNAL"),
        ({"signal": "R:USR1@5"}, "--signal is 'R:USR1@5': R: lets a job overlap a reservation"),
        ({"signal": "NOPE@5"}, "--signal is 'NOPE@5': There is no signal 'NOPE'"),
        ({"signal": "USR1@70000"}, "70000 s are too many"),
        ({"exclusive": "mcs"}, "--exclusive=mcs is not supported"),
        ({"partition": "a,,b"}, "one of its names is empty"),
        ({"mem_per_cpu": "0"}, "--mem-per-cpu=0 is not a size"),
        ({"gpus": "4", "gpus_per_task": "2", "ntasks": "4"}, "different numbers"),
        ({"gpus": "a100:1", "gres": "gpu:h100:1"}, "several types"),
        ({"gres": "fpga:1"}, "which rm does not know"),
        ({"mem": "4G", "mem_per_cpu": "1G"}, "--mem and --mem-per-cpu are mutually exclusive"),
        ({"gpu_mem": "16G"}, "asks for no GPU"),
        ({"gpus": "1", "gpu_mem": "much"}, "not a memory size"),
        ({"expect": "soon"}, "--expect is 'soon', which is not a valid duration. Write M, M:S"),
        ({"iterations": "0"}, "--iterations is '0'"),
        ({"fence": "60"}, "--fence: '60' is not a duration. Write 60s"),
        ({"fence": "9s"}, "--fence: '9s' is not from 10 s to a day"),
        ({"fence": "25h"}, "--fence: '25h' is not from 10 s to a day"),
        ({"priority": "urgent"}, "high, low or an integer"),
        ({"period": "1s"}, "belong together"),
        ({"period": "1s", "duty_cycle": "1.5", "bandwidth": "1G"}, "part of the period"),
        ({"traffic": "f", "low_comm": True}, "are mutually exclusive"),
        ({"begin": "later"}, "now\\+1hour"),
        ({"begin": "25:00"}, "now\\+1hour"),
        ({"begin": "13:00pm"}, "now\\+1hour"),
        ({"begin": "2/30"}, "now\\+1hour"),
        ({"begin": "16:00 17:00"}, "now\\+1hour"),
        ({"mail_type": "BEGINN"}, "--mail-type: 'BEGINN' is no event to be mailed of."),
        ({"mail_type": "END", "mail_user": "a b@c"}, "--mail-user is 'a b@c'."),
        ({"deadline": "soon"}, "--deadline is 'soon'"),
        ({"deadline": "1/30/30"}, "which has passed"),
        ({"time_min": "x"}, "--time-min: 'x'"),
        ({"mem": ""}, "--mem has no value."),
        ({"mem_per_gpu": "", "gpus": "1"}, "--mem-per-gpu has no value."),
        ({"time_min": "10", "time": "5"}, "--time-min is longer than --time."),
        ({"export": "A B"}, "not a variable name"),
        ({"open_mode": "at end"}, "--open-mode is 'at end'"),
    ],
)
def test_what_cannot_be_is_told(values: dict[str, Any], sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence):
        build(**values)


@pytest.mark.parametrize(
    ("text", "env"),
    [
        ("ALL", {"PATH": "/bin", "HOME": "/h"}),
        ("NONE", {}),
        ("HOME,X=a=b", {"HOME": "/h", "X": "a=b"}),
        ("ALL,PATH=/usr", {"PATH": "/usr", "HOME": "/h"}),
        ("X='1,2',Y=3", {"X": "1,2", "Y": "3"}),
        ("ABSENT", {}),
    ],
)
def test_export(text: str, env: dict[str, str]) -> None:
    found = dict(build(export=text)["env"])
    assert found.pop("SLURM_EXPORT_ENV") == text  # by which srun goes
    assert found == env
    assert "SLURM_EXPORT_ENV" not in dict(build()["env"])


@pytest.mark.parametrize("key", ["nodes", "time", "mem", "gpus", "ntasks_per_node"])
def test_a_number_that_python_does_not_read_is_refused(key: str) -> None:
    """It was a defect of the command and of the page."""
    remarks = Remarks()
    specification.build({key: "9" * 5000}, {}, "/", lambda: NOW, remarks)
    assert "9" * 5000 in str(remarks.errors[0])


def test_every_complaint_is_made_at_once() -> None:
    with pytest.raises(UsageError) as caught:
        build(nodes="2-1", ntasks="x", mem="much", gres="fpga:1", begin="later", priority="urgent")
    said = str(caught.value)
    assert "for 6 reasons" in said
    assert all(word in said for word in ("2-1", "'x'", "much", "fpga", "later", "urgent"))


def test_a_job_inherits_nothing_that_describes_the_job_that_submits_it() -> None:
    outer = {"SLURM_ARRAY_TASK_ID": "7", "SLURMD_NODENAME": "gpu1", "SLURMISH": "kept", "A": "b"}
    spec = specification.build({}, outer, "/", lambda: NOW)
    assert dict(spec["env"]) == {"SLURMISH": "kept", "A": "b"}
    named = specification.build({"export": "ALL,SLURM_X=1"}, outer, "/", lambda: NOW)
    assert dict(named["env"])["SLURM_X"] == "1"


def test_what_slurm_only_tells_the_job_is_told() -> None:
    env = dict(build(mem_per_gpu="8G", gpus="1", export="NONE")["env"])
    assert env == {"SLURM_MEM_PER_GPU": "8192", "SLURM_EXPORT_ENV": "NONE"}
    gpus = build(nodes="2", gpus_per_node="a100:2", ntasks_per_gpu="1", export="NIL")
    assert dict(gpus["env"]) == {
        "SLURM_NTASKS_PER_GPU": "1", "SLURM_GPUS_PER_NODE": "a100:2", "SLURM_EXPORT_ENV": "NIL",
    }  # fmt: skip
    assert ["SLURM_GPUS_PER_SOCKET", "2"] in build(gpus_per_socket="2", sockets_per_node="2")["env"]


def test_an_option_without_another_effect_is_told_to_the_job() -> None:
    remarks = Remarks()
    flags = {"ntasks_per_socket": "2", "threads_per_core": "1", "overcommit": True, "hint": "nomultithread"}
    values = directives.of_flags(flags, remarks)
    assert dict(build(**values, export="NONE")["env"]) == {
        "SLURM_NTASKS_PER_SOCKET": "2", "SLURM_THREADS_PER_CORE": "1", "SLURM_OVERCOMMIT": "1",
        "SLURM_EXPORT_ENV": "NONE",
    }  # fmt: skip
    assert len(remarks.warnings) == len(flags)


def test_a_variable_that_is_no_text_stays_behind() -> None:
    spec = specification.build({}, {"A": "\udcff", "B": "ü"}, "/", lambda: NOW)
    assert spec["env"] == [["B", "ü"]]


@pytest.mark.parametrize(
    ("text", "when"),
    [
        ("now", datetime(2030, 1, 31, 15, 30)),
        ("now+90", datetime(2030, 1, 31, 15, 31, 30)),
        ("now+1hour", datetime(2030, 1, 31, 16, 30)),
        ("now + 2days", datetime(2030, 2, 2, 15, 30)),
        ("16:00", datetime(2030, 1, 31, 16)),
        ("15:00:10", datetime(2030, 2, 1, 15, 0, 10)),
        ("midnight", datetime(2030, 2, 1)),
        ("tomorrow", datetime(2030, 2, 1)),
        ("2030-03-01T08:00", datetime(2030, 3, 1, 8)),
        ("2030-03-01", datetime(2030, 3, 1)),
        ("4:00pm", datetime(2030, 1, 31, 16)),
        ("3 PM", datetime(2030, 2, 1, 15)),
        ("12:30am", datetime(2030, 2, 1, 0, 30)),
        ("fika", datetime(2030, 2, 1, 15)),
        ("12/31", datetime(2030, 12, 31)),
        ("1/2", datetime(2031, 1, 2)),
        ("1.2.32", datetime(2032, 1, 2)),
        ("123130", datetime(2030, 12, 31)),
        ("tomorrow 8:00", datetime(2030, 2, 1, 8)),
        ("16:00 12/31/2031", datetime(2031, 12, 31, 16)),
    ],
)
def test_begin(text: str, when: datetime) -> None:
    assert build(begin=text)["begin_us"] == round(when.timestamp() * 1_000_000)


TOML = """\
period = "310ms"
[[phases]]
duration = "138ms"
rate = "50Mbit"
[[phases]]
offset_us = 200000
duration_us = 10000
rate_bps = 8000000
"""


def test_a_traffic_file_in_toml_and_json(tmp_path: Path) -> None:
    profile = {
        "period_us": 310_000,
        "phases": [
            {"offset_us": 0, "duration_us": 138_000, "rate_bps": 50_000_000},
            {"offset_us": 200_000, "duration_us": 10_000, "rate_bps": 8_000_000},
        ],
    }
    (tmp_path / "t.toml").write_text(TOML)
    (tmp_path / "t.json").write_text(json.dumps(profile))
    assert build(traffic=str(tmp_path / "t.toml"))["traffic"] == profile
    assert traffic_file.read(str(tmp_path / "t.json")) == profile
    for text in (TOML, json.dumps(profile)):
        (tmp_path / "t.windows").write_text(text, encoding="utf-8-sig")
        assert traffic_file.read(str(tmp_path / "t.windows")) == profile


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("period = ", "neither TOML nor JSON"),
        ("period = '1s'", "no list 'phases'"),
        ("period = '1s'\nphases = [{duration = '1s'}]", "'rate' in phase 1 of f"),
        ("period = '1s'\nphases = [{duration = '1s', rat = 1}]", "Unknown key 'rat'"),
        ("period = 3\nphases = [{duration_us = 1, rate_bps = 1}]", "'period' in f"),
        ('{"phases":' * 100_000, "nested too deeply"),
    ],
)
def test_a_bad_traffic_file(text: str, sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence):
        traffic_file.parse(text, "f")


@pytest.mark.parametrize(
    "field", ["priority", "begin_us", "expected_us", "time_limit_us", "mem_bytes_per_task", "ntasks"]
)
@pytest.mark.parametrize("number", [1 << 63, 10**400])
def test_numbers_that_no_column_holds_are_refused_before_the_leader_sees_them(field, number):
    with pytest.raises(UsageError, match="cannot be accepted"):
        spec_from({"name": "j", "script": "#!/bin/sh\n", field: number}, "ann", {})


def test_numbers_inside_the_traffic_profile_count_too():
    phase = {"offset_us": 0, "duration_us": 1, "rate_bps": 10**400}
    traffic = {"period_us": 2, "phases": [phase]}
    with pytest.raises(UsageError, match="the rate of a traffic phase must be"):
        spec_from({"name": "j", "script": "#!/bin/sh\n", "traffic": traffic}, "ann", {})


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"gpus_per_socket": "2"}, "--gpus-per-socket needs --sockets-per-node."),
        ({"gpus_per_socket": "x", "sockets_per_node": "2"}, "--gpus-per-socket=x is not understood."),
        ({"gpus_per_socket": "1", "sockets_per_node": "0"}, "--sockets-per-node is '0'"),
        (
            {"gpus_per_socket": "1", "sockets_per_node": "2", "gpus_per_node": "3"},
            "--gpus-per-node and --gpus-per-socket ask for different numbers",
        ),
        (
            {"gpus_per_socket": "a100:2", "sockets_per_node": "2", "gpus_per_node": "h100:4"},
            "The job asks for several types of GPUs: a100, h100.",
        ),
        (
            {"gpus_per_socket": "2", "sockets_per_node": "2", "gpus_per_node": "four"},
            "--gpus-per-node=four is not understood.",
        ),
    ],
)
def test_gpus_of_sockets_that_cannot_be_counted_are_refused(values: dict[str, str], said: str) -> None:
    with pytest.raises(UsageError, match=re.escape(said)):
        build(**values)


def test_what_is_less_than_sockets_ask_for_is_a_warning() -> None:
    def warned(**values: str) -> list[str]:
        remarks = Remarks()
        specification.build(values, {}, "/", lambda: NOW, remarks)
        assert not remarks.errors
        return remarks.warnings

    (said,) = warned(gpus_per_socket="a100:1", sockets_per_node="2")
    assert said.startswith("--gpus-per-socket=a100:1 counts as --gpus-per-node=a100:2: rm does not look")
    assert warned(sockets_per_node="2") == ["--sockets-per-node is not supported and was ignored."]
    assert warned() == []
