"""`sreport`: what the cluster, accounts and users used, from the sums of `rmx usage`.

Source: sreport(1) of Slurm 22.05, tried. A job counts where it ended, and the cluster is what it is now: what
rm does not record (time that hosts were down, or planned) is empty.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from rm.cli.slurm.accounting.sreport_asked import Asked, Report
from rm.cli.slurm.accounting.sreport_print import RULE, USUAL, Table, form_of
from rm.cli.slurm.words import Options, read
from rm.errors import UsageError
from rm.submission.begin import past_moment

if TYPE_CHECKING:
    from rm.client import Client

OPTIONS = Options(
    taken=(
        "cluster/M=", "noheader/n", "parsable/p", "parsable2/P", "time/t=", "tres/T=",
    ),
    ignored=("all_clusters/a", "local", "quiet/Q", "verbose/v"),
    refused=("federation",),
    variables={"SREPORT_TRES": "tres", "SREPORT_CLUSTER": "cluster"},
)  # fmt: skip
TRES = ("cpu", "mem", "energy", "gres/gpu")  # in Slurm's order
OTHER_TRES = ("billing", "node", "fs/disk", "vmem", "pages")  # Slurm's, which rm does not add up
# report -> the fewest letters of its name
REPORTS = {
    "cluster": {"AccountUtilizationByUser": 1, "UserUtilizationByAccount": 18, "Utilization": 2},
    "job": {"SizesByAccount": 1},
    "reservation": {},
    "user": {"TopUsage": 1},
}
NOT_OFFERED = {
    "cluster": ("UserUtilizationByWckey", "WCKeyUtilizationByUser"),
    "job": ("SizesByAccountAndWckey", "SizesByWckey"),
    "reservation": ("Utilization",),
    "user": (),
}
NO_KEYS = "rm has no workload characterization keys."
OF_ALL = ("start", "end", "format", "clusters", "all_clusters")
CONDITIONS = {
    "AccountUtilizationByUser": ("accounts", "users", "tree"),
    "UserUtilizationByAccount": ("accounts", "users"),
    "Utilization": (),
    "TopUsage": ("accounts", "users", "topcount", "group"),
    "SizesByAccount": (
        "accounts", "users", "partitions", "jobs", "nodes", "grouping", "flatview", "acctasparent",
        "printjobcount",
    ),
}  # fmt: skip
FLAGS = ("tree", "group", "flatview", "acctasparent", "printjobcount", "all_clusters")
SLURMS_OTHER = ("wckeys", "gid", "names", "federation")  # conditions without a counterpart
HOUR_S = 3600


Writer = Callable[["Client", Asked, Table, str], Report]


def run(words: Sequence[str]) -> int:
    given = read(words, OPTIONS, os.environ)
    options = given.options
    if not given.operands:
        raise UsageError("No report is named.", "Write: sreport cluster utilization. There is no prompt.")
    kind, report, conditions = _named(given.operands)
    asked = _asked(report, conditions, options)
    table = Table(
        form=form_of(options["time"]) if "time" in options else USUAL,
        header="noheader" not in options,
        between="|" if "parsable" in options or "parsable2" in options else "",
        end="|" if "parsable" in options and "parsable2" not in options else "",
    )
    from rm.client import Client

    with Client() as client:
        cluster = client.status().settings.cluster_name
        clusters = asked.words("clusters") | given.words("cluster")
        known = not clusters or cluster in clusters
        written = _writer(kind, report)(client, asked, table, cluster if known else "")
    if table.header:
        print("\n".join([RULE, *written.title, RULE]))
    for line in written.lines if known else written.lines[: _heads(table)]:
        print(line)
    return 0


def _heads(table: Table) -> int:
    """How many lines are the table's header."""
    return 0 if not table.header else 1 if table.between else 2


def _writer(kind: str, report: str) -> Writer:
    if kind == "job":
        from rm.cli.slurm.accounting.sreport_sizes import sizes

        return sizes
    from rm.cli.slurm.accounting.sreport_used import REPORTS as USED

    return USED[report]


def _named(operands: Sequence[str]) -> tuple[str, str, Sequence[str]]:
    """The kind, the report, and its conditions.

    Raises:
        UsageError: there is none, or rm has no counterpart.
    """
    word = operands[0].lower()
    kind = next((one for one in NOT_OFFERED if word != "c" and one.startswith(word)), "")
    if not kind:
        raise UsageError(f"invalid keyword: {operands[0]:.80}.", f"Known are {', '.join(REPORTS)}.")
    if len(operands) < 2:
        raise UsageError(f"too few arguments for keyword:{kind}.", f"Known are {', '.join(REPORTS[kind])}.")
    said = operands[1].lower()
    known = REPORTS[kind]
    for name, least in known.items():
        if len(said) >= least and name.lower().startswith(said):
            return kind, name, operands[2:]
    for name in NOT_OFFERED[kind]:
        if name.lower().startswith(said):
            why = NO_KEYS if "wckey" in name.lower() else "`rmx reservation` shows reservations."
            raise UsageError(f"sreport {kind} {name} is not supported.", why)
    raise UsageError(f"Not valid report {operands[1]:.80}.", f"Valid {kind} reports are {', '.join(known)}.")


def _asked(report: str, words: Sequence[str], options: Mapping[str, str]) -> Asked:
    given: dict[str, str] = {}
    offered = (*OF_ALL, *CONDITIONS[report])
    for word in words:
        name, equals, value = word.partition("=")
        small = name.lower()
        known = next((one for one in offered if small and one.startswith(small)), "")
        if not known and any(small and one.startswith(small) for one in SLURMS_OTHER):
            raise UsageError(f"'{word:.80}' is not supported.", "rm has no counterpart.")
        if not known or bool(equals) == (known in FLAGS):
            raise UsageError(f"Unknown condition: {word:.80}.", f"{report} has {', '.join(offered)}.")
        given[known] = value.strip("'\"")
    now = datetime.now()
    midnight = now.replace(hour=0, minute=0, second=0, microsecond=0)
    start, end = given.get("start"), given.get("end")
    since = _hour(past_moment(start, now) if start else midnight - timedelta(days=1))
    until = _hour(past_moment(end, now) if end else midnight)
    since_us, until_us = (round(moment.timestamp() * 1_000_000) for moment in (since, until))
    if until_us <= since_us:  # as Slurm's, which takes the hour that follows
        until_us = since_us + HOUR_S * 1_000_000
    return Asked(report, since_us, until_us, _tres(options.get("tres", "")), "tres" in options, given)


def _hour(moment: datetime) -> datetime:
    """The nearest whole hour, as Slurm rounds."""
    return (moment + timedelta(minutes=30)).replace(minute=0, second=0, microsecond=0)


def _tres(text: str) -> Sequence[str]:
    """Those that are named; else processors.

    Raises:
        UsageError: rm does not add one up.
    """
    names = [one.strip().lower() for one in text.split(",") if one.strip()]
    if names == ["all"]:
        return TRES
    for name in names:
        if name not in TRES:
            what = f"--tres={name:.80} is not supported." if name in OTHER_TRES else "No valid TRES given."
            raise UsageError(what, f"rm adds up {', '.join(TRES)}.")
    return tuple(dict.fromkeys(names)) or TRES[:1]
