"""Plots of runs: who was where when, and how long jobs took under each variant."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rm.sim.figure import save
from rm.sim.result import JobResult, Result

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def timeline(result: Result, title: str, path: Path) -> None:
    """Each job as a bar from its start to its end on each of its last hosts, side by side with the
    others there; jobs of one colour are one job."""

    def plot(figure: Figure) -> None:
        hosts = sorted({host for job in result.jobs for host in job.hosts})
        figure.set_size_inches(9, max(2.0, 0.45 * len(hosts) + 1))
        axes = figure.add_subplot()
        for row, host in enumerate(hosts):
            lanes = _lanes([job for job in result.jobs if host in job.hosts], result.span_us)
            height = 0.9 / max(1, len(lanes))
            for number, lane in enumerate(lanes):
                for job, start_us, end_us in lane:
                    axes.barh(
                        row - 0.45 + (number + 0.5) * height,
                        (end_us - start_us) / 1e6,
                        height=0.9 * height,
                        left=start_us / 1e6,
                        color=f"C{job.job % 10}",
                    )
        axes.set_yticks(range(len(hosts)), hosts)
        axes.set_xlabel("simulated time (s)")
        axes.set_title(title)

    save(plot, path)


def _lanes(jobs: Sequence[JobResult], span_us: float) -> list[list[tuple[JobResult, float, float]]]:
    """The jobs of one host in as few lanes as let none cover another."""
    lanes: list[list[tuple[JobResult, float, float]]] = []
    spans = [
        (j.start_us, j.end_us if j.end_us is not None else span_us, j) for j in jobs if j.start_us is not None
    ]
    for start_us, end_us, job in sorted(spans, key=lambda span: (span[0], span[2].job)):
        free = next((lane for lane in lanes if lane[-1][2] <= start_us), None)
        if free is None:
            lanes.append(free := [])
        free.append((job, start_us, end_us))
    return lanes


def completion(results: Mapping[str, Sequence[Result]], title: str, path: Path) -> None:
    """The distribution of job completion times, one curve a variant, all seeds together."""

    def plot(figure: Figure) -> None:
        figure.set_size_inches(7, 4)
        axes = figure.add_subplot()
        for name, runs in results.items():
            times = sorted(j.jct_us / 1e6 for r in runs for j in r.jobs if j.jct_us is not None)
            if times:
                axes.step(times, [(n + 1) / len(times) for n in range(len(times))], where="post", label=name)
        axes.set_xlabel("job completion time (s)")
        axes.set_ylabel("share of jobs")
        axes.set_title(title)
        axes.legend()

    save(plot, path)


def parts(due: Mapping[str, float], got: Mapping[str, Mapping[str, float]], title: str, path: Path) -> None:
    """Of each user the part that is due by the shares, and what was had under each policy."""

    def plot(figure: Figure) -> None:
        figure.set_size_inches(8, 3.6)
        axes = figure.add_subplot()
        bars = {"share": due, **got}
        width = 0.85 / len(bars)
        for number, (name, of) in enumerate(bars.items()):
            at = [index - 0.425 + (number + 0.5) * width for index in range(len(due))]
            axes.bar(at, [100 * of[user] for user in due], width, label=name)
        axes.set_xticks(range(len(due)), list(due))
        axes.set_ylabel("part of the GPUs' time (%)")
        axes.set_title(title)
        axes.legend()

    save(plot, path)
