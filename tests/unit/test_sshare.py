"""`sshare`: the tree with shares, usage and fair share, as Slurm 22.05 prints it."""

import time
from dataclasses import replace

import pytest

from rm.core.sharing.accounts import Account, Member, checked
from rm.core.sharing.usage import Usage
from tests.command_line import Rmx
from tests.fake_service import Daemon
from tests.slurm_program import Slurm

NOTHING = "cpu=0,mem=0,node=0,gres/gpu=0"


@pytest.fixture(autouse=True)
def accounts(daemon: Daemon) -> None:
    """ann has used more than eve, and chess nothing."""
    service = daemon.service
    service.shared = checked(
        [Account("physics", shares=3), Account("chess"), Account("pawns", "chess", 2)],
        [Member("physics", "ann", 1), Member("physics", "eve", 1), Member("pawns", "eve")],
    )
    service.ledger.used = {("physics", "ann"): Usage(600.0), ("physics", "eve"): Usage(200.0)}


def test_the_tree_stands_below_its_root(slurm: Slurm) -> None:
    assert slurm("sshare", "-a").out.splitlines() == [
        "Account                    User  RawShares  NormShares    RawUsage  EffectvUsage  FairShare ",
        "-------------------- ---------- ---------- ----------- ----------- ------------- ---------- ",
        "root                                          0.000000         800      1.000000            ",
        " chess                                   1    0.250000           0      0.000000            ",
        "  pawns                                  2    1.000000           0      0.000000            ",
        "   pawns                    eve          1    1.000000           0      0.000000   1.000000 ",
        " physics                                 3    0.750000         800      1.000000            ",
        "  physics                   ann          1    0.500000         600      0.750000   0.333333 ",
        "  physics                   eve          1    0.500000         200      0.250000   0.666667 ",
    ]


def test_who_asks_for_nobody_sees_accounts_and_oneself(slurm: Slurm) -> None:
    assert [line.split("|")[0:2] for line in slurm("sshare", "-hP").out.splitlines()] == [
        ["root", ""], [" chess", ""], ["  pawns", ""], [" physics", ""],
    ]  # fmt: skip
    only = slurm("sshare", "-U", "-u", "eve", "-A", "physics", "-h", "-P", "-l").out
    assert only == f"  physics|eve|1|0.500000|200|0.250000|0.250000|0.666667|2.000000||{NOTHING}\n"
    assert slurm("sshare", "-hp", "-U", "-u", "eve", "-A", "pawns").out.endswith("|1.000000|\n")


def test_the_long_form_has_limits_of_minutes_and_what_runs_may_still_use(
    slurm: Slurm, rmx: Rmx, daemon: Daemon
) -> None:
    """An hour is left of two processors, a GPU and 1 GiB."""
    service = daemon.service
    service.shared = checked(
        [Account("physics", limits={"billing_minutes": 500}), Account("optics", "physics"), Account("chess")],
        [Member("optics", "ann", 1, limits={"billing_minutes": 60})],
    )
    rmx("submit", "-n2", "--gpus=1", "--mem=1G", "--time=60", "--wrap=true")
    rmx("submit", "--time=60", "--wrap=true")  # waits
    service.run(1)
    service.put(1, started_us=time.time_ns() // 1000 + 30_000_000)
    for number in (1, 2):
        service.put(number, account="optics", spec=replace(service.table[number].spec, user="ann"))
    runs = "cpu=120,mem=61440,node=60,gres/gpu=60"
    lines = [line.split("|") for line in slurm("sshare", "-ahPl").out.splitlines()]
    assert [(line[0].strip(), line[1], *line[-2:]) for line in lines] == [
        ("root", "", "", runs),
        ("chess", "", "", NOTHING),
        ("physics", "", "billing=500", runs),
        ("optics", "", "", runs),
        ("optics", "ann", "billing=60", runs),
    ]
    assert slurm("sshare", "-ahl").out.splitlines()[0].endswith(" cpu=120,mem=61440,node=60,gre+ ")


def test_what_it_does_not_know_is_refused(slurm: Slurm) -> None:
    refused = slurm("sshare", "--partition")
    assert (refused.code, refused.out, refused.err.count("\n")) == (1, "", 1)


def test_the_fields_are_chosen_by_their_names(slurm: Slurm) -> None:
    asked = "--format=account%-8,user%5,fair,id,normu"
    assert slurm("sshare", "-a", "-A", "pawns", asked).out.splitlines() == [
        "Account   User  FairShare     ID   NormUsage ",
        "-------- ----- ---------- ------ ----------- ",
        "  pawns                             0.000000 ",
        "   pawns   eve   1.000000           0.000000 ",
    ]
    assert slurm("sshare", "-hP", "-U", "-u", "ann", "-o", "user,rawusage").out == "ann|600\n"
    assert slurm("sshare", "-e").out.split() == [
        "Account", "Cluster", "EffectvUsage", "FairShare", "GrpTRESMins", "GrpTRESRaw", "ID", "LevelFS",
        "NormShares", "NormUsage", "Partition", "RawShares", "RawUsage", "TRESRunMins", "User",
    ]  # fmt: skip
    for wrong in ("nosuch", "user%", "user%x", "%5"):
        refused = slurm("sshare", "-o", wrong)
        assert (refused.code, 'Invalid field requested: "' in refused.err) == (1, True)
