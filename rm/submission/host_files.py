"""Hosts that a file lists, where options name one: --nodelist or --exclude with a slash, and --nodefile.

Source: sbatch(1) of Slurm 22.05, whose host files have a host in each line, or several with commas or blanks
between them, `name*3` for a host that is listed three times, and comments behind `#`.
"""

from __future__ import annotations

from rm.errors import UsageError
from rm.submission import place

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_BETWEEN = r"[,\s]+(?![^\[]*\])"  # not within brackets


def with_files(values: dict[str, Any]) -> dict[str, Any]:
    """The options with the hosts of such files in their place; raises UsageError where one cannot be read.

    A file of --nodefile beats --nodelist.
    """
    named = {key: values[key] for key in ("nodelist", "exclude") if "/" in (values.get(key) or "")}
    if values.get("nodefile"):
        named["nodelist"] = values["nodefile"]
    if not named:
        return values
    return {**values, **{key: ",".join(_hosts_in(file)) for key, file in named.items()}}


def _hosts_in(file: str) -> tuple[str, ...]:
    import re  # few jobs need either

    from rm import units

    text = place.text_of(file, "The file of hosts")
    lines = " ".join(line.partition("#")[0] for line in text.splitlines())
    words = [re.sub(r"\*\d+\Z", "", word) for word in re.split(_BETWEEN, lines) if word]
    try:
        hosts = units.parse_hosts(",".join(words))
    except UsageError as error:
        raise UsageError(f"The file of hosts {file}: {error.what}", error.hint) from None
    if not hosts:
        raise UsageError(f"The file of hosts {file} names none.", "Write a host in each line.")
    return hosts
