"""Real workloads: what the data say, what is made of them, and how systems are compared."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from rm.cli.sim.real import real
from rm.errors import UsageError
from rm.sim.program import Communicate
from rm.sim.real import compare, kept, picture, show
from rm.sim.real.clusters import CLUSTERS, NIC_BPS, flat, lingjun
from rm.sim.real.systems import IDEAL, OURS, SYSTEMS
from rm.sim.real.workloads import PHILLY, POLLUX, Terms, kinds, submitted, workload

TERMS = Terms(speed=4000)
FIRST = 32  # jobs: the cluster is full of those, and up to nine wait


def test_the_profiles_are_the_measured_ones() -> None:
    """bert's batch of 384 on 8 GPUs is four steps of 12 a GPU, of which the last exchanges: Pollux'
    placements.csv has 2539 and 1663 ms for `44`."""
    bert = kinds()["bert", 8, 384]
    assert (bert.compute_us, bert.exchange_us, bert.iterations) == (3_504_430, 1_662_843, 480)
    assert kinds()["yolov3", 4, 64].exchange_us == 0  # on one host
    assert kinds()["imagenet", 48, 6400].iterations == 23_972


@pytest.mark.parametrize("name", POLLUX + PHILLY)
def test_each_workload_has_its_jobs_in_order(name: str) -> None:
    jobs = workload(name)
    assert len(jobs) == 160
    assert [job.at_s for job in jobs] == sorted(job.at_s for job in jobs)
    assert all(job.iterations >= 1 for job in jobs)


def test_an_unknown_workload_is_named() -> None:
    with pytest.raises(UsageError, match="pollux-9"):
        workload("pollux-9")


def test_clusters_are_what_they_say() -> None:
    assert (len(flat().hosts), flat().gpus, flat().fabric) == (16, 64, None)
    racks = lingjun()
    assert racks.fabric is not None
    assert len(racks.hosts) >= 16
    assert set(racks.fabric.leaf_of) == {host.name for host in racks.hosts}
    assert len(lingjun(100).hosts) >= 100


def test_a_job_exchanges_as_long_as_was_measured_if_it_is_alone() -> None:
    job = next(one for one in submitted("pollux-1", 64, NIC_BPS, TERMS) if one.spec.name.startswith("bert"))
    sends = next(stage for stage in job.program.stages if isinstance(stage, Communicate))
    assert sends.bits / NIC_BPS * 1e6 == pytest.approx(job.program.alone_us - job.program.compute_us)
    assert job.spec.traffic is not None
    assert job.spec.traffic.period_us == job.program.alone_us


def test_faster_gpus_compute_faster_and_exchange_as_long() -> None:
    one, four = (
        submitted("pollux-1", 64, NIC_BPS, Terms(speed=4000, faster=faster))[0].program for faster in (1, 4)
    )
    assert four.compute_us == pytest.approx(one.compute_us / 4, abs=1)
    assert four.alone_us - four.compute_us == pytest.approx(one.alone_us - one.compute_us, abs=1)


def test_phillys_jobs_come_at_the_load_asked_for() -> None:
    jobs = submitted("philly-2", 64, NIC_BPS, Terms(speed=40, load=0.9))
    asked_s = sum(one.gpu_s for one in workload("philly-2"))
    assert jobs[-1].arrival_us * 40 / 1e6 == pytest.approx(asked_s / (0.9 * 64), rel=1e-6)


@pytest.fixture
def first_jobs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Workloads are shorter: a whole one takes a minute of processor under the slowest of the systems."""
    monkeypatch.setattr(compare, "submitted", lambda *asked: submitted(*asked)[:FIRST])


@pytest.mark.usefixtures("first_jobs")
def test_contention_costs_what_the_bound_does_not_pay_and_equal_units_give_equal_results() -> None:
    units = compare.units_of(["first-fit", IDEAL], ["pollux-8"], "lingjun", TERMS, 1)
    found = compare.compare(units, 1, lambda *_: None)
    fit, ideal = (found[unit] for unit in units)
    assert ideal.slowdown == pytest.approx(1, abs=0.01)
    assert fit.slowdown > ideal.slowdown
    assert 0 < fit.utilisation < 1
    assert compare.measure(units[0]) == fit


@pytest.mark.parametrize("system", SYSTEMS)
@pytest.mark.usefixtures("first_jobs")
def test_each_system_plays_a_workload_to_its_end(system: str) -> None:
    (unit,) = compare.units_of([system], ["pollux-8"], "lingjun", TERMS, 1)
    found = compare.measure(unit)
    assert 0 < found.mean_s < found.p99_s <= found.makespan_s
    assert 0.99 < found.slowdown <= found.p99_slowdown


def test_systems_and_clusters_that_do_not_exist_are_refused() -> None:
    with pytest.raises(UsageError, match="ours"):
        compare.units_of(["our"], ["pollux-1"], "flat", TERMS, 1)
    with pytest.raises(UsageError, match="queue policy 'respons'"):
        compare.units_of([OURS], ["pollux-1"], "flat", TERMS, 1, "respons")
    with pytest.raises(UsageError, match="cluster 'flatt'"):
        compare.units_of([OURS], ["pollux-1"], "flatt", TERMS, 1)
    assert set(CLUSTERS) == {"flat", "lingjun"}


def found_of(times: dict[tuple[str, str], float]) -> dict[compare.Unit, compare.Measured]:
    return {
        compare.Unit(system, name, "flat", TERMS, 1): compare.Measured(time, time, time, 0.5, 1.0, 1.0)
        for (system, name), time in times.items()
    }


def test_ahead_is_counted_by_workload_and_ties_are_told() -> None:
    times = {(OURS, "a"): 1.0, ("crux", "a"): 2.0, (OURS, "b"): 1.0, ("crux", "b"): 1.0005}
    times |= {(OURS, "c"): 3.0, ("crux", "c"): 2.0}
    found = found_of(times)
    assert compare.ahead(found, OURS, "crux", "mean_s") == (1, 1, 1)
    rows = {row[0]: row for row in show.rows(found)[1]}
    assert rows["crux"][-2] == "1 of 3, 1 equal"
    assert rows[OURS][-2] == ""
    of_crux = {row[0]: row for row in show.rows(found, "crux")[1]}
    assert (of_crux["crux"][-2], of_crux[OURS][-2]) == ("", "1 of 3, 1 equal")


def test_what_seeds_leave_open_is_no_difference() -> None:
    """Means of 1.0 and 1.1: apart if the seeds agree within 0.02, and not if they differ by 0.2."""

    def found(spread: float) -> dict[compare.Unit, compare.Measured]:
        return {
            compare.Unit(system, "a", "flat", TERMS, seed): compare.Measured(time, time, time, 0.5, 1.0, 1.0)
            for system, mean in ((OURS, 1.0), ("crux", 1.1))
            for seed, time in enumerate((mean - spread, mean, mean + spread), 1)
        }

    assert compare.ahead(found(0.02), OURS, "crux", "mean_s") == (1, 0, 0)
    assert compare.ahead(found(0.2), OURS, "crux", "mean_s") == (0, 1, 0)


def test_the_page_gets_its_table_and_its_plot(tmp_path: Path) -> None:
    name = show.label("pollux", "flat", 1)
    page = tmp_path / show.PAGE
    page.parent.mkdir()
    page.write_text(f"before\n<!-- {name}: begin -->\nold\n<!-- {name}: end -->\nafter\n")
    assert show.has_place(tmp_path, name)
    assert not show.has_place(tmp_path, show.label("pollux", "flat", 2))
    written = show.update(tmp_path, name, found_of({(OURS, "a"): 3600.0, (IDEAL, "a"): 1800.0}))
    text = page.read_text()
    assert "| `ours` | 1.000 h |" in text
    assert "old" not in text
    assert text.startswith("before\n")
    assert text.endswith("after\n")
    assert written[1] == tmp_path / "docs/images/real/pollux-on-flat-gpus-x-1.svg"
    assert written[1].read_text().startswith("<?xml")


def test_a_plot_without_the_bound_compares_with_the_least(tmp_path: Path) -> None:
    picture.job_times(found_of({(OURS, "a"): 2.0, ("crux", "a"): 1.0}), "title", tmp_path / "plot.svg")
    assert (tmp_path / "plot.svg").exists()


@pytest.mark.usefixtures("first_jobs")
def test_the_command_prints_a_table_and_json() -> None:
    words = ["--workload", "pollux-8", "--system", "first-fit,ideal", "--speed", "4000", "--jobs", "1"]
    shown = CliRunner().invoke(real, words)
    assert shown.exit_code == 0, shown.output
    assert "first-fit" in shown.output
    runs = json.loads(CliRunner().invoke(real, [*words, "--json"]).stdout)["runs"]
    assert [run["system"] for run in runs] == ["first-fit", "ideal"]
    assert runs[0]["mean_s"] > 0


@pytest.mark.usefixtures("first_jobs")
def test_one_queue_policy_for_all_changes_who_waits_and_is_kept_apart(tmp_path: Path) -> None:
    words = ["--workload", "pollux-8", "--system", "ideal", "--speed", "4000", "--jobs", "1", "--json"]

    def mean_s(*more: str) -> float:
        shown = CliRunner().invoke(real, [*words, "--keep", str(tmp_path), *more])
        assert shown.exit_code == 0, shown.output
        found: float = json.loads(shown.stdout)["runs"][0]["mean_s"]
        return found

    assert mean_s("--queue", "response") < mean_s() == mean_s("--queue", "backfill")


@pytest.mark.usefixtures("first_jobs")
def test_a_comparison_goes_on_from_what_the_same_code_has_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ["--workload", "pollux-8", "--speed", "4000", "--jobs", "1", "--json", "--keep", str(tmp_path)]
    played: list[str] = []
    really = compare.measure

    def measure(unit: compare.Unit) -> compare.Measured:
        played.append(unit.system)
        return really(unit)

    monkeypatch.setattr(compare, "measure", measure)

    def runs(*systems: str) -> list[dict[str, object]]:
        played.clear()
        shown = CliRunner().invoke(real, [*words, "--system", ",".join(systems)])
        assert shown.exit_code == 0, shown.output
        found: list[dict[str, object]] = json.loads(shown.stdout)["runs"]
        return found

    (first,) = runs("first-fit")
    assert played == ["first-fit"]
    assert runs("first-fit", "ideal")[0] == first
    assert played == ["ideal"]
    next(tmp_path.rglob("first-fit-*")).write_text('{"mean_s": 1')  # the disk was full
    assert runs("first-fit", "ideal")[0] == first
    assert played == ["first-fit"]
    monkeypatch.setattr(kept, "code_version", lambda: "other")
    assert runs("first-fit")[0] == first
    assert played == ["first-fit"]
