"""CASSINI's circles of an answer as SVG: the links' time rolled around a circle, before and after.

Each job has a ring, thick where it sends, in proportion to the link's capacity; the outermost ring is
the sum of all, red where it exceeds the capacity. Time runs clockwise from the top.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from xml.sax.saxutils import escape

from rm.cli.sim.interleave_text import called
from rm.policies.interleave.answer import Answer, LinkAnswer
from rm.policies.interleave.rings import Rings, at, levels_of
from rm.units import format_bandwidth

COLOURS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#8c6d31", "#5b4fa2", "#7f7f7f")
OVER, SUM, LINE, INK = "#d62728", "#c9ced6", "#d9dde3", "#222222"
WIDTH, SIDE, MARGIN = 840, 364, 20
RINGS = Rings(inner=42.0, outer=118.0, sum_inner=126.0, sum_outer=148.0)


def circles(answer: Answer) -> str:
    """The document; links that have no circle are described in words."""
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
    perimeter, capacity = link.perimeter or 1, link.load.capacity
    spans = {job: link.spans(job, rotated) for job in link.jobs}
    yield f'<g transform="translate({x:g} {y:g})">'
    for quarter in range(4):
        (x0, y0), (x1, y1) = at(RINGS.inner - 8, quarter / 4), at(RINGS.sum_outer + 6, quarter / 4)
        yield f'<line x1="{x0}" y1="{y0}" x2="{x1}" y2="{y1}" stroke="{LINE}"/>'
        label = f"{perimeter * quarter / 4000:.4g}" + ("" if quarter else " ms")
        tx, ty = at(RINGS.sum_outer + 14, quarter / 4)
        anchor = ("middle", "start", "middle", "end")[quarter]
        yield _text(tx, ty + (0, 4, 10, 4)[quarter], label, 12, anchor=anchor)
    for number, job in enumerate(link.jobs):
        colour = COLOURS[number % len(COLOURS)]
        inside, pieces = RINGS.of_job(number, len(spans), spans[job], perimeter, capacity)
        yield _ring(inside)
        yield from (_piece(path, colour, names[job]) for path in pieces)
    yield _ring(RINGS.sum_inner)
    yield _ring(RINGS.sum_outer)
    within, beyond = RINGS.of_sum(levels_of(spans.values(), perimeter), perimeter, capacity)
    yield from (_piece(path, SUM, "all jobs") for path in within)
    yield from (_piece(path, OVER, "more than the link carries") for path in beyond)
    yield "</g>"


def _legend(link: LinkAnswer, names: Sequence[str], answer: Answer, top: float) -> Iterator[str]:
    for number, job in enumerate(link.jobs):
        x, y = MARGIN + 8 + (number % 2) * WIDTH / 2, top + 24 * (number // 2)
        shift, idle = float(link.rotations[job]) / 1000, float(answer.injected[job]) / 1000
        colour = COLOURS[number % len(COLOURS)]
        yield f'<rect x="{x}" y="{y}" width="14" height="14" fill="{colour}"/>'
        every = float(answer.periods[job]) / 1000
        text = f"{names[job]}: every {every:.6g} ms, {shift:.6g} ms later"
        yield _text(x + 22, y + 12, text + (f", {idle:.6g} ms idle" if idle else ""), 13)


def _piece(path: str, colour: str, title: str) -> str:
    return f'<path d="{path}" fill="{colour}"><title>{escape(title)}</title></path>'


def _ring(radius: float) -> str:
    return f'<circle r="{radius:.2f}" fill="none" stroke="{LINE}"/>'


def _text(x: float, y: float, text: str, size: int, anchor: str = "start", weight: str = "normal") -> str:
    shown = "".join(c if c.isprintable() else "?" for c in text)
    return (
        f'<text x="{x:g}" y="{y:g}" font-size="{size}" text-anchor="{anchor}" font-weight="{weight}" '
        f'fill="{INK}">{escape(shown)}</text>'
    )
