"""Ada-SRSF: placements and communication scheduling of its simulated cluster (Tables IV, V, Fig. 5).

A seed draws the 160 jobs; within it all cases run the same jobs. Twice: the model as the paper states it,
and with a defect of the authors' simulator, which the printed tables contain (`compat`). The story
and every ambiguity: docs/papers/ada-srsf.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from math import inf
from statistics import fmean, median
from typing import TYPE_CHECKING, Any

from rm.sim.papers._ada_srsf.workload import simulate
from rm.sim.papers.frame.paper import Paper, Sample, Series
from rm.sim.papers.frame.paper import Result as Table
from rm.sim.papers.frame.parameters import parameters
from rm.sim.result import Result
from rm.sim.statistics import reduction_pct
from rm.sim.summary import quantile

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TABLE4, TABLE5, FIG5 = "Table IV", "Table V", "Fig. 5"
OPEN, BEYOND, HINGE = "Open question", "Beyond the paper", "What it hinges on"
FAITHFUL, COMPAT = "model as stated", "with the authors' defect"
MODELS = {FAITHFUL: False, COMPAT: True}
JCT = "average JCT"
PLACEMENTS = {"RAND": "random", "FF": "first-fit", "LS": "list", "LWF-1": "lwf"}
KAPPAS = (1, 2, 4, 8, 16)
CHECKED_SEEDS = 5  # of the finer scale, which takes four times as long

Policy = tuple[str, Mapping[str, Any]]
ADA: Policy = ("adadual", {"olds": "printed"})
SRSF: Mapping[str, Policy] = {f"SRSF({n})": ("srsf-n", {"n": n}) for n in (1, 2, 3)}
OURS: Policy = ("preemptive", {})


def measure(part: str, seed: int) -> Iterator[Sample | Series]:
    yield from PARTS[part](seed)


def _run(seed: int, policy: Policy, placement: str = "lwf", **more: Any) -> Result:
    name, options = policy
    if placement == "random":
        more["placement_options"] = {"seed": seed}
    return simulate(seed, placement, name, comm_options=options, **more)


def _tables(seed: int, compat: bool) -> Iterator[Sample | Series]:
    """Tables IV and V; LWF-1 under Ada-SRSF is in both."""
    model = COMPAT if compat else FAITHFUL
    ada = {name: _run(seed, ADA, placement, compat=compat) for name, placement in PLACEMENTS.items()}
    for name, result in ada.items():
        yield from _row(TABLE4, f"{name}, {model}", result)
        yield _curve(f"{TABLE4}, {model}", name, result)
        if name != "LWF-1":
            saved = reduction_pct(result.mean_jct_us, ada["LWF-1"].mean_jct_us)
            yield Sample(TABLE4, f"LWF-1 over {name}, {model}", "average JCT saved", saved)
    srsf = {name: _run(seed, policy, compat=compat) for name, policy in SRSF.items()}
    for name, result in (srsf | {"Ada-SRSF": ada["LWF-1"]}).items():
        yield from _row(TABLE5, f"{name}, {model}", result)
        yield _curve(f"{TABLE5}, {model}", name, result)
    for name, result in srsf.items():
        saved = reduction_pct(result.mean_jct_us, ada["LWF-1"].mean_jct_us)
        yield Sample(TABLE5, f"Ada-SRSF over {name}, {model}", "average JCT saved", saved)


def _kappa(seed: int, compat: bool) -> Iterator[Sample | Series]:
    model = COMPAT if compat else FAITHFUL
    times = [
        _run(seed, ADA, placement_options={"kappa": kappa}, compat=compat).mean_jct_us for kappa in KAPPAS
    ]
    for kappa, time in zip(KAPPAS[1:], times[1:], strict=True):
        yield Sample(FIG5, f"κ = {kappa}, {model}", "average JCT relative to κ = 1", time / times[0])
    yield Series(FIG5, model, KAPPAS, tuple(_seconds(time) for time in times))


def _open_question(seed: int) -> Iterator[Sample | Series]:
    """What admission can gain over SRSF(1) at all, and what policies of ours gain."""
    base = _run(seed, SRSF["SRSF(1)"])
    cases: Mapping[str, Callable[[], Result]] = {
        "preemptive": lambda: _run(seed, OURS),
        "preemptive, by service": lambda: _run(seed, ("preemptive", {"order": "service"})),
        "preemptive, whatever it costs": lambda: _run(seed, ("preemptive", {"worth": inf})),
        "no contention at all (a bound)": lambda: _run(seed, ("none", {}), ideal=True),
    }
    for name, run in cases.items():
        result = run()
        saved = reduction_pct(base.mean_jct_us, result.mean_jct_us)
        yield Sample(OPEN, name, "average JCT saved over SRSF(1)", saved)
        tail = reduction_pct(_p95(base), _p95(result))
        yield Sample(OPEN, name, "95th percentile JCT saved over SRSF(1)", tail)
        if name == "preemptive":
            yield Sample(OPEN, name, "longest JCT relative to SRSF(1)", _longest(result) / _longest(base))


def _ways(seed: int) -> Iterator[Sample | Series]:
    """AdaDUAL for more than two ways, against the paper's."""
    base = _run(seed, ADA)
    for name, options in (
        ("every old transfer met counts", {"olds": "all"}),
        ("all servers together", {"olds": "total"}),
        ("3 ways", {"ways": 3, "olds": "all"}),
        ("4 ways", {"ways": 4, "olds": "all"}),
        ("4 ways, all servers together", {"ways": 4, "olds": "total"}),
    ):
        result = _run(seed, ("adadual", options))
        saved = reduction_pct(base.mean_jct_us, result.mean_jct_us)
        yield Sample(BEYOND, f"AdaDUAL: {name}", "average JCT saved over Algorithm 2", saved)


def _hinges(seed: int) -> Iterator[Sample | Series]:
    """The two comparisons that matter under other readings of the set-up."""
    known = parameters("ada-srsf")
    variants: dict[str, dict[str, Any]] = {
        f"GPUs of {known['gpu_mem_printed_gb']} GB": {"gpu_mem_gb": known["gpu_mem_printed_gb"]},
        "η = 0": {"eta_ns": 0.0},
    }
    if seed <= CHECKED_SEEDS:
        variants[f"1/{known['scale_check']} of the iterations"] = {"scale": known["scale_check"]}
    for name, changes in variants.items():
        one, ada, ours = (_run(seed, policy, **changes) for policy in (SRSF["SRSF(1)"], ADA, OURS))
        for label, result in (("Ada-SRSF", ada), ("preemptive", ours)):
            saved = reduction_pct(one.mean_jct_us, result.mean_jct_us)
            yield Sample(HINGE, f"{label}, {name}", "average JCT saved over SRSF(1)", saved)


PARTS: Mapping[str, Callable[[int], Iterator[Sample | Series]]] = {
    "tables": lambda seed: _tables(seed, compat=False),
    "tables-compat": lambda seed: _tables(seed, compat=True),
    "kappa": lambda seed: _kappa(seed, compat=False),
    "kappa-compat": lambda seed: _kappa(seed, compat=True),
    "open": _open_question,
    "ways": _ways,
    "hinges": _hinges,
}


def _row(figure: str, case: str, result: Result) -> Iterator[Sample]:
    """A line of the paper's tables, seconds of the unscaled time."""
    times = [j.jct_us for j in result.jobs if j.jct_us is not None]
    known = parameters("ada-srsf")
    gpus = known["servers"] * known["gpus_a_server"]
    yield Sample(figure, case, "average GPU utilisation", 100 * result.gpu_busy_us / (gpus * result.span_us))
    yield Sample(figure, case, JCT, _seconds(fmean(times)))
    yield Sample(figure, case, "median JCT", _seconds(median(times)))
    yield Sample(figure, case, "95th percentile JCT", _seconds(_p95(result)))


def _curve(figure: str, case: str, result: Result) -> Series:
    times = sorted(_seconds(j.jct_us) for j in result.jobs if j.jct_us is not None)
    return Series(figure, case, tuple(times), tuple((n + 1) / len(times) for n in range(len(times))))


def _p95(result: Result) -> float:
    return quantile([j.jct_us for j in result.jobs if j.jct_us is not None], 0.95)


def _longest(result: Result) -> float:
    return max(j.jct_us for j in result.jobs if j.jct_us is not None)


def _seconds(scaled_us: float) -> float:
    scale: int = parameters("ada-srsf")["scale"]
    return scaled_us * scale / 1e6


def plot(result: Table, figure: Figure) -> None:
    """JCT distributions of both tables under both models, and the sweep over κ."""
    figure.set_size_inches(10, 8.5)
    axes = figure.subplots(3, 2)
    for row, table in enumerate((TABLE4, TABLE5)):
        for column, model in enumerate(MODELS):
            at = axes[row][column]
            name = f"{table}, {model}"
            for case in [case for figure_name, case in result.series if figure_name == name]:
                curves: Sequence[Series] = result.series[name, case]
                times = sorted(x for curve in curves for x in curve.x)
                at.step(times, [(n + 1) / len(times) for n in range(len(times))], where="post", label=case)
            at.set_title(name)
            at.set_xlim(0, 12000)
            at.set_xlabel("JCT (s)")
            at.set_ylabel("share of jobs")
            at.legend(loc="lower right")
    for column, model in enumerate(MODELS):
        at = axes[2][column]
        curves = result.series[FIG5, model]
        means = [fmean(curve.y[n] for curve in curves) for n in range(len(KAPPAS))]
        at.bar([str(kappa) for kappa in KAPPAS], means)
        at.set_title(f"{FIG5}, {model}")
        at.set_xlabel("κ")
        at.set_ylabel("average JCT (s)")


PAPER = Paper(
    title="Communication Contention Aware Scheduling of Multiple Deep Learning Training Jobs",
    source="Q. Wang, S. Shi, C. Wang, X. Chu, 2020",
    measure=measure,
    plot=plot,
    parts=tuple(PARTS),
    seeds=20,
)
