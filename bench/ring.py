"""How three jobs in a ring fare in each mode, on hosts below leaves and spines: `python -m bench ring`.

Each job is on two of three hosts of a lab, one below each leaf, so that it meets one job on the one link and
the other one on the other. No rotation suits three that fill 90 or 100 % of each link, and a burst that waits
on one link holds up another one behind it. Otherwise as `python -m bench crowd`.
"""

from __future__ import annotations

from bench.crowd import compared, lab_stage
from bench.figure import Figure, Settings

JOBS, SPINES = 3, 2
FILLS = (0.9, 1.0)


def run(settings: Settings) -> list[Figure]:
    fills, iterations = (FILLS[:1], 40) if settings.quick else (FILLS, 45)
    found = []
    with lab_stage(2, JOBS, leaves=JOBS, spines=SPINES) as cluster:
        names = [host.name for host in cluster.lab.hosts]
        ring = [(names[n], names[(n + 1) % JOBS]) for n in range(JOBS)]
        for fill in fills:
            found += compared(cluster, f"a ring at {fill:.0%} fill", ring, fill / 2, iterations)
    return found
