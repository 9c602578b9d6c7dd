"""The text of licences: `matlab:2,ansys`, as a job asks for them, or `matlab=10`, as rm.toml counts them.

Source: sbatch(1) of Slurm 22.05, --licenses.
"""

from __future__ import annotations

from functools import lru_cache

from rm.compiled_later import compiled_later
from rm.errors import UsageError

TEXT_MAX = 4_096  # characters
_ONE = compiled_later(r"([A-Za-z0-9_][\w.@/+-]{0,254})(?:[:=]([0-9]{1,9}))?\Z")


@lru_cache(maxsize=4_096)
def parse(text: str) -> tuple[tuple[str, int], ...]:
    """(name, how many) by name; one each where no number is said; none for an empty text.

    Raises:
        UsageError: it is no such list; a single sentence says what is wrong.
    """
    found: dict[str, int] = {}
    for part in text[: TEXT_MAX + 1].split(",") if text.strip() else ():
        match = _ONE.match(part.strip())
        if match is None or len(text) > TEXT_MAX:
            raise UsageError(
                f"'{text[:80]}' is no list of licences.", "Write NAME[:NUMBER],...: matlab:2,ansys."
            )
        number = int(match[2]) if match[2] else 1
        if match[1] in found or not number:
            why = "names one twice" if number else "asks for none"
            raise UsageError(
                f"'{text[:80]}' {why} of the licences {match[1]}.", "Name each once, with a number."
            )
        found[match[1]] = number
    return tuple(sorted(found.items()))
