"""CASSINI's circles of an answer as SVG: the links' time rolled around a circle, before and after.

Each job has a ring, thick where it sends, in proportion to the link's capacity; the outermost ring is
the sum of all, red where it exceeds the capacity. Time runs clockwise from the top.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from fractions import Fraction
from xml.sax.saxutils import escape

from rm.cli.interleave_text import called
from rm.policies.interleave.answer import Answer, LinkAnswer, sums
from rm.units import format_bandwidth

COLOURS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#8c6d31", "#5b4fa2", "#7f7f7f")
OVER, SUM, LINE, INK = "#d62728", "#c9ced6", "#d9dde3", "#222222"
WIDTH, SIDE, MARGIN = 840, 364, 20
OUTER, INNER, SUM_INNER, SUM_OUTER = 118.0, 42.0, 126.0, 148.0  # radii of the rings
OVER_MOST = 1.0  # of the capacity: what the sum may stick out


def circles(answer: Answer) -> str:
    """The document; links that have no circle are told of in words."""
    names = [job.name for job in answer.problem.jobs]
    body: list[str] = []
    top = MARGIN
    for link in answer.links:
        drawn = list(_link(link, names, top)) if link.solution is not None else []
        legend = 24 * -(-len(link.jobs) // 2)
        if drawn:
            body += drawn
            body += _legend(link, names, answer, top + 60 + SIDE)
            top += 60 + SIDE + legend + MARGIN
        else:
            why = "not contended" if not link.contended else f"no common circle, score {link.score:.4g}"
            body.append(_text(MARGIN, top + 20, f"{called(link)}: {why}", 17, weight="bold"))
            top += 36
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {top}" width="{WIDTH}" height="{top}" '
        'font-family="DejaVu Sans, Helvetica, Arial, sans-serif">'
    )
    return "\n".join([head, f'<rect width="{WIDTH}" height="{top}" fill="#ffffff"/>', *body, "</svg>"]) + "\n"


def _link(link: LinkAnswer, names: Sequence[str], top: float) -> Iterator[str]:
    title = f"{called(link)}, {format_bandwidth(link.load.capacity)}"
    yield _text(MARGIN, top + 18, title, 17, weight="bold")
    for i, rotated in enumerate((False, True)):
        x, y = WIDTH / 4 + i * WIDTH / 2, top + 52 + SIDE / 2
        score = link.score if rotated else link.unrotated
        what = "rotated" if rotated else "all start together"
        yield _text(x, top + 44, f"{what}: score {score:.4g}", 15, anchor="middle")
        yield from _circle(link, names, x, y, rotated)


def _circle(link: LinkAnswer, names: Sequence[str], x: float, y: float, rotated: bool) -> Iterator[str]:
    perimeter = link.perimeter or 1
    spans = {job: link.spans(job, rotated) for job in link.jobs}
    step = (OUTER - INNER) / len(link.jobs)
    for quarter in range(4):
        angle = math.tau * quarter / 4
        (x0, y0), (x1, y1) = _at(x, y, INNER - 8, angle), _at(x, y, SUM_OUTER + 6, angle)
        yield f'<line x1="{x0}" y1="{y0}" x2="{x1}" y2="{y1}" stroke="{LINE}"/>'
        label = f"{perimeter * quarter / 4000:.4g}" + ("" if quarter else " ms")
        tx, ty = _at(x, y, SUM_OUTER + 14, angle)
        anchor = ("middle", "start", "middle", "end")[quarter]
        yield _text(float(tx), float(ty) + (0, 4, 10, 4)[quarter], label, 12, anchor=anchor)
    for number, job in enumerate(link.jobs):
        inside = INNER + number * step
        colour = COLOURS[number % len(COLOURS)]
        yield _ring(x, y, inside)
        for start, end, rate in spans[job]:
            height = max(0.12, min(1.0, rate / link.load.capacity)) * step * 0.88
            yield _arc(x, y, inside, inside + height, start / perimeter, end / perimeter, colour, names[job])
    yield _ring(x, y, SUM_INNER)
    yield _ring(x, y, SUM_OUTER)
    thick = SUM_OUTER - SUM_INNER
    for start, end, level in sums((s for mine in spans.values() for s in mine), perimeter):
        share = level / link.load.capacity
        a, b = start / perimeter, end / perimeter
        yield _arc(x, y, SUM_INNER, SUM_INNER + thick * min(1.0, share), a, b, SUM, "all jobs")
        if share > 1:
            beyond = SUM_OUTER + thick * min(OVER_MOST, share - 1)
            yield _arc(x, y, SUM_OUTER, beyond, a, b, OVER, "more than the link carries")


def _legend(link: LinkAnswer, names: Sequence[str], answer: Answer, top: float) -> Iterator[str]:
    for number, job in enumerate(link.jobs):
        x, y = MARGIN + 8 + (number % 2) * WIDTH / 2, top + 24 * (number // 2)
        shift, idle = float(link.rotations[job]) / 1000, float(answer.injected[job]) / 1000
        colour = COLOURS[number % len(COLOURS)]
        yield f'<rect x="{x}" y="{y}" width="14" height="14" fill="{colour}"/>'
        every = float(answer.periods[job]) / 1000
        text = f"{names[job]}: every {every:.6g} ms, {shift:.6g} ms later"
        yield _text(x + 22, y + 12, text + (f", {idle:.6g} ms idle" if idle else ""), 13)


def _arc(
    x: float, y: float, inside: float, outside: float, start: Fraction, end: Fraction, colour: str, title: str
) -> str:
    """A piece of a ring; start and end in turns."""
    share = min(float(end - start), 0.99999)  # a whole turn would be none
    a, b = math.tau * float(start), math.tau * (float(start) + share)
    large = 1 if share > 0.5 else 0
    (x0, y0), (x1, y1) = _at(x, y, outside, a), _at(x, y, outside, b)
    (x2, y2), (x3, y3) = _at(x, y, inside, b), _at(x, y, inside, a)
    path = (
        f"M{x0} {y0}A{outside:.2f} {outside:.2f} 0 {large} 1 {x1} {y1}"
        f"L{x2} {y2}A{inside:.2f} {inside:.2f} 0 {large} 0 {x3} {y3}Z"
    )
    return f'<path d="{path}" fill="{colour}"><title>{escape(title)}</title></path>'


def _ring(x: float, y: float, radius: float) -> str:
    return f'<circle cx="{x:g}" cy="{y:g}" r="{radius:.2f}" fill="none" stroke="{LINE}"/>'


def _at(x: float, y: float, radius: float, angle: float) -> tuple[str, str]:
    """The point at an angle, clockwise from the top."""
    return f"{x + radius * math.sin(angle):.2f}", f"{y - radius * math.cos(angle):.2f}"


def _text(x: float, y: float, text: str, size: int, anchor: str = "start", weight: str = "normal") -> str:
    shown = "".join(c if c.isprintable() else "?" for c in text)
    return (
        f'<text x="{x:g}" y="{y:g}" font-size="{size}" text-anchor="{anchor}" font-weight="{weight}" '
        f'fill="{INK}">{escape(shown)}</text>'
    )
