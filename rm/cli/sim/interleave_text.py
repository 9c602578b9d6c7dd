"""The answer of `rmx interleave` for a terminal: what goes over each link, before and after.

It fits into 80 columns and needs no colour; where the terminal cannot show blocks it uses digits.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from fractions import Fraction

import click

from rm.cli.output import printable
from rm.cli.session import table
from rm.policies.interleave.answer import Answer, LinkAnswer, Span, sums
from rm.policies.interleave.problem import ONE_LINK
from rm.units import format_bandwidth

WIDTH = 79
NAMES = 14
BLOCKS, DIGITS = "▁▂▃▄▅▆▇█", "123456789#"
TOTAL = "all jobs"


def show(answer: Answer) -> None:
    names = [printable(job.name) for job in answer.problem.jobs]
    levels = BLOCKS if _can_show(BLOCKS + "│…") else DIGITS
    for link in answer.links:
        for line in _link(link, names, levels):
            click.echo(line)
        click.echo()
    rows = [
        (
            job.name,
            "high" if job.high else "low",
            *map(_ms, (answer.periods[i], answer.injected[i], answer.shifts[i])),
        )
        for i, job in enumerate(answer.problem.jobs)
    ]
    columns = ("JOB", "PRIORITY", "ITERATION", "IDLE TIME", "TIME-SHIFT")
    table(columns, rows, right=columns[2:])
    for line in _remarks(answer, names):
        click.echo("\n" + line)


def called(link: LinkAnswer) -> str:
    return "The link" if link.name == ONE_LINK else f"Link {printable(link.name)}"


def _link(link: LinkAnswer, names: Sequence[str], levels: str) -> Iterator[str]:
    who = ", ".join(names[job] for job in link.jobs) or "nobody"
    yield f"{called(link)}, {format_bandwidth(link.load.capacity)}: {who}"
    if not link.contended:
        yield "  Not contended: all together never ask for more than it carries."
        return
    if link.solution is None:
        if link.laggards:
            late = " and ".join(names[job] for job in link.laggards)
            yield f"  No common circle: {late} cannot keep the pace of the first in rank, which is never"
            yield "  slowed, and would drift through its phases. The slower job would have to rank first."
        else:
            yield "  No common circle: the periods do not match, or not without idle time that does not pay."
        yield f"  With independent phases the score is {link.score:.4g} of 100."
        return
    width = min(NAMES, max(len(TOTAL), *(len(names[job]) for job in link.jobs)))
    columns = WIDTH - width - 5
    for rotated, what in ((False, "All start together"), (True, "Rotated")):
        score = link.score if rotated else link.unrotated
        yield f"  {what}: score {score:.4g} of 100"
        spans = {job: link.spans(job, rotated) for job in link.jobs}
        for job in link.jobs:
            yield _row(_cut(names[job], width), width, cells(spans[job], link, columns, levels))
        everything = [span for job in link.jobs for span in spans[job]]
        yield _row(TOTAL, width, cells(everything, link, columns, levels))
        yield " " * (width + 4) + _axis(link.perimeter or 0, columns)
    yield "  " + _verdict(link)
    full = levels[-1]
    yield f"  A circle of {_ms(link.perimeter or 0)}, {link.solution.scheme.slots} slots. " + (
        f"{full} is the whole link, ! more than that."
    )


def cells(spans: Sequence[Span], link: LinkAnswer, columns: int, levels: str) -> str:
    """The mean demand in each column, as a share of the capacity; ! where it is ever exceeded."""
    around = Fraction(link.perimeter or 1)
    sent, most = [Fraction(0)] * columns, [0] * columns
    for start, end, level in sums(spans, link.perimeter or 1):
        first, last = int(start * columns / around), -int(-end * columns // around)
        for column in range(first, last):
            left, right = around * column / columns, around * (column + 1) / columns
            sent[column] += level * (min(end, right) - max(start, left))
            most[column] = max(most[column], level)
    shown = []
    for volume, peak in zip(sent, most, strict=True):
        share = volume * columns / around / link.load.capacity
        if peak > link.load.capacity:
            shown.append("!")
        else:
            shown.append(levels[max(0, -(-share * len(levels) // 1) - 1)] if volume else " ")
    return "".join(shown)


def _row(name: str, width: int, bars: str) -> str:
    edge = "│" if _can_show("│") else "|"
    if "!" in bars and sys.stdout.isatty() and not os.environ.get("NO_COLOR"):
        bars = bars.replace("!", click.style("!", fg="red"))
    return f"  {name:{width}} {edge}{bars}{edge}"


def _axis(perimeter: int, columns: int) -> str:
    """Quarters of the circle in milliseconds, each label beginning at its place, the last ending there."""
    line = [" "] * (columns + 1)
    for quarter in range(5):
        label = f"{perimeter * quarter / 4000:.4g}" + (" ms" if quarter == 4 else "")
        at = min(columns * quarter // 4, columns + 1 - len(label))
        line[at : at + len(label)] = label
    return "".join(line).rstrip()


def _verdict(link: LinkAnswer) -> str:
    assert link.solution is not None
    scheme, spread = link.solution.scheme, link.solution.spread
    if not scheme.perfect:
        if link.score != scheme.score:
            most = "the most there is" if scheme.exact else f"at most {scheme.bound:.4g} is possible"
            here = "No contention here. " if link.score == 100.0 else ""
            return f"{here}The links solved together with it score {scheme.score:.4g} in all, {most}."
        if scheme.exact:
            return "No rotation avoids contention; this is the best one, proven."
        return f"The best found within the budget; no rotation scores above {scheme.bound:.4g}."
    gap = link.cushion()
    if gap is None:
        return "No contention."
    text = f"No contention; cushion {_ms(gap)}, psi {link.psi_rad:.4g} rad"
    if spread is None:
        return text + " (--offline seeks the largest)."
    if spread.exact:
        return text + ": the largest there is."
    return text + f": the best found within the budget, at most {_ms(spread.bound)} are possible."


def _remarks(answer: Answer, names: Sequence[str]) -> Iterator[str]:
    if answer.loop is not None:
        around = [printable(x) if isinstance(x, str) else names[x] for x in (*answer.loop, answer.loop[0])]
        yield f"The links and jobs form a loop: {' - '.join(around)}."
    if not answer.consistent:
        broken = ", ".join(map(printable, answer.broken))
        yield f"No time-shifts give every link its rotation: they fail on {broken}, where jobs will meet."
    elif len(answer.links) > 1:
        yield "The time-shifts suit every link."
    if answer.unmatched:
        yield f"Without a rotation on some link: {', '.join(names[job] for job in answer.unmatched)}."


def _ms(us: Fraction | int | None) -> str:
    return "-" if us is None else f"{float(us) / 1000:.6g} ms"


def _cut(name: str, width: int) -> str:
    if len(name) <= width:
        return name
    return name[: width - 1] + ("…" if _can_show("…") else "~")


def _can_show(text: str) -> bool:
    try:
        text.encode(sys.stdout.encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return False
    return True
