"""A comparison on real workloads as a table, also of docs/real-workloads.md."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from statistics import fmean

from rm.sim.real import picture
from rm.sim.real.compare import Found, ahead, over_seeds
from rm.sim.real.systems import IDEAL, OURS

PAGE = Path("docs") / "real-workloads.md"
IMAGES = Path("docs") / "images" / "real"
HOUR_S = 3600.0
HEADER = (
    "SYSTEM", "MEAN TIME", "99 %", "MAKESPAN", "USED", "ITERATION", "ITS 99 %", "OURS AHEAD", "AT 99 %"
)  # fmt: skip
TITLES = (
    "", "job time, mean", "99th percentile", "makespan", "GPUs used",
    "iteration, times as long as alone: mean",
    "99th percentile", "ours ahead in the mean", "at the 99th percentile",
)  # fmt: skip


def label(workload: str, cluster: str, faster: float, queue: str = "", ours: str = OURS) -> str:
    """What names a table of the page."""
    name = f"{workload} on {cluster}, GPUs × {faster:g}"
    return name + (f", {queue} for all" if queue else "") + (f", {ours}" if ours != OURS else "")


def rows(found: Found, ours: str = OURS) -> tuple[Sequence[str], list[tuple[str, ...]]]:
    """The header, and one row a system: means over the workloads. "7 of 9, 1 equal": `ours` has the lesser
    time in 7 workloads of 9, and in 1 the same."""
    fields = ("mean_s", "p99_s", "makespan_s", "utilisation", "slowdown", "p99_slowdown")
    values = {field: over_seeds(found, field) for field in fields}
    systems = list(dict.fromkeys(unit.system for unit in found))
    workloads = list(dict.fromkeys(unit.workload for unit in found))

    def mean(system: str, field: str) -> float:
        return fmean(values[field][system, name] for name in workloads)

    made = []
    for system in systems:
        compared = ours in systems and system not in (ours, IDEAL)
        made.append(
            (
                system,
                *(f"{mean(system, field) / HOUR_S:.3f} h" for field in fields[:3]),
                f"{100 * mean(system, 'utilisation'):.1f} %",
                *(f"{mean(system, field):.3f}" for field in fields[4:]),
                *(_ahead(found, ours, system, field) if compared else "" for field in fields[:2]),
            )
        )
    return HEADER, made


def _ahead(found: Found, ours: str, system: str, field: str) -> str:
    more, same, less = ahead(found, ours, system, field)
    return f"{more} of {more + same + less}" + (f", {same} equal" if same else "")


def has_place(root: Path, name: str) -> bool:
    page = root / PAGE
    return page.is_file() and _begins(name) in page.read_text(encoding="utf-8")


def update(root: Path, name: str, found: Found, ours: str = OURS) -> list[Path]:
    """Write the table and the plot of that name; the files written."""
    page = root / PAGE
    before, _, rest = page.read_text(encoding="utf-8").partition(_begins(name))
    after = rest[rest.index(_ends(name)) :]
    lines = ["| " + " | ".join(TITLES) + " |", "|" + "---|" * len(TITLES)]
    lines += ["| " + " | ".join((f"`{row[0]}`", *row[1:])) + " |" for row in rows(found, ours)[1]]
    page.write_text(f"{before}{_begins(name)}\n\n" + "\n".join(lines) + f"\n\n{after}", encoding="utf-8")
    image = root / IMAGES / f"{slug(name)}.svg"
    picture.job_times(found, name, image, ours)
    return [page, image]


def slug(name: str) -> str:
    return "-".join("".join(c if c.isalnum() else " " for c in name.replace("×", "x")).split()).lower()


def _begins(name: str) -> str:
    return f"<!-- {name}: begin -->"


def _ends(name: str) -> str:
    return f"<!-- {name}: end -->"
