"""The fields of `sacctmgr`: what of rm's limits stands in which, and what each table shows.

Source: sacctmgr(1) of Slurm 22.05. What rm does not keep is empty.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from rm.cli.slurm.jobs import clock_limit
from rm.units import MINUTE_US

if TYPE_CHECKING:
    from rm.api.sharing import Account, Accounts, Member, Qos

TRES = {"cpu": "cpus", "gres/gpu": "gpus", "mem": "mem_gib", "node": "hosts"}
MINUTES = {"billing_minutes": "billing", "gpu_minutes_running": "gres/gpu"}  # limit -> of what in Slurm
WHOLE = {
    "grpjobs": "running", "grpsubmit": "submitted", "grpsubmitjobs": "submitted", "grptres": "TRES",
    "grptresmins": "billing_minutes", "grptresrunmin": "gpu_minutes_running",
    "grptresrunmins": "gpu_minutes_running",
}  # fmt: skip
EACH_JOB = {
    "maxtres": "job.TRES", "maxtresperjob": "job.TRES", "maxtrespj": "job.TRES", "maxwall": "job.minutes",
    "maxwalldurationperjob": "job.minutes", "maxtresmins": "job.gpu_minutes_running",
    "maxtresminsperjob": "job.gpu_minutes_running",
}  # fmt: skip
OF_USER = {"maxjobs": "running", "maxsubmit": "submitted", "maxsubmitjobs": "submitted"}
OF_ACCOUNT = {name: f"user.{limit}" for name, limit in OF_USER.items()}  # for each user in it
OF_QOS = {
    "maxjobspu": "user.running", "maxjobsperuser": "user.running", "maxsubmitpu": "user.submitted",
    "maxsubmitjobsperuser": "user.submitted", "maxtrespu": "user.TRES", "maxtresperuser": "user.TRES",
    "maxjobspa": "account.running", "maxjobsperaccount": "account.running",
    "maxsubmitpa": "account.submitted", "maxsubmitjobsperaccount": "account.submitted",
    "maxtrespa": "account.TRES", "maxtresperaccount": "account.TRES",
}  # fmt: skip
LIMITS = {
    "account": WHOLE | EACH_JOB | OF_ACCOUNT,
    "user": WHOLE | EACH_JOB | OF_USER,
    "qos": WHOLE | EACH_JOB | OF_QOS,
}


class Row(NamedTuple):
    """What a line is of: an account, a user in it, a QOS, or the cluster."""

    found: Accounts
    cluster: str = ""
    account: Account | None = None
    member: Member | None = None
    qos: Qos | None = None

    @property
    def limits(self) -> Mapping[str, int]:
        of = self.qos or self.member or self.account
        return self.found.limits if of is None else of.limits

    @property
    def kind(self) -> str:
        return "qos" if self.qos else "user" if self.member else "account"

    @property
    def usual_qos(self) -> str:
        """That of its jobs which name none."""
        by_name = {one.name: one for one in self.found.accounts}
        at = self.account or by_name.get(self.member.account if self.member else "")
        while at is not None:
            if at.qos:
                return at.qos
            at = by_name.get(at.parent)
        return "normal" if any(one.name == "normal" for one in self.found.qos) else ""


class Field(NamedTuple):
    header: str
    width: int
    text: Callable[[Row], Any]


def limit(name: str) -> Callable[[Row], str]:
    """What stands under a name of Slurm's."""

    def text(row: Row) -> str:
        ours = LIMITS[row.kind].get(name)
        if ours is None:
            return ""
        if ours.endswith("TRES"):
            prefix = ours.removesuffix("TRES")
            parts = ((slurm, row.limits.get(prefix + mine)) for slurm, mine in TRES.items())
            suffix = {"mem": "G"}
            return ",".join(f"{one}={n}{suffix.get(one, '')}" for one, n in parts if n is not None)
        value = row.limits.get(ours)
        if value is None:
            return ""
        if ours == "job.minutes":
            return clock_limit(value * MINUTE_US)
        of = MINUTES.get(ours.rpartition(".")[2])
        return f"{of}={value}" if of else str(value)

    return text


def _usual_account(row: Row) -> str:
    user = row.member.user if row.member else ""
    return next((one.account for one in row.found.members if one.user == user and one.default), "")


def _qos_of(row: Row) -> str:
    """Those that the account may use, with the accounts above it."""
    name = row.account.name if row.account else row.member.account if row.member else ""
    by_name, path = {one.name: one for one in row.found.accounts}, set[str]()
    while name in by_name and name not in path:
        path.add(name)
        name = by_name[name].parent
    return ",".join(one.name for one in row.found.qos if not one.accounts or path & {*one.accounts})


def _seconds(seconds: float) -> str:
    whole = int(seconds)
    return f"{whole // 3600:02d}:{whole // 60 % 60:02d}:{whole % 60:02d}"


def _nothing(row: Row) -> str:
    return ""


FIELDS: Mapping[str, Field] = {
    "account": Field("Account", 10, lambda r: r.account.name if r.account else r.member.account if r.member
                     else "root"),
    "descr": Field("Descr", 20, lambda r: r.account.description if r.account else r.qos.description
                   if r.qos else ""),
    "org": Field("Org", 20, _nothing),
    "user": Field("User", 10, lambda r: r.member.user if r.member else ""),
    "defaultaccount": Field("Def Acct", 10, _usual_account),
    "admin": Field("Admin", 9, lambda r: "None"),
    "cluster": Field("Cluster", 10, lambda r: r.cluster),
    "partition": Field("Partition", 10, _nothing),
    "share": Field("Share", 9, lambda r: r.member.shares if r.member else r.account.shares if r.account
                   else 1),
    "parentname": Field("Par Name", 10, lambda r: r.account.parent if r.account else ""),
    "qos": Field("QOS", 20, _qos_of),
    "defaultqos": Field("Def QOS", 9, lambda r: r.usual_qos),
    "name": Field("Name", 10, lambda r: r.qos.name if r.qos else ""),
    "priority": Field("Priority", 10, lambda r: r.qos.priority if r.qos else ""),
    "gracetime": Field("GraceTime", 10, lambda r: _seconds(r.qos.grace_s) if r.qos else ""),
    "preempt": Field("Preempt", 10, lambda r: ",".join(r.qos.preempts) if r.qos else ""),
    "preemptexempttime": Field("PreemptExemptTime", 19, lambda r: _seconds(r.qos.exempt_s) if r.qos and
                               r.qos.exempt_s else ""),
    "preemptmode": Field("PreemptMode", 11, lambda r: r.qos.preempt_mode if r.qos else ""),
    "flags": Field("Flags", 20, _nothing),
    "usagefactor": Field("UsageFactor", 11, lambda r: f"{r.qos.usage_factor:.6f}" if r.qos else ""),
    "controlhost": Field("ControlHost", 15, _nothing),
    "controlport": Field("ControlPort", 12, _nothing),
    "rpc": Field("RPC", 5, _nothing),
    "grpjobs": Field("GrpJobs", 7, limit("grpjobs")),
    "grpsubmit": Field("GrpSubmit", 9, limit("grpsubmit")),
    "grptres": Field("GrpTRES", 13, limit("grptres")),
    "grptresmins": Field("GrpTRESMins", 13, limit("grptresmins")),
    "grptresrunmin": Field("GrpTRESRunMin", 13, limit("grptresrunmin")),
    "grpwall": Field("GrpWall", 11, _nothing),
    "maxjobs": Field("MaxJobs", 7, limit("maxjobs")),
    "maxsubmit": Field("MaxSubmit", 9, limit("maxsubmit")),
    "maxtres": Field("MaxTRES", 13, limit("maxtres")),
    "maxtrespernode": Field("MaxTRESPerNode", 14, _nothing),
    "maxtresmins": Field("MaxTRESMins", 13, limit("maxtresmins")),
    "maxwall": Field("MaxWall", 11, limit("maxwall")),
    "maxjobspu": Field("MaxJobsPU", 9, limit("maxjobspu")),
    "maxsubmitpu": Field("MaxSubmitPU", 11, limit("maxsubmitpu")),
    "maxtrespu": Field("MaxTRESPU", 13, limit("maxtrespu")),
    "maxjobspa": Field("MaxJobsPA", 9, limit("maxjobspa")),
    "maxsubmitpa": Field("MaxSubmitPA", 11, limit("maxsubmitpa")),
    "maxtrespa": Field("MaxTRESPA", 13, limit("maxtrespa")),
}  # fmt: skip
OTHER_NAMES = {
    "accounts": "account", "acct": "account", "description": "descr", "organization": "org", "users": "user",
    "adminlevel": "admin", "fairshare": "share", "shares": "share", "parent": "parentname",
    "defaultacct": "defaultaccount", "grpsubmitjobs": "grpsubmit", "grptresrunmins": "grptresrunmin",
    "maxsubmitjobs": "maxsubmit", "maxtresperjob": "maxtres", "maxtrespj": "maxtres",
    "maxwalldurationperjob": "maxwall", "maxtresminsperjob": "maxtresmins", "maxjobsperuser": "maxjobspu",
    "maxsubmitjobsperuser": "maxsubmitpu", "maxtresperuser": "maxtrespu", "maxjobsperaccount": "maxjobspa",
    "maxsubmitjobsperaccount": "maxsubmitpa", "maxtresperaccount": "maxtrespa",
}  # fmt: skip
USUAL = {
    "account": "account,descr,org",
    "user": "user,defaultaccount,admin",
    "association": "cluster,account,user,partition,share,grpjobs,grptres,grpsubmit,grpwall,grptresmins,"
    "maxjobs,maxtres,maxtrespernode,maxsubmit,maxwall,maxtresmins,qos,defaultqos,grptresrunmin",
    "qos": "name,priority,gracetime,preempt,preemptexempttime,preemptmode,flags,usagefactor,grptres,"
    "grptresmins,grptresrunmin,grpjobs,grpsubmit,grpwall,maxtres,maxtrespernode,maxtresmins,maxwall,"
    "maxtrespu,maxjobspu,maxsubmitpu,maxtrespa,maxjobspa,maxsubmitpa",
    "cluster": "cluster,controlhost,controlport,rpc,share,grpjobs,grptres,grpsubmit,maxjobs,maxtres,"
    "maxsubmit,maxwall,qos,defaultqos",
}
