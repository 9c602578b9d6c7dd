"""`rmx sim month` and `rmx sim waits`: who gets how much under multifactor, and how long jobs wait."""

from __future__ import annotations

from pathlib import Path

import pytest

from rm.core.model.job import JobSpec
from rm.core.registry import load
from rm.core.scheduling.engine import Policies
from rm.errors import UsageError
from rm.sim import month, trace
from rm.sim.batch import Batch, Played, Stay, Work, held_by, hosts_of
from rm.units import HOUR_US, MINUTE_US
from tests import builders
from tests.command_line import Rmx

MONTH = Path("examples/sim/month.toml")
SMALL = """
name = "three days"
days = 3
policies = ["multifactor", "fifo"]
[options.multifactor]
age_weight = 0.0
[cluster]
hosts = 1
gpus = 8
[account]
physics = 3
chess = 1
[[user]]
name = "ann"
account = "physics"
appetite = 1.5
hours = 2.0
[[user]]
name = "eve"
account = "chess"
appetite = 9.0
hours = 2.0
"""
TRACE = """timestamp,duration,num_gpus,cluster
2017-10-09 07:00:00,3600.0,2,a
2017-10-09 07:00:00,3600.0,2,b
2017-10-09 07:10:00,3600.0,4,a
2017-10-09 07:20:00,600.0,2,a
2017-10-09 07:30:00,7200.0,64,a
2017-10-09 07:40:00,7200.0,2,a
"""


def test_each_user_gets_the_part_that_is_due_however_much_each_wants(tmp_path: Path) -> None:
    (tmp_path / "m.toml").write_text(SMALL)
    form = month.read(tmp_path / "m.toml")
    due = month.parts_of(form)
    assert due == {"ann": 0.75, "eve": 0.25}
    got = {}
    for queue in form.policies:
        played = month.play(form, queue, 1)
        held = held_by(played.stays, form.span_us)
        got[queue] = held["ann"] / sum(held.values())
        assert played.utilisation(form.span_us) > 0.95
        _check(played)
    assert got["multifactor"] == pytest.approx(0.75, rel=0.05)
    assert got["fifo"] < 0.6, "without shares it is the appetite that counts"


@pytest.mark.parametrize(("weight", "most"), [(1.0, 5), (0.0, 8)])
def test_who_comes_first_does_not_take_all_that_comes_free_before_any_of_it_was_used(
    tmp_path: Path, weight: float, most: int
) -> None:
    """ann has run on all eight GPUs for an hour, which come free one a minute; both have more that waits."""
    (tmp_path / "m.toml").write_text(SMALL.replace("physics = 3", "physics = 1"))
    form = month.read(tmp_path / "m.toml")

    def job(user: str, account: str, run_us: int) -> JobSpec:
        return builders.spec(user=user, account=account, gpus_per_task=1, time_limit_us=2 * run_us)

    works = [
        Work(0, HOUR_US + n * MINUTE_US, job("ann", "physics", HOUR_US + 9 * MINUTE_US)) for n in range(8)
    ]
    works += [Work(1, 8 * HOUR_US, job("ann", "physics", 8 * HOUR_US)) for _ in range(8)]
    works += [Work(1, 8 * HOUR_US, job("eve", "chess", 8 * HOUR_US)) for _ in range(8)]
    queue = load("queue", "multifactor", {"age_weight": 0.0, "committed_weight": weight})
    policies = Policies(queue, load("placement", "zone"), load("comm", "none"))
    played = Batch(hosts_of(1, 8, 64), policies, month.accounts_of(form)).play(works, 2 * HOUR_US)
    started = [one for one in played.stays if one.work.spec.user == "eve" and one.start_us is not None]
    assert len(started) == most


def _check(played) -> None:
    """Never more than the cluster has, and what is added up is what was held."""
    edges = sorted(
        (at, change)
        for one in played.stays
        if one.start_us is not None
        for at, change in ((one.start_us, one.gpus), (one.end_us or 1 << 60, -one.gpus))
    )
    used = 0
    for _, change in sorted(edges, key=lambda edge: (edge[0], edge[1])):
        used += change
        assert 0 <= used <= played.gpus


def test_the_example_is_one_whose_users_all_want_more_than_is_due() -> None:
    form = month.read(MONTH)
    assert len(form.user) == 10
    assert all(one.appetite > 1.5 for one in form.user)
    assert sum(month.parts_of(form).values()) == pytest.approx(1.0)


def test_the_command_lists_what_each_got(rmx: Rmx, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "m.toml").write_text(SMALL.replace("days = 3", "days = 1"))
    told = rmx("sim", "month", "m.toml", "--plot", "m.svg")
    assert told.code == 0, told.err
    assert told.out.splitlines()[0].split() == ["USER", "APPETITE", "SHARE", "MULTIFACTOR", "FIFO"]
    assert (tmp_path / "m.svg").exists()
    again = rmx("sim", "month", "m.toml", "--json").json
    assert set(again["got"]) == {"multifactor", "fifo"}
    assert sum(again["got"]["fifo"].values()) == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ('account = "chess"', 'account = "sport"', "eve is in 'sport', which is no account."),
        ("appetite = 9.0", "appetite = 0.0", "at user[1].appetite"),
        ("gpus = 8", "gpus = 0", "at cluster.gpus"),
        ("days = 3", "weeks = 2", "unknown field `weeks`"),
    ],
)
def test_a_scenario_that_is_none_is_a_sentence(tmp_path: Path, old: str, new: str, says: str) -> None:
    (tmp_path / "m.toml").write_text(SMALL.replace(old, new))
    with pytest.raises(UsageError) as refusal:
        month.read(tmp_path / "m.toml")
    assert says in str(refusal.value)


def test_a_trace_is_played_and_expected_starts_are_compared(
    rmx: Rmx, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "t.csv").write_text(TRACE)
    words = ("sim", "waits", "t.csv", "--cluster", "a", "--hosts", "1", "--gpus", "4", "--ask-each", "1")
    told = rmx(*words, "--badness", "0", "--queue", "fifo,backfill:1,backfill:4", "--json").json["policies"]
    assert {one["jobs"] for one in told.values()} == {4}, "64 GPUs fit nowhere, and b is another cluster"
    # 2 GPUs to 8:00; 4 from then to 9:00; 2 of 10 minutes before them, or after; 2 of two hours after them
    assert told["backfill:1"]["mean_s"] == pytest.approx((0 + 50 + 0 + 80) * 60 / 4)
    assert told["backfill:1"]["latest_error_s"] <= 1_800, "limits are whole half hours"
    assert told["backfill:1"]["asked"] == 2
    table = rmx(*words, "--queue", "backfill:1").out.splitlines()
    assert table[0].split()[:2] == ["QUEUE", "WAIT"]
    assert table[-1] == "4 jobs on 1 hosts with 4 GPUs each."


def test_who_was_told_no_interval_started_within_none() -> None:
    """Before ten jobs have ended only the latest start is said."""
    work = Work(0, 10_000_000, builders.spec())
    stays = [
        Stay(work, 1, 4_000_000, 14_000_000, expected)
        for expected in ((9_000_000,) * 4, (1_000_000, 2_000_000, 5_000_000, 9_000_000))
    ]
    found = trace.waits_of(Played(stays, 8, 20_000_000))
    assert (found.asked, found.within, found.before, found.interval_s) == (2, 1.0, 0.0, 4.0)
    assert found.likely_error_s == 5.0, "how far it was off is known of both"


def test_a_sample_that_comes_with_rm_is_played_by_its_name(rmx: Rmx) -> None:
    words = ("sim", "waits", "philly-2", "--hosts", "4", "--ask-each", "0", "--queue", "fifo", "--json")
    found = rmx(*words).json
    assert (found["trace"], found["policies"]["fifo"]["jobs"]) == ("philly-2", 160)
    assert "fits these hosts" in rmx("sim", "waits", "philly-2", "--hosts", "1", "--gpus", "1").err
    assert "cannot be read" in rmx("sim", "waits", "philly-9").err


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("a,b\n1,2\n", "is no trace"),
        ("", "is no trace"),
        (TRACE.replace(",600.0", ",long"), "line 5"),
        (TRACE.replace(",600.0", ",nan"), "line 5: the duration is nan; write 0 to"),
        (TRACE.replace(",600.0", ",inf"), "line 5: the duration is inf"),
        (TRACE.replace(",600.0", ",-1"), "line 5: the duration is -1"),
        (TRACE.replace(",600.0,2", ",600.0,0"), "line 5: num_gpus is 0; write 1 or more"),
        (TRACE.replace(",600.0,2", ",600.0,-1"), "line 5: num_gpus is -1"),
        (TRACE.replace(",600.0,2,a", ",600.0"), "line 5: it has fewer columns than the first line"),
        (TRACE.replace("2017-10-09 07:20:00", ""), "line 5: Invalid isoformat"),
    ],
)
def test_what_is_no_trace_is_a_sentence(tmp_path: Path, text: str, says: str) -> None:
    (tmp_path / "t.csv").write_text(text)
    with pytest.raises(UsageError) as refusal:
        trace.read(tmp_path / "t.csv", trace.Settings(1))
    assert says in str(refusal.value)


def test_limits_are_never_shorter_than_the_jobs(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(TRACE)
    for work in trace.read(tmp_path / "t.csv", trace.Settings(64, badness=3.0)):
        assert work.spec.time_limit_us is not None
        assert work.run_us <= work.spec.time_limit_us <= 4 * work.run_us + trace.HALF_HOUR_US
        assert work.spec.time_limit_us % trace.HALF_HOUR_US == 0
