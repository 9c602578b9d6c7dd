"""Alerts and health checks drain hosts, and return them."""

from dataclasses import replace

import pytest

from rm.core.alerts.alert import Finding
from rm.core.alerts.draining import AUTHOR, DrainRules, Health, after_checks, is_automatic, still
from rm.core.jobs import events as ev
from rm.core.model.host import HostState
from tests import builders

BAD = Finding("loss", "h1", "h1 loses", ("h1",), "warn")
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
