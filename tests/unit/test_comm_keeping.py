"""Which links may serve bursts as they come: those whose jobs meet nobody else elsewhere."""

from hypothesis import given
from hypothesis import strategies as st

from rm.policies.comm.steps.keeping import alike, is_alike
from rm.policies.interleave.circle import LinkLoad

PHASE = ((0, 10, 100),)


def links(of):
    return {name: LinkLoad(100, dict.fromkeys(jobs, PHASE)) for name, jobs in of.items()}


def test_jobs_that_share_all_their_links_are_alike_and_a_chain_of_jobs_is_not():
    assert alike(links({"a": (1, 2), "b": (1, 2)})) == {"a", "b"}
    assert alike(links({"a": (1, 2), "b": (2, 3), "c": (4, 5)})) == {"c"}
    assert alike(links({"a": (1, 2, 3), "b": (1, 2)})) == frozenset()


@given(st.dictionaries(st.sampled_from("abcdef"), st.sets(st.integers(1, 5), min_size=2), max_size=6))
def test_no_job_of_an_alike_link_meets_another_job_on_another_link(of):
    found = alike(links(of))
    for name in found:
        for other, jobs in of.items():
            assert jobs == of[name] or not jobs & of[name], (name, other)


@given(st.dictionaries(st.sampled_from("abcdef"), st.sets(st.integers(1, 5), min_size=2), max_size=6))
def test_one_link_is_judged_as_all_are(of):
    there = links(of)
    on = {job: [name for name in of if job in of[name]] for job in range(1, 6)}
    assert {name for name in there if is_alike(there[name], on, there)} == alike(there)
