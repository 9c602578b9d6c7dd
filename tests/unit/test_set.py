"""`rmx set`: words to what is asked of the daemon, and what is refused before anything is changed."""

from __future__ import annotations

import pytest

from rm.submission.updates import NAMES
from tests.command_line import Rmx
from tests.fake_service import Daemon
from tests.submitting import submitted

HOUR_US = 3_600_000_000


@pytest.fixture(autouse=True)
def world(daemon: Daemon) -> None:
    submitted(daemon, "--job-name=one", "--time=90", "-w", "h1", "--mem=1G", "--begin=now+1hour")


def test_every_option_that_may_change_is_read_as_at_the_submission(rmx: Rmx, daemon: Daemon) -> None:
    words = (
        "name=two comment=c mail-type=END mail-user=a@b partition=a,b priority=high nice=7 time=2:00:00 "
        "requeue=no dependency=singleton "
        "hosts= exclude=h[2-3] constraint=a100 prefer=a100 licenses=x:2 exclusive=yes nodes=2 ntasks=4 "
        "ntasks-per-node=2 cpus-per-task=3 mem=0 gpus-per-node=a100:2 begin= "
        "account=lab qos=high reservation=r time-min=30 deadline=now+3days"
    )
    assert {word.partition("=")[0] for word in words.split()} >= set(NAMES) - {
        "job-name",
        "nodelist",
        "gpus-per-task",
    }
    done = rmx("set", "1", *words.split(" "))
    assert (done.code, done.out) == (0, "Job 1 is changed\n")
    spec = daemon.service.table[1].spec
    assert (spec.name, spec.comment, spec.partition, spec.priority, spec.nice) == ("two", "c", "a,b", 100, 7)
    assert (spec.time_limit_us, spec.requeue, spec.begin_us) == (2 * HOUR_US, False, None)
    assert (spec.hosts_only, spec.hosts_excluded) == ((), ("h2", "h3"))
    assert (spec.constraint, spec.prefer, spec.licenses) == ("a100", "a100", "x:2")
    assert (spec.dependency, spec.exclusive) == ("singleton", True)
    assert (spec.account, spec.qos, spec.reservation) == ("lab", "high", "r")
    assert rmx("set", "1", "account=", "qos=", "reservation=").code == 0
    spec = daemon.service.table[1].spec
    assert (spec.account, spec.qos, spec.reservation) == ("", "", "")
    assert (spec.hosts_min, spec.hosts_max, spec.ntasks) == (2, 2, 4)
    assert (spec.tasks_per_host, spec.cpus_per_task) == (2, 3)
    assert (spec.mem_all, spec.mem_bytes_per_host) == (True, 0)
    assert (spec.gpus_per_host, spec.gpu_type) == (2, "a100")
    assert rmx("set", "1", "gpus-per-task=1", "time=", "mem=2G", "--json").json["job"]["updates"] == 0
    spec = daemon.service.table[1].spec
    assert (spec.gpus_per_host, spec.gpus_per_task, spec.time_limit_us) == (0, 1, None)
    assert (spec.mem_all, spec.mem_bytes_per_host) == (False, 2 << 30)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["1", "tine=5"], "'tine' is nothing that can be changed of a job. Did you mean 'time'?"),
        (["1", "time"], "'time' is no NAME=VALUE."),
        (["1", "name="], "name has no value."),
        (["1", "nodes=0"], "nodes is '0'."),
        (["1", "ntasks=no"], "--ntasks is 'no'"),
        (["1", "exclusive=mcs"], "exclusive is 'mcs'."),
        (["1", "comment=a", "array-limit=x"], "array-limit is 'x'."),
        (["1_2", "array-limit=5"], "array-limit is the whole array's."),
        (["9", "comment=a"], "There is no job 9"),
    ],
    ids=str,
)
def test_what_is_wrong_changes_nothing(words: list[str], sentence: str, rmx: Rmx, daemon: Daemon) -> None:
    before = daemon.service.table[1]
    done = rmx("set", *words)
    assert done.code != 0
    assert sentence in done.err
    assert daemon.service.table[1] is before


def test_who_may_be_on_its_hosts_is_one_of_three(rmx: Rmx, daemon: Daemon) -> None:
    rmx("submit", "--exclusive", "--wrap=true")
    for text, wanted in (
        ("user", (False, True)), ("yes", (True, False)), ("user", (False, True)), ("no", (False, False)),
    ):  # fmt: skip
        assert rmx("set", "1", f"exclusive={text}").code == 0
        spec = daemon.service.table[1].spec
        assert (spec.exclusive, spec.exclusive_user) == wanted
