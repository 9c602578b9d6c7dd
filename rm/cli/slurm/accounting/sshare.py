"""`sshare`: shares and usage of accounts and users, as Slurm prints what Fair Tree finds.

Source: the manual of sshare of Slurm 22.05, with PriorityFlags=FAIR_TREE.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from rm.cli.output import printable
from rm.cli.slurm.clusters import ALIAS, OPTION, VARIABLES, say_cluster
from rm.cli.slurm.words import Options, read
from rm.errors import UsageError
from rm.submission import place

if TYPE_CHECKING:
    from rm.api.sharing import Share
    from rm.client import Client
    from rm.core.sharing.shares import Listed

OPTIONS = Options(
    taken=(
        "accounts/A=",
        "all/a",
        OPTION,
        ALIAS,
        "format/o=",
        "helpformat/e",
        "long/l",
        "noheader/hn",
        "parsable/p",
        "parsable2/P",
        "users/u=",
        "Users/U",
    ),
    ignored=("verbose/v",),
    refused=("partition/m", "json", "yaml"),
    variables=VARIABLES,
)
# with their widths: to the left where that is negative
SHORT = {"Account": -20, "User": 10, "RawShares": 10, "NormShares": 11, "RawUsage": 11, "EffectvUsage": 13,
         "FairShare": 10}  # fmt: skip
LONG = {"Account": -20, "User": 10, "RawShares": 10, "NormShares": 11, "RawUsage": 11, "NormUsage": 11,
        "EffectvUsage": 13, "FairShare": 10, "LevelFS": 10, "GrpTRESMins": 30, "TRESRunMins": 30}  # fmt: skip
# all that --format names, in the order of --helpformat
FIELDS = ("Account", "Cluster", "EffectvUsage", "FairShare", "GrpTRESMins", "GrpTRESRaw", "ID", "LevelFS",
          "NormShares", "NormUsage", "Partition", "RawShares", "RawUsage", "TRESRunMins", "User")  # fmt: skip
UNKNOWN = {"Cluster": 10, "GrpTRESRaw": 30, "ID": 6, "Partition": 12}  # to rm: their cells are empty
OF_LIMITS = {"GrpTRESMins", "TRESRunMins"}


def run(words: Sequence[str]) -> int:
    given = read(words, OPTIONS, os.environ)
    options = given.options
    if given.operands:
        raise UsageError(f"Unrecognized option: {given.operands[0]}.", "Name users with --users=NAME,…")
    if "helpformat" in options:
        for start in range(0, len(FIELDS), 4):
            print(" ".join(f"{name:<17}" for name in FIELDS[start : start + 4]))
        return 0
    usual = LONG if "long" in options else SHORT
    columns = chosen(options["format"]) if options.get("format") else [*usual.items()]
    say_cluster(given)
    from rm.client import Client

    with Client() as client:
        found = client.sharing.shares()
        of_limits = _of_limits(client) if OF_LIMITS & {name for name, _ in columns} else {}
    accounts, users = given.words("accounts"), given.words("users")
    if not users and "all" not in options:
        users = frozenset({place.here.user()})
    shown = [
        one
        for one in found
        if (not accounts or one.account in accounts)
        and (one.user in users or not users if one.user else "Users" not in options)
    ]
    whole = found[0].used if found else 0.0
    rows: list[Mapping[str, str]] = [
        {**cells(one, whole), **of_limits.get((one.account, one.user), {})} for one in shown
    ]
    parsable = "parsable" in options or "parsable2" in options
    if "noheader" not in options:
        rows.insert(0, {name: name for name, _ in columns})
    for number, row in enumerate(rows):
        texts = [row.get(name, "") for name, _ in columns]
        if parsable:
            print("|".join(texts) + ("|" if "parsable" in options else ""))
            continue
        print("".join(_fit(text, width) + " " for text, (_, width) in zip(texts, columns, strict=True)))
        if not number and "noheader" not in options:
            print("".join("-" * abs(width) + " " for _, width in columns))
    return 0


def chosen(text: str) -> list[tuple[str, int]]:
    """`account%30,fair` as names of columns and their widths: of each word the first that begins so.

    Raises:
        UsageError: there is none.
    """
    found, usual = [], {**LONG, **UNKNOWN}
    for word in filter(None, (part.strip() for part in text.split(","))):
        begins, percent, width = word.partition("%")
        name = next((one for one in FIELDS if begins and one.lower().startswith(begins.lower())), "")
        number = width.removeprefix("-")
        if not name or (percent and not (number.isascii() and number.isdecimal() and len(number) < 5)):
            raise UsageError(
                f'Invalid field requested: "{word:.80}"', "`sshare --helpformat` lists the fields."
            )
        found.append((name, int(width) if percent else usual[name]))
    return found


def cells(one: Share | Listed, whole: float) -> Mapping[str, str]:
    """The cells by their columns; the root has no shares."""
    is_root = not one.depth
    level = "inf" if one.level is None else f"{one.level:.6f}"
    return {
        "Account": " " * (one.depth + bool(one.user)) + printable(one.account),
        "User": printable(one.user),
        "RawShares": "" if is_root else str(one.shares),
        "NormShares": f"{0.0 if is_root else one.shares_part:.6f}",
        "RawUsage": f"{one.used:.0f}",
        "NormUsage": "" if is_root else f"{one.used / whole if whole else 0.0:.6f}",
        "EffectvUsage": f"{one.used_part:.6f}",
        "FairShare": "" if one.factor is None else f"{one.factor:.6f}",
        "LevelFS": "" if is_root else level,
    }


def _of_limits(client: Client) -> Mapping[tuple[str, str], Mapping[str, str]]:
    """By account and user ("": of all in it): the minutes that it may use, and what those that run there may
    still use until their time limits. What Slurm counts and rm does not is left out."""
    from rm.cli.slurm.accounting.held import TRES
    from rm.cli.slurm.accounting.in_use import InUse, in_use_of
    from rm.cli.slurm.accounting.sreport_used import ROOT
    from rm.cli.slurm.jobs import ENDED

    found = client.sharing.accounts()
    limits = {(one.name, ""): one.limits for one in found.accounts} | {(ROOT, ""): found.limits}
    limits |= {(one.account, one.user): one.limits for one in found.members}
    in_use = in_use_of(found, [job for job in client.jobs() if job.state not in ENDED])
    cells = {}
    for name, own in limits.items():
        minutes, used = own.get("billing_minutes"), in_use.get(name) or InUse()
        cells[name] = {
            "GrpTRESMins": "" if minutes is None else f"billing={minutes}",
            "TRESRunMins": ",".join(f"{tres}={used.minutes[tres]}" for tres in TRES),
        }
    return cells


def _fit(text: str, width: int) -> str:
    """What is too long is cut, and marked by a plus."""
    if len(text) > abs(width):
        text = text[: abs(width) - 1] + "+"
    return text.rjust(width) if width > 0 else text.ljust(-width)
