"""What commands print; standard library only, so that the quick ones can use it."""

from __future__ import annotations

import sys
from itertools import repeat

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from typing import Any

GAP = "  "

_program = "rmx"


def speak_as(program: str) -> None:
    """From now on messages begin with this name."""
    global _program
    _program = program


def note(text: str) -> None:
    """A message, which is not data: to standard error. Where that takes none, the exit code still tells. It
    may have words of users and hosts, which must not steer a terminal."""
    lines = "\n".join(all_printable(text.split("\n")))
    try:  # noqa: SIM105 — `contextlib` takes longer to load than most of what quick commands need
        print(f"{_program}: {lines}", file=sys.stderr, flush=True)
    except OSError:
        pass


def printable(value: Any) -> str:
    """A cell for the terminal: a name with control characters must not steer it."""
    text = "" if value is None else str(value)
    return text if text.isprintable() else "".join(char if char.isprintable() else "?" for char in text)


def printable_json(text: str) -> str:
    """The same JSON without characters that could steer a terminal. They stand in its strings alone, where
    `json.dumps` has escaped those below U+0020 already. Of long lists only the strings that have one are gone
    through."""
    if text.isprintable():
        return text
    return '"'.join(part if part.isprintable() else "".join(map(_escaped, part)) for part in text.split('"'))


def _escaped(char: str) -> str:
    if char.isprintable():
        return char
    units = char.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at]:02x}{units[at + 1]:02x}" for at in range(0, len(units), 2))


def all_printable(values: Iterable[Any]) -> list[str]:
    """The cells of a column, of which ten thousand are looked at together."""
    texts = list(values)
    try:
        together = "".join(texts)
    except TypeError:  # not all of them are text
        texts = ["" if value is None else str(value) for value in texts]
        together = "".join(texts)
    return texts if together.isprintable() else list(map(printable, texts))


def aligned(
    columns: Sequence[str], rows: Iterable[Sequence[str]], right: Iterable[str] = (), header: bool = True
) -> Iterator[str]:
    """The lines of a table as plain text; nothing is cut. `right`: the columns that end in one line."""
    return side_by_side(columns, list(zip(*rows, strict=True)) or [()] * len(columns), right, header)


def side_by_side(
    columns: Sequence[str], cells: Iterable[Sequence[str]], right: Iterable[str] = (), header: bool = True
) -> Iterator[str]:
    """As `aligned`, of the cells of each column: what is written in C makes ten thousand lines."""
    return map(str.rstrip, filled(columns, cells, right, header))


def filled(
    columns: Sequence[str], cells: Iterable[Sequence[str]], right: Iterable[str] = (), header: bool = True
) -> Iterator[str]:
    """The same lines, all of one length: others may follow on the right."""
    to_the_right, wide = set(right), []
    for column, below in zip(columns, cells, strict=True):
        texts = [column, *below] if header else below
        pad = str.rjust if column in to_the_right else str.ljust
        wide.append(map(pad, texts, repeat(max(map(len, texts), default=0))))
    return map(GAP.join, zip(*wide, strict=True))
