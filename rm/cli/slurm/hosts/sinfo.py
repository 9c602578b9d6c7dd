"""`sinfo`: the hosts, by partition and state."""

from __future__ import annotations

import os
import sys
import time

from rm.cli.formats import ALL, Format, by_letters, by_names
from rm.cli.slurm.asking import Asking
from rm.cli.slurm.clusters import ALIAS, OPTION, VARIABLES, cluster_of, say_cluster
from rm.cli.slurm.hosts.listed import SHORT, by_partition, reason_of, state_of
from rm.cli.slurm.hosts.sinfo_columns import COLUMNS, NAMED, OF_GROUPS, OF_PARTITIONS, Group
from rm.cli.slurm.jobs import NONE
from rm.cli.slurm.words import Given, Options, read
from rm.errors import UsageError
from rm.units import parse_hosts

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from rm.api.hosts import Host
    from rm.api.sharing import Partition

OPTIONS = Options(
    taken=(
        OPTION, ALIAS, "dead/d", "Format/O=", "format/o=", "iterate/i=", "json", "list-reasons/R", "long/l",
        "Node/N", "nodes/n=", "noheader/h", "partition/p=", "reservation/T", "responding/r", "sort/S=",
        "states/t=", "summarize/s",
    ),
    ignored=("all/a", "exact/e", "hide", "local", "noconvert", "verbose/v"),
    refused=("federation", "future/F", "yaml"),
    variables={**VARIABLES, "SINFO_FORMAT": "format", "SINFO_PARTITION": "partition", "SINFO_SORT": "sort"},
    yielding={"format": ("Format", "list-reasons", "Node", "summarize")},
)  # fmt: skip
USUAL = "%9P %.5a %.10l %.6D %.6t %N"
LONG = "%9P %.5a %.10l %.10s %.4r %.8h %.10g %.6D %.11T %N"
SUMMARY = "%9P %.5a %.10l %.16F %N"
REASONS = "%20E %9u %19H %N"
LONG_REASONS = "%20E %12U %19H %6t %N"
NO_STATE = "none"
LEAST_NAME, LEAST_PARTITION = 9, 9  # of the columns of --Node, which are as wide as they need
# states that Slurm's words select; each also by its whole name
WORDS = {
    "alloc": "allocated", "mix": "mixed", "unk": "unknown", "drng": "draining",
}  # fmt: skip
SEVERAL = {
    "drain": ("drained", "draining"), "all": tuple(SHORT), "allocated": ("allocated", "mixed"),
    "no_respond": ("down",),
}  # fmt: skip
# Slurm's states in which rm has no host. Source: `sinfo --states` of Slurm 22.05
NEVER = frozenset((
    "cloud", "completing", "comp", "fail", "future", "futr", "maint", "npc", "perfctrs", "planned",
    "powered_down", "powering_down", "powering_up", "power_down", "power_up", "reboot", "reserved", "resv",
))  # fmt: skip
# in the order of sinfo's lines: of one partition by the numbers of Slurm's states, the greatest first
STATES = ("draining", "drained", "mixed", "allocated", "idle", "down", "unknown")
# what a host that takes no more jobs is beside it: `idle&drain`
DRAINED_TOO = {"idle": "drained", "mixed": "draining", "allocated": "draining"}


def run(words: Sequence[str]) -> int:
    given = read(words, OPTIONS, os.environ)
    options = given.options
    if given.operands:
        raise UsageError(f"Unrecognized option: {given.operands[0]}.", "Name hosts with --nodes=HOSTS.")
    if "reservation" in options:
        say_cluster(given)
        return _reservations("noheader" in options)
    if "json" in options:
        cluster_of(given)
        return _json()
    if seconds := options.pop("iterate", ""):
        from rm.cli.slurm.again import again_and_again

        return again_and_again(seconds, lambda: _list(given))
    return _list(given)


def _list(given: Given) -> int:
    given.one_format()
    say_cluster(given)
    options, wanted = given.options, _states(given)
    with Asking() as client:
        told = client.hosts()
        hosts = [host for host in told if _fits(host, given, wanted)]
        usual = client.status().settings.partition
        rules = {one.name: one for one in client.partitions()}
        partitions = by_partition(hosts)
        if not {"Node", "list-reasons"} & options.keys():
            # as in Slurm one of which nothing is chosen has a line, too
            every = [name for name in (*by_partition(told), *rules) if name != NONE]
            partitions = {**dict.fromkeys(every, ()), **partitions}
        if "partition" in options:
            named = given.words("partition")
            partitions = {name: found for name, found in partitions.items() if name in named}
        form = _format(options, partitions, usual)
        asks = COLUMNS["M"] in form.columns
        preempts = asks and any(one.preempts for one in client.accounts().qos)
    groups = _groups(form, partitions, usual, rules, apart="Node" in options)
    groups = [group._replace(preempts=preempts) for group in groups]
    if sort := options.get("sort"):
        groups = _sorted(groups, sort)
    if "long" in options and not {"format", "Format", "noheader"} & options.keys():
        print(time.strftime("%a %b %d %H:%M:%S %Y"))
    if "noheader" not in options:
        print(form.header())
    sys.stdout.writelines(f"{line}\n" for line in form.lines(groups))
    return 0


def _json() -> int:
    """Of all hosts: as in Slurm, other options have no effect on it."""
    import json

    from rm.cli.slurm.hosts.sinfo_json import document

    with Asking() as client:
        print(json.dumps(document(client.hosts())))
    return 0


def _reservations(bare: bool) -> int:
    from rm.cli.slurm.hosts.reservations import listed

    lines = list(listed())
    print("\n".join(lines[bare:] if lines else ["No reservations in the system"]))
    return 0


def _states(given: Given) -> frozenset[str]:
    """Those to show; empty for all. `mix&drain`: those of which both are true."""
    found: set[str] = set()
    for word in (word.lower() for word in given.words("states")):
        several = [_state(one) for one in word.split("&")]
        if len(several) > 1:
            several = [states | {DRAINED_TOO.get(state, state) for state in states} for states in several]
        found |= several[0].intersection(*several[1:]) or {NO_STATE}
    return frozenset(found)


def _state(word: str) -> set[str]:
    state = WORDS.get(word, word)
    if state in NEVER:
        return set()
    if state not in SEVERAL and state not in SHORT:
        raise UsageError(
            f"Bad state string: '{word}'.",
            f"Valid states include: {','.join({**SEVERAL, **dict.fromkeys(SHORT)})}",
        )
    return set(SEVERAL.get(state, (state,)))


def _fits(host: Host, given: Given, wanted: frozenset[str]) -> bool:
    options, state = given.options, state_of(host)
    return (
        not given.names_nothing(("states",))
        and (not wanted or state in wanted)
        and ("dead" not in options or state == "down")
        and ("responding" not in options or state != "down")
        and ("list-reasons" not in options or bool(reason_of(host)))
        and ("nodes" not in options or host.name in parse_hosts(options["nodes"]))
    )


def _format(options: dict[str, str], partitions: Any, usual: str) -> Format:
    if long := options.get("Format"):
        if long.lower() == "all":
            return by_letters(ALL, COLUMNS)
        return by_names(long, {**COLUMNS, **NAMED})
    if form := options.get("format"):
        return by_letters(form, COLUMNS)
    if "summarize" in options:
        return by_letters(SUMMARY, COLUMNS)
    if "list-reasons" in options and "Node" not in options:
        return by_letters(LONG_REASONS if "long" in options else REASONS, COLUMNS)
    if "Node" in options:
        name = max([LEAST_NAME, *(len(host.name) for hosts in partitions.values() for host in hosts)])
        partition = max([LEAST_PARTITION, *(len(one) + (one == usual) for one in partitions)])
        rest = "%.11T %4c %.8z %.6m %.8d %.6w %.8f %20E" if "long" in options else "%6t"
        return by_letters(f"%{name}N %.6D %.{partition}P {rest}", COLUMNS)
    return by_letters(LONG if "long" in options else USUAL, COLUMNS)


def _groups(
    form: Format, partitions: Any, usual: str, rules: Mapping[str, Partition], apart: bool
) -> list[Group]:
    """Hosts that look alike in the columns that are shown; each by itself with --Node."""
    by_host = [
        column
        for letter, column in {**COLUMNS, **NAMED}.items()
        if letter not in OF_GROUPS and column in form.columns
    ]
    found: dict[tuple[Any, ...], dict[str, tuple[str, Host]]] = {}
    shown = any(COLUMNS[letter] in form.columns for letter in OF_PARTITIONS)
    empty = [
        Group(name, name == usual, (), rules.get(name))
        for name, hosts in partitions.items()
        if not hosts and shown
    ]
    for partition, hosts in partitions.items():
        for host in hosts:
            alone = Group(partition, partition == usual, (host,), rules.get(partition))
            key = (*((host.name, partition) if apart else ()), *(column.text(alone) for column in by_host))
            found.setdefault(key, {}).setdefault(host.name, (partition, host))
    groups = []
    for members in found.values():
        partition = next(iter(members.values()))[0]
        hosts = [host for _, host in members.values()]
        groups.append(Group(partition, partition == usual, hosts, rules.get(partition)))
    if apart:
        groups.sort(key=lambda group: group.hosts[0].name)
    else:
        groups.sort(key=lambda group: STATES.index(state_of(group.hosts[0])))
    places = {name: place for place, name in enumerate(partitions)}
    groups += empty
    return groups if apart and not empty else sorted(groups, key=lambda group: places[group.partition])


def _sorted(groups: list[Group], by: str) -> list[Group]:
    for word in reversed([word.strip() for word in by.split(",") if word.strip()]):
        column = COLUMNS.get(word.lstrip("+-#"))
        if column is None:
            raise UsageError(f"Invalid sort specification: {word}.", "Write letters: P,-t.")
        groups.sort(key=column.text, reverse=word.startswith("-"))
    return groups
