"""The simulator through its world: exact small cases, determinism, and what it shares with the daemon."""

import json
from pathlib import Path

import pytest

from rm.cli import main as rmx
from rm.core.model.asked.demand import PRIORITY_HIGH
from rm.core.model.asked.traffic import on_off
from rm.core.model.job import JobSpec
from rm.core.registry import load
from rm.core.scheduling.engine import Policies
from rm.errors import RmError
from rm.sim.network.fabric import Topology
from rm.sim.network.fluid import Fluid
from rm.sim.network.ideal import Ideal
from rm.sim.network.penalty import Penalty
from rm.sim.program import Communicate, Compute, Program, program_of, sequence
from rm.sim.workload import GIB, Noise, SimJob, hosts
from rm.sim.world import Settings, World

MS = 1_000
GBPS = 10**9


def policies(queue="fifo", placement="first-fit", comm="none", **options) -> Policies:
    return Policies(load("queue", queue), load("placement", placement), load("comm", comm, options))


def fluid(cluster, kind=Fluid):
    return kind(Topology({h.name: h.nic_bps for h in cluster}), lockstep=True)


def periodic(name, *, at_ms=0, period_ms=200, duty=0.45, iterations=100, tasks=2, high=False, **more):
    """A job of one task a host that communicates at the link's full rate."""
    profile = on_off(period_ms * MS, duty, GBPS)
    spec = JobSpec(
        name, "sim", "", ntasks=tasks, tasks_per_host=1, traffic=profile,
        priority=PRIORITY_HIGH if high else 0, **more,
    )  # fmt: skip
    return SimJob(at_ms * MS, spec, program_of(profile, iterations))


def all_reduce(name, size_bytes, *, at_ms=0, forward=10, backward=20, placed=(), **more):
    """One iteration of a data-parallel job on the GPU of each of its hosts; b = 1 ms/byte here."""
    stages = (Compute((forward * MS, backward * MS)), Communicate(8.0 * size_bytes, size_bytes=size_bytes))
    program = sequence(1, stages, 8e3)
    spec = JobSpec(
        name, "sim", "", ntasks=2, gpus_per_task=1, tasks_per_host=1, hosts_only=placed,
        expected_us=int(program.compute_us), **more,
    )  # fmt: skip
    return SimJob(at_ms * MS, spec, program)


def test_two_jobs_on_one_link_share_it_fairly_and_take_what_the_overlap_costs():
    cluster = hosts(2, nic_bps=GBPS)
    jobs = [periodic("a", iterations=1), periodic("b", iterations=1)]
    result = World(cluster, jobs, policies(), fluid(cluster)).run()
    # 90 ms of communication each, together at half the rate: 180 ms, then 110 ms of compute
    assert [job.end_us for job in result.jobs] == [pytest.approx(290 * MS)] * 2
    assert result.links["host1:out"].overloaded_us == pytest.approx(180 * MS)


def test_metronome_keeps_two_jobs_apart_that_would_meet():
    cluster = hosts(2, nic_bps=GBPS)
    jobs = [periodic("a", high=True), periodic("b")]
    settings = Settings(noise=Noise(jitter=0.01), seed=3)
    apart, together = (
        World(cluster, jobs, policies(comm=comm), fluid(cluster), settings=settings).run()
        for comm in ("metronome", "none")
    )
    assert together.links["host1:out"].excess_bits > 20 * apart.links["host1:out"].excess_bits
    assert all(job.mean_us < 1.02 * job.alone_us for job in apart.jobs)
    assert apart.worst_score == 100.0


def test_an_ideal_network_disturbs_nobody():
    cluster = hosts(2, nic_bps=GBPS)
    jobs = [periodic(name) for name in "abc"]
    result = World(cluster, jobs, policies(), fluid(cluster, Ideal)).run()
    assert [job.mean_us for job in result.jobs] == [pytest.approx(200 * MS)] * 3


# forward 10, backward 20, b = 1 and eta = 0.25 ms a byte, a = 0: ends in ms by policy
@pytest.mark.parametrize(
    ("comm", "options", "second", "ends"),
    [
        ("srsf-n", {"n": 1}, (100, 0), (130, 230)),
        ("srsf-n", {"n": 2}, (100, 0), (255, 255)),
        ("adadual", {"b": 1.0, "eta": 0.25}, (100, 0), (130, 230)),
        ("srsf-n", {"n": 1}, (30, 50), (230, 260)),
        ("adadual", {"b": 1.0, "eta": 0.25}, (30, 50), (267.5, 147.5)),
    ],
)
def test_admission_of_single_transfers_as_in_ada_srsf(comm, options, second, ends):
    cluster = hosts(2, gpus=2, nic_bps=GBPS)
    size, at_ms = second
    jobs = [all_reduce("a", 100 if not at_ms else 200), all_reduce("b", size, at_ms=at_ms)]
    network = Penalty(a_us=0, b_us_per_byte=1 * MS, eta_us_per_byte=0.25 * MS)
    result = World(cluster, jobs, policies(comm=comm, **options), network).run()
    assert [job.end_us for job in result.jobs] == [pytest.approx(end * MS) for end in ends]


def test_a_shared_gpu_runs_one_part_at_a_time_and_the_shorter_job_first():
    cluster = hosts(1, gpus=1, gpu_mem_bytes=16 * GIB, nic_bps=GBPS)

    def job(name, iterations):
        program = Program(iterations, (Compute((10 * MS, 20 * MS)),), 30 * MS)
        return SimJob(0, JobSpec(name, "sim", "", gpus_per_task=1, gpu_mem_bytes=4 * GIB), program)

    result = World(cluster, [job("long", 3), job("short", 1)], policies(), fluid(cluster)).run()
    long, short = result.jobs
    # long's first forward pass is not interrupted; then short has both its parts before long goes on
    assert short.end_us == pytest.approx(40 * MS)
    assert long.end_us == pytest.approx(120 * MS)


def test_gpu_memory_decides_how_many_jobs_share():
    cluster = hosts(1, gpus=1, gpu_mem_bytes=16 * GIB, nic_bps=GBPS)
    program = Program(1, (Compute((10 * MS,)),), 10 * MS)
    jobs = [
        SimJob(0, JobSpec(f"j{i}", "sim", "", gpus_per_task=1, gpu_mem_bytes=6 * GIB), program)
        for i in range(3)
    ]
    waits = [job.wait_us for job in World(cluster, jobs, policies(), fluid(cluster)).run().jobs]
    assert waits == [0, 0, pytest.approx(10 * MS)]


def test_equal_seeds_give_equal_runs_and_noise_depends_on_the_job_alone():
    cluster = hosts(4, nic_bps=GBPS)
    jobs = [periodic(f"j{i}", at_ms=37 * i, iterations=30) for i in range(8)]
    settings = Settings(seed=5, noise=Noise(jitter=0.05, drift=0.02, straggle=0.1), record=True)

    def run(comm, network):
        return World(cluster, jobs, policies(comm=comm), network, settings=settings).run()

    assert run("metronome", fluid(cluster)) == run("metronome", fluid(cluster))
    one, other = run("none", fluid(cluster, Ideal)), run("metronome", fluid(cluster, Ideal))
    assert one.jobs[0].durations_us[0] == other.jobs[0].durations_us[0]
    assert len(set(one.jobs[0].durations_us)) > 20


def test_leases_move_jobs_and_keep_their_iterations():
    cluster = hosts(2, nic_bps=GBPS)
    settings = Settings(lease_us=1_250 * MS, restart_us=100 * MS)
    result = World(
        cluster, [periodic("a", iterations=10)], policies(), fluid(cluster), settings=settings
    ).run()
    (job,) = result.jobs
    assert (job.attempts, job.iterations, result.moved) == (2, 10, 1)
    # six iterations, 50 ms of the seventh lost, the restart, four more
    assert job.end_us == pytest.approx(2_150 * MS)


def test_a_job_that_fits_nowhere_ends_the_run_with_its_reason():
    cluster = hosts(1, nic_bps=GBPS)
    with pytest.raises(RmError, match="1 jobs wait although nothing runs; the first, a: "):
        World(cluster, [periodic("a", tasks=3)], policies(), fluid(cluster)).run()


SCENARIO = """
name = "pair"
seeds = 2
[cluster]
hosts = 2
nic = "1Gbps"
[policies]
placement = "first-fit"
comm = "none"
[[job]]
name = "a"
count = 2
tasks = 2
tasks_per_host = 1
gpus = 0
period = "200ms"
duty_cycle = 0.45
bandwidth = "1Gbps"
iterations = 50
"""


@pytest.fixture
def invoke(capsys):
    def invoked(*words: object) -> tuple[int, str, str]:
        code = rmx.run(["sim", *map(str, words)])
        return code, *capsys.readouterr()

    return invoked


@pytest.fixture
def scenario(tmp_path: Path) -> Path:
    path = tmp_path / "pair.toml"
    path.write_text(SCENARIO)
    return path


def test_sim_run_tells_each_job(scenario, invoke):
    answer = json.loads(invoke("run", scenario, "--json")[1])
    assert [job["name"] for job in answer["jobs"]] == ["a-1", "a-2"]
    assert answer["metrics"]["mean_slowdown"] > 1.4
    assert invoke("run", scenario, "--jobs")[1].count("host[1-2]") == 2


def test_newcomers_may_count_less_than_those_that_send_already(scenario, invoke):
    slowdowns = []
    for newcomer in (1, 0.7):
        more = f"[noise]\njitter = 0.01\n[network]\nnewcomer = {newcomer}\n[policies]"
        scenario.write_text(SCENARIO.replace("[policies]", more))
        slowdowns.append(json.loads(invoke("run", scenario, "--json")[1])["metrics"]["mean_slowdown"])
    assert slowdowns[1] < slowdowns[0] - 0.1, "they slide apart"


def test_sim_compare_pairs_the_seeds(scenario, invoke):
    answer = json.loads(invoke("compare", scenario, "--vary", "comm=metronome", "--json")[1])
    gain = {(r["variant"], r["metric"]): r["gain_pct"] for r in answer["rows"]}
    assert gain["comm metronome", "mean_slowdown"] > 25
    assert gain["fifo / first-fit / none", "mean_slowdown"] is None


@pytest.mark.parametrize(
    ("line", "instead", "told"),
    [
        ("iterations = 50", "iterations = 0", "at job[0].iterations: Expected `int` >= 1"),
        ("iterations = 50", "iteration = 50", "Object contains unknown field `iteration`"),
        ('period = "200ms"', 'period = "200"', "job[0].period: '200' is not a duration"),
        ('nic = "1Gbps"', 'nic = "1GB"', "cluster.nic: '1GB' counts bytes"),
        ('bandwidth = "1Gbps"', "", "needs either phases, or duty_cycle and bandwidth"),
        ('comm = "none"', 'comm = "metronom"', "There is no comm policy 'metronom'"),
        ('name = "pair"', "name = pair", "is not TOML"),
        ("hosts = 2", "hosts = 2\nzones = []", "at cluster.zones: Expected `array` of length >= 1"),
        ("[policies]", "[noise]\njitter = inf\n[policies]", "at noise.jitter: Expected `float` <= 1"),
        ("[[job]]", "[policies.options.comm.adadual]\nway = 3\n[[job]]", "has no option 'way'"),
        ("[[job]]", "[policies.options.kom.adadual]\nways = 3\n[[job]]", "There is no kind of policy 'kom'"),
        ("[policies]", "[network]\nnewcomer = 0\n[policies]", "at network.newcomer: Expected `float` > 0"),
        ("count = 2", 'array = "3-1"', "the range '3-1' ends before it begins"),
        ("count = 2", 'array = "0-100000"', "an array of 100001 elements is too large"),
        ("[[job]]", '[[variant]]\nname = "x"\n' * 2 + "[[job]]", "has the name of another one, x"),
    ],
)
def test_a_mistake_in_a_scenario_is_told_with_its_place(scenario, invoke, line, instead, told):
    scenario.write_text(SCENARIO.replace(line, instead))
    code, _, said = invoke("run", scenario)
    assert code in (2, 8)  # usage, configuration
    assert told in said


def elements(array: str, arrays_first: bool = True, **settings: int):
    cluster = hosts(2, nic_bps=GBPS)
    jobs = [periodic("swept", iterations=10, array=array), periodic("single", at_ms=300, iterations=10)]
    how = Settings(**settings)
    jobs = jobs if arrays_first else jobs[::-1]
    return World(cluster, jobs, policies(), fluid(cluster, Ideal), settings=how).run()


@pytest.mark.parametrize("arrays_first", [True, False])
def test_an_array_runs_each_element_once_and_as_many_at_a_time_as_it_may(arrays_first):
    result = elements("1,3,5-7%2", arrays_first)
    swept = sorted((j for j in result.jobs if j.name == "swept"), key=lambda j: j.start_us)
    assert len(swept) == 5
    assert len({job.job for job in result.jobs}) == 6
    assert {(job.iterations, job.attempts) for job in result.jobs} == {(10, 1)}
    starts = [round(job.start_us / MS) for job in swept]
    assert starts == [0, 0, 2_000, 2_000, 4_000]  # each makes ten iterations of 200 ms
    assert next(job.start_us for job in result.jobs if job.name == "single") == pytest.approx(300 * MS)


def test_elements_move_at_the_end_of_a_lease_and_keep_their_iterations():
    result = elements("0-2", lease_us=1_250 * MS)
    assert [job.iterations for job in result.jobs] == [10] * 4
    assert all(job.attempts == 2 for job in result.jobs)


def test_a_scenario_has_arrays(scenario, invoke):
    scenario.write_text(SCENARIO.replace("count = 2", 'count = 2\narray = "0-9%3"'))
    answer = json.loads(invoke("run", scenario, "--json")[1])
    assert [job["name"] for job in answer["jobs"]] == ["a-1"] * 10 + ["a-2"] * 10
    events = sorted([(j["start_s"], 1) for j in answer["jobs"]] + [(j["end_s"], -1) for j in answer["jobs"]])
    most, running = 0, 0
    for _, change in events:
        running += change
        most = max(most, running)
    assert most == 6
