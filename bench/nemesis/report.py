"""The table at the end of a run."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterator, Sequence

from bench.figure import p95
from bench.nemesis.faults import Played
from bench.nemesis.oracle import KINDS, Findings
from bench.nemesis.recovery import Recovery

SHOWN = 5  # findings of a kind


def lines(
    findings: Findings, played: Sequence[Played], recoveries: Sequence[Recovery], tracebacks: int,
    unanswered: int, notes: Sequence[str],
) -> Iterator[str]:  # fmt: skip
    """`notes` are sentences about the run itself."""
    count = len(played)
    yield f"{findings.acknowledged} jobs acknowledged, {findings.starts} starts of tasks, {count} faults."
    counts = Counter(one.fault.kind for one in played)
    yield "Faults: " + "; ".join(f"{count} × {kind}" for kind, count in sorted(counts.items())) + "."
    yield ""
    for kind in KINDS:
        found = findings.found.get(kind, [])
        yield f"{kind:32} {len(found):6}"
        yield from (f"    {what}" for what in found[:SHOWN])
        if len(found) > SHOWN:
            yield f"    and {len(found) - SHOWN} more"
    yield f"{'tracebacks in the daemons logs':32} {tracebacks:6}"
    yield f"{'submissions without an answer':32} {unanswered:6}"
    yield ""
    yield f"{'SERVED AGAIN AFTER':50} {'N':>3}    P50 s   P95 s   MAX s   HOSTS UP, P50   MAX s"
    for one in recoveries:
        yield f"{one.what:50} {len(one.acks_s):3} {_row(one)}"
    if recoveries:
        acks = [seconds for one in recoveries for seconds in one.acks_s]
        hosts = [seconds for one in recoveries for seconds in one.hosts_s]
        yield f"{'all of these':50} {len(acks):3} {_row(Recovery('', acks, hosts))}"
    yield from notes


def _row(one: Recovery) -> str:
    """Of the acknowledgements median, 95th percentile and longest; of the hosts median and longest."""
    acks = (statistics.median(one.acks_s), p95(one.acks_s), max(one.acks_s)) if one.acks_s else ()
    hosts = (statistics.median(one.hosts_s), max(one.hosts_s)) if one.hosts_s else ()
    left = "".join(f"{seconds:8.1f}" for seconds in acks)
    return f"{left:24}        {''.join(f'{seconds:8.1f}' for seconds in hosts)}".rstrip()
