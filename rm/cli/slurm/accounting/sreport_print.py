"""How `sreport` writes: the forms of time, and tables whose columns of time grow with what is in them.

Source: sreport of Slurm 22.05, tried with a database of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from rm.cli.output import printable
from rm.errors import UsageError

RULE = "-" * 80
TIME, TIME_AND_PART = 8, 17  # widths of a column of time; the second where it has a percentage beside it
Value = float | None  # TRES seconds, joules of energy; None: rm does not know


class Form(NamedTuple):
    """`said`: of the title. `seconds`: of its unit, 0 where only the part is shown."""

    name: str
    least: int  # letters
    said: str
    seconds: int
    part: bool


FORMS = (
    Form("SecPer", 6, "Seconds/Percentage of Total", 1, True),
    Form("MinPer", 6, "Minutes/Percentage of Total", 60, True),
    Form("HourPer", 6, "Hours/Percentage of Total", 3600, True),
    Form("Seconds", 1, "Seconds", 1, False),
    Form("Minutes", 1, "Minutes", 60, False),
    Form("Hours", 1, "Hours", 3600, False),
    Form("Percent", 1, "Percentage of Total", 0, True),
)
USUAL = FORMS[4]


class Table(NamedTuple):
    """How it is written: `end` of a line where `between` is between its cells, "" else."""

    form: Form
    header: bool
    between: str
    end: str


class Column(NamedTuple):
    """`width`: to the left where it is negative. `of_time`: a column of numbers of `Row.times`, by this
    name."""

    key: str
    header: str
    width: int
    of_time: bool = False


class Row(NamedTuple):
    """`texts` by the keys of columns; `times` by these too: the value, and what is all of it."""

    texts: Mapping[str, str]
    times: Mapping[str, tuple[Value, float]] = {}


def form_of(text: str) -> Form:
    """By its name, which may be abbreviated.

    Raises:
        UsageError: there is no such form.
    """
    for form in FORMS:
        if len(text) >= form.least and form.name.lower().startswith(text.lower()):
            return form
    raise UsageError(
        f"unknown time format {text:.80}.", f"Write one of {', '.join(form.name for form in FORMS)}."
    )


def chosen(text: str, known: Sequence[Column]) -> list[Column]:
    """`login%20,used` as columns: the first whose name begins so.

    Raises:
        UsageError: there is none.
    """
    found = []
    for word in filter(None, (part.strip() for part in text.split(","))):
        name, percent, width = word.partition("%")
        column = next((one for one in known if name and one.key.lower().startswith(name.lower())), None)
        number = width.lstrip("-")
        if column is None or (percent and not (number.isascii() and number.isdigit() and len(number) < 5)):
            raise UsageError(
                f"Unknown field '{word:.80}'.", f"There are {', '.join(one.key for one in known)}."
            )
        found.append(column._replace(width=int(width)) if percent else column)
    return found


def lines(columns: Sequence[Column], rows: Sequence[Row], table: Table) -> Iterator[str]:
    """The header and the rows."""
    if table.between:
        if table.header:
            yield table.between.join(column.header for column in columns) + table.end
        for row in rows:
            cells = (_text(row, column, table.form) for column in columns)
            yield table.between.join(printable(cell) for cell in cells) + table.end
        return
    widths = [_width(column, rows, table.form) for column in columns]
    if table.header:
        yield _line(
            (_fit(column.header, width, "") for column, width in zip(columns, widths, strict=True)), widths
        )
        yield _line(("-" * abs(width) for width in widths), widths)
    for row in rows:
        cells = (
            _fit(printable(_text(row, column, table.form)), width, "" if column.of_time else "+")
            for column, width in zip(columns, widths, strict=True)
        )
        yield _line(cells, widths)


def _text(row: Row, column: Column, form: Form) -> str:
    if not column.of_time:
        return row.texts.get(column.key, "")
    value, whole = row.times[column.key]
    if value is None:
        return ""
    part = f"{100 * value / whole:.2f}%" if whole else "0.00%"
    if not form.seconds:
        return part
    count = f"{value / form.seconds:.0f}"
    return f"{count}({part})" if form.part else count


def _width(column: Column, rows: Iterable[Row], form: Form) -> int:
    """Columns of time are as wide as their seconds, whatever the unit; others, and those whose width the user
    has chosen, stay."""
    if not column.of_time or column.width != TIME:
        return column.width
    longest = max((len(f"{row.times[column.key][0] or 0:.0f}") for row in rows), default=0)
    return max(TIME_AND_PART if form.part and form.seconds else TIME, longest)


def _fit(text: str, width: int, mark: str) -> str:
    """What is too long is cut, and ends in the mark."""
    most = abs(width)
    return text if len(text) <= most else text[: most - len(mark)] + mark


def _line(cells: Iterable[str], widths: Sequence[int]) -> str:
    return "".join(
        (cell.rjust(width) if width >= 0 else cell.ljust(-width)) + " "
        for cell, width in zip(cells, widths, strict=True)
    )
