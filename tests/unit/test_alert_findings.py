"""What alerts tell of: whose fault bad pairs are, and what is wrong with hosts, rotations, disks and GPUs."""

from collections.abc import Iterable
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from rm.core.alerts.alert import Finding
from rm.core.alerts.blame import blamed, pair
from rm.core.alerts.findings import (
    HostFacts,
    facts_findings,
    host_findings,
    network_findings,
    rotation_findings,
)
from rm.core.model.host import HostState
from rm.core.model.network.alignment import Alignment, LinkAlignment, Released
from rm.core.monitoring.cells import Cell, Status
from tests import builders

BAD = Finding("loss", "h1", "h1 loses", ("h1",), "warn")
HOSTS = {name: builders.host(name, zone) for name, zone in (("h1", "z1"), ("h2", "z1"), ("h3", "z2"))}


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
