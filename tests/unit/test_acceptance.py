"""What a job's specification must be, whoever made it: the door of the core, and the API before it."""

import json
import re
import tracemalloc
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest

from rm.config import Config, DaemonConfig, JobsConfig, LimitsConfig
from rm.core.model.acceptance import accept, size_bytes
from rm.core.model.asked.traffic import Phase, TrafficProfile, on_off
from rm.core.model.job import JobSpec
from rm.core.registry import load
from rm.core.scheduling.engine import Policies
from rm.errors import UsageError
from rm.sim.network.fabric import Topology
from rm.sim.network.fluid import Fluid
from rm.sim.program import program_of
from rm.sim.workload import SimJob, hosts
from rm.sim.world import World
from rm.units import DAY_US
from tests.fake_service import Daemon, serving
from tests.unit.test_web_api import SPEC, as_user, call

MIB = 1 << 20
SMALL = JobSpec("train", "ann", "#!/bin/sh\ntrue\n")


def limited(**limits: Any) -> Config:
    return Config(
        daemon=DaemonConfig(admins=("boss",)),
        jobs=JobsConfig(run_root_as="rmjob"),
        limits=LimitsConfig(**limits),
    )


def phases(count: int) -> TrafficProfile:
    return TrafficProfile(count, tuple(Phase(i, 1, 1) for i in range(count)))


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"name": "n" * 256}, "name has 256 bytes, and may have 255"),
        ({"name": "ü" * 128}, "name has 256 bytes"),
        ({"comment": "c" * 4097}, "comment has 4097 bytes"),
        ({"output": "/" + "o" * 4095}, "output has 4096 bytes, and may have 4095"),
        ({"chdir": "/a\0b"}, "chdir contains a NUL byte"),
        ({"partition": "p" * 256}, "partition has 256 bytes"),
        ({"script": "#!/bin/sh\n" + "ü" * 2 * MIB}, "the script has 4194314 bytes"),
        ({"script_args": ("a" * 1023,) * 129}, "the script's arguments have 132096 bytes in all"),
        ({"env": (("A", "x" * 131072),)}, "no program can be given more"),
        ({"env": tuple((f"A{i}", "x" * 1000) for i in range(1100))}, "the environment is larger than"),
        ({"env": tuple((f"A{i}", "") for i in range(8193))}, "has 8193 variables"),
        ({"script": "\x01" * 2 * MIB}, "have more than 7340032 bytes as JSON"),
        ({"hosts_only": tuple(f"h{i}" for i in range(4097))}, "hosts_only names 4097 hosts"),
        (
            {"hosts_only": ("h1", "h2"), "hosts_excluded": ("h2", "h3"), "hosts_min": 2},
            "it names h2 and excludes the same: 1 of the 2 hosts are left",
        ),
        ({"hosts_only": ("h1",), "hosts_excluded": ("h1",)}, "excludes the same: 0 of the 1 hosts are left"),
        ({"hosts_excluded": ("h" * 256,)}, "hosts_excluded has 256 bytes"),
        ({"ntasks": 65537}, "a job may have 65536 tasks"),
        ({"traffic": phases(65)}, "65 phases, and may have 64"),
        ({"traffic": on_off(DAY_US + 1, 0.5, 1_000)}, "at most a day"),
        ({"container_mounts": "/a:/b," * 30_000}, "has 180000 characters, and may have 131072"),
    ],
)
def test_each_field_has_a_bound(wrong: dict[str, Any], sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence):
        accept(replace(SMALL, **wrong))


def test_no_text_is_without_a_bound() -> None:
    texts = [field.name for field in fields(JobSpec) if isinstance(getattr(SMALL, field.name), str)]
    assert len(texts) > 30
    for name in texts:
        with pytest.raises(UsageError):
            accept(replace(SMALL, **{"container_image": "image", name: "a" * 5 * MIB}))


@pytest.mark.parametrize(
    "right",
    [
        {"name": "n" * 255, "comment": "ü" * 2048, "output": "/" + "o" * 4094},
        {"script": "#!/bin/sh\n" + "x" * (4 * MIB - 10)},
        {"script": "echo \x1b\n" * (MIB // 2), "script_args": ("a" * 1023,) * 128},
        {"env": tuple((f"A{i}", "x" * 100) for i in range(8192)), "traffic": phases(64)},
    ],
)
def test_what_is_within_the_bounds_is_accepted(right: dict[str, Any]) -> None:
    accept(replace(SMALL, **right))


def test_a_specification_is_weighed_without_reading_its_texts() -> None:
    """The leader weighs those of all elements of an array, in one turn."""
    for text, size in (("x" * MIB, MIB), ("x" * (MIB - 1) + "🐎", 4 * MIB)):
        none = replace(SMALL, script="")
        specs = [
            replace(none, script=text),
            replace(none, script_args=(text,)),
            replace(none, env=((text, ""),)),
        ]
        tracemalloc.start()
        sizes = [size_bytes(spec) for spec in specs]
        _, most_bytes = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert sizes == [size] * 3
        assert most_bytes < MIB // 10


def test_the_simulator_makes_no_other_jobs_than_a_daemon_takes() -> None:
    huge = JobSpec("one", "sim", "", ntasks=2, tasks_per_host=1, traffic=phases(65))
    cluster = hosts(2, nic_bps=10**9)
    policies = Policies(load("queue", "fifo"), load("placement", "first-fit"), load("comm", "none"))
    network = Fluid(Topology({h.name: h.nic_bps for h in cluster}), lockstep=True)
    job = SimJob(0, huge, program_of(on_off(200_000, 0.5, 10**9), 1))
    with pytest.raises(UsageError, match="65 phases"):
        World(cluster, [job], policies, network).run()


# -- at the API


def submit(daemon: Daemon, **fields: Any) -> tuple[int, str]:
    status, answer = call(daemon, "POST", "/v1/jobs", {"spec": {**SPEC, **fields}})
    return status, answer.get("error", {}).get("message", "")


def test_only_administrators_stand_before_others_in_the_queue(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving(tmp_path / "rm.sock", limited(max_priority=7)) as daemon:
        as_user(monkeypatch, "ann")
        status, message = submit(daemon, priority=1 << 52)
        assert (status, message.endswith("and ann may ask for at most 7.")) == (403, True)
        assert [submit(daemon, priority=p)[0] for p in (8, 7, 0, -5)] == [403, 201, 201, 201]
        assert call(daemon, "POST", "/v1/plan", {"spec": {**SPEC, "priority": 8}})[0] == 403
        assert call(daemon, "POST", "/v1/jobs", {"specs": [SPEC, {**SPEC, "priority": 8}]})[0] == 403
        as_user(monkeypatch, "boss")
        assert submit(daemon, priority=100)[0] == 201


def test_only_administrators_move_a_job_before_others_in_the_queue(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def moved(priority: int) -> int:
        return call(daemon, "POST", "/v1/jobs/1/update", {"priority": priority})[0]

    with serving(tmp_path / "rm.sock", limited(max_priority=7)) as daemon:
        as_user(monkeypatch, "ann")
        assert submit(daemon)[0] == 201
        assert [moved(p) for p in (1 << 52, 8, 7, -5)] == [403, 403, 200, 200]
        assert daemon.service.table[1].spec.priority == -5
        as_user(monkeypatch, "boss")
        assert moved(100) == 200


def test_a_submission_has_a_bounded_number_of_jobs(tmp_path: Path) -> None:
    with serving(tmp_path / "rm.sock", limited(specs_per_request=3)) as daemon:
        for count, long in ((4, ""), (4, "x" * 30_000), (2_000, "")):
            body = {"specs": [{**SPEC, "comment": long}] * count}
            status, answer = call(daemon, "POST", "/v1/jobs", body)
            assert (status, answer["error"]["message"]) == (400, "A request may submit 3 jobs.")
        assert call(daemon, "POST", "/v1/jobs", {"specs": [SPEC] * 3})[0] == 201
        assert len(daemon.service.table) == 3


LONG = "#" * 70_000  # enough that the request is read in parts


@pytest.mark.parametrize("padding", ["", LONG])
@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("[" * 50_000, "nested too deeply|must be a JSON object"),
        ('{"spec":' + "[" * 50_000, "nested too deeply"),
        ('{"spec":{"env":' + '{"a":' * 50_000, "nested too deeply"),
        ('{"specs":[' + "[]," * 50_000 + "[]]}", "at least one job|must be a JSON object|may submit"),
        ('{"specs":[1,2]}', "at least one job|must be a JSON object"),
        ('{"specs":{}}', "at least one job"),
        ('{"spec":[[],[]]}', "must be a JSON object"),
        ('{"spec":{"name":"a","script":"b","env":[[' + "1," * 50_000 + "1]]}}", "is wrong"),
        ('{"spec":{"name":"a","script":"b","' + "x" * 200_000 + '":1}}', "Unknown field 'x{80}'"),
        ('{"' + "x" * 200_000 + '":1}', "Unknown field 'x{80}'"),
        ('{"spec":{"name":"a","script":"b","env":[' + '["",""],' * 400_000 + "[]]}}", "of JSON"),
    ],
)
def test_odd_bodies_are_refused_with_a_sentence(
    tmp_path: Path, text: str, sentence: str, padding: str
) -> None:
    with serving(tmp_path / "rm.sock") as daemon:
        for path in ("/v1/jobs", "/v1/plan"):
            raw = (text + " " * len(padding)).encode()
            status, answer = call(daemon, "POST", path, raw=raw)
            assert status == 400
            assert re.search(sentence, answer["error"]["message"]), answer
            assert len(answer["error"]["message"]) < 500


def test_a_long_request_means_what_a_short_one_means(tmp_path: Path) -> None:
    with serving(tmp_path / "rm.sock") as daemon:
        given = {**SPEC, "env": [["A", "1"]], "hosts_only": ["h1"], "ntasks": 2, "time_limit_us": None}
        long = {**given, "comment": "c", "script": f"#!/bin/sh\n{LONG}\n"}
        for body in ({"spec": long}, {"specs": [given, long]}):
            assert len(json.dumps(body)) > 65536
            assert call(daemon, "POST", "/v1/jobs", body)[0] == 201
        one, two, three = (daemon.service.table[i].spec for i in (1, 2, 3))
        assert (one, replace(two, script=one.script, comment="c")) == (three, three)
        assert (one.env, one.hosts_only, one.ntasks) == ((("A", "1"),), ("h1",), 2)
        wrong = {"specs": [given, {**long, "ntasks": "2"}]}
        message = call(daemon, "POST", "/v1/jobs", wrong)[1]["error"]["message"]
        assert "field 'ntasks' of the job specification is wrong: expected 'int', got 'str'" in message


def test_equal_specifications_of_a_long_list_are_one(tmp_path: Path) -> None:
    with serving(tmp_path / "rm.sock") as daemon:
        names = [f"job{i % 3}" for i in range(300)]
        specs: list[Any] = [{**SPEC, "name": name} for name in names]
        assert call(daemon, "POST", "/v1/jobs", {"specs": specs})[0] == 201
        made = [daemon.service.table[i].spec for i in range(1, 301)]
        assert [spec.name for spec in made] == names
        assert len({id(spec) for spec in made}) == 3
        for odd in (7, None, "x", [1]):
            status, answer = call(daemon, "POST", "/v1/jobs", {"specs": [*specs, odd]})
            assert (status, answer["error"]["message"]) == (
                400,
                "The job specification must be a JSON object.",
            )
