"""`scontrol show assoc_mgr`: users, accounts and QOS with their limits, as Slurm 22.05 prints them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rm.core.model.asked.array import Array
from rm.core.sharing.accounts import Account, Member, Qos, checked
from rm.core.sharing.usage import Usage
from tests.command_line import Rmx
from tests.fake_service import Daemon
from tests.slurm_program import Slurm

STATE = "Current Association Manager state"


@pytest.fixture(autouse=True)
def accounts(daemon: Daemon, rmx: Rmx) -> None:
    """In optics, below physics, root runs two processors and waits with an array of three, nobody has used
    nothing in biology."""
    service = daemon.service
    service.shared = checked(
        [
            Account(
                "physics", shares=3, limits={"cpus": 100, "user.running": 3, "job.minutes": 90, "job.gpus": 8}
            ),
            Account("optics", "physics", limits={"running": 20, "mem_gib": 2, "billing_minutes": 500}),
            Account("biology"),
        ],
        [
            Member("optics", "root", default=True, limits={"running": 7, "job.minutes": 60}),
            Member("biology", "nobody", default=True),
        ],
        [
            Qos("normal"),
            Qos("high", 10, limits={"running": 5, "user.cpus": 3, "account.submitted": 9}),
        ],
    )
    service.ledger.used = {("optics", "root"): Usage(600.0)}
    rmx("submit", "-n2", "--gpus=1", "--mem=1G", "--wrap=true")
    rmx("submit", "--array=0-2", "--wrap=true")
    service.run(1)
    service.put(2, array=Array(waiting="0-2"))
    for number in (1, 2):
        service.put(number, account="optics", qos="high")
        job = service.table[number]
        service.put(number, spec=replace(job.spec, user="root"))


def test_users_have_their_accounts(slurm: Slurm) -> None:
    assert slurm("scontrol", "show", "assoc_mgr", "flags=users").out.splitlines() == [
        STATE,
        "",
        "User Records",
        "",
        "UserName=nobody(65534) DefAccount=biology DefWckey= AdminLevel=Not Set",
        "UserName=root(0) DefAccount=optics DefWckey= AdminLevel=Not Set",
    ]


def test_an_account_has_its_limits_with_what_is_in_use(slurm: Slurm) -> None:
    said = slurm("scontrol", "show", "assoc_mgr", "flags=Assoc", "accounts=optics").out.splitlines()
    assert said[:19] == [
        STATE,
        "",
        "Association Records",
        "",
        "ClusterName=rm Account=optics UserName= Partition= Priority=0 ID=5",
        "    SharesRaw/Norm/Level/Factor=1/1.00/1/0.00",
        "    UsageRaw/Norm/Efctv=600.00/1.00/1.00",
        "    ParentAccount=physics(4) Lft=5 DefAssoc=No",
        "    GrpJobs=20(1) GrpJobsAccrue=",
        "    GrpSubmitJobs=N(4) GrpWall=",
        "    GrpTRES=cpu=N(2),mem=2048(1024),node=N(1),gres/gpu=N(1)",
        "    GrpTRESMins=billing=500(10)",
        "    GrpTRESRunMins=cpu=N(0),mem=N(0),node=N(0),gres/gpu=N(0)",
        "    MaxJobs=3(1) MaxJobsAccrue= MaxSubmitJobs= MaxWallPJ=90",
        "    MaxTRESPJ=gres/gpu=8",
        "    MaxTRESPN=",
        "    MaxTRESMinsPJ=",
        "    MinPrioThresh=",
        "ClusterName=rm Account=optics UserName=root(0) Partition= Priority=0 ID=6",
    ]
    assert said[22] == "    GrpJobs=N(1) GrpJobsAccrue="
    assert said[27] == "    MaxJobs=3(1) MaxJobsAccrue= MaxSubmitJobs= MaxWallPJ=60"


def test_accounts_above_hold_what_is_below_them(slurm: Slurm) -> None:
    lines = slurm("scontrol", "-o", "show", "assoc", "flags=assoc", "users=nobody").out.splitlines()
    assert lines[:2] == [STATE, "Association Records"]
    assert [line.split()[1:3] for line in lines[2:]] == [
        ["Account=root", "UserName="],
        ["Account=biology", "UserName="],
        ["Account=biology", "UserName=nobody(65534)"],
        ["Account=physics", "UserName="],
        ["Account=optics", "UserName="],
    ]
    for line in (lines[2], lines[5]):
        assert "GrpSubmitJobs=N(4)" in line
    assert "GrpTRES=cpu=100(2),mem=N(1024),node=N(1),gres/gpu=N(1)" in lines[5]
    assert "GrpSubmitJobs=N(0)" in lines[3]


def test_a_qos_has_limits_for_each_user_and_account(slurm: Slurm) -> None:
    said = slurm("scontrol", "show", "assoc_mgr", "flags=qos").out.splitlines()
    high = said.index("QOS=high(2)")
    assert said[4:high][-4:] == [
        "    Account Limits", "        No Accounts", "    User Limits", "        No Users"
    ]  # fmt: skip
    assert said[high + 2 : high + 5] == [
        "    GrpJobs=5(1) GrpJobsAccrue= GrpSubmitJobs=N(4) GrpWall=",
        "    GrpTRES=cpu=N(2),mem=N(1024),node=N(1),gres/gpu=N(1)",
        "    GrpTRESMins=",
    ]
    assert said[-10:] == [
        "    PreemptMode=REQUEUE",
        "    Priority=10",
        "    Account Limits",
        "      optics",
        "        MaxJobsPA=N(1) MaxJobsAccruePA= MaxSubmitJobsPA=9(4)",
        "        MaxTRESPA=cpu=N(2),mem=N(1024),node=N(1),gres/gpu=N(1)",
        "    User Limits",
        "      0",
        "        MaxJobsPU=N(1) MaxJobsAccruePU= MaxSubmitJobsPU=N(4)",
        "        MaxTRESPU=cpu=3(2),mem=N(1024),node=N(1),gres/gpu=N(1)",
    ]
    line = slurm("scontrol", "-o", "show", "assoc_mgr", "flags=qos", "qos=high").out.splitlines()[-1]
    assert " Account Limits= optics={MaxJobsPA=N(1) " in line
    assert line.endswith("MaxTRESPU=cpu=3(2),mem=N(1024),node=N(1),gres/gpu=N(1)}")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["flags=tres"], "invalid flag 'tres', valid options are 'Assoc, QOS, and/or Users'"),
        (["foo=bar"], "invalid entity: foo=bar for keyword:show assoc_mgr"),
        (["root"], "No value given for option root"),
    ],
)
def test_what_cannot_be_read_is_refused(words: list[str], said: str, slurm: Slurm) -> None:
    done = slurm("scontrol", "show", "assoc_mgr", *words)
    assert (done.code, done.out) == (1, "")
    assert said in done.err


def test_none_is_said(slurm: Slurm) -> None:
    said = slurm("scontrol", "show", "assoc_mgr", "flags=qos", "qos=nosuch").out
    assert said == f"{STATE}\n\nNo QOS currently cached in Slurm.\n\n"
