"""`sprio` on rm's client: what scripts for Slurm read and write."""

from __future__ import annotations

import json

import pytest

from rm.api.reasons import Priority, PriorityWeights
from rm.client import Client
from tests.command_line import Rmx
from tests.fake_service import Daemon
from tests.slurm_program import Slurm

pytestmark = pytest.mark.usefixtures("jobs_of_slurm", "a_minute_later")


def test_priorities_are_listed_with_their_parts(slurm: Slurm, rmx: Rmx, daemon: Daemon) -> None:
    rmx("submit", "--priority=9", "--nice=4", "--partition=fast,slow", "--wrap=true")
    rmx("submit", "--priority=9", "--hold", "--wrap=true")
    assert slurm("sprio").out.splitlines()[0].split() == ["JOBID", "PARTITION", "PRIORITY", "SITE"]
    assert [line.split() for line in slurm("sprio", "-h").out.splitlines()] == [
        ["2", "(null)", "7", "7"],
        ["3_[0,2-5%2]", "fast", "0", "0"],
        ["6", "fast", "5", "9"],
        ["6", "slow", "5", "9"],
    ], "by id, without those that are held"
    rmx("cancel", "7")
    assert slurm("sprio", "-h", "-o", "%i %Y", "-p", "slow").out == "6 5\n"
    assert slurm("sprio", "-h", "-o", "%i", "-j", "3_2,2", "-u", "root").out.split() == ["2", "3_[0,2-5%2]"]
    assert slurm("sprio", "-u", "root").out.splitlines()[0].split()[2] == "USER"
    assert "%s, which is not supported" in slurm("sprio", "-o", "%s").err
    daemon.service.queue_policy = "multifactor"
    told = [line.split() for line in slurm("sprio", "-j", "6").out.splitlines()]
    assert told == [
        ["JOBID", "PARTITION", "PRIORITY", "SITE", "AGE", "FAIRSHARE", "JOBSIZE", "PARTITION"],
        ["6", "fast", "5007", "9", "2", "5000", "0", "0"],
        ["6", "slow", "5107", "9", "2", "5000", "0", "100"],
    ], "a line for each partition"
    assert slurm("sprio", "-h", "-o", "%r %Y", "-p", "slow").out == "slow 5107\n"
    assert (
        "  Priority 5107 = site 9 + age 1.5 + fair share 5000 + size 0.25 + QOS 0 + partition 100 - nice 4.\n"
        in rmx("why", "6").out
    )
    highest = dict(line.split() for line in slurm("sprio", "-h", "-o", "%i %Y", "-S", "Y").out.splitlines())
    by_sprio = "".join(
        f"{job} {most}\n" for job, most in sorted(highest.items(), key=lambda one: -int(one[1]))
    )
    assert slurm("squeue", "-h", "-o", "%i %Q", "--sort", "-Q,i", "-t", "PD").out == by_sprio
    assert slurm("squeue", "-h", "-o", "%p", "-j", "6").out == f"{5107 / (1 << 32):.14f}\n"
    assert "Priority=5107 Nice=4 " in slurm("scontrol", "show", "job", "6").out
    assert json.loads(slurm("squeue", "--json", "-j", "6").out)["jobs"][0]["priority"] == 5107
    running = slurm("squeue", "-h", "-o", "%i %Q", "-t", "R").out
    assert running == "1 5002\n3_1 5002\n", "as while it waited"
    assert "Priority=5002 " in slurm("scontrol", "show", "job", "1").out
    daemon.service.queue_policy = "srsf"
    refused = slurm("sprio")
    assert (refused.code, refused.out) == (1, "")
    assert refused.err.startswith("sprio: error: sprio does not know what priorities")


def test_weights_and_parts_of_priorities_stand_where_slurm_has_them(
    slurm: Slurm, rmx: Rmx, daemon: Daemon
) -> None:
    assert slurm("sprio", "-w").out.splitlines() == [
        "          JOBID PARTITION   PRIORITY       SITE",
        "        Weights                               1",
    ]
    daemon.service.queue_policy = "multifactor"
    parts = "       SITE        AGE"
    after = "  FAIRSHARE    JOBSIZE  PARTITION"
    assert slurm("sprio", "-w").out.splitlines() == [
        f"          JOBID PARTITION   PRIORITY{parts}{after}",
        "        Weights                               1       1000      10000          0      10000",
    ]
    # the lines of Slurm 22.05, but for the numbers
    assert slurm("sprio", "-l", "-j", "2").out.splitlines() == [
        f"          JOBID PARTITION     USER   PRIORITY{parts}      ASSOC{after}        QOS        NICE"
        "                 TRES",
        "              2 (null)        root       5009          7          2          0       5000          0"
        "          0          0           0                     ",
    ]
    assert slurm("sprio", "-w", "-l", "-h").out == (
        "        Weights                                        1       1000          0      10000          0"
        "      10000          0                           (null)\n"
    )
    assert slurm("sprio", "-n", "-j", "2").out.splitlines() == [
        "          JOBID PARTITION PRIORITY   AGE        FAIRSHARE  JOBSIZE    PARTITION ",
        "              2 (null)    0.00000117 0.0015000  0.5000000  0.5000000  0.0000000 ",
    ]
    assert slurm("sprio", "-n", "-l", "-j", "2").out.splitlines() == [
        "          JOBID PARTITION     USER PRIORITY   AGE        ASSOC      FAIRSHARE  JOBSIZE    PARTITION "
        " QOS        TRES                ",
        "              2 (null)        root 0.00000117 0.0015000  0.0000000  0.5000000  0.5000000  0.0000000 "
        " 0.0000000                      ",
    ]
    assert slurm("sprio", "-n", "-w", "-h").out == (
        "        Weights                      1000       10000      0          10000     \n"
    )
    by_priority = slurm("sprio", "-h", "-o", "%i", "-S", "-Y,i").out.split()
    assert by_priority == ["2", "3_[0,2-5%2]"]
    assert slurm("sprio", "-h", "-o", "%i", "-S", "Y").out.split() == by_priority[::-1]
    assert "Invalid sort specification: Z." in slurm("sprio", "-S", "Z").err
    assert slurm("sprio", "-j", "77").out == "Unable to find jobs matching user/id(s) specified\n"


def test_priorities_are_sorted_as_numbers(
    slurm: Slurm, rmx: Rmx, daemon: Daemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    for priority, nice in ((999, 1000), (1000, 999), (-5, 5)):
        rmx("submit", f"--priority={priority}", f"--nice={nice}", "--wrap=true")

    def ids(by: str) -> list[str]:
        return slurm("sprio", "-h", "-o", "%i", "-j", "6,7,8", "-S", by).out.split()

    assert (ids("S"), ids("-S")) == (["8", "6", "7"], ["7", "6", "8"])
    assert (ids("N"), ids("-N")) == (["8", "7", "6"], ["6", "7", "8"])
    daemon.service.queue_policy = "multifactor"
    made = [
        Priority(
            job=job, sum=value, site=0, age=value, fair_share=value, size=value, nice=0, qos=value,
            partition=value,
        )
        for job, value in ((6, 999.0), (7, 1000.0), (8, 99_999.0))
    ]  # fmt: skip
    weights = PriorityWeights(age=1e3, fair_share=1e3, size=1e3, qos=1e3, partition=1e3)
    monkeypatch.setattr(Client, "priorities", lambda _: made)
    monkeypatch.setattr(Client, "priority_weights", lambda _: weights)
    for letter in "AFJQPafjqpYy":
        assert (ids(letter), ids(f"-{letter}")) == (["6", "7", "8"], ["8", "7", "6"]), letter
