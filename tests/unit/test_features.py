"""Which features a job wants of its hosts: the text, and the hosts that it is placed on."""

from __future__ import annotations

import time
from dataclasses import replace
from itertools import combinations, permutations
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rm import features
from rm.core.model.unknown import unknown_names
from rm.core.registry import load
from rm.core.scheduling.engine import Policies, Tuning, place
from rm.core.scheduling.explaining import never_fits
from rm.core.scheduling.host_kinds import matched
from rm.errors import UsageError
from tests.builders import host, job, snapshot, spec
from tests.examples import examples

NAMES = "abcd"
SETS = [frozenset(some) for size in range(5) for some in combinations(NAMES, size)]


@st.composite
def texts(draw: Any, brackets: bool = False, depth: int = 3) -> tuple[str, str]:
    """A list of features, and the same as an expression of Python over the set `has`."""
    kind = draw(st.sampled_from(["name", "not", "and", "or", *(["choice"] if brackets else [])]))
    if depth == 0 or kind == "name":
        name = draw(st.sampled_from(NAMES))
        return name, f"('{name}' in has)"
    if kind == "not":
        text, meaning = draw(texts(brackets, depth - 1))
        return f"!({text})", f"(not {meaning})"
    parts = draw(st.lists(texts(brackets, depth - 1), min_size=2, max_size=3))
    if kind == "choice":
        return "[" + "|".join(f"({text})" for text, _ in parts) + "]", f"any({[m for _, m in parts]})"
    sign, word = ("&", "and") if kind == "and" else ("|", "or")
    space = draw(st.sampled_from(["", " "]))
    text = f"{space}{sign}{space}".join(f"({text})" for text, _ in parts)
    return text, "(" + f" {word} ".join(meaning for _, meaning in parts) + ")"


@settings(deadline=None, max_examples=examples(300))
@given(texts())
def test_a_text_holds_for_the_hosts_that_python_would_choose(both: tuple[str, str]) -> None:
    text, meaning = both
    wanted = [has for has in SETS if eval(meaning, {"has": has})]
    assert [has for has in SETS if features.matches(text, has)] == wanted
    (same,) = features.alternatives(text)  # what is written anew means the same
    assert [has for has in SETS if features.matches(same, has)] == wanted


@settings(deadline=None, max_examples=examples(200))
@given(texts(brackets=True))
def test_brackets_leave_one_choice_to_all_hosts(both: tuple[str, str]) -> None:
    text = both[0]
    try:
        each = features.alternatives(text)
    except UsageError:  # too many choices
        return
    assert each
    assert not any("[" in one for one in each)
    if "!" not in text:  # a host that suits one choice suits the whole
        for has in SETS:
            assert features.matches(text, has) == any(features.matches(one, has) for one in each)


@settings(deadline=None)
@given(st.text(alphabet="ab&|!()[]* ,2", max_size=12))
def test_any_text_has_a_meaning_or_a_sentence(text: str) -> None:
    try:
        found = features.parse(text)
    except UsageError:
        return
    if found is not None:
        assert features.parse(str(found)) == found


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("a&b|c", "need parentheses"),
        ("a&", "a feature is missing"),
        ("(a|b", "a '\\)' is missing"),
        ("a)", "'\\)' is one too many"),
        ("a,b", "',' has no meaning"),
        ("(" * 99 + "a", "too deep"),
        ("!" * 99 + "a", "too many !"),
        ("&".join(["[a|b|c]"] * 4), "more than 64 kinds"),
        (f"[{'&'.join(['a*1'] * 17)}]", "more than 16 kinds"),
        ("a" * 5000, "may have 4096"),
    ],
)
def test_what_is_no_list_of_features_is_told(text: str, why: str) -> None:
    with pytest.raises(UsageError, match=why):
        features.parse(text)


HOSTS = [
    host("a1", features=("rack1", "fast"), cpus=2),
    host("a2", features=("rack1",), cpus=2),
    host("b1", features=("rack2", "fast"), cpus=2),
    host("b2", features=("rack2", "fast"), cpus=2, gpus=1, gpu_model="NVIDIA A100-SXM4-80GB"),
]


@pytest.mark.parametrize(
    ("wants", "on"),
    [
        ({"constraint": "fast"}, {"a1", "b1", "b2"}),
        ({"constraint": "fast&rack1"}, {"a1"}),
        ({"constraint": "!fast"}, {"a2"}),
        ({"constraint": "a100&80gb"}, {"b2"}),
        ({"constraint": "fast", "prefer": "a100"}, {"b2"}),
        ({"prefer": "a100"}, {"b2"}),
    ],
)
@pytest.mark.parametrize("policy", ["first-fit", "metronome", "zone", "least-loaded"])
def test_a_job_runs_where_the_features_are(policy: str, wants: dict[str, str], on: set[str]) -> None:
    decision, reasons = placed(policy, **wants)
    assert decision is not None, reasons
    assert {*decision.placement.hosts} <= on


def placed(policy: str, *hosts: Any, **wants: Any) -> Any:
    policies = Policies(load("queue", "fifo"), load("placement", policy), load("comm", "none"))
    return place(job(1, **wants), snapshot(*(hosts or HOSTS)), policies, Tuning(), 1)


def test_what_is_preferred_is_not_necessary() -> None:
    decision, _ = placed("first-fit", constraint="rack1", prefer="a100", ntasks=4)
    assert {*decision.placement.hosts} == {"a1", "a2"}


def test_brackets_keep_a_gang_on_hosts_of_one_kind() -> None:
    decision, _ = placed("first-fit", constraint="[rack1|rack2]", ntasks=2, hosts_min=2, hosts_max=2)
    assert {*decision.placement.hosts} == {"a1", "a2"}
    full = [host("a1", features=("rack1",), cpus=1), *HOSTS[2:]]
    decision, _ = placed("first-fit", *full, constraint="[rack1|rack2]", ntasks=2, hosts_min=2, hosts_max=2)
    assert {*decision.placement.hosts} == {"b1", "b2"}


def test_why_names_the_features_that_are_missing() -> None:
    policies = Policies(load("queue", "fifo"), load("placement", "first-fit"), load("comm", "none"))
    never = never_fits(job(1, constraint="fast&!fast"), snapshot(*HOSTS), policies)
    assert "has not the features fast&!fast (its features: fast, rack1)" in never[0].message


def test_a_feature_that_no_host_has_is_unknown() -> None:
    hosts = {one.name: one for one in HOSTS}
    (found,) = unknown_names(spec(constraint="fast|rack9", prefer="!rack1"), hosts)
    assert found.said.startswith("there is no feature rack9; there are: fast, rack1")


def test_hosts_that_are_alike_share_one_set_of_features() -> None:
    """A pass asks each of thousands of hosts."""
    first, second = (host(name, gpus=8, features=("ib",)) for name in ("h1", "h2"))
    assert first.all_features is second.all_features
    assert replace(first, features=("slow",)).all_features != second.all_features


@pytest.mark.parametrize(
    ("text", "of_all", "counted"),
    [
        ("a*2", ("",), (("a", 2),)),
        ("[a*2&b*4]", ("",), (("a", 2), ("b", 4))),
        ("[(a&c)*4&b*1]", ("",), (("a&c", 4), ("b", 1))),
        ("[(a|b)*1&c*2]", ("",), (("a|b", 1), ("c", 2))),
        ("d&[a*2&b*4]", ("d",), (("a", 2), ("b", 4))),
        ("[c|d]&!e&[a*1]", ("c&!e", "d&!e"), (("a", 1),)),
    ],
)
def test_numbers_of_hosts_are_apart_from_what_all_hosts_have(
    text: str, of_all: tuple[str, ...], counted: tuple[tuple[str, int], ...]
) -> None:
    assert (features.alternatives(text), features.kinds(text)) == (of_all, counted)
    assert features.parse(str(features.parse(text))) == features.parse(text)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("a*2&b", "stand alone"),
        ("a*2&b*4", "stand alone"),
        ("a*2|b*4", "stand alone"),
        ("[a*2|b*4]", "stand alone"),
        ("[a*2&b]", "stand alone"),
        ("[a*1]&[b*1]", "stand alone"),
        ("([a|b])*2", "stand alone"),
        ("!a*2", "stand alone"),
        ("(a*2)*2", "stand alone"),
        ("a*", "behind \\* stands a number"),
        ("a*0", "behind \\* stands a number"),
        ("a*b", "behind \\* stands a number"),
        ("a*999999", "behind \\* stands a number"),
    ],
)
def test_numbers_of_hosts_elsewhere_are_refused(text: str, why: str) -> None:
    with pytest.raises(UsageError, match=why):
        features.parse(text)


POLICIES = ["first-fit", "metronome", "zone", "least-loaded", "rack", "consolidate"]


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize(
    ("constraint", "hosts", "on"),
    [
        ("[rack1*1&rack2*2]", 3, [{"a1", "b1", "b2"}, {"a2", "b1", "b2"}]),
        ("rack1*1", 1, [{"a1"}, {"a2"}]),
        ("a100*1", 3, [{"b2", "a1", "a2"}, {"b2", "a1", "b1"}, {"b2", "a2", "b1"}]),
        ("fast&[rack1*1&rack2*1]", 2, [{"a1", "b1"}, {"a1", "b2"}]),
        ("[fast*1&rack1*1&rack2*1]", 3, [{one.name for one in HOSTS} - {left.name} for left in HOSTS]),
    ],
)  # fmt: skip
def test_a_gang_has_as_many_hosts_of_each_kind_as_it_counts(
    policy: str, constraint: str, hosts: int, on: list[set[str]]
) -> None:
    wants = {"constraint": constraint, "ntasks": hosts, "hosts_min": hosts, "hosts_max": hosts}
    decision, reasons = placed(policy, **wants)
    assert decision is not None, reasons
    assert {*decision.placement.hosts} in on


def test_a_job_that_counts_hosts_waits_for_their_room() -> None:
    full = [host("a1", features=("rack1",), cpus=0), *HOSTS[2:]]
    decision, (reason,) = placed("first-fit", *full, constraint="[rack1*1&rack2*2]", ntasks=3)
    assert decision is None
    assert reason.message == (
        "needs 3 hosts with room for 3 tasks together, 1 of rack1 (0 have room) and 2 of rack2 (2 have room)"
    )


def test_hosts_that_no_state_of_the_cluster_has_are_refused() -> None:
    policies = Policies(load("queue", "fifo"), load("placement", "first-fit"), load("comm", "none"))
    wants = {"constraint": "[rack1*3&rack2*1]", "ntasks": 4}
    assert "3 of rack1 (2 have room)" in never_fits(job(1, **wants), snapshot(*HOSTS), policies)[0].message
    assert not never_fits(job(1, **wants | {"constraint": "[rack1*2&rack2*2]"}), snapshot(*HOSTS), policies)


@settings(deadline=None, max_examples=examples(200))
@given(
    st.lists(st.frozensets(st.sampled_from("abc")), min_size=1, max_size=6),
    st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 3)), min_size=1, max_size=3),
)
def test_hosts_are_found_for_all_kinds_whenever_there_are_any(
    have: list[frozenset[str]], kinds: list[tuple[str, int]]
) -> None:
    hosts = [host(f"h{i}", features=tuple(sorted(some))) for i, some in enumerate(have)]
    found = matched(tuple(kinds), hosts)
    slots = [text for text, count in kinds for _ in range(count)]
    possible = any(
        all(slot in one.features for slot, one in zip(slots, chosen, strict=True))
        for chosen in permutations(hosts, len(slots))
    )
    assert (len(found) == len(slots)) is possible


@pytest.mark.parametrize(
    ("text", "count"), [("[a*2000&b*2000]", 4000), ("[" + "&".join(["(a|b)*240", "b*10"] * 8) + "]", 2000)]
)
def test_many_hosts_of_overlapping_kinds_keep_the_leader_for_a_moment_only(text: str, count: int) -> None:
    hosts = [host(f"h{i}", features=("a", "b") if i % 2 else ("b", "a", "c")) for i in range(4000)]
    began_s = time.process_time()
    assert len(matched(features.kinds(text), hosts)) == count  # no RecursionError
    assert time.process_time() - began_s < 10  # it took minutes
