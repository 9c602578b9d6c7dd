"""`sreport`: what was used, as Slurm 22.05 prints it."""

from __future__ import annotations

import time
from datetime import datetime, tzinfo
from pathlib import Path

import pytest

from rm.config import Config, JobsConfig
from rm.core.sharing.accounts import Account, Member, checked
from rm.core.sharing.ended import Ended, Sums
from rm.units import DAY_US, HOUR_US
from tests.fake_service import Daemon, serving
from tests.slurm_program import Slurm
from tests.submitting import submitted

DAY_0_US = 10 * DAY_US  # 1970-01-11
TIME = ("start=1970-01-11", "end=1970-01-14")
RULE, DASHES_13 = "-" * 80, "-" * 13


@pytest.fixture(autouse=True)
def used(daemon: Daemon) -> None:
    """Three hosts; root in physics used most, and in optics below it GPUs; nobody is in biology."""
    service = daemon.service
    service.shared = checked(
        [Account("physics"), Account("optics", "physics"), Account("biology")],
        [Member("physics", "root"), Member("optics", "root"), Member("biology", "nobody")],
    )

    def ended(account: str, user: str, cpu_hours: int, gpu_hours: int = 0, energy_j: int = 0) -> Ended:
        held = Sums(
            cpu_us=cpu_hours * HOUR_US, mem_mib_s=cpu_hours * 3600 * 100, gpu_us=gpu_hours * HOUR_US,
            energy_mj=energy_j * 1000,
        )  # fmt: skip
        return Ended(DAY_0_US + DAY_US, account, user, "", "", "h1", Sums(jobs=1), held)

    service.ended += [
        ended("physics", "root", 100),
        ended("physics", "root", 4),
        ended("optics", "root", 5, 3, energy_j=7200),
        ended("optics", "eve-with-a-long-name", 4),
        ended("biology", "nobody", 11),
        ended("", "root", 1),
    ]


def test_who_used_what_is_grouped_by_account(slurm: Slurm) -> None:
    assert slurm("sreport", "-t", "Hours", "cluster", "AccountUtilizationByUser", *TIME).out.splitlines() == [
        RULE,
        "Cluster/Account/User Utilization 1970-01-11T00:00:00 - 1970-01-13T23:59:59 (259200 secs)",
        "Usage reported in CPU Hours",
        RULE,
        "  Cluster         Account     Login     Proper Name     Used   Energy ",
        "--------- --------------- --------- --------------- -------- -------- ",
        "       rm            root                                125        2 ",
        "       rm            root      root            root        1        0 ",
        "       rm         biology                                 11        0 ",
        "       rm         biology    nobody          nobody       11        0 ",
        "       rm         physics                                113        2 ",
        "       rm         physics      root            root      104        0 ",
        "       rm          optics                                  9        2 ",
        "       rm          optics eve-with+                        4        0 ",
        "       rm          optics      root            root        5        2 ",
    ]


def test_accounts_stand_as_a_tree_and_are_chosen(slurm: Slurm) -> None:
    words = ("sreport", "-n", "-t", "h", "cluster", "account")
    tree = slurm(*words, *TIME, "tree", "accounts=optics").out.splitlines()
    assert tree == [
        "       rm   optics                                              9        2 ",
        "       rm    optics            eve-with+                        4        0 ",
        "       rm    optics                 root            root        5        2 ",
    ]
    of_user = slurm(*words, *TIME, "users=nobody,root", "-P", "-T", "cpu,gres/gpu", "accounts=physics")
    assert of_user.out.splitlines() == [
        "rm|physics|root|root|cpu|104", "rm|physics|root|root|gres/gpu|0", "rm|optics|root|root|cpu|5",
        "rm|optics|root|root|gres/gpu|3",
    ]  # fmt: skip


def test_users_are_sorted_by_what_they_used(slurm: Slurm) -> None:
    said = slurm("sreport", "user", "top", *TIME, "topcount=3").out.splitlines()
    assert said[1:3] == [
        "Top 3 Users 1970-01-11T00:00:00 - 1970-01-13T23:59:59 (259200 secs)", "Usage reported in CPU Minutes"
    ]  # fmt: skip
    assert said[4:] == [
        "  Cluster     Login     Proper Name         Account     Used   Energy ",
        "--------- --------- --------------- --------------- -------- -------- ",
        "       rm      root            root         physics     6240        0 ",
        "       rm    nobody          nobody         biology      660        0 ",
        "       rm      root            root          optics      300      120 ",
    ]
    grouped = slurm("sreport", "user", "top", *TIME, "group", "-nP", "-T", "gres/gpu,cpu", "topc=1")
    assert grouped.out.splitlines() == [
        "rm|root|root|optics, physics, root|gres/gpu|180",
        "rm|root|root|optics, physics, root|cpu|6600",
    ]
    of_energy = slurm(
        "sreport", "user", "top", *TIME, "-nP", "-t", "minper", "accounts=optics", "format=energy"
    )
    assert of_energy.out.split() == ["120(100.00%)", "0(0.00%)"], "its part of all the energy that was used"
    by_user = slurm("sreport", "cluster", "UserUtilizationByAccount", *TIME, "-nP", "accounts=biology")
    assert by_user.out == "rm|nobody|nobody|biology|660|0\n"


def test_the_cluster_has_what_its_hosts_have(slurm: Slurm, daemon: Daemon) -> None:
    cpus = sum(host.cpus for host, *_ in daemon.service.hosts())
    words = ("sreport", "cluster", "utilization", *TIME)
    assert slurm(*words).out.splitlines() == [
        RULE,
        "Cluster Utilization 1970-01-11T00:00:00 - 1970-01-13T23:59:59",
        "Usage reported in CPU Minutes",
        RULE,
        "  Cluster Allocate     Down PLND Dow     Idle  Planned Reported ",
        "--------- -------- -------- -------- -------- -------- -------- ",
        f"       rm     7500                   {cpus * 4320 - 7500:>8}          {cpus * 4320:>8} ",
    ]
    part = 100 * 7500 / (cpus * 4320)
    assert slurm(*words, "-t", "hourper", "-p").out.splitlines()[-2:] == [
        "Cluster|Allocated|Down|PLND Down|Idle|Planned|Reported|",
        f"rm|125({part:.2f}%)|||{cpus * 72 - 125}({100 - part:.2f}%)||{cpus * 72}(100.00%)|",
    ]
    all_of_them = slurm(*words, "-nP", "-T", "ALL", "format=tresname,allocated,trescount,over").out
    gpus = sum(len(host.gpus) for host, *_ in daemon.service.hosts())
    mib = sum(host.mem_bytes >> 20 for host, *_ in daemon.service.hosts())
    assert all_of_them.splitlines() == [
        f"cpu|7500|{cpus}|", f"mem|750000|{mib}|", "energy|120||", f"gres/gpu|180|{gpus}|",
    ]  # fmt: skip


def test_columns_of_time_grow_with_their_seconds(slurm: Slurm) -> None:
    said = slurm("sreport", "user", "top", *TIME, "-T", "mem", "topcount=1", "-t", "sec", "-n").out
    assert said == "       rm      root            root         physics            mem 37440000 \n"
    wide = slurm("sreport", "user", "top", *TIME, "format=login%-6,used", "topc=1", "-n", "-t", "MinPer").out
    assert wide.startswith("root         6240(9.")
    assert len(wide) == len("root   ") + 17 + len(" \n")


@pytest.fixture
def jobs(daemon: Daemon) -> None:
    """In optics an hour with 4 processors in the time and one before it, in biology two hours with one."""
    service = daemon.service
    submitted(daemon, "-n4")
    submitted(daemon, "--gpus=1")
    submitted(daemon)
    for number, account, hours in ((1, "optics", (-1, 1)), (2, "biology", (3, 5)), (3, "biology", (-9, -5))):
        service.run(number)
        service.finish(number)
        first_us, last_us = (DAY_0_US + hour * HOUR_US for hour in hours)
        service.put(number, account=account, started_us=first_us, ended_us=last_us)


@pytest.mark.usefixtures("jobs")
def test_jobs_are_counted_by_their_size(slurm: Slurm) -> None:
    words = ("sreport", "job", "sizesbyaccount", *TIME)
    assert slurm(*words).out.splitlines() == [
        RULE,
        "Job Sizes 1970-01-11T00:00:00 - 1970-01-13T23:59:59 (259200 secs)",
        "Time reported in Minutes",
        RULE,
        "  Cluster   Account     0-49 CPUs   50-249 CPUs  250-499 CPUs  500-999 CPUs  >= 1000 CPUs "
        "% of cluster ",
        f"{'-' * 9} {'-' * 9} {f'{DASHES_13} ' * 5}{'-' * 12} ",
        "       rm      root           360             0             0             0             0 "
        "     100.00% ",
    ]
    assert slurm(*words, "-nP", "grouping=2,4", "flatview").out.splitlines() == [
        "rm|biology|120|0|0|33.33%", "rm|optics|0|0|240|66.67%",
    ]  # fmt: skip
    assert slurm(*words, "-nP", "grouping=ind", "acctasparent", "printjobcount").out.splitlines() == [
        "rm|biology|1|0|50.00%", "rm|physics|0|1|50.00%",
    ]  # fmt: skip
    of_gpus = slurm(*words, "-P", "-T", "gres/gpu", "grouping=ind", "-t", "h").out.splitlines()
    assert of_gpus[2:4] == ["TRES type is gres/gpu", "Time reported in Hours"]
    assert of_gpus[5:] == ["Cluster|Account|1 TRES|% of cluster", "rm|root|2|100.00%"]
    assert slurm(*words, "-nP", "accounts=physics", "users=nobody").out == ""
    assert slurm(*words, "-nP", "format=account", "accounts=physics", "grouping=9").out == (
        "physics|240|0|100.00%\n"
    )


def test_the_time_of_sizes_begins_where_no_job_is_forgotten(
    slurm: Slurm, daemon: Daemon, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    days = time.time() / 86_400 - 11  # since 1970-01-12, some seconds later
    with serving(tmp_path / "forgetful.sock", Config(jobs=JobsConfig(keep_days=days))) as forgetful:
        monkeypatch.setenv("RM_DAEMON__SOCKET", forgetful.socket)
        told = slurm("sreport", "job", "sizesbyaccount", *TIME)
        assert told.out.splitlines()[1] == (
            "Job Sizes 1970-01-12T01:00:00 - 1970-01-13T23:59:59 (169200 secs)"
        )
        early = slurm("sreport", "job", "sizesbyaccount", "start=1970-01-11", "end=1970-01-12")
        assert (early.code, early.out) == (1, "")
        assert early.err.startswith("sreport: error: rm keeps no jobs of before 1970-01-12T01:00:00.")


def test_a_cluster_of_another_name_has_used_nothing(slurm: Slurm) -> None:
    assert slurm("sreport", "-M", "other", "user", "top", *TIME, "-P").out.splitlines()[4:] == [
        "Cluster|Login|Proper Name|Account|Used|Energy"
    ]
    assert slurm("sreport", "-a", "user", "top", *TIME, "clusters=rm", "-nP", "topc=1").out


def test_the_day_before_is_reported_where_no_time_is_named(
    slurm: Slurm, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Clock(datetime):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> Clock:
            return cls(2026, 3, 5, 23, 59, 59, tzinfo=tz)

    monkeypatch.setattr("rm.cli.slurm.accounting.sreport.datetime", Clock)
    day = "2026-03-04T00:00:00 - 2026-03-04T23:59:59"
    assert f"Utilization {day} (86400 secs)" in slurm("sreport", "cluster", "account").out
    backwards = slurm("sreport", "cluster", "account", "start=1970-02-01", "end=1970-01-02").out
    assert "1970-02-01T00:00:00 - 1970-02-01T00:59:59 (3600 secs)" in backwards


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "No report is named."),
        (["foo"], "invalid keyword: foo."),
        (["cluster"], "too few arguments for keyword:cluster."),
        (["cluster", "userutil"], "sreport cluster UserUtilizationByWckey is not supported."),
        (["cluster", "wckey"], "sreport cluster WCKeyUtilizationByUser is not supported."),
        (["reservation", "util"], "sreport reservation Utilization is not supported."),
        (["job", "sizesbywckey"], "sreport job SizesByWckey is not supported."),
        (["job", "small"], "Not valid report small."),
        (["cluster", "util", "foo=bar"], "Unknown condition: foo=bar."),
        (["cluster", "util", "users=ann"], "Unknown condition: users=ann."),
        (["cluster", "util", "wckeys=a"], "'wckeys=a' is not supported."),
        (["cluster", "util", "tree"], "Unknown condition: tree."),
        (["user", "top", "group=1"], "Unknown condition: group=1."),
        (["user", "top", "topcount=x"], "Invalid value for TopCount (x)."),
        (["user", "top", "format=nosuch"], "Unknown field 'nosuch'."),
        (["user", "top", "format=used%x"], "Unknown field 'used%x'."),
        (["user", "top", "-T", "nosuch"], "No valid TRES given."),
        (["user", "top", "-T", "billing"], "--tres=billing is not supported."),
        (["job", "sizes", "-T", "cpu,mem"], "Job report only supports a single --tres type."),
        (["job", "sizes", "grouping=4,2"], "grouping=4,2 does not grow."),
        (["job", "sizes", "grouping=a"], "grouping=a is not supported."),
        (["-t", "foo", "cluster", "util"], "unknown time format foo."),
        (["cluster", "util", "start=foo"], "Invalid time specification: foo."),
        (["--federation", "cluster", "util"], "--federation is not supported."),
        (["--foo", "cluster", "util"], "unrecognized option '--foo'."),
    ],
)
def test_what_is_not_offered_is_refused_by_name(words: list[str], said: str, slurm: Slurm) -> None:
    done = slurm("sreport", *words)
    assert (done.code, done.out) == (1, "")
    assert done.err.startswith(f"sreport: error: {said}")
