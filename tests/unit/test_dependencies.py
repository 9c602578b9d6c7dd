"""The text of a dependency list: what is understood, and what is refused with which sentence."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rm.arrays import split
from rm.dependencies import CONDITIONS_MAX, MINUTE_US, WRITTEN_MAX, Condition, Conditions, parse
from rm.errors import UsageError


@pytest.mark.parametrize(
    ("text", "conditions"),
    [
        ("", Conditions()),
        ("  ", Conditions()),
        ("afterok:12", Conditions((Condition("afterok", 12),))),
        ("AfterOK:12", Conditions((Condition("afterok", 12),))),
        ("12", Conditions((Condition("afterany", 12),))),  # Slurm's older form
        ("12:13", Conditions((Condition("afterany", 12), Condition("afterany", 13)))),
        ("after:7+5", Conditions((Condition("after", 7, 5 * MINUTE_US),))),
        ("after:7+5:8", Conditions((Condition("after", 7, 5 * MINUTE_US), Condition("after", 8)))),
        ("singleton", Conditions((Condition("singleton"),))),
        (
            "afterok:1:2,afternotok:3, singleton",
            Conditions(
                (
                    Condition("afterok", 1), Condition("afterok", 2), Condition("afternotok", 3),
                    Condition("singleton"),
                )
            ),
        ),
        ("afterok:1?after:2", Conditions((Condition("afterok", 1), Condition("after", 2)), any_of=True)),
        ("afterok:1:1,afterok:1", Conditions((Condition("afterok", 1),))),
        (
            "afterok:36_4:36_8",
            Conditions((Condition("afterok", 36, 0, "4"), Condition("afterok", 36, 0, "8"))),
        ),
        ("afterany:36_*", Conditions((Condition("afterany", 36),))),
        ("after:36_04+5", Conditions((Condition("after", 36, 5 * MINUTE_US, "4"),))),
        (
            "afterok:36_[3-9,12]:7,aftercorr:40",
            Conditions(
                (Condition("afterok", 36, 0, "3-9,12"), Condition("afterok", 7), Condition("aftercorr", 40))
            ),
        ),
        (
            "afternotok:36_[1,3]?aftercorr:40",
            Conditions((Condition("afternotok", 36, 0, "1,3"), Condition("aftercorr", 40)), any_of=True),
        ),
    ],
)  # fmt: skip
def test_a_list_is_understood_as_slurm_does(text: str, conditions: Conditions) -> None:
    assert parse(text) == conditions
    between = "?" if conditions.any_of else ","
    assert parse(between.join(map(str, conditions.of))) == conditions


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("afterok:1,afterany:2?after:3", "it has both ',' (all) and '?' (any)"),
        ("afterok", "'' is no job id"),
        ("afterok:", "'' is no job id"),
        ("afterok:1:", "'' is no job id"),
        ("afterok:0", "'0' is no job id"),
        ("afterok:x", "'x' is no job id"),
        ("afterok:-4", "'-4' is no job id"),
        ("afterok:1+5", "afterok takes no time"),
        ("after:1+", "'1+' is no job id"),
        ("after:1+9999999999", "9999999999 minutes are more than"),
        ("singleton:4", "'singleton:4' is no condition"),
        ("whenever:4", "'whenever:4' is no condition"),
        ("afterok:1,", "a condition is empty"),
        ("afterok:36_x", "'36_x' is no job id"),
        ("afterok:36_[3-", "'36_[3-' is no job id"),
        ("afterok:36_[9-3]", "'36_[9-3]' is no job id"),
        ("afterok:36_[]", "'36_[]' is no job id"),
        ("aftercorr:36_2", "aftercorr goes from element to element"),
        ("aftercorr:36+5", "aftercorr takes no time"),
        ("aftercorr:36?after:7+5", "aftercorr and a time exclude each other"),
        ("expand:36", "expand is not supported"),
    ],
)
def test_what_is_wrong_is_said(text: str, said: str) -> None:
    with pytest.raises(UsageError) as refused:
        parse(text)
    assert said in str(refused.value)
    assert f"--dependency is '{text}'" in refused.value.what


def test_a_list_has_an_end() -> None:
    parse("afterok:" + ":".join(map(str, range(1, CONDITIONS_MAX + 1))))
    with pytest.raises(UsageError, match="1001 conditions"):
        parse("afterok:" + ":".join(map(str, range(1, CONDITIONS_MAX + 2))))


def test_a_list_that_names_one_job_again_and_again_has_an_end_too() -> None:
    """Each condition costs time before it is known to be one of those before it."""
    assert len(parse("afterok:" + ":".join(["1"] * WRITTEN_MAX)).of) == 1
    for text in ("afterok:" + ":".join(["1"] * 20_000), "after:1," * 5_000 + "after:1"):
        with pytest.raises(UsageError, match=f"more than {WRITTEN_MAX} conditions"):
            parse(text)


def test_lists_of_elements_have_an_end_together() -> None:
    """Each is worked on whole, and a few bytes may name millions."""
    parse("afterok:" + ":".join(f"1_[5-{100_000 - n}]" for n in range(100)))
    many = (
        ":".join(f"1_[{n}-3999999:3]" for n in range(5)),
        ":".join(f"1_[0-99999:2,{2 * n + 1}]" for n in range(3)),
    )
    for jobs in many:
        with pytest.raises(UsageError, match="too many elements of arrays"):
            parse(f"afterok:{jobs}")


@given(st.text("a:,?[]", max_size=12), st.sampled_from(":,?"))
def test_a_list_is_cut_outside_of_brackets(text: str, between: str) -> None:
    """As an expression does that looks ahead for the next bracket, for minutes where there are many."""
    assert split(text, between) == re.split(re.escape(between) + r"(?![^\[\]]*\])", text)
