"""Formats of lists as Slurm's commands have them: `%.18i %j` of -o, and `JobID:.18,Name` of -O."""

from __future__ import annotations

from itertools import repeat

from rm.cli.output import all_printable
from rm.errors import UsageError
from rm.imported_later import re
from rm.quick_tuple import NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from typing import Any, Protocol, TypeVar

    class Headed(Protocol):
        """A column: its header, and its text of a row."""

        @property
        def header(self) -> str: ...

        @property
        def text(self) -> Callable[[Any], Any]: ...

    C = TypeVar("C", bound=Headed)


NAME = r"(?P<name>[A-Za-z][\w/-]*)(?::(?P<right>[.-]?)(?P<width>\d*)(?P<suffix>.*))?\Z"
ALL = "%all"  # each column, by the alphabet, the small letters first
LONG_WIDTH = 20


class Column(NamedTuple):
    """What one letter of a command of Slurm shows. `names` are those of -O, `whole`: it needs more than a
    row of a list has; `order`: what is sorted by, the text unless given."""

    header: str
    text: Callable[[Any], Any]
    names: str = ""
    whole: bool = False
    order: Callable[[Any], Any] | None = None


class Format(NamedTuple):
    """`template` has a place of its width for each column."""

    template: str
    columns: Sequence[Any]

    def header(self) -> str:
        return self.template % tuple(column.header for column in self.columns)

    def lines(self, rows: Sequence[Any]) -> Iterable[str]:
        template, plain = self.template, self.template.isprintable()
        columns: list[Iterable[Any]] = [map(column.text, rows) for column in self.columns]
        if not plain:  # what the user puts between the columns, such as tabs, stands as it is
            columns = list(map(all_printable, columns))
        lines = map(template.__mod__, zip(*columns, strict=True) if columns else repeat((), len(rows)))
        return all_printable(lines) if plain else lines


def _not_supported(letter: str, columns: Mapping[str, Headed]) -> UsageError:
    return UsageError(
        f"The format has %{letter}, which is not supported.",
        f"Choose from {' '.join('%' + known for known in columns)}.",
    )


def by_letters(
    form: str,
    columns: Mapping[str, C],
    wrong: Callable[[str, Mapping[str, C]], UsageError] = _not_supported,
) -> Format:
    """A width cuts what is longer, except 0; a dot aligns to the right; other text stands as it is. `%all`
    is all columns.
    `wrong`: what is said of a letter that shows nothing here.

    Raises:
        UsageError: a letter that shows nothing here, or a % without one.
    """
    if form.strip() == ALL:
        form = "|".join(f"%{letter}" for letter in sorted(columns, key=lambda one: (one.isupper(), one)))
    found: list[C] = []
    template = ""
    for before, right, width, letter in _places(form):
        template += before
        if letter == "%":
            template += "%%"
        elif letter:
            if letter not in columns:
                raise wrong(letter, columns)
            found.append(columns[letter])
            template += place(width, right)
    return Format(template, found)


def _places(form: str) -> list[tuple[str, bool, str, str]]:
    """(text before it, aligned to the right, width, letter) of each `%.18i`; `%%` has the letter %, and what
    follows the last has none."""
    found, at = [], 0
    while (percent := form.find("%", at)) >= 0:
        before, at = form[at:percent], percent + 1
        right = form.startswith(".", at)
        width, at = "", at + right
        while form[at : at + 1].isdecimal():
            width, at = width + form[at], at + 1
        letter, at = form[at : at + 1], at + 1
        if not (letter.isascii() and letter.isalpha()) and (letter != "%" or at - percent > 2):
            raise UsageError(
                f"'{form}' has a % that names no column.", "Write %i or %.18i; %% is a percent sign."
            )
        found.append((before, right, width, letter))
    return [*found, (form[at:], False, "", "")]


def by_names(form: str, columns: Mapping[str, Column]) -> Format:
    """As -O has it: 20 characters each unless `:WIDTH` says otherwise. `Name:|` has none."""
    by_name = {name.lower(): column for column in columns.values() for name in column.names.split()}
    found: list[Column] = []
    template = ""
    words = [word for word in form.split(",") if word.strip()]  # as in Slurm a comma too many means nothing
    if not words:
        raise UsageError(f"'{form}' names no field.", f"Choose from {_listed(columns)}.")
    for word in words:
        match = re.match(NAME, word.lstrip() if ":" in word else word.strip())  # behind a width it is shown
        column = by_name.get(match["name"].lower()) if match else None
        if match is None or column is None:
            raise UsageError(
                f"Invalid field requested: '{word.strip()}'.", f"Choose from {_listed(columns)}."
            )
        found.append(column)
        usual = str(LONG_WIDTH) if match["right"] is None else ""  # no colon
        template += place(match["width"] or usual, match["right"] == ".")
        template += (match["suffix"] or "").replace("%", "%%")
    return Format(template, found)


WIDTH_DIGITS = 5


def place(width: str, right: bool) -> str:
    """Of a template: `%18.18s`.

    Raises:
        UsageError: no line is so wide.
    """
    if len(width) > WIDTH_DIGITS:
        raise UsageError(f"The format has a column of the width {width[:20]}.", "At most 99999 will do.")
    return f"%{'' if right else '-'}{width}.{width}s" if width and int(width) else "%s"


def _listed(columns: Mapping[str, Column]) -> str:
    return ", ".join(column.names.split()[0] for column in columns.values() if column.names)
