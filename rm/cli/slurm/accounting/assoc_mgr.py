"""`scontrol show assoc_mgr`: users, accounts with their users, and QOS, with their limits and what is in use.

Source: scontrol(1) of Slurm 22.05, tried. What rm does not keep is empty, and TRES that it does not count are
left out. The numbers of accounts and QOS are places in the list.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from rm.cli.output import all_printable, printable
from rm.cli.slurm.accounting.held import TRES
from rm.cli.slurm.accounting.in_use import InUse, in_use_of
from rm.cli.slurm.accounting.sacctmgr_fields import TRES as LIMIT_OF
from rm.cli.slurm.accounting.sreport_used import ROOT, children_of
from rm.cli.slurm.jobs import ENDED
from rm.cli.slurm.users import entry_of
from rm.errors import UsageError

if TYPE_CHECKING:
    from rm.api.jobs import Job
    from rm.api.sharing import Accounts, Qos, Share
    from rm.client import Client

FLAGS = {"users": "User Records", "assoc": "Association Records", "qos": "QOS Records"}
NONE = {
    "users": "No users currently cached in Slurm.", "assoc": "No associations currently cached in Slurm.",
    "qos": "No QOS currently cached in Slurm.",
}  # fmt: skip
OPTIONS = ("accounts", "flags", "qos", "users")
NO_USER = 4294967294  # Slurm's, of a user whom the machine does not know
MIB_A_GIB = 1024
Limits = Mapping[str, int]


class Part(NamedTuple):
    """What a QOS holds for each account, or each user: the fields by their names."""

    title: str
    empty: str
    each: Mapping[str, Sequence[str]]


class Record(NamedTuple):
    fields: Sequence[str]
    parts: Sequence[Part] = ()


class Association(NamedTuple):
    """An account (`user` ""), or a user in it. `limits` hold for it alone, `each` for a job in it and, with
    what begins in `user.`, for each user: the lowest of those above it, too."""

    number: int
    account: str
    user: str
    parent: str
    default: bool
    share: Share
    level: int  # shares of all with the same parent
    limits: Limits
    each: Limits


def shown(client: Client, words: Sequence[str], oneliner: bool) -> Iterator[str]:
    """The lines.

    Raises:
        UsageError: an option or a flag is unknown.
    """
    asked = _asked(words)
    flags = _flags(asked)
    yield "Current Association Manager state"
    found = client.sharing.accounts()
    for flag in FLAGS:
        if flag not in flags:
            continue
        records = list(_records(client, found, flag, asked))
        yield from ([] if oneliner else [""])
        if not records:
            yield from [NONE[flag], *([] if oneliner else [""])]
            continue
        yield from [FLAGS[flag], *([] if oneliner else [""])]
        for record in records:
            yield from [_on_one_line(record)] if oneliner else _on_lines(record)


def _asked(words: Sequence[str]) -> Mapping[str, frozenset[str]]:
    asked = {}
    for word in words:
        name, equals, value = word.partition("=")
        known = next((one for one in OPTIONS if name and one.startswith(name.lower())), "")
        if not equals or not value:
            raise UsageError(f"No value given for option {word:.80}.", "Write NAME=VALUE.")
        if not known:
            raise UsageError(
                f"invalid entity: {word:.80} for keyword:show assoc_mgr.", f"Known are {', '.join(OPTIONS)}."
            )
        asked[known] = frozenset(part.strip() for part in value.split(",") if part.strip())
    return asked


def _flags(asked: Mapping[str, frozenset[str]]) -> frozenset[str]:
    """Those that are asked for, which may be abbreviated; else all."""
    found = set()
    for word in asked.get("flags", ()):
        flag = next((one for one in FLAGS if one.startswith(word.lower())), "")
        if not flag:
            raise UsageError(
                f"invalid flag '{word:.80}', valid options are 'Assoc, QOS, and/or Users'.",
                "Write flags=assoc,users.",
            )
        found.add(flag)
    return frozenset(found) or frozenset(FLAGS)


def _records(
    client: Client, found: Accounts, flag: str, asked: Mapping[str, frozenset[str]]
) -> Iterator[Record]:
    users, accounts, qos = (asked.get(name, frozenset()) for name in ("users", "accounts", "qos"))
    if flag == "users":
        usual = {one.user: one.account for one in found.members if one.default}
        for user in sorted({one.user for one in found.members}):
            if not users or user in users:
                of = usual.get(user, "")
                yield Record([f"UserName={_with_uid(user)} DefAccount={of} DefWckey= AdminLevel=Not Set"])
        return
    jobs = [job for job in client.jobs() if job.state not in ENDED]
    if flag == "qos":
        for number, one in enumerate(found.qos, 1):
            if not qos or one.name in qos:
                yield _of_qos(one, number, [job for job in jobs if job.qos == one.name])
        return
    cluster = client.status().settings.cluster_name
    all_of_them = list(_associations(found, client.sharing.shares()))
    numbers = {one.account: one.number for one in all_of_them if not one.user}
    in_use = in_use_of(found, jobs)
    whole = all_of_them[0].share.used if all_of_them else 0.0
    for each in all_of_them:
        if (not accounts or each.account in accounts) and (not users or not each.user or each.user in users):
            used = in_use.get((each.account, each.user)) or InUse()
            yield _of_association(each, cluster, numbers.get(each.parent), used, whole)


def _associations(found: Accounts, shares: Sequence[Share]) -> Iterator[Association]:
    """In the order of the tree."""
    own = {one.name: one.limits for one in found.accounts} | {ROOT: found.limits}
    parents = {child: name for name, below in children_of(found).items() for child in below}
    members = {(one.account, one.user): one for one in found.members}
    levels = Counter[str]()
    for share in shares:
        levels[share.account if share.user else parents.get(share.account, "")] += share.shares
    for number, share in enumerate(shares, 1):
        path = [share.account]
        while path[-1] in parents:
            path.append(parents[path[-1]])
        member = members.get((share.account, share.user))
        of_member = member.limits if member is not None else {}
        parent = share.account if share.user else parents.get(share.account, "")
        yield Association(
            number=number,
            account=share.account,
            user=share.user,
            parent="" if share.user else parent,
            default=member is not None and member.default,
            share=share,
            level=levels[parent],
            limits=of_member if share.user else own.get(share.account, {}),
            each=_lowest([of_member, *(own.get(name, {}) for name in path)]),
        )


def _lowest(all_limits: Iterable[Limits]) -> Limits:
    """Of those for each job and for each user."""
    found: dict[str, int] = {}
    for limits in all_limits:
        for name, value in limits.items():
            if "." in name:
                found[name] = min(value, found.get(name, value))
    return found


def _of_association(one: Association, cluster: str, parent: int | None, used: InUse, whole: float) -> Record:
    share, limits = one.share, one.limits
    norm = share.used / whole if whole else 0.0
    above = f"{one.parent}({parent})" if one.parent else ""
    # of a user those of the user, and those that the accounts have for each user
    whose = [limits] if one.user else []
    running, submitted = (
        _least([*(of.get(name) for of in whose), one.each.get(f"user.{name}")])
        for name in ("running", "submitted")
    )
    mine = {} if one.user else limits
    return Record(
        [
            f"ClusterName={cluster} Account={one.account} UserName={_with_uid(one.user)} "
            f"Partition= Priority=0 ID={one.number}",
            f"SharesRaw/Norm/Level/Factor={share.shares}/{share.shares_part:.2f}/{one.level}"
            f"/{share.factor or 0:.2f}",
            f"UsageRaw/Norm/Efctv={share.used:.2f}/{norm:.2f}/{share.used_part:.2f}",
            f"ParentAccount={above} Lft={one.number} DefAssoc={'Yes' if one.default else 'No'}",
            f"GrpJobs={_of(mine.get('running'), used.running)} GrpJobsAccrue=",
            f"GrpSubmitJobs={_of(mine.get('submitted'), used.submitted)} GrpWall=",
            f"GrpTRES={_tres(limits, used)}",
            f"GrpTRESMins=billing={_of(limits.get('billing_minutes'), int(share.used / 60))}",
            f"GrpTRESRunMins={_run_minutes(limits, used)}",
            f"MaxJobs={_most(running, used.running)} MaxJobsAccrue= "
            f"MaxSubmitJobs={_most(submitted, used.submitted)} MaxWallPJ={one.each.get('job.minutes', '')}",
            *_of_each_job(one.each),
            "MinPrioThresh=",
        ]
    )


def _of_qos(qos: Qos, number: int, jobs: Sequence[Job]) -> Record:
    used, by_account, by_user = InUse(), dict[str, InUse](), dict[str, InUse]()
    for job in jobs:
        used.add(job)
        by_user.setdefault(job.spec.user, InUse()).add(job)
        if job.account:
            by_account.setdefault(job.account, InUse()).add(job)
    limits = qos.limits
    mode = "OFF" if qos.preempt_mode == "off" else qos.preempt_mode.upper()
    fields = [
        f"QOS={qos.name}({number})",
        "UsageRaw=",
        f"GrpJobs={_of(limits.get('running'), used.running)} GrpJobsAccrue= "
        f"GrpSubmitJobs={_of(limits.get('submitted'), used.submitted)} GrpWall=",
        f"GrpTRES={_tres(limits, used)}",
        "GrpTRESMins=",
        f"GrpTRESRunMins={_run_minutes(limits, used)}",
        f"MaxWallPJ={limits.get('job.minutes', '')}",
        *_of_each_job(limits),
        "MinPrioThresh= ",
        "MinTRESPJ=",
        f"PreemptMode={mode}",
        f"Priority={qos.priority}",
    ]
    accounts = {name: _of_each(limits, "account.", "PA", one) for name, one in by_account.items()}
    users = {_uid(name) or name: _of_each(limits, "user.", "PU", one) for name, one in by_user.items()}
    return Record(
        fields, [Part("Account Limits", "No Accounts", accounts), Part("User Limits", "No Users", users)]
    )


def _of_each(limits: Limits, prefix: str, suffix: str, used: InUse) -> Sequence[str]:
    """For each user, or each account."""
    running, submitted = limits.get(f"{prefix}running"), limits.get(f"{prefix}submitted")
    return [
        f"MaxJobs{suffix}={_of(running, used.running)} MaxJobsAccrue{suffix}= "
        f"MaxSubmitJobs{suffix}={_of(submitted, used.submitted)}",
        f"MaxTRES{suffix}={_tres(limits, used, prefix)}",
    ]


def _of_each_job(limits: Limits) -> Iterator[str]:
    parts = ((tres, _limit(limits, tres, "job.")) for tres in TRES)
    yield f"MaxTRESPJ={','.join(f'{tres}={most}' for tres, most in parts if most is not None)}"
    yield "MaxTRESPN="
    minutes = limits.get("job.gpu_minutes_running")
    yield f"MaxTRESMinsPJ={'' if minutes is None else f'gres/gpu={minutes}'}"


def _limit(limits: Limits, tres: str, prefix: str = "") -> int | None:
    most = limits.get(prefix + LIMIT_OF[tres])
    return most * MIB_A_GIB if most is not None and tres == "mem" else most


def _tres(limits: Limits, used: InUse, prefix: str = "") -> str:
    return ",".join(f"{tres}={_of(_limit(limits, tres, prefix), used.tres[tres])}" for tres in TRES)


def _run_minutes(limits: Limits, used: InUse) -> str:
    most = {"gres/gpu": limits.get("gpu_minutes_running")}
    return ",".join(f"{tres}={_of(most.get(tres), used.minutes[tres])}" for tres in TRES)


def _of(limit: int | None, used: int) -> str:
    """`N`: no limit."""
    return f"{'N' if limit is None else limit}({used})"


def _most(limit: int | None, used: int) -> str:
    return "" if limit is None else _of(limit, used)


def _least(limits: Iterable[int | None]) -> int | None:
    return min((limit for limit in limits if limit is not None), default=None)


def _uid(user: str) -> str:
    """ "": this machine does not know the user."""
    entry = entry_of(user)
    return "" if entry is None else str(entry.pw_uid)


def _with_uid(user: str) -> str:
    return f"{user}({_uid(user) or NO_USER})" if user else ""


def _on_lines(record: Record) -> Iterator[str]:
    first, *more = all_printable(record.fields)
    yield first
    yield from (f"    {line}" for line in more)
    for part in record.parts:
        yield f"    {part.title}"
        if not part.each:
            yield f"        {part.empty}"
        for name, lines in part.each.items():
            yield f"      {printable(name)}"
            yield from (f"        {line}" for line in lines)


def _on_one_line(record: Record) -> str:
    words = [*all_printable(record.fields)]
    for part in record.parts:
        each = "".join(f" {printable(name)}={{{' '.join(lines)}}}" for name, lines in part.each.items())
        words.append(f"{part.title}={each or part.empty}")
    return " ".join(words)
