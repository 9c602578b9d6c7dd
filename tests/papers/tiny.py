"""A paper of the tests' own: two parts, a random draw per seed, and a paired gain."""

import random

from rm.sim.papers.frame.paper import Paper, Result, Sample, Series
from rm.sim.statistics import reduction_pct


def measure(part, seed):
    draw = random.Random(f"{part}/{seed}").uniform(9.8, 10.2)
    yield Sample("Fig. 1", part, "time", draw if part == "new" else 2 * draw)
    yield Series("Fig. 1", part, (0.0, 1.0), (0.0, draw))


def derive(samples):
    time = {s.case: s.value for s in samples}
    yield Sample("Fig. 2", "new over old", "gain", reduction_pct(time["old"], time["new"]))


def plot(result: Result, figure):
    figure.set_size_inches(3, 2)
    axes = figure.subplots()
    for (_, case), curves in result.series.items():
        axes.plot(curves[0].x, curves[0].y, label=case)
    axes.bar(["mean"], [result.row("Fig. 1", "old", "time").mean])


PAPER = Paper("A tiny paper", "Nobody", measure, plot, parts=("old", "new"), derive=derive, seeds=4)
