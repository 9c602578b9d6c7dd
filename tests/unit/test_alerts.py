"""Alerts: told once per condition and subject, with one recovery; whose fault; what drains a host."""

from collections.abc import Iterable
from dataclasses import asdict, replace
from functools import partial
from itertools import pairwise

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rm.core.alerts.alert import (
    FIRING,
    GRADED,
    IMPROVED,
    LEVELS,
    RESOLVED,
    WORSENED,
    Alert,
    Finding,
    Owed,
    Rule,
    delivered,
    forget,
    step,
)
from rm.core.alerts.blame import blamed, pair
from rm.core.alerts.draining import AUTHOR, DrainRules, Health, after_checks, is_automatic, still
from rm.core.alerts.findings import (
    HostFacts,
    facts_findings,
    host_findings,
    network_findings,
    rotation_findings,
)
from rm.core.alerts.notices import notice_of
from rm.core.alerts.silence import Silence, silenced_by
from rm.core.jobs import events as ev
from rm.core.model.host import HostState
from rm.core.model.network.alignment import Alignment, LinkAlignment, Released
from rm.core.monitoring.cells import Cell, Status
from tests import builders

S = 1_000_000
RULE = Rule("r", after_us=10 * S, clear_us=60 * S, tell=("c",))
BAD = Finding("loss", "h1", "h1 loses", ("h1",), "warn")
WORSE = replace(BAD, message="h1 loses more", worst="critical")
FROZEN = replace(BAD, frozen="maintenance")
HOSTS = {name: builders.host(name, zone) for name, zone in (("h1", "z1"), ("h2", "z1"), ("h3", "z2"))}


class Machine:
    """Steps through time and collects what is owed, as the daemon does."""

    def __init__(self, *rules: Rule) -> None:
        self.rules = rules or (RULE,)
        self.alerts: dict[str, Alert] = {}
        self.now_us = 1_000 * S
        self.told: list[tuple[str, str]] = []
        self.silences: tuple[Silence, ...] = ()

    def see(self, *findings: Finding, after_s: float = 0) -> list[str]:
        self.now_us += round(after_s * S)
        self.alerts = step(self.rules, self.alerts, findings, HOSTS, self.now_us, self.silenced)
        new = []
        for key, alert in self.alerts.items():
            for event, channel, *_ in alert.owed:
                new.append(event)
                self.told.append((alert.episode, event))
                self.alerts[key] = delivered(self.alerts[key], event, channel)
        return new

    def silenced(self, finding: Finding) -> str:
        return silenced_by(self.silences, finding, self.now_us)

    def state(self, key: str = "r/loss/h1") -> str:
        return self.alerts[key].state if key in self.alerts else "none"


def test_it_fires_once_and_recovers_once() -> None:
    m = Machine()
    assert m.see(BAD) == []
    assert m.state() == "pending"
    assert m.see(BAD, after_s=9) == []
    assert m.see(BAD, after_s=1) == [FIRING]
    assert m.see(BAD, after_s=1000) == []
    assert m.state() == "firing"
    assert m.see(after_s=1) == []
    assert m.see(after_s=59) == []
    assert m.see(after_s=1) == [RESOLVED]
    assert m.state() == "resolved"
    assert m.see(after_s=1) == []
    assert [e for e, _ in m.told] == [m.told[0][0]] * 2  # one episode


def test_what_passes_quickly_is_not_told() -> None:
    m = Machine()
    m.see(BAD)
    assert m.see(after_s=5) == []
    assert m.state() == "none"
    assert m.see(BAD, after_s=5) == []  # the time begins anew
    assert m.see(BAD, after_s=9) == []


def test_flapping_is_damped() -> None:
    """Each further episode within the hour doubles how long the recovery must hold."""
    m = Machine(replace(RULE, after_us=0))
    waits = []
    for _ in range(6):
        assert m.see(BAD, after_s=1) == [FIRING]
        waits.append(0)
        m.see(after_s=1)
        while not m.see(after_s=1):
            waits[-1] += 1
    assert waits == [59, 119, 239, 479, 959, 959]
    assert m.see(BAD, after_s=7200) == [FIRING]
    m.see(after_s=1)
    assert m.see(after_s=60) == [RESOLVED]  # calm again


def test_what_becomes_critical_is_told_once_more_and_what_becomes_a_warning_is_not() -> None:
    m = Machine()
    m.see(BAD)
    assert m.see(BAD, after_s=10) == [FIRING]
    assert m.see(WORSE, after_s=100) == []
    assert m.alerts["r/loss/h1"].level == "warn"
    assert m.see(WORSE, after_s=9) == []
    assert m.see(WORSE, after_s=1) == [WORSENED]
    assert m.alerts["r/loss/h1"].level == "critical"
    assert m.see(replace(WORSE, message="h1 loses 70 %"), after_s=1000) == []  # other figures
    assert m.see(BAD, after_s=1) == []
    assert m.see(BAD, after_s=60) == []
    assert m.alerts["r/loss/h1"].level == "warn"
    m.see(after_s=1)
    assert m.see(after_s=60) == [RESOLVED]
    assert len({episode for episode, _ in m.told}) == 1


def test_what_begins_critical_is_told_once() -> None:
    m = Machine()
    m.see(BAD)
    assert m.see(WORSE, after_s=10) == [FIRING]
    assert m.see(WORSE, after_s=1000) == []


def test_a_status_that_flaps_around_the_threshold_does_not_flood() -> None:
    m = Machine()
    m.see(BAD)
    m.see(BAD, after_s=10)
    for _ in range(1000):  # critical for less than `after_s`
        assert m.see(WORSE, after_s=5) == []
        assert m.see(BAD, after_s=5) == []
    m.see(WORSE)
    assert m.see(WORSE, after_s=10) == [WORSENED]
    for _ in range(1000):  # a warning for less than `clear_s`
        assert m.see(BAD, after_s=5) == []
        assert m.see(WORSE, after_s=50) == []
    told = len(m.told)
    for _ in range(100):  # each level for longer: each further worsening must have been away longer
        for finding in (BAD, WORSE):
            m.see(finding, after_s=1)
            m.see(finding, after_s=130)
    assert [event for _, event in m.told[told:]] == [WORSENED] * 21


def test_a_rule_may_ask_to_be_told_of_what_is_only_a_warning_again() -> None:
    m = Machine(replace(RULE, after_us=0, improved=True))
    assert m.see(WORSE) == [FIRING]
    m.see(BAD, after_s=1)
    assert m.see(BAD, after_s=60) == [IMPROVED]
    m.see(WORSE, after_s=1)
    assert m.see(WORSE) == []
    m.see(BAD, after_s=1)
    assert m.see(BAD, after_s=119) == []  # it has worsened twice of late
    assert m.see(BAD, after_s=1) == [IMPROVED]


def test_a_channel_that_keeps_alerts_by_their_level_hears_of_every_change() -> None:
    """To an Alertmanager what is critical goes on until it hears of the end; a person need not."""
    m = Machine(replace(RULE, after_us=0, tell=("person", "keeper"), keeping=("keeper", "of another rule")))
    assert m.see(WORSE) == [FIRING, FIRING]
    m.see(BAD, after_s=1)
    assert m.see(BAD, after_s=60) == [IMPROVED]
    (owed,) = step(m.rules, {"r/loss/h1": replace(m.alerts["r/loss/h1"], level="critical", better_us=1)},
                   [BAD], HOSTS, m.now_us + 60 * S)["r/loss/h1"].owed  # fmt: skip
    assert (owed.event, owed.channel) == (IMPROVED, "keeper")


def test_nothing_worsens_while_nothing_is_known_or_under_a_silence() -> None:
    m = Machine()
    m.see(BAD)
    m.see(BAD, after_s=10)
    m.see(WORSE, after_s=1)
    m.see(FROZEN, after_s=100)
    assert m.see(WORSE, after_s=1) == []  # holds anew from here
    m.silences = (Silence(1, ("loss",), (), m.now_us, m.now_us + 100 * S, "alice", "cable"),)
    assert m.see(WORSE, after_s=99) == []
    assert m.alerts["r/loss/h1"].frozen == "silenced by alice: cable"
    assert m.see(WORSE, after_s=1) == [WORSENED]


def test_what_an_earlier_version_stored_takes_its_level_without_a_word() -> None:
    m = Machine()
    m.alerts = {"r/loss/h1": Alert("r", "loss", "h1", fired_us=5, told=("c",))}
    assert m.see(WORSE, after_s=1000) == []
    assert m.alerts["r/loss/h1"].level == "critical"


def test_maintenance_silences_both_ways() -> None:
    m = Machine()
    m.see(BAD)
    assert m.see(FROZEN, after_s=100) == []
    assert m.see(BAD, after_s=1) == []  # holds anew from here
    assert m.see(BAD, after_s=10) == [FIRING]
    assert m.see(FROZEN, after_s=1000) == []
    assert m.state() == "firing"
    assert m.alerts["r/loss/h1"].frozen == "maintenance"
    m.see(after_s=1)
    assert m.see(after_s=60) == [RESOLVED]


def test_unknown_does_not_count_as_recovered() -> None:
    m = Machine(replace(RULE, after_us=0))
    m.see(BAD)
    m.see(after_s=1)
    m.see(replace(BAD, frozen="not measured now"), after_s=50)
    assert m.see(after_s=50) == []
    assert m.see(after_s=60) == [RESOLVED]


def test_down_covers_silent_where_both_are_told() -> None:
    down = Finding("host-down", "h1", "down", ("h1",))
    silent = Finding("agent-silent", "h1", "silent", ("h1",), covered="host-down")
    both = Rule("both", after_us=0, tell=("c",))
    one = Rule("one", on=("agent-silent",), after_us=0, tell=("c",))
    m = Machine(both, one)
    m.see(down, silent)
    assert sorted(m.alerts) == ["both/host-down/h1", "one/agent-silent/h1"]


def test_rules_choose_hosts_zones_and_levels() -> None:
    pairs = Finding("mtu", "h1 - h3", "", ("h1", "h3"), "critical")
    assert Rule("r", hosts=("h3",)).hears(pairs, HOSTS)
    assert Rule("r", zones=("z2",)).hears(pairs, HOSTS)
    assert not Rule("r", hosts=("h2",)).hears(pairs, HOSTS)
    assert Rule("r", level="critical").hears(pairs, HOSTS)
    assert not Rule("r", level="warn").hears(pairs, HOSTS)
    assert not Rule("r", on=("disk",)).hears(pairs, HOSTS)


def test_a_rule_without_a_level_notifies_of_every_loss_and_of_other_conditions_when_critical() -> None:
    def heard(condition: str, level: str) -> bool:
        return Rule("r").hears(Finding(condition, "h1", "", ("h1",), level), HOSTS)

    told = {(condition, level) for condition in GRADED for level in LEVELS if heard(condition, level)}
    # what is critical is a warning, too (`network_findings` yields both): so one fault is one alert
    assert told == {("loss", "warn"), *((one, "critical") for one in GRADED if one != "loss")}


def test_a_rule_without_a_time_waits_longer_for_a_lost_rotation() -> None:
    """Under load jobs lose their slots, are inspected and planned anew, for minutes."""
    lost = Finding("rotation-lost", "job 1", "job 1 shares a link and has no rotation")
    m = Machine(Rule("r", tell=("c",)))
    m.see(BAD, lost)
    assert m.see(BAD, lost, after_s=10) == [FIRING]
    m.see(BAD, lost, after_s=280)
    assert (m.state("r/rotation-lost/job 1"), m.state()) == ("pending", "firing")
    m.see(BAD, replace(lost, frozen="not known yet"), after_s=5)  # it is inspected: the time begins anew
    m.see(BAD, lost, after_s=5)
    assert m.state("r/rotation-lost/job 1") == "pending"
    m.see(BAD, lost, after_s=300)
    assert m.state("r/rotation-lost/job 1") == "firing"


def test_what_fires_by_a_rule_that_has_gone_is_over() -> None:
    """Or by one that tells somebody else now: who heard of the firing hears of its end."""
    m = Machine(replace(RULE, after_us=0))
    m.see(BAD)
    m.rules = (replace(RULE, name="new", after_us=0, tell=("d",)),)
    assert m.see(BAD) == [FIRING, RESOLVED]
    assert (m.state(), m.state("new/loss/h1")) == ("resolved", "firing")
    assert m.alerts["r/loss/h1"].message == "no rule of rm.toml covers this any more"
    m.rules = (replace(RULE, name="new", tell=("e",)),)
    m.alerts["new/loss/h1"] = replace(m.alerts["new/loss/h1"], owed=())
    m.alerts = step(m.rules, m.alerts, [], HOSTS, m.now_us + S)
    m.alerts = step(m.rules, m.alerts, [], HOSTS, m.now_us + 61 * S)
    assert [(one.event, one.channel) for one in m.alerts["new/loss/h1"].owed] == [(RESOLVED, "d")]


def test_what_pends_by_a_rule_that_has_gone_is_dropped() -> None:
    m = Machine()
    m.see(BAD)
    m.rules = ()
    assert m.see(BAD, after_s=60) == []
    assert m.alerts == {}


def test_a_silence_holds_back_what_is_new_until_it_ends() -> None:
    m = Machine(replace(RULE, after_us=0))
    m.see(BAD)
    other = replace(BAD, subject="h2 - h3", hosts=("h2", "h3"))
    m.silences = (Silence(1, ("loss",), ("h[1-2]",), m.now_us, m.now_us + 100 * S, "alice", "cable"),)
    assert m.see(BAD, other) == []
    assert (m.state(), m.state("r/loss/h2 - h3")) == ("firing", "pending")
    assert m.alerts["r/loss/h2 - h3"].frozen == "silenced by alice: cable"
    delay = replace(BAD, condition="delay", level="critical")
    assert m.see(delay, other) == [FIRING]  # the silence is of loss
    assert m.see(other, after_s=60) == [RESOLVED]  # what was told is told as over
    assert m.see(other, after_s=39) == []
    assert m.see(other, after_s=1) == [FIRING]


def test_old_ones_are_forgotten_but_not_what_is_owed() -> None:
    over = Alert("r", "loss", "h1", fired_us=1, ended_us=5)
    owed = replace(over, subject="h2", owed=(Owed(RESOLVED, "c"),))
    new = replace(over, subject="h3", ended_us=9)
    alerts = {a.key: a for a in (over, owed, new)}
    assert forget(alerts, 6, 10) == [over.key]
    assert forget(alerts, 0, 1) == [over.key]


OTHER = replace(BAD, subject="h2 - h3", hosts=("h2", "h3"))
seen = st.lists(st.sampled_from([BAD, WORSE, FROZEN, OTHER]), max_size=2, unique_by=lambda f: f.subject)
rules = st.builds(
    Rule,
    st.sampled_from(["r", "s"]),
    after_us=st.sampled_from([0, 3, 10]),
    clear_us=st.sampled_from([0, 5, 20]),
    tell=st.sampled_from([("c",), ("c", "d"), ("d", "c")]),
    improved=st.booleans(),
)
deeds = st.sampled_from(["", "", "restart", "another rule", "silence"])


@given(
    st.lists(rules, min_size=1, max_size=4),
    st.lists(st.tuples(seen, st.integers(-30, 3_700 * S) | st.integers(0, 10), deeds), max_size=40),
)
def test_never_twice_without_recovery(
    ruled: list[Rule], history: list[tuple[list[Finding], int, str]]
) -> None:
    """Whatever is found, also when the clock goes back, over restarts, changed rules and silences: each
    channel hears firing, recovery, firing, … of each alert, and at last a recovery; between them that it
    worsened and improved."""
    alerts: dict[str, Alert] = {}
    rule, now_us, silences = ruled[0], 1_000 * S, ()
    told: dict[tuple[str, str], list[tuple[str, str]]] = {}
    identities: dict[str, set[tuple[str, str, int]]] = {}
    calm = [([], 0, ""), ([], 3_600 * S, ""), ([], 3_600 * S, "")]
    for n, (findings, passed_us, deed) in enumerate([*history, *calm]):
        now_us += passed_us
        if deed == "restart":  # what is stored is all there is
            alerts = {k: msgspec.convert(asdict(a), Alert) for k, a in alerts.items() if a.fired_us}
        if deed == "another rule":
            rule = ruled[n % len(ruled)]
        if deed == "silence":
            silences = (Silence(1, (), ("h1",), now_us, now_us + 10, "alice"),)
        before = alerts
        quiet = partial(silenced_by, silences, now_us=now_us)
        alerts = step([rule], before, findings, HOSTS, now_us, quiet)
        for key, alert in alerts.items():
            if alert.firing and not (key in before and before[key].firing):
                assert not quiet(next(f for f in findings if f.subject == alert.subject))
            for owed in alert.owed:
                event, channel, *_ = owed
                alerts[key] = delivered(alerts[key], event, channel)
                told.setdefault((key, channel), []).append((event, alert.episode))
                at = (alert.episode, event, notice_of(alert, owed, "here").body["at_us"])
                assert at not in identities.setdefault(channel, set())
                identities[channel].add(at)
    assert not any(a.firing or a.pending_us for a in alerts.values())
    for all_heard in told.values():
        heard = [one for one in all_heard if one[0] in (FIRING, RESOLVED)]
        assert [event for event, _ in heard] == [FIRING, RESOLVED] * (len(heard) // 2)
        assert all(
            (before[1] == after[1]) is (after[0] != FIRING) for before, after in pairwise(all_heard)
        )  # what worsened or improved is within its episode
        episodes = [episode for _, episode in heard]
        assert episodes[::2] == episodes[1::2]  # a recovery names its firing
        assert len(set(episodes)) == len(heard) // 2


# -- whose fault ---------------------------------------------------------------------------------


def mesh(*names: str) -> set[tuple[str, str]]:
    return {pair(a, b) for a in names for b in names if a < b}


def bad_of(*names: str) -> set[tuple[str, str]]:
    return {p for p in mesh(*"abcd") if set(p) & set(names)}


def test_the_host_whose_pairs_are_bad_is_blamed() -> None:
    assert blamed(mesh(*"abcd"), bad_of("c")) == ["c"]
    assert blamed(mesh(*"abcd"), bad_of("c", "b")) == ["b", "c"]
    assert blamed(mesh(*"abc"), {("a", "c"), ("b", "c")}) == ["c"]


def test_nobody_is_blamed_when_nobody_can_tell() -> None:
    assert blamed(mesh(*"abcd"), {("a", "b")}) == []  # one cable between two good hosts
    assert blamed(mesh(*"ab"), mesh(*"ab")) == []
    assert blamed(mesh(*"abcd"), mesh(*"abcd")) == []  # the switch


@given(st.sets(st.sampled_from("abcdefgh"), max_size=3))
def test_all_bad_hosts_are_found(guilty: set[str]) -> None:
    """Up to three of eight hosts, whose every pair is bad."""
    everything = mesh(*"abcdefgh")
    bad = {p for p in everything if set(p) & guilty}
    assert set(blamed(everything, bad)) == guilty


def cells(
    bad: Iterable[tuple[str, str]], status: Status = Status.CRITICAL, names: str = "abcd", check: str = "loss"
) -> list[Cell]:
    bad = set(bad)
    of = {(a, b): status if (a, b) in bad else Status.OK for a in names for b in names if a != b}
    return [
        Cell("m", check, *pair, status, f"{check} {''.join(pair)}", result=status)
        for pair, status in of.items()
    ]


def told_of(cells: Iterable[Cell], *told: tuple[str, str]) -> list[tuple[str, str, str, str]]:
    found = network_findings(cells, set(told))
    return sorted((f.condition, f.subject, f.level, f.frozen) for f in found)


def test_one_bad_host_is_one_finding() -> None:
    """One direction is enough: the host's outgoing traffic is lost."""
    assert told_of(cells([("c", "a"), ("c", "b"), ("c", "d")])) == [
        ("loss", "c", "critical", ""),
        ("loss", "c", "warn", ""),
    ]
    assert told_of(cells([("c", "a")], Status.WARN)) == [("loss", "a - c", "warn", "")]


def test_nothing_fires_and_nothing_ends_in_a_mesh_that_is_paused() -> None:
    everything = {(a, b) for a in "abcd" for b in "abcd" if a != b}
    for status, condition in ((Status.CRITICAL, "loss"), (Status.UNKNOWN, "unmeasured")):
        found = list(network_findings(cells(everything, status), set(), {"m"}))
        assert {f.frozen for f in found if f.condition == condition} == {"paused"}
        assert all(f.frozen for f in found)
        going = list(network_findings(cells(everything, status), set(), {"another"}))
        assert any(not f.frozen for f in going)


def test_the_first_pair_to_go_bad_is_no_alert_of_its_own() -> None:
    """The others' statuses follow only after more tries, but their newest tries are bad already."""
    early = [
        replace(c, status=Status.OK) if (c.source, c.destination) == ("c", "d") else c
        for c in cells([("c", "b"), ("c", "d")])
    ]
    assert ("loss", "c", "critical", "") in told_of(early)
    assert len({subject for _, subject, *_ in told_of(early)}) == 1
    only_once = [replace(c, status=Status.OK) for c in cells([("c", "a"), ("c", "b"), ("c", "d")])]
    assert told_of(only_once) == []  # may be chance


def test_a_host_that_was_told_of_stays_the_subject_until_all_its_pairs_are_good() -> None:
    left = cells([("c", "a")])
    assert ("loss", "a - c", "critical", "") in told_of(left)
    assert ("loss", "c", "critical", "") in told_of(left, ("loss", "c"))
    assert not any(s == "a - c" for _, s, _, _ in told_of(left, ("loss", "c")))
    assert told_of(cells([]), ("loss", "c")) == []


def test_cells_that_say_nothing_freeze() -> None:
    bad = [("c", "a"), ("c", "b"), ("c", "d")]
    frozen = told_of(cells(bad, Status.MAINTENANCE), ("loss", "c"))
    assert ("loss", "c", "critical", "maintenance") in frozen
    assert all(f for *_, f in frozen)
    unmeasured = told_of(cells(bad, Status.UNKNOWN))
    assert ("unmeasured", "c", "", "") in unmeasured
    assert all(f for c, *_, f in unmeasured if c == "loss")
    stale = [replace(c, result=Status.OK) for c in cells(bad, Status.UNKNOWN)]
    assert all(f for *_, f in told_of(stale))


def never(host: object) -> bool:
    return False


def test_hosts_that_are_down_or_silent() -> None:
    hosts = {
        "up": builders.host("up"),
        "down": builders.host("down", state=HostState.DOWN, reason="no route."),
        "quiet": builders.host("quiet", state=HostState.UNKNOWN),
        "new": builders.host("new", state=HostState.UNKNOWN),
    }
    found = [(f.condition, f.subject, f.frozen) for f in host_findings(hosts, {"quiet"}, {"new"}, never)]
    assert found == [
        ("host-down", "down", ""),
        ("agent-silent", "down", ""),
        ("agent-silent", "quiet", ""),
        ("agent-silent", "new", "connecting"),
    ]
    silenced = list(host_findings(hosts, {"quiet"}, set(), lambda h: True))
    assert {f.frozen for f in silenced} == {"maintenance"}


def test_rotations_that_are_lost() -> None:
    links = (LinkAlignment("h1", 70.0, 1, (1, 2)), LinkAlignment("h2", 99.0, 1, (1, 2)))
    standings = {1: "", 2: None, 3: "it had to be moved back"}
    places = {3: ("h1", "h2"), 9: ("h3",)}
    alignment = Alignment(70.0, links, unmatched=(9,))
    found = list(rotation_findings(alignment, HOSTS, 90.0, never, standings, places))
    assert [(f.subject, f.hosts, f.frozen) for f in found] == [
        ("h1", ("h1",), ""),
        ("job 2", (), "not known yet"),
        ("job 3", ("h1", "h2"), ""),
        ("job 9", ("h3",), ""),
    ]
    assert found[2].message == "job 3 is not kept in its slot: it had to be moved back"
    follows = rotation_findings(alignment, HOSTS, 90.0, never, {9: ""}, places)
    assert "job 9" not in [f.subject for f in follows], "it follows a plan of single iterations"
    alone = (Released((2, 4), 1.3, 1.1, 99, times=2), Released((8, 9), 1.4), Released((6, 7), 1.3, 1.1, 99))
    told = {
        f.subject: f.frozen or f.message
        for f in rotation_findings(replace(alignment, released=alone), HOSTS, 90.0, never, standings, places)
    }
    assert told["job 2"].startswith("job 2 is left alone: the slowest job took 1.30 times")
    assert told["job 9"] == "not known yet", "what it takes without is being measured"
    assert "job 6" not in told, "one comparison may be chance"
    silenced = rotation_findings(alignment, HOSTS, 90.0, lambda h: h.name == "h1", standings, places)
    assert [f.frozen for f in silenced] == ["maintenance", "not known yet", "maintenance", ""]


def test_pairs_that_lose_about_as_much_as_the_first_bad_one_tell_whose_fault_it_is() -> None:
    """Each is judged when its own tries show it, and one alert tells of the host."""
    one = Cell("m", "loss", "a", "c", Status.CRITICAL, "loss 6 %", 6.0, result=Status.CRITICAL)
    cells = [one, replace(one, source="b", status=Status.OK, result=Status.OK, value=3.0)]
    cells += [replace(one, source="d", status=Status.NOT_RUN, result=Status.OK, value=4.0)]
    healthy = replace(one, status=Status.OK, result=Status.OK, value=0.0)
    cells += [replace(healthy, source=a, destination=b) for a, b in ("ab", "ad", "bd")]
    (finding,) = [f for f in network_findings(cells, set()) if f.level == "critical"]
    assert (finding.subject, finding.message) == ("c", "3 of 3 pairs of c are bad; a to c: loss 6 %")


def test_disks_and_gpus() -> None:
    found_ones = replace(builders.host("a", gpus=2), found=("gpus",))
    hosts = {"a": found_ones, "b": builders.host("b"), "c": builders.host("c")}
    facts = {
        "a": HostFacts(1, 10 << 30, 1, ("GPU 0 has 3 uncorrected memory errors",)),
        "b": HostFacts(1, 5 << 20),
    }
    found = {(f.condition, f.subject): f for f in facts_findings(hosts, facts, 1 << 30, never)}
    assert "1 of 2 GPUs answer" in found["gpu", "a"].message
    assert "3 uncorrected" in found["gpu", "a"].message
    assert "5 MiB" in found["disk", "b"].message
    assert found["disk", "c"].frozen
    assert found["gpu", "c"].frozen
    assert len(found) == 4


def test_no_alert_tells_of_gpus_that_were_only_declared_or_of_a_small_disk_with_room() -> None:
    declared = {"a": builders.host("a", gpus=2)}
    small = HostFacts(1, disk_free_bytes=254 << 20, disk_bytes=256 << 20)
    assert list(facts_findings(declared, {"a": small}, 1 << 30, never)) == []
    full = HostFacts(1, disk_free_bytes=20 << 20, disk_bytes=256 << 20)
    (finding,) = facts_findings(declared, {"a": full}, 1 << 30, never)
    assert finding.message == "20 MiB are free for the spool of a, wanted 25"
    gone = HostFacts(2, gpus=1, gpus_most=2)  # two answered once
    (finding,) = facts_findings(declared, {"a": gone}, 1 << 30, never)
    assert finding.message == "a: 1 of 2 GPUs answer"


# -- draining ------------------------------------------------------------------------------------

DRAIN = DrainRules(failures=3, successes=2, share=0.25)
FLEET = {f"h{n}": builders.host(f"h{n}") for n in range(1, 9)}


def test_a_failing_host_is_drained_and_returned() -> None:
    hosts, healths = dict(FLEET), {}
    for n in (1, 2):
        healths, decided = after_checks(DRAIN, healths, hosts, {"h1": n}, {"h1": "loses."})
        assert decided == []
    healths, decided = after_checks(DRAIN, healths, hosts, {"h1": 2}, {"h1": "loses."})
    assert decided == []  # the same check does not count twice
    healths, decided = after_checks(DRAIN, healths, hosts, {"h1": 3}, {"h1": "loses."})
    assert decided == [ev.HostDrained("h1", AUTHOR, "failed 3 checks in a row: loses")]
    hosts["h1"] = replace(hosts["h1"], drained_by=f"failed 3 checks in a row: loses ({AUTHOR})")
    healths, decided = after_checks(DRAIN, healths, hosts, {"h1": 4}, {})
    assert decided == []
    healths, decided = after_checks(DRAIN, healths, hosts, {"h1": 5}, {})
    assert decided == [ev.HostResumed("h1", AUTHOR)]


def test_what_an_operator_drained_stays_drained() -> None:
    hosts = {**FLEET, "h1": replace(FLEET["h1"], drained_by="swap the NIC (alice)")}
    assert not is_automatic(hosts["h1"])
    assert after_checks(DRAIN, {"h1": Health(1, 0, 99)}, hosts, {"h1": 2}, {})[1] == []


def test_what_a_person_does_meanwhile_counts() -> None:
    free = FLEET["h1"]
    by_rm = replace(free, drained_by=f"loses ({AUTHOR})")
    by_alice = replace(free, drained_by="swap the NIC (alice)")
    drain, back = ev.HostDrained("h1", AUTHOR, "loses"), ev.HostResumed("h1", AUTHOR)
    assert [still(drain, {"h1": h}) for h in (free, by_rm, by_alice)] == [True, False, False]
    assert [still(back, {"h1": h}) for h in (free, by_rm, by_alice)] == [False, True, False]
    assert not still(drain, {})
    assert not still(back, {})


def test_a_burn_in_returns_it_earlier_and_failures_count_anew() -> None:
    healths, decided = after_checks(DRAIN, {"h1": Health(1, 2, 0)}, FLEET, {"h1": 2}, {"h1": "x"})
    assert len(decided) == 1
    healths, decided = after_checks(DRAIN, healths, FLEET, {"h1": 3}, {"h1": "x"})
    assert decided == []


def test_who_was_returned_is_not_drained_for_what_was_seen_before() -> None:
    """The cells may show the old fault until the next tests."""
    drained = replace(FLEET["h1"], drained_by=f"failed 3 checks in a row: loses ({AUTHOR})")
    healths: dict[str, Health] = {}
    for n in range(1, 9):
        healths, _ = after_checks(DRAIN, healths, {**FLEET, "h1": drained}, {"h1": n}, {"h1": "loses"})
    for n in (8, 9, 10, 11):
        healths, decided = after_checks(DRAIN, healths, FLEET, {"h1": n}, {"h1": "loses"})
        assert len(decided) == (n == 11)  # three new checks have failed


def test_never_more_than_a_share_of_the_hosts() -> None:
    failing = dict.fromkeys(FLEET, "switch")
    ready = dict.fromkeys(FLEET, Health(1, 9, 0))
    _, decided = after_checks(DRAIN, ready, FLEET, dict.fromkeys(FLEET, 2), failing)
    assert len(decided) == 2
    _, decided = after_checks(replace(DRAIN, share=0), ready, FLEET, {}, failing)
    assert len(decided) == 1


@pytest.mark.parametrize("unsure", [True, False])
def test_nothing_is_counted_while_nothing_is_known(unsure: bool) -> None:
    hosts = FLEET if unsure else {"h1": replace(FLEET["h1"], state=HostState.DOWN)}
    known = frozenset({"h1"}) if unsure else frozenset()
    healths, decided = after_checks(DRAIN, {"h1": Health(1, 2, 0)}, hosts, {"h1": 2}, {"h1": "x"}, known)
    assert healths["h1"] == Health(1, 2, 0)
    assert decided == []
