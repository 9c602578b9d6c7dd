"""Metronome's scenario: the snapshots are what the paper says of them, and the schedulers meet the same."""

import pytest

from rm.sim.papers._metronome import beyond, snapshots_compared, testbed, trace
from rm.sim.papers._metronome.run import arriving, run, world
from rm.sim.papers._metronome.schedulers import DEFAULT, DIKTYO, IDEAL, METRONOME, OURS
from rm.sim.papers._metronome.snapshots import CONGESTED, NAMES, half_batch, snapshot
from rm.sim.papers.frame import expected, parameters
from rm.sim.papers.metronome import PAPER, measure

SECONDS = 20


@pytest.fixture
def shorter(monkeypatch):
    """All spans and sweeps cut down: what is measured is then meaningless, but complete."""
    sections = dict(parameters._sections(parameters.PATH))
    cut = {"span_s": 12, "paper_span_s": 16, "trace_scale": 1_000, "repetitions": 1}
    cut |= {"fills": [0.6, 0.9], "jitters": [0.01, 0.04]}
    sections["metronome"] = {**sections["metronome"], **cut}
    monkeypatch.setattr(parameters, "_sections", lambda path: sections)


@pytest.mark.parametrize("name", NAMES)
def test_the_contending_jobs_are_compatible(name):
    """All jobs of S1 to S5 are (Sec. IV-B1): Metronome's own scoring finds a perfect rotation."""
    assert worst_score(snapshot(name)) == 100.0


def test_s1_stays_compatible_at_half_its_batch():
    assert worst_score(half_batch(snapshot("S1"))) == 100.0


def worst_score(members):
    """Of the jobs on the same two hosts."""
    hosts = [h for h in testbed.hosts(1) if len(h.gpus) > 1][:2]
    jobs = arriving(members, 1, 4e6)
    result = world(hosts, jobs, METRONOME, testbed.network(hosts), 1, span_us=4e6).run()
    assert all(job.iterations for job in result.jobs)
    return result.worst_score


def test_s0_is_not_and_is_kept_apart():
    members = snapshot("S0")
    assert sum(m.comm_us for m in members) > max(m.period_us for m in members)
    samples = {s.case: s.value for s in snapshots_compared.incompatible(1)}
    assert samples["S0, Metronome"] == samples["S0, ours"] == 0
    assert samples["S0, Default"] > 0


def test_s3_needs_idle_time_below_e_t():
    low, high = snapshot("S3")
    assert 2 * high.period_us - low.period_us == 35_000
    assert 0.10 * low.period_us > 35_000
    assert high.high
    assert not low.high


def test_with_one_seed_everybody_meets_the_same():
    members = snapshot("S2")
    once, again = (run(members, METRONOME, 3, span_s=SECONDS) for _ in range(2))
    assert once == again
    assert run(members, IDEAL, 3, span_s=SECONDS).high_us == pytest.approx(members[1].period_us, rel=0.01)


def test_interleaving_pays_where_the_jobs_share_links():
    members = snapshot("S3")
    default, letter, ours = (run(members, how, 1, span_s=SECONDS) for how in (DEFAULT, METRONOME, OURS))
    assert letter.high_us < 0.95 * default.high_us
    assert ours.high_us < 0.95 * default.high_us
    assert ours.utilisation > default.utilisation


@pytest.mark.parametrize("name", CONGESTED)
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_the_congested_link_is_avoided(name, seed):
    """By Metronome whatever the order of the hosts; Diktyo's first tasks may go there."""
    hosts = testbed.hosts(seed)
    jobs = arriving(snapshot(name), seed, 4e6)
    used = {}
    for who, how in (("Metronome", METRONOME), ("ours", OURS), ("Diktyo", DIKTYO)):
        network = testbed.network(hosts)
        result = world(hosts, jobs, how, network, seed, congested=True, span_us=4e6).run()
        used[who] = [testbed.CONGESTED in job.hosts for job in result.jobs]
    assert not any(used["Metronome"])
    assert not any(used["ours"])
    assert any(used["Diktyo"])


def test_the_trace_keeps_within_the_printed_load():
    for seed in (1, 2, 3):
        jobs = trace.workload(seed, 20)
        ends = [(j.arrival_us, j.arrival_us + j.program.iterations * j.program.alone_us) for j in jobs]
        busy = [sum(a <= at < b - 1e6 for a, b in ends) for at, _ in ends]  # iterations are whole
        assert len(jobs) == 17
        assert max(busy) * 2 <= 0.85 * 13
        finer = trace.workload(seed, 10)
        assert [j.spec.name for j in finer] == [j.spec.name for j in jobs]
        assert finer[-1].arrival_us == pytest.approx(2 * jobs[-1].arrival_us, abs=2)


def test_a_job_that_turns_incompatible_is_moved_by_ours_alone(shorter, monkeypatch):
    sections = parameters._sections(parameters.PATH)
    sections["metronome"] = {**sections["metronome"], "paper_span_s": 120, "restart_s": 2}
    found = {(s.case, s.metric): s.value for s in beyond.turned_incompatible(1)}
    assert found["turned incompatible: ours", "moved"] == 1
    assert found["turned incompatible: Metronome", "moved"] == 0
    lost = [found[f"turned incompatible: {who}", "iterations below Ideal"] for who in ("ours", "Metronome")]
    assert lost[0] < lost[1]


def test_every_expected_row_is_measured_and_none_besides(shorter):
    rows = expected.read(expected.DIRECTORY / "metronome.toml")
    samples = [s for part in PAPER.parts for s in measure(part, 1) if hasattr(s, "value")]
    assert {s.key for s in samples} == rows.keys()
    assert len(samples) == len(rows)
