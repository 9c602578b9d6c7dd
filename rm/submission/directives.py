"""`#SBATCH` and `#RM` lines of a batch script. Pure: text in, options and warnings out.

Directives stand at the top: parsing stops at the first line that is neither blank nor a
comment. `#RM` beats `#SBATCH`; among lines of one kind the later wins.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from rm.errors import UsageError
from rm.submission.options import ALL, FLAG, IGNORED, REFUSED, VALUE, Option

PREFIXES = ("#SBATCH", "#RM")  # the weaker first
_BY_LONG = {name: option for option in ALL for name in option.long}
_BY_SHORT = {option.short: option for option in ALL if option.short}
_OFF = {option.off: option for option in ALL if option.off}


class Directives(NamedTuple):
    """`values`: option key -> text, or True/False for flags; `warnings` are sentences."""

    values: dict[str, Any]
    warnings: list[str]


def parse(text: str, file: str = "the script") -> Directives:
    """The options of all directives of a script.

    Raises:
        UsageError: an unknown option, or one that rm lacks and that changes the job's meaning.
    """
    values: dict[str, dict[str, Any]] = {prefix: {} for prefix in PREFIXES}
    warnings: list[str] = []
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip() and not line.startswith("#"):
            break
        prefix, _, rest = line.replace("\t", " ").partition(" ")
        if prefix not in PREFIXES:
            continue
        where = f"{prefix} in line {number} of {file}"
        try:
            words = shlex.split(rest, comments=True)
        except ValueError as error:
            raise UsageError(f"{where} cannot be read: {str(error).lower()}.") from None
        for option, value in _options(words, where):
            if warning := unsupported(option, where):
                warnings.append(warning)
            else:
                values[prefix][option.key] = value
    merged: dict[str, Any] = {}
    for prefix in PREFIXES:
        merged = merge(merged, values[prefix])
    return Directives(merged, warnings)


def unsupported(option: Option, where: str) -> str:
    """The warning for an option without effect, "" for a supported one.

    Raises:
        UsageError: without this option the job would mean something else.
    """
    if option.support == REFUSED:
        raise UsageError(
            f"--{option.long[0]} ({where}) is not supported, and the job would mean something else without.",
            "Remove it if the job can do without.",
        )
    if option.support == IGNORED:
        return f"--{option.long[0]} ({where}) is not supported and was ignored."
    return ""


# options that say the same thing in different ways: a stronger source's choice replaces a weaker's
_PROFILE = {"period", "duty_cycle", "bandwidth"}
_ALTERNATIVES = (
    ({"gpus", "gpus_per_node", "gpus_per_task", "gres"},) * 2,
    ({"mem", "mem_per_cpu", "mem_per_gpu"},) * 2,
    ({"traffic", "low_comm"}, _PROFILE | {"traffic", "low_comm"}),
    (_PROFILE, {"traffic", "low_comm"}),
)


def merge(weaker: Mapping[str, Any], stronger: Mapping[str, Any]) -> dict[str, Any]:
    """The options of two sources, of which the second wins."""
    dropped: set[str] = set()
    for given, replaced in _ALTERNATIVES:
        if given & stronger.keys():
            dropped |= replaced
    return {key: value for key, value in weaker.items() if key not in dropped} | dict(stronger)


def _options(words: Sequence[str], where: str) -> list[tuple[Option, Any]]:
    found: list[tuple[Option, Any]] = []
    rest = list(words)
    while rest:
        word = rest.pop(0)
        if word.startswith("--") and len(word) > 2:
            name, equals, value = word[2:].partition("=")
            if name in _OFF and not equals:
                found.append((_OFF[name], False))
                continue
            option = _BY_LONG.get(name)
            if option is None:
                raise _unknown(f"--{name}", where)
            attached = value if equals else None
        elif word.startswith("-") and len(word) > 1:
            option = _BY_SHORT.get(word[1])
            if option is None:
                raise _unknown(word[:2], where)
            attached = word[2:] or None
            if option.takes == FLAG and attached:
                rest.insert(0, "-" + attached)  # letters together: -HW
                attached = None
        else:
            raise UsageError(f"'{word}' ({where}) is not an option.", "Directives hold options only.")
        if option.takes == FLAG and attached is not None:
            raise UsageError(f"--{option.long[0]} ({where}) takes no value.")
        if option.takes == VALUE and attached is None:
            if not rest:
                raise UsageError(f"--{option.long[0]} ({where}) needs a value.")
            attached = rest.pop(0)
        found.append((option, True if option.takes == FLAG else attached))
    return found


def _unknown(name: str, where: str) -> UsageError:
    from difflib import get_close_matches

    near = get_close_matches(name.lstrip("-"), _BY_LONG, n=1)
    hint = f"Did you mean '--{near[0]}'?" if near else "`rmx submit --help` lists the options."
    return UsageError(f"Unknown option {name} ({where}).", hint)
