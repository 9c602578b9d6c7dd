"""Plots of runs: who was where when, and how long jobs took under each variant."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rm.sim.figure import save
from rm.sim.result import Result

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def timeline(result: Result, title: str, path: Path) -> None:
    """Each job as a bar from its start to its end on the row of each of its last hosts; the thin
    line before it is its time in the queue."""

    def plot(figure: Figure) -> None:
        hosts = sorted({host for job in result.jobs for host in job.hosts})
        row = {host: n for n, host in enumerate(hosts)}
        figure.set_size_inches(9, max(2.0, 0.3 * len(hosts) + 1))
        axes = figure.add_subplot()
        for number, job in enumerate(result.jobs):
            if job.start_us is None:
                continue
            end_us = job.end_us if job.end_us is not None else result.span_us
            colour = f"C{number % 10}"
            for host in job.hosts:
                start_s = job.start_us / 1e6
                axes.barh(row[host], end_us / 1e6 - start_s, left=start_s, color=colour, alpha=0.6)
                axes.plot([job.arrival_us / 1e6, start_s], [row[host]] * 2, color=colour, linewidth=0.5)
        axes.set_yticks(range(len(hosts)), hosts)
        axes.set_xlabel("simulated time (s)")
        axes.set_title(title)

    save(plot, path)


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
