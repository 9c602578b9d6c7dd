"""The picture: both links' utilisation over some iterations, unmanaged and managed, with the jobs' phases."""

from __future__ import annotations

import itertools
from pathlib import Path

from rm.demo import scenario
from rm.demo.figures import Measured, Run
from rm.demo.meter import LinkMeter

WINDOW_US = 2_400_000
SHOWN = ("unmanaged", "managed")
COLOURS = {"high": "#0b6e99", "low": "#d9822b"}


def draw(measured: Measured, meter: LinkMeter, path: Path) -> None:
    """Write the picture; its suffix chooses the format (.svg, .png, .pdf)."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    hosts, runs = measured.hosts, {name: measured.of(name)[-1] for name in SHOWN}
    figure, panels = pyplot.subplots(
        len(hosts) * len(SHOWN), 1, figsize=(11, 2 * len(hosts) * len(SHOWN)), sharex=True, squeeze=False
    )
    rows = [(mode, host) for mode in SHOWN for host in hosts]
    for panel, (mode, host) in zip(panels[:, 0], rows, strict=True):
        _panel(panel, mode, host, runs[mode], measured, meter)
    panels[-1, 0].set_xlabel("time, ms")
    panels[0, 0].legend(loc="lower right", bbox_to_anchor=(1, 1), ncols=2, fontsize=8, frameon=False)
    figure.suptitle(
        f"Two training jobs on two links of {scenario.LINK_MBPS} Mbit/s "
        f"(queue {scenario.QUEUE_PACKETS} packets, {scenario.CONGESTION_CONTROL})"
    )
    figure.tight_layout()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path)
    pyplot.close(figure)


def _panel(panel, mode: str, host: str, run: Run, measured: Measured, meter: LinkMeter) -> None:  # type: ignore[no-untyped-def]
    """One link in one mode: what it carried, and above it when each job communicated."""
    begin = max(run.begin_us, run.end_us - WINDOW_US)
    end = min(run.end_us, begin + WINDOW_US)
    samples = meter.between(host, begin, end)
    at = [(b[0] - begin) / 1000 for b in samples[1:]]
    used = [
        100 * 8 * (b[1] - a[1]) / (b[0] - a[0]) / scenario.LINK_MBPS for a, b in itertools.pairwise(samples)
    ]
    panel.fill_between(at, used, step="pre", color="#9aa5b1", linewidth=0)
    for row, job in enumerate(run.jobs):
        phases = [
            ((i.comm_begin_us - begin) / 1000, i.comm_us / 1000)
            for i in job.iterations
            if i.comm_begin_us < end and i.start_us + i.duration_us > begin
        ]
        name = job.training.name
        panel.broken_barh(phases, (106 + 12 * row, 9), color=COLOURS[name], label=f"{name} communicates")
    panel.set_xlim(0, (end - begin) / 1000)
    panel.set_ylim(0, 132)
    panel.set_yticks([0, 50, 100])
    panel.set_ylabel("used, %")
    share = measured.utilisation(mode, host) or 0.0
    panel.set_title(f"{host}, {mode}: {100 * share:.0f} % used", loc="left", fontsize=10)
