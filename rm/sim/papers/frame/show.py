"""A result as JSON, as a table for people, and as the table of the paper's page."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rm.errors import ConfigError
from rm.sim.papers.frame.expected import Expected
from rm.sim.papers.frame.paper import Key, Result, Row

COLUMNS = ("FIGURE", "CASE", "METRIC", "UNIT", "PUBLISHED", "MEAN", "± STD", "SEEDS", "RANGE", "WITHIN")
RIGHT = ("PUBLISHED", "MEAN", "± STD", "SEEDS")
BEGIN, END = "<!-- results -->", "<!-- end of results -->"


def as_json(name: str, result: Result) -> dict[str, Any]:
    return {"paper": name, "rows": [row._asdict() for row in result.rows]}


def number(value: float) -> str:
    """Four significant digits, without an exponent where it reads well; rounding errors are 0."""
    if abs(value) < 1e-9 or abs(value) >= 1000:
        return f"{value:.0f}"
    return f"{value:.4g}"


def spread(value: float) -> str:
    """Two significant digits: nobody knows more of a standard deviation."""
    return number(value) if abs(value) < 1e-9 or abs(value) >= 100 else f"{value:.2g}"


def cells(row: Row) -> tuple[str, ...]:
    return (
        row.figure,
        row.case,
        row.metric,
        row.unit,
        "-" if row.published is None else number(row.published),
        number(row.mean),
        spread(row.std),
        str(row.seeds),
        _range(row),
        _judged(row, "no"),
    )


def _range(row: Row) -> str:
    return "–" if row.low is None or row.high is None else f"{number(row.low)} … {number(row.high)}"


def _judged(row: Row, no: str) -> str:
    return "" if row.within is None else "yes" if row.within else no


def verdict(result: Result) -> str:
    """Counts printed numbers; what a text claims without one apart, and plain figures not at all."""
    judged = [row for row in result.rows if row.within is not None]
    printed = [bool(row.within) for row in judged if row.published is not None]
    claimed = [bool(row.within) for row in judged if row.published is None]
    plain = len(result.rows) - len(printed) - len(claimed)
    told = f"{sum(printed)} of {len(printed)} printed numbers are within their ranges"
    told += f"; of {len(claimed)} claims without a number {sum(claimed)} hold" if claimed else ""
    return f"{told}; {plain} rows are plain figures." if plain else f"{told}."


def markdown(result: Result, expected: dict[Key, Expected]) -> str:
    """The page's tables, one a figure: the numbers, then where they were printed and why the range."""
    lines: list[str] = [verdict(result)]
    figure = ""
    for row in result.rows:
        if row.figure != figure:
            figure = row.figure
            lines += ["", f"**{figure}**", ""]
            lines += ["| case | metric | published | mean ± std | range | within | place; why this range |"]
            lines += ["|---|---|---|---|---|---|---|"]
        told = expected[row[:3]]
        unit = f" {row.unit}" if row.unit else ""
        published = "–" if row.published is None else f"{number(row.published)}{unit}"
        line = (
            row.case,
            row.metric,
            published,
            f"{number(row.mean)} ± {spread(row.std)}{unit}",
            _range(row),
            _judged(row, "**no**"),
            f"{told.place}; {told.why}",
        )
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |")
    seeds = sorted({row.seeds for row in result.rows})
    lines += ["", f"Seeds a row: {', '.join(map(str, seeds))}."]
    return "\n".join(lines)


def put_into(page: Path, table: str) -> None:
    """Replace what stands between the two marks of a page.

    Raises:
        ConfigError: there is no such page, or it lacks the marks.
    """
    try:
        text = page.read_text()
    except FileNotFoundError:
        raise ConfigError(f"There is no {page}.", "Tables are written in a checkout of rm only.") from None
    before, begin, rest = text.partition(f"{BEGIN}\n")
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ConfigError(f"{page} lacks the lines {BEGIN} and {END}.", "The table goes between them.")
    page.write_text(f"{before}{begin}\n{table}\n\n{end}{after}")
