"""sinfo as Slurm's users and programs know it."""

from __future__ import annotations

import dataclasses
import json
import re

import pytest

from rm.cli.shown import moment
from rm.cli.slurm.hosts.sinfo_columns import COLUMNS
from rm.core.model.host import HostState
from tests import builders
from tests.command_line import Rmx
from tests.fake_service import Daemon
from tests.slurm_program import Slurm
from tests.unit.test_slurm_control import world  # noqa: F401


def test_hosts_are_listed_by_partition_and_state(slurm: Slurm) -> None:
    assert slurm("sinfo").out.splitlines() == [
        "PARTITION AVAIL  TIMELIMIT  NODES  STATE NODELIST",
        "fast         up   infinite      2    mix h[1-2]",
        "(null)       up   infinite      1  drain h3",
    ]
    assert slurm("sinfo", "-N").out.splitlines() == [
        "NODELIST   NODES PARTITION STATE ",
        "h1             1      fast mix   ",
        "h2             1      fast mix   ",
        "h3             1    (null) drain ",
    ]
    assert slurm("sinfo", "-s").out.splitlines() == [
        "PARTITION AVAIL  TIMELIMIT   NODES(A/I/O/T) NODELIST",
        "fast         up   infinite          2/0/0/2 h[1-2]",
        "(null)       up   infinite          0/0/1/1 h3",
    ]
    date, header, first, *_ = slurm("sinfo", "-Nl").out.splitlines()
    assert re.fullmatch(r"\w{3} \w{3} \d\d \d\d:\d\d:\d\d \d{4}", date)
    assert header.rstrip() == (
        "NODELIST   NODES PARTITION       STATE CPUS    S:C:T MEMORY TMP_DISK WEIGHT AVAIL_FE REASON"
    )
    assert first.rstrip() == (
        "h1             1      fast       mixed 8       8:1:1  32768        0      1     a100 none"
    )


def test_of_a_partition_what_drains_comes_first_and_then_what_is_busy(slurm: Slurm, daemon: Daemon) -> None:
    hosts = daemon.service.inventory
    hosts["h0"] = builders.host("h0", partitions=("fast",), state=HostState.DOWN)
    hosts["h3"] = dataclasses.replace(hosts["h3"], partitions=("fast",))
    lines = slurm("sinfo", "-h", "-o", "%P %t %N").out.splitlines()
    assert lines == ["fast drain h3", "fast mix h[1-2]", "fast down* h0"]


def test_partitions_of_which_no_host_is_shown_are_listed(slurm: Slurm, rmx: Rmx) -> None:
    rmx("partition", "add", "later", "--max-time", "30:00")
    assert slurm("sinfo", "-h").out.splitlines() == [
        "fast         up   infinite      2    mix h[1-2]",
        "later        up      30:00      0    n/a ",
        "(null)       up   infinite      1  drain h3",
    ]
    assert slurm("sinfo", "-h", "-p", "later", "-o", "%P|%F|%C|%c|%m|%t|%N").out == (
        "later|0/0/0/0|0/0/0/0|0|0|n/a|\n"
    )
    idle = slurm("sinfo", "-h", "-t", "idle", "-o", "%P %D %t").out
    assert idle.splitlines() == ["fast 0 n/a", "later 0 n/a"], "so it is where states leave none"
    assert slurm("sinfo", "-h", "-N", "-p", "later").out == "", "hosts alone"
    assert slurm("sinfo", "-h", "-o", "%N").out == "h[1-3]\n"


def test_why_hosts_are_drained_is_listed(slurm: Slurm) -> None:
    header, line = slurm("sinfo", "-R").out.splitlines()
    assert header == "REASON               USER      TIMESTAMP           NODELIST"
    assert re.fullmatch(r"bad disk {13}alice     \d{4}-\d\d-\d\dT\d\d:\d\d:\d\d h3", line)


def test_no_host_is_in_a_state_that_rm_does_not_have(slurm: Slurm) -> None:
    for state in ("completing", "comp", "maint,planned,powered_down", "reserved,reboot"):
        assert slurm("sinfo", "-h", "-N", "-t", state).out == ""
    assert (
        slurm("sinfo", "-h", "-N", "-t", "no_respond", "-o", "%N").out
        == slurm("sinfo", "-h", "-N", "-t", "down", "-o", "%N").out
    )


def test_long_lists_of_hosts_are_slurms(slurm: Slurm) -> None:
    _, header, line = slurm("sinfo", "-R", "-l").out.splitlines()
    assert header == "REASON               USER         TIMESTAMP           STATE  NODELIST"
    assert re.fullmatch(r"bad disk {13}alice {8}\S{19} drain  h3", line)
    assert slurm("sinfo", "-R", "-N").out.splitlines()[1].split() == ["h3", "1", "(null)", "drain"]
    each = slurm("sinfo", "-h", "-s", "-N", "-n", "h3").out.split()
    assert each == ["(null)", "up", "infinite", "0/0/1/1", "h3"]
    assert slurm("sinfo", "-h", "-l", "-p", "fast").out.split()[0] == "fast", "no date without a header"
    assert slurm("sinfo", "-h", "-n", "h3", "-O", "StateComplete:12,Comment:7,Extra").out.split() == [
        "idle+drain", "(null)", "(null)",
    ]  # fmt: skip


def test_hosts_are_grouped_by_what_is_shown(slurm: Slurm) -> None:
    assert slurm("sinfo", "-h", "-o", "%N").out == "h[1-3]\n"
    assert slurm("sinfo", "-h", "-o", "%C %D").out == "6/12/6/24 3\n"
    assert slurm("sinfo", "-h", "-o", "%G|%N").out == "gpu:a100:2|h1\n(null)|h[2-3]\n"
    assert slurm("sinfo", "-h", "-o", "%n").out == "h1\nh2\nh3\n"
    assert slurm("sinfo", "-h", "-O", "NodeHost:4,StateLong:8").out.splitlines()[2] == "h3  drained "
    assert slurm("sinfo", "-h", "-o", "%P", "-S", "P").out == "(null)\nfast\n"


def test_hosts_are_selected(slurm: Slurm) -> None:
    def found(*words: str) -> str:
        return slurm("sinfo", "-h", "-o", "%N", *words).out.strip()

    assert found("-p", "fast,slow") == "h[1-2]"
    assert found("-n", "h[2-3]") == "h[2-3]"
    assert found("-t", "drain") == found("--states=drained") == "h3"
    assert found("-t", "idle,mix") == "h[1-2]"
    assert found("-t", "all") == "h[1-3]"
    assert found("-t", "alloc") == "h[1-2]"  # as in Slurm also those that have room
    assert found("-t", "idle&drain") == "h3"
    assert found("-t", "mix&drain") == found("-t", "down&drain") == ""
    assert found("-d") == ""
    assert found("-r") == "h[1-3]"


def test_a_partition_of_which_no_host_is_chosen_has_a_line(slurm: Slurm) -> None:
    """Compared with Slurm 22.05: where the partition is shown, and hosts are not listed one by one."""
    form = "%P|%a|%D|%t|%N|%c|%m|%G|%f|%C|%A|%F"
    nothing = "up|0|n/a||0|0|(null)|(null)|0/0/0/0|0/0|0/0/0/0"
    assert slurm("sinfo", "-h", "-t", "down", "-o", form).out == f"fast|{nothing}\n"
    assert slurm("sinfo", "-h", "-t", "drain", "-o", "%R %D").out == "fast 0\n(null) 1\n"
    assert slurm("sinfo", "-h", "-n", "h1", "-p", "fast", "-o", "%R %D").out == "fast 1\n"
    for words in (["-o", "%D"], ["-N"], ["-R"], ["-p", "nosuch"]):
        assert slurm("sinfo", "-h", "-t", "down", *words).out == ""


def test_all_columns_have_a_name_too(slurm: Slurm) -> None:
    assert slurm("sinfo", "-O", "all") == slurm("sinfo", "-o", "%all")


def test_every_letter_shows_every_group(slurm: Slurm) -> None:
    for letter, column in COLUMNS.items():
        lines = slurm("sinfo", "-N", "-o", f"<%{letter}>").out.splitlines()
        assert lines[0] == f"<{column.header}>"
        assert len(lines) == 4, letter


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["-t", "sleepy"], "Bad state string: 'sleepy'."),
        (["-o", "%q"], "The format has %q, which is not supported."),
        (["-S", "?"], "Invalid sort specification: ?."),
        (["--yaml"], "--yaml is not supported."),
        (["h1"], "Unrecognized option: h1."),
    ],
    ids=str,
)
def test_what_is_wrong_is_an_error_of_sinfo(words: list[str], sentence: str, slurm: Slurm) -> None:
    done = slurm("sinfo", *words)
    assert (done.code, done.out) == (1, "")
    assert done.err.startswith(f"sinfo: error: {sentence}")


def test_hosts_as_json_have_slurms_fields(slurm: Slurm) -> None:
    told = json.loads(slurm("sinfo", "--json", "-N", "-o", "%N").out)  # other options have no effect
    assert told["errors"] == []
    by_name = {host["name"]: host for host in told["nodes"]}
    assert by_name["h1"].items() >= {"partitions": ["fast"], "state_flags": [], "reason": ""}.items()
    assert by_name["h1"]["idle_cpus"] + by_name["h1"]["alloc_cpus"] == by_name["h1"]["cpus"]
    drained = {"state": "idle", "state_flags": ["DRAIN"], "reason": "bad disk", "reason_set_by_user": "alice"}
    assert by_name["h3"].items() >= drained.items()


@pytest.mark.parametrize(
    ("said", "reason", "who"),
    [
        ("fan (left) broken (bob)", "fan (left) broken", "bob"),
        ("drained by bob", "drained by bob", "bob"),
        ("could not launch job 5: no room (x) (rm)", "could not launch job 5: no room (x)", "rm"),
        ("its spool cannot be written: free space", "its spool cannot be written: free space", "rm"),
    ],
)
def test_who_drained_a_host_stands_apart_from_why(
    slurm: Slurm, daemon: Daemon, said: str, reason: str, who: str
) -> None:
    inventory = daemon.service.inventory
    inventory["h3"] = dataclasses.replace(inventory["h3"], drained_by=said)
    assert slurm("sinfo", "-R", "-h", "-o", "%E|%u").out == f"{reason}|{who}\n"


def test_since_when_a_host_is_drained_is_shown_where_it_is_known(slurm: Slurm, daemon: Daemon) -> None:
    inventory, then_us = daemon.service.inventory, 1_000_000_000_000_000
    then = moment(then_us)
    hello = dataclasses.replace(inventory["h3"], since_us=then_us + 5_000_000)
    for drained_us, said in ((then_us, then), (0, "Unknown")):
        inventory["h3"] = dataclasses.replace(hello, drained_us=drained_us)
        assert slurm("sinfo", "-R", "-h", "-o", "%H").out == f"{said}\n"
        assert f"Reason=bad disk [alice@{said}]" in slurm("scontrol", "show", "node", "h3").out
        found = {host["name"]: host for host in json.loads(slurm("sinfo", "--json").out)["nodes"]}
        assert found["h3"]["reason_changed_at"] == drained_us // 1_000_000
    down = dataclasses.replace(hello, drained_by="", state=HostState.DOWN, reason="silent", since_us=then_us)
    inventory["h3"] = down
    assert slurm("sinfo", "-R", "-h", "-o", "%H").out == f"{then}\n"
