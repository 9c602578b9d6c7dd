"""The page's views: what is drawn of the API's answers."""

from __future__ import annotations

import re
from typing import Any

import pytest
from msgspec.structs import replace

from rm.api.alerts import Alert, Silence
from rm.api.hosts import Host
from rm.api.job_rows import row_of
from rm.api.jobs import Iterations, Job
from rm.api.monitoring import Cell, Change, Mesh
from rm.api.network import Demand, History, Link, Pair, Sample
from rm.api.reasons import Why
from rm.cli import shown
from rm.core.monitoring.cells import Status
from rm.units import format_elapsed
from rm.web.pages import (
    alert_view,
    circle_view,
    grid_view,
    iteration_view,
    job_view,
    network_view,
    overview_view,
    pair_view,
    queue_view,
    timeline_view,
    why_view,
)
from rm.web.pages.people import Door, Person
from rm.web.pages.text import Looks, duration, look
from tests.answers import answer
from tests.fake_page import PERIOD_US

US = 1_000_000


def test_numbers_as_people_read_them() -> None:
    assert [duration(us) for us in (None, 76, 97_300, 202_000, 3.25e6, -2_000)] == [
        "–", "76 µs", "97.3 ms", "202 ms", "3.25 s", "−2 ms",
    ]  # fmt: skip
    assert len({look(job) for job in range(100, 136)}) == 36


def test_jobs_that_run_together_have_colours_of_their_own_and_keep_them() -> None:
    looks = Looks()
    looks.see([2, 8])  # of one colour by themselves
    first = [looks(2), looks(8)]
    assert first[0][0] != first[1][0]
    looks.see([8, 14, 20, 26, 32])
    assert [looks(2), looks(8)] == first
    assert len({looks(job)[0] for job in (8, 14, 20, 26, 32)}) == 5


def job(id: int, state: str = "RUNNING", **more: Any) -> Job:
    spec = {"name": f"j{id}", "user": "ann", "ntasks": 1}
    made = {
        "id": id, "state": state, "short_state": "R", "hosts": ["h1"],
        "started_us": None if state == "PENDING" else 100 * US,
    }  # fmt: skip
    return answer(Job, **{**made, **more, "spec": {**spec, **more.get("spec", {})}})


def test_the_queue_says_how_many_there_are_beyond_those_shown() -> None:
    jobs = [job(1), *(job(n, "PENDING") for n in range(2, 300)), job(400, "FAILED", ended_us=150 * US)]
    groups = queue_view.queue(jobs, {"PENDING": 5_000, "RUNNING": 1, "FAILED": 1}, 160 * US)
    assert [(g.key, len(g.rows), g.count) for g in groups] == [
        ("running", 1, 1), ("pending", 100, 5_000), ("ended", 1, 1),
    ]  # fmt: skip
    assert groups[0].rows[0].elapsed == "1:00"
    assert groups[2].rows[0].elapsed == "0:50"


@pytest.mark.parametrize(
    ("more", "elapsed"),
    [({"stood_us": 20 * US}, "0:40"), ({"stood_us": 20 * US, "suspended_us": 130 * US}, "0:10"),
     ({"stood_us": 20 * US, "ended_us": 150 * US}, "0:30")],
    ids=["resumed", "suspended", "ended"],
)  # fmt: skip
def test_the_time_for_which_a_job_was_suspended_is_no_time_that_it_ran(
    more: dict[str, Any], elapsed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On the page as in lists of the command line."""
    monkeypatch.setattr("rm.cli.shown.time.time_ns", lambda: 160 * US * 1000)
    one = job(1, **more)
    assert format_elapsed(queue_view.elapsed_us(one, 160 * US)) == elapsed
    assert format_elapsed(shown.elapsed_us(one)) == elapsed
    assert format_elapsed(shown.elapsed_us(row_of(one, "", "", (), ""))) == elapsed


@pytest.mark.parametrize(
    ("spec", "output"),
    [
        ({"output": "out/%x-%j.txt"}, "/data/out/j7-7.txt on h1"),
        ({"deliver": "rm-%j.out"}, "/data/rm-7.out on login (a copy of the log, made at the end)"),
        ({}, None),
    ],
)
def test_the_page_of_a_job_names_the_file_of_its_output(spec: dict[str, str], output: str | None) -> None:
    tasks = [{"rank": 0, "host": "h1", "gpus": [], "prepared": True, "started_us": 1}]
    told = job(7, tasks=tasks, spec={"chdir": "/data", "submit_host": "login", "launch": "batch", **spec})
    facts = dict(job_view.job(told, Person(Door("ann")), 160 * US).facts)
    assert facts.get("Output") == output


def test_bars_are_where_their_times_are() -> None:
    limited = job(2, started_us=150 * US, spec={"time_limit_us": 60 * US})
    found = timeline_view.timeline(
        [job(1), limited, job(3, "FAILED", ended_us=120 * US)], {1: 50 * US}, 200 * US
    )
    assert found is not None
    # from 100 s to 250 s, where job 1 should end
    assert (found.ticks[0][0], found.ticks[-1][0], found.now) == (0, 1000, pytest.approx(666.67))
    bars = {bar.id: (bar.x, bar.width, bar.ahead) for bar in found.bars}
    assert bars[1] == pytest.approx((0, 666.67, 333.33))
    assert bars[2] == pytest.approx((333.33, 333.34, 66.66))
    assert bars[3] == pytest.approx((0, 133.33, 0))
    assert timeline_view.timeline([job(4, "PENDING")], {}, 1) is None
    old = timeline_view.timeline([job(1)], {}, 100 * 86_400 * US)  # began before what is shown
    assert old is not None
    assert (old.bars[0].x, old.bars[0].width) == (0, 1000)


def link(name: str, *jobs: int, rotated: bool = True, **more: Any) -> Link:
    phase = {"offset_us": 0, "duration_us": 80_000, "rate_bps": 90}
    turns = [{"link": name, "job": j, "slots": 36 * n, "circle_slots": 72} for n, j in enumerate(jobs)]
    made = {
        "name": name, "capacity_bps": 100, "jobs": jobs, "score": 100.0, "gap_us": 20_000,
        "perimeter_us": PERIOD_US, "rotations": turns if rotated else (),
        "demands": [{"job": j, "period_us": PERIOD_US, "phases": [phase]} for j in jobs],
    }  # fmt: skip
    return answer(Link, **{**made, **more})


def test_circles_show_what_rotation_is_good_for() -> None:
    slot = {"epoch_us": 1_000, "shift_us": 150_000, "period_us": PERIOD_US}
    items = [(1_000 + 150_000 + 7 * PERIOD_US - 3_000, PERIOD_US, 0, None)]
    reports = {2: answer(Iterations, slot=slot, items=items)}
    (group,) = circle_view.alike([link("h1", 1, 2), link("h2", 1, 2), link("h3", 1)])
    view = circle_view.link(group, {2: "low"}, reports)
    assert (view.name, view.count) == ("h[1-2]", 2)
    assert view.before is not None
    assert view.after is not None
    # both send 90 of 100 for 80 of 200 ms: together 80 too much for 40 % of the time
    assert view.before.score == pytest.approx(100 * (1 - 0.4 * 0.8))
    assert view.after.score == 100
    assert (len(view.before.overs), len(view.after.overs)) == (1, 0)
    assert view.after.says == "job 1 sends from 0 µs to 80 ms; job 2 sends from 100 ms to 180 ms."
    assert view.anchor_us == 1_000 + 50_000  # rotated by 100 ms here, shifted by 150 ms in all
    late = {live.job: (live.seen, live.late_us, live.late) for live in view.lives}
    assert late == {
        1: (False, 0, "no iteration seen yet"),
        2: (True, -3_000, "last iteration 3 ms before its slot"),
    }
    assert view.slower == 15


def test_circles_of_several_iterations_and_phases_over_the_end() -> None:
    phase = {"offset_us": 90_000, "duration_us": 20_000, "rate_bps": 60}
    short = answer(Demand, job=2, period_us=100_000, phases=[phase])
    row = link("h1", 1, 2)
    row = replace(row, demands=[row.demands[0], short])
    view = circle_view.link([row], {}, {})
    assert view.after is not None
    assert [len(ring.arcs) for ring in view.after.rings] == [1, 2]
    assert view.anchor_us is None
    spans = circle_view.spans_of(short, circle_view.Fraction(0), PERIOD_US)
    assert [(int(a), int(b)) for a, b, _ in spans] == [(90_000, 110_000), (190_000, 210_000)]


def test_links_without_a_rotation_say_why() -> None:
    quiet = link("h1", 1, 2, rotated=False, score=None, perimeter_us=None)
    bad = link("h2", 3, 4, rotated=False, score=61.0)
    views = [circle_view.link(group, {}, {}) for group in circle_view.alike([quiet, bad])]
    assert [(v.name, v.after) for v in views] == [("h2", None), ("h1", None)]  # the worse one first
    assert "no common circle" in views[0].note
    assert "never need more than it carries" in views[1].note


def test_iterations_are_drawn_against_the_baseline() -> None:
    items = [(n, 200 + 100 * (n % 2), 50 * (n % 2), None) for n in range(80)]
    told = answer(Iterations, baseline_us=200, mean_us=230, p90_us=300, count=99, pauses=1, items=items)
    (chart,) = iteration_view.charts([job(1), job(2)], {1: told, 2: answer(Iterations)})
    assert (chart.bars.count("M"), chart.waits.count("M")) == (60, 30)
    assert (chart.slow, chart.ratio, chart.p99) == (True, "1.150", "–")
    assert chart.baseline_y == pytest.approx(100 / 3, abs=0.01)
    assert chart.bars.startswith("M0.0 33.33h8.0V100h-8.0zM10.0 0.0h")
    assert chart.waits.startswith("M10.0 0.0h8.0v16.67h-8.0z")
    assert iteration_view.charts([job(1)], {1: replace(told, baseline_us=None)})[0].baseline_y is None


def host(name: str, zone: str, state: str = "UP", **more: Any) -> Host:
    return answer(Host, name=name, zone=zone, state=state, cpus=8, mem_bytes=1 << 30, **more)


def pair(a: str, b: str, loss: float | None = 0.0, **more: Any) -> Pair:
    made = {"source": a, "destination": b, "loss_pct": loss, "delay_us": 100, "age_us": US}
    return answer(Pair, **{**made, **more})


def test_the_grid_takes_the_meshes_word_and_else_the_usual_thresholds() -> None:
    hosts = [host("a", "z"), host("b", "z"), host("c", "y")]
    pairs = [
        pair("a", "b", 1.5),
        pair("b", "a", None, delay_us=None, failures=3),
        pair("a", "c", 20.0),
        pair("c", "a"),
        pair("gone", "a", 100.0),
    ]
    told = {
        "check": "delay",
        "source": "a",
        "destination": "b",
        "message": "delay 9 ms",
        "streak": 2,
        "value": 9_000.0,
    }
    mesh = grid_view.worst_of(
        grid_view.Tested("m", answer(Cell, **told, status=int(status), result=int(Status.CRITICAL)))
        for status in (Status.OK, Status.MAINTENANCE, Status.NOT_RUN)
    )
    views, across = network_view.zones(hosts, pairs, mesh)
    grid = views[0].grid
    assert grid is not None
    rows = dict(grid.rows)
    assert rows["a"][0] is None
    there, back = rows["a"][1], rows["b"][0]
    assert there is not None
    assert back is not None
    assert [(c.status, c.letter) for c in there.checks] == [
        ("warn", "w"), ("maintenance", "m"), ("not-run", "."), ("not-run", "."),
    ]  # fmt: skip
    assert "delay 9 ms (maintenance, in the last 2 tries critical)" in there.says
    assert [c.status for c in back.checks] == ["unknown", "unknown", "unknown", "not-run"]
    assert "3 tries in a row failed" in back.says
    assert across is not None
    cell = across.rows[0][1][1]
    assert cell is not None
    assert cell.checks[0].status == "critical"
    assert views[0].worst == ((Status.WARN, 1), (Status.UNKNOWN, 1))


def test_a_grid_of_ten_thousand_cells_is_drawn_when_asked_for() -> None:
    names = [f"n{i:03}" for i in range(100)]
    hosts = [host(name, "big") for name in names]
    pairs = [pair(a, b) for a in names for b in names if a != b]
    (view,), across = network_view.zones(hosts, pairs, {})
    assert (view.grid, view.worst, across) == (None, ((Status.OK, 9_900),), None)
    ((asked,), _) = network_view.zones(hosts, pairs, {}, "big")
    assert asked.grid is not None
    assert (len(asked.grid.rows), asked.grid.values, asked.grid.left_out) == (100, False, 0)
    ((huge,), _) = network_view.zones([*hosts, *(host(f"m{i}", "big") for i in range(40))], pairs, {}, "big")
    assert huge.grid is not None
    assert (len(huge.grid.rows), huge.grid.left_out) == (128, 12)


def test_the_tiles_say_how_things_stand() -> None:
    gpus = [{"index": 0}, {"index": 1}]
    hosts = [
        host("a", "z", gpus=gpus, free={"gpus": [1]}, schedulable=True),
        host("b", "z", "DRAINED", gpus=gpus, free={"gpus": [0, 1]}),
    ]
    counts = ({"ok": 3, "warn": 1, "not run": 9}, {"ok": 1, "critical": 2})
    meshes = [answer(Mesh, statuses=count) for count in counts]
    links = [link("a", 1, 2, score=61.0), link("b", 1)]
    jobs = {"RUNNING": 2, "PENDING": 7, "FAILED": 1, "COMPLETING": 1}
    alerts = [answer(Alert, state=state) for state in ("firing", "pending", "resolved")]
    alerts.append(answer(Alert, state="firing", acked="ann: on it"))
    tiles = overview_view.tiles(jobs, hosts, links, alerts, meshes)
    assert [(t.value, t.rest, t.mood) for t in tiles] == [
        ("2", "1 acknowledged, 1 may follow", "bad"),
        ("3", "7 waiting, 1 failed lately", ""), ("1", "of 2 in service", ""),
        ("1", "1 drained", "worry"), ("1", "lowest score 61", "worry"), ("2", "1 warn", "bad"),
    ]  # fmt: skip
    quiet = overview_view.tiles({}, [], [], None, [])
    assert [t.value for t in quiet] == ["–", "0", "–", "0", "0", "–"]


def alert(condition: str, subject: str, state: str = "firing", at: int = 100, **more: Any) -> Alert:
    made = {
        "id": f"all/{condition}/{subject}", "state": state, "condition": condition, "subject": subject,
        "hosts": [subject], "message": f"{subject} is bad", "pending_us": at * US, "fired_us": at * US,
        "ended_us": at * US, "fired_recently": 1,
    }  # fmt: skip
    return answer(Alert, **made, **more)


def test_alerts_alike_are_one_row_and_the_newest_comes_first() -> None:
    rows = [alert("disk", f"h{n}", at=n) for n in range(1, 6)]
    rows += [alert("loss", "h9", at=90, acked="ann: on it", failed="pager: refused"), alert("loss", "h8")]
    rows += [alert("gpu", "h7", "pending", 95), alert("delay", "h6", "resolved", 60)]
    silence = answer(
        Silence, id=4, conditions=["loss"], hosts=["gpu*"], until_us=200 * US, by="ann", comment="new switch"
    )
    found = alert_view.alerts(rows, 160 * US, [silence, replace(silence, until_us=150 * US)])
    ((number, said),) = found.silences
    assert number == 4
    assert re.fullmatch(r"loss of gpu\* until [-0-9: ]+, by ann: new switch", said)
    assert [(r.state, r.condition, r.subject, r.count, r.since) for r in found.active] == [
        ("firing", "loss", "h8", 1, "60 s"), ("firing", "loss", "h9", 1, "70 s"),
        ("firing", "disk", "h[1-5]", 5, "2 min"), ("pending", "gpu", "h7", 1, "65 s"),
    ]  # fmt: skip
    assert found.active[1].notes == ("acknowledged by ann: on it", "pager: refused")
    assert found.active[2].message == "h5 is bad; and 4 like it"
    assert [r.subject for r in found.over] == ["h6"]
    many = alert_view.alerts([alert(f"c{n}", "h1") for n in range(30)], 1)
    assert (len(many.active), many.left_out) == (20, 10)


def test_hosts_refused_alike_are_one_row_and_a_reservation_is_told() -> None:
    refused = {"code": "Resources", "message": "no GPU is free"}
    verdicts = [{"host": f"n{n}", "scores": [], "refused": refused} for n in range(1, 400)]
    verdicts.append({"host": "k1", "scores": [["latency", 97.5]], "refused": None})
    reasons = [
        {
            "code": "Resources",
            "message": "no room; no GPU is free",
            "numbers": {"reserved_start_us": 260 * US},
        },
        {"code": "Resources", "message": "no GPU is free", "numbers": {}},
        {"code": "Priority", "message": "waits behind job 7", "numbers": {"reserved_job": 7}},
    ]
    told = answer(Why, verdicts=verdicts, reasons=reasons, state="PENDING")
    found = why_view.why(job(9, "PENDING"), told, 200 * US)
    assert found.reasons == (("Resources", "no room; no GPU is free"), ("Priority", "waits behind job 7"))
    assert found.refusals == (("n[1-399]", 399, "(Resources) no GPU is free"),)
    assert (found.verdicts, found.columns, found.left_out) == ((("k1", ("97.5",)),), ("latency",), 0)
    assert found.behind == 7
    assert found.start == ""
    unknown = answer(Why, reasons=reasons, state="PENDING", no_start="Nobody knows <when>.")
    assert why_view.why(job(9, "PENDING"), unknown, 200 * US).start == "Nobody knows <when>."
    times = dict.fromkeys(("at_us", "soonest_us", "likely_us", "latest_us"), 500 * US)
    alone: dict[str, Any] = {"job": 9, "hosts": [], **times}
    both = answer(Why, reasons=reasons, state="PENDING", start=alone)
    known = why_view.why(job(9, "PENDING"), both, 200 * US)
    assert known.start.startswith("It is expected to start at "), "its own start, as `rmx why` names it"
    assert known.start.endswith(", in 5:00.")
    early = alone | {"soonest_us": 210 * US, "likely_us": 230 * US, "latest_us": 400 * US}
    learnt = why_view.why(job(9, "PENDING"), answer(Why, state="PENDING", start=early), 200 * US)
    assert learnt.start.startswith("It is likely to start at ")
    assert ", in 0:30: at " in learnt.start


def test_a_position_in_the_queue_counts_all_and_names_those_that_may_be_known() -> None:
    place = {"position": 5, "jobs_ahead": 4, "ahead": [{"job": 3, "user": "<b>"}]}
    told = answer(Why, state="PENDING", queue_position=place)
    found = why_view.why(job(9, "PENDING"), told, 200 * US)
    assert (found.position, found.ahead, found.more_ahead) == (5, ((3, "<b>"),), 3)
    none = why_view.why(job(9, "PENDING"), replace(told, queue_position=None), 200 * US)
    assert (none.position, none.ahead, none.more_ahead) == (0, (), 0)


def test_a_placed_job_shows_the_decision_as_it_was_recorded() -> None:
    taken = {"hosts": ["a1", "a2"], "host_count": 9, "score": 90.0, "alignment_score": None, "note": "best",
             "taken": True, "rejected": None}  # fmt: skip
    rejected = {**taken, "taken": False, "rejected": {"code": "X", "message": "closes a loop"}}
    choice = {"at_us": 150 * US, "placement_policy": "zone", "chosen_hosts": 9, "refused_hosts": 3,
              "passed_over_hosts": 2, "compared": [taken, rejected], "compared_candidates": 2}  # fmt: skip
    told = answer(Why, state="RUNNING", choice=choice)
    found = why_view.why(job(9, "RUNNING"), told, 200 * US)
    assert "by the policy zone" in found.decided[0]
    assert "refused then: 3" in found.decided[1]
    assert found.compared == (
        ("a[1-2] and 7 more", "90", "–", "taken", "best"),
        ("a[1-2] and 7 more", "90", "–", "rejected", "closes a loop"),
    )
    old = why_view.why(job(9, "RUNNING"), replace(told, choice=None), 200 * US)
    assert old.decided == (why_view.UNRECORDED,)


# -- the history of a pair


def tried(at: int, failed: str = "", checks: tuple[str, ...] = ("loss",), **values: float) -> Sample:
    return answer(Sample, at_us=at * US, mesh="m", values=values, failed=failed, checks=checks)


MESH = answer(
    Mesh, name="m", checks=["loss", "delay"], thresholds={"loss_warn_pct": 2.0, "loss_critical_pct": 50.0}
)
NOW_US = 10_000 * US


def history(
    samples: Any = (), summaries: Any = (), changes: Any = (), cells: Any = (), since: str = "1h"
) -> Any:
    now = {"age_us": 65 * US, "confidence": 0.5}
    told = answer(History, source="a", destination="b", samples=samples, summaries=summaries, now=now)
    return pair_view.pair(told, since, [MESH], cells, changes, NOW_US)


def test_a_history_has_a_chart_for_each_metric_that_was_tried() -> None:
    told = answer(Cell, check="loss", status=1, message="loss 4 %", since_us=8_200 * US)
    cell = grid_view.Tested("m", told)
    samples = [tried(6_400, loss_pct=0.0), tried(8_200, "no answer"), tried(10_000, loss_pct=4.0)]
    view = history([*samples, tried(9_000, bandwidth_bps=1e8, checks=("bandwidth",))], cells=[cell])
    assert (view.age, view.confidence, view.tries) == (
        "measured 65 s ago",
        "confidence 50%",
        "4 tries, 1 failed",
    )
    assert [c.title for c in view.charts] == ["Loss", "Bandwidth"]
    loss, bandwidth = view.charts
    assert (loss.newest, loss.least, loss.mean, loss.most) == ("4 %", "0 %", "2 %", "4 %")
    # a tenth of room above the highest value; critical is too far up to be drawn
    assert loss.line == "M0.0 64.0L600.0 5.8"
    assert [(limit.y, limit.status) for limit in loss.limits] == [(34.9, "warn")]
    assert (loss.failed, bandwidth.failed) == ((300.0,), ())
    assert [(b.x, b.width, b.status) for b in loss.bands] == [(300.0, 300.0, "warn")]
    assert bandwidth.dots == ((433.3, 5.8),)
    assert history().charts == ()


def test_changes_of_status_are_bands_in_time() -> None:
    changes = [
        answer(Change, at_us=at * US, check="loss", was=was, status=status, message="so")
        for at, was, status in ((9_100, 2, 0), (8_200, 0, 2))
    ]
    view = history([tried(9_000, loss_pct=1.0)], changes=changes)
    assert [(b.x, b.width, b.status) for b in view.charts[0].bands] == [
        (0.0, 300.0, "ok"), (300.0, 150.0, "critical"), (450.0, 150.0, "ok"),
    ]  # fmt: skip
    assert [(c[1], c[2], c[3]) for c in view.changes] == [
        ("loss", "critical", "ok"),
        ("loss", "ok", "critical"),
    ]


def test_many_tries_and_summaries_are_drawn_as_least_mean_and_most() -> None:
    view = history([tried(6_400 + n, loss_pct=float(n % 10)) for n in range(3_600)])
    (chart,) = view.charts
    assert chart.line.count("L") == pair_view.PIECES - 1
    assert chart.area.count("L") == 2 * pair_view.PIECES - 1
    assert chart.dots == ()
    stats = {"loss_pct": {"min": 1.0, "mean": 2.0, "max": 9.0, "count": 60}}
    hours = [
        {"start_us": n * 3_600 * US, "span_us": 3_600 * US, "stats": stats, "tries": 60, "failures": n}
        for n in range(2)
    ]
    view = history(summaries=hours, since="24h")
    assert view.tries == "120 tries, 1 failed, least, mean and most of each hour"
    assert (view.charts[0].least, view.charts[0].most, len(view.charts[0].failed)) == ("1 %", "9 %", 1)


def test_a_grid_tells_the_mtu_of_the_mesh() -> None:
    told = {"check": "mtu", "source": "a", "destination": "b", "message": "MTU 1500 bytes", "value": 1500.0}
    cells = {("mtu", "a", "b"): grid_view.Tested("m", answer(Cell, **told, streak=1))}
    made = grid_view.cell(pair("a", "b", confidence=0.75), cells)
    assert [(c.letter, c.value) for c in made.checks] == [
        ("o", "0 %"),
        ("o", "100 µs"),
        (".", "–"),
        ("o", "1500"),
    ]
    assert made.says.endswith("MTU 1500 bytes (ok); measured 1 s ago; confidence 75%")


def test_a_large_zone_shows_who_is_not_up() -> None:
    hosts = [host(f"n{i}", "big") for i in range(40)]
    hosts[7] = replace(hosts[7], state="DRAINED", drained_by="bad cable (ann)", reason="bad cable (ann)")
    ((brief,), _) = network_view.zones(hosts, [], {})
    assert [(h.name, h.state, h.reason) for h in brief.hosts] == [("n7", "DRAINED", "bad cable (ann)")]
    ((whole,), _) = network_view.zones(hosts, [], {}, "big")
    assert (brief.whole, whole.whole, len(whole.hosts), whole.count) == (False, True, 40, 40)
