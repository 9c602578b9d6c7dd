"""Options of Slurm's commands, as GNU getopt_long reads them: in any order, long ones abbreviated."""

from __future__ import annotations

from rm.errors import UsageError
from rm.quick_tuple import NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

FLAG, VALUE, MAYBE = "flag", "value", "maybe"  # MAYBE: a value behind = only
TAKES = {"": FLAG, "=": VALUE, "?": MAYBE}


class Options(NamedTuple):
    """Each option as `name`, `name/L` with its letters, and `=` when it takes a value (`?` when it may).

    `ignored` change nothing here; `refused` have no counterpart, and what they ask for would be missing.
    `variables`: those of the environment that say the same as an option. `yielding`: options whose variable
    has no effect beside these others.
    """

    taken: tuple[str, ...]
    ignored: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()
    variables: Mapping[str, str] = {}
    yielding: Mapping[str, Sequence[str]] = {}


class Given(NamedTuple):
    """What was asked for: long name -> value, "" for a flag; and the words that are no options. Of an option
    given several times the values are joined by commas in `all`, and the last is in `options`."""

    options: dict[str, str]
    all: dict[str, str]
    operands: list[str]

    def words(self, name: str) -> frozenset[str]:
        """The value's parts between commas."""
        return frozenset(part.strip() for part in self.options.get(name, "").split(",") if part.strip())

    def names_nothing(self, filters: Sequence[str]) -> bool:
        """Is one of these options there without a name? As in Slurm it chooses nothing then: a script's
        variable may be empty."""
        return any(name in self.options and not self.words(name) for name in filters)

    def one_format(self) -> None:
        """Raises:
        UsageError: columns are named beside --long. Source: squeue and sinfo of Slurm 22.05
        """
        if {"format", "long"} <= self.options.keys():
            raise UsageError(
                "Options -o(--format) and -l(--long) are mutually exclusive.", "Please remove one and retry."
            )


def read(words: Sequence[str], known: Options, environment: Mapping[str, str]) -> Given:
    """The options and operands of a command line.

    Raises:
        UsageError: an option is unknown, refused, or lacks its value.
    """
    table, letters = _tables(known)
    given = Given({}, {}, [])
    rest = list(words)
    while rest:
        word = rest.pop(0)
        if word == "--":
            given.operands.extend(rest)
            break
        if not word.startswith("-") or word == "-":
            given.operands.append(word)
        elif word.startswith("--"):
            text, equals, value = word[2:].partition("=")
            name = _whole(text, table)
            _take(given, name, table[name], value if equals else None, rest)
        else:
            _letters(given, word, table, letters, rest)
    for name in given.all:
        if name in _names(known.refused):
            raise UsageError(f"--{name} is not supported.", "rm has no counterpart.")
    for variable, name in known.variables.items():
        beside = (name, *known.yielding.get(name, ()))
        if environment.get(variable) and given.options.keys().isdisjoint(beside):
            given.options[name] = environment[variable]
    return given


def _names(spellings: Sequence[str]) -> list[str]:
    return [spelling.rstrip("=?").partition("/")[0] for spelling in spellings]


def _tables(known: Options) -> tuple[dict[str, str], dict[str, str]]:
    """Long name -> what it takes; letter -> long name."""
    table: dict[str, str] = {}
    letters: dict[str, str] = {}
    for spelling in (*known.taken, *known.ignored, *known.refused):
        name, _, short = spelling.rstrip("=?").partition("/")
        table[name] = TAKES[spelling[-1] if spelling[-1] in "=?" else ""]
        letters |= dict.fromkeys(short, name)
    return table, letters


def _whole(text: str, table: Mapping[str, str]) -> str:
    if text in table:
        return text
    found = [name for name in table if name.startswith(text)] if text else []
    if len(found) > 1:
        raise UsageError(f"option '--{text}' is ambiguous: {', '.join('--' + name for name in found)}.")
    if not found:
        raise UsageError(f"unrecognized option '--{text}'.")
    return found[0]


def _letters(
    given: Given, word: str, table: Mapping[str, str], letters: Mapping[str, str], rest: list[str]
) -> None:
    """`-hn`, or `-t60`."""
    for place, letter in enumerate(word[1:], 2):
        name = letters.get(letter)
        if name is None:
            raise UsageError(f"invalid option -- '{letter}'.")
        attached = word[place:]
        if table[name] == VALUE or (table[name] == MAYBE and attached):
            _take(given, name, table[name], attached or None, rest)
            return
        _take(given, name, table[name], None, rest)


def _take(given: Given, name: str, takes: str, value: str | None, rest: list[str]) -> None:
    if takes == FLAG and value is not None:
        raise UsageError(f"option '--{name}' doesn't allow an argument.")
    if takes == VALUE and value is None:
        if not rest:
            raise UsageError(f"option '--{name}' requires an argument.")
        value = rest.pop(0)
    before = given.all.get(name)
    given.options[name] = value or ""
    given.all[name] = f"{before},{value}" if before else value or ""
