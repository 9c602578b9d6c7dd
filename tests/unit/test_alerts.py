"""Alerts: told once per condition and subject, with one recovery."""

from dataclasses import asdict, replace
from functools import partial
from itertools import pairwise

import msgspec
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
from rm.core.alerts.notices import notice_of
from rm.core.alerts.silence import Silence, silenced_by
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
