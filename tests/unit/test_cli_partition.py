"""`rmx partition`, and partitions in `sinfo`, `scontrol`, `sprio` and the file of accounts."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import pytest

from tests import builders
from tests.command_line import Rmx
from tests.fake_service import Daemon
from tests.slurm_program import Slurm


@pytest.fixture(autouse=True)
def world(daemon: Daemon) -> None:
    """h1 and h2 are in `gpu`, h3 in `debug`."""
    hosts = daemon.service.inventory
    for name in ("h1", "h2"):
        hosts[name] = dataclasses.replace(hosts[name], partitions=("gpu",))
    hosts["h3"] = builders.host("h3", partitions=("debug",))


def test_rules_are_given_changed_shown_and_taken_away(rmx: Rmx, tmp_path: Path) -> None:
    rmx("account", "add", "physics")
    rmx("qos", "add", "fast")
    for words, says in (
        (("add", "gpu", "--default-time", "1:00:00", "--max-time", "2-00:00", "--limit", "user.gpus=8",
          "--accounts", "physics", "--qos", "fast"), "Partition gpu has rules.\n"),
        (("set", "gpu", "--state", "drain", "--tier", "3", "--priority", "9", "--limit", "gpus=5"),
         "Partition gpu is changed.\n"),
        (("set", "gpu", "--limit", "gpus=none", "--default-time", "30"), "Partition gpu is changed.\n"),
        (("set", "gpu", "--preempt-mode", "suspend", "--exempt", "60"), "Partition gpu is changed.\n"),
        (("add", "later"), "Partition later has rules.\n"),
    ):  # fmt: skip
        assert rmx("partition", *words).out == says
    shown = rmx("partition", "show")
    assert [line.split() for line in shown.out.splitlines()] == [
        ["PARTITION", "STATE", "HOSTS", "TIER", "PRIORITY", "DEFAULT", "ACCOUNTS", "QOS", "PREEMPTED",
         "LIMITS", "DESCRIPTION"],
        ["gpu", "drain", "h[1-2]", "3", "9", "30:00", "physics", "fast",
         "suspend,exempt=60", "job.minutes=2880,user.gpus=8"],
        ["later", "up", "1", "0", "off"],
        ["debug", "up", "h3", "1", "0", "off"],
    ]  # fmt: skip
    before = rmx("partition", "show", "--json").json
    (tmp_path / "accounts.toml").write_text(rmx("account", "export").out)
    assert rmx("partition", "remove", "gpu").out == "Partition gpu has no rules any more.\n"
    rmx("partition", "set", "later", "--state", "down", "--description", "ours")
    assert rmx("account", "import", "accounts.toml").code == 0
    assert rmx("partition", "show", "--json").json == before


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("set", "gpu"), "The request changes nothing."),
        (("set", "cpu", "--tier", "2"), "No rules of a partition 'cpu' are there."),
        (("add", "gpu", "--accounts", "chess"), "Partition gpu is for 'chess', which is no account."),
        (("add", "gpu", "--qos", "slow"), "Partition gpu is for 'slow', which is no QOS."),
        (("add", "gpu", "--max-time", "soon"), "'soon' is not a time limit."),
        (("add", "gpu", "--limit", "speed=1"), "Partition gpu has no limit 'speed'."),
        (("remove", "cpu"), "No rules of a partition 'cpu' are there."),
    ],
)
def test_what_is_no_rule_is_refused(rmx: Rmx, words: tuple[str, ...], says: str) -> None:
    refused = rmx("partition", *words)
    assert refused.code in (2, 4)
    assert says in refused.err
    assert refused.err.count("\n") == 1


def test_the_mode_of_preemption_is_off_until_a_qos_may_preempt(rmx: Rmx, slurm: Slurm) -> None:
    for mode in ("OFF", "REQUEUE"):
        assert set(slurm("sinfo", "-h", "-o", "%M").out.split()) == {mode}
        assert slurm("sinfo", "-h", "-O", "PreemptMode").out.split()[0] == mode
        assert f" PreemptMode={mode}\n" in slurm("scontrol", "show", "partition").out
        rmx("qos", "add", "batch")
        rmx("qos", "add", "urgent", "--preempts", "batch")


def test_one_without_hosts_is_shown(rmx: Rmx, slurm: Slurm) -> None:
    rmx("partition", "add", "later", "--tier", "4")
    names = re.findall(r"PartitionName=(\w+)", slurm("scontrol", "show", "partition").out)
    assert names == ["gpu", "debug", "later"]
    shown = slurm("scontrol", "show", "partition", "later").out.split()
    assert {"Nodes=(null)", "TotalNodes=0", "TRES=(null)", "PriorityTier=4"} <= set(shown)


def test_where_there_is_none_the_command_that_makes_one_is_named(rmx: Rmx, daemon: Daemon) -> None:
    daemon.service.inventory = {"h1": builders.host("h1")}
    said = rmx("partition", "show").out
    assert said == "There are no partitions. `rmx host add NAME --partition NAME` puts a host into one.\n"
    assert "--partition" in rmx("host", "add", "--help").out


def test_slurms_commands_show_and_change_them(rmx: Rmx, slurm: Slurm) -> None:
    rmx("partition", "add", "debug", "--max-time", "30:00", "--limit", "job.hosts=1", "--tier", "10")
    assert slurm("sinfo", "-h", "-p", "gpu", "-o", "%I").out.split() == ["0"]
    assert " PriorityJobFactor=0 " in slurm("scontrol", "show", "partition", "gpu").out.replace("\n", " ")
    refused = slurm("scontrol", "update", "PartitionName=gpu", "AllowAccounts=nobody")
    assert "Partition gpu is for 'nobody', which is no account." in refused.err
    assert "gpu" not in rmx("partition", "show", "--json").out, "nothing of what is refused is left"
    words = [
        "State=INACTIVE",
        "MaxTime=1-00:00:00",
        "DefaultTime=2:00:00",
        "PriorityJobFactor=7",
        "MaxNodes=4",
    ]
    assert slurm("scontrol", "update", "PartitionName=gpu", *words) == (0, "", "")
    assert slurm("sinfo", "-h", "-o", "%P %a %l %s %p %I").out.splitlines() == [
        "gpu inact 1-00:00:00 1-4 1 7",
        "debug up 30:00 1 10 0",
    ]
    shown = slurm("scontrol", "show", "partition", "gpu").out
    fields = dict(re.findall(r"(\S+?)=(\S*)", shown))
    wanted = {
        "PartitionName": "gpu", "AllowAccounts": "ALL", "DefaultTime": "02:00:00", "MaxTime": "1-00:00:00",
        "MaxNodes": "4", "PriorityJobFactor": "7", "PriorityTier": "1", "State": "INACTIVE",
    }  # fmt: skip
    assert {name: fields[name] for name in wanted} == wanted
    assert slurm("scontrol", "update", "PartitionName=gpu", "MaxTime=UNLIMITED", "DefaultTime=NONE").code == 0
    assert "DefaultTime=NONE" in slurm("scontrol", "show", "partition", "gpu").out
    for field, says in (
        ("Speed=9", "Update of this parameter is not supported: speed=9."),
        ("MaxNodes=many", "maxnodes is 'many'."),
        ("State=SHUT", "Invalid input: State=SHUT. Acceptable State values are UP, DOWN, DRAIN, INACTIVE."),
    ):
        refused = slurm("scontrol", "update", "PartitionName=gpu", field)
        assert (refused.code, says in refused.err) == (1, True)
    assert "Invalid partition name" in slurm("scontrol", "update", "PartitionName=x", "State=UP").err
