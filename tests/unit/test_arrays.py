"""The text of job arrays and of ids: what a user writes and what is shown."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rm.arrays import JobId, each, mask, parse, parse_id, split_ids, text_of
from rm.errors import UsageError
from rm.shown_ids import shown_id

SETS = st.frozensets(st.integers(0, 300), max_size=120)


@pytest.mark.parametrize(
    ("text", "indices", "limit", "step"),
    [
        ("0-3", [0, 1, 2, 3], 0, 1),
        ("1-15:4", [1, 5, 9, 13], 0, 4),
        ("1,3,7-9%2", [1, 3, 7, 8, 9], 2, 1),
        (" [0-2,1]%0 ", [0, 1, 2], 0, 1),
        ("7", [7], 0, 1),
    ],
)
def test_arrays_are_read_as_sbatch_reads_them(text: str, indices: list[int], limit: int, step: int) -> None:
    asked = parse(text)
    assert (each(asked.mask), asked.limit, asked.step) == (indices, limit, step)
    assert (asked.first, asked.last) == (indices[0], indices[-1])


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "a part is empty"),
        ("1,,2", "a part is empty"),
        ("a-3", "'a-3' is no index and no range"),
        ("5-1", "'5-1' ends before it begins"),
        ("1-5:0", "the step of '1-5:0' is 0"),
        ("0-3%", "'' is no number of elements"),
        ("0-4000001", "4000001 is more than 4000000"),
        ("-1", "'-1' is no index"),
        ("0-4000000,7", "it names too many indices: at most"),
        ("0-4000000:2,0-4000000:3", "it names too many indices"),
    ],
)
def test_what_is_no_array_is_refused_with_a_sentence(text: str, why: str) -> None:
    with pytest.raises(UsageError, match=r"--array is '.*', and") as refused:
        parse(text)
    assert why in refused.value.what


@given(SETS)
def test_any_set_of_indices_comes_back(indices: frozenset[int]) -> None:
    bits = sum(1 << index for index in indices)
    assert mask(text_of(bits)) == bits
    assert not bits or parse(text_of(bits)).mask == bits
    assert each(bits) == sorted(indices)


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("36", JobId(36)),
        ("36_2", JobId(36, "2")),
        ("36_[3-9]", JobId(36, "3-9")),
        ("36_[3-9,12%5]", JobId(36, "3-9,12")),
        ("36_[0-8:4]", JobId(36, "0-8:4")),
    ],
)
def test_an_id_is_read_as_it_is_shown(text: str, named: JobId) -> None:
    assert parse_id(text) == named
    assert parse_id(str(named)) == named


@pytest.mark.parametrize("text", ["", "x", "36_", "36_[]", "36_[5-1]", "36_x", "36_[1", "-3", "３６"])
def test_what_is_no_id_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        parse_id(text)


def test_ids_are_shown_as_squeue_shows_them() -> None:
    assert shown_id(36, 0, None) == "36"
    assert shown_id(51, 36, 2) == "36_2"
    assert shown_id(36, 0, None, "3-9,12", 5) == "36_[3-9,12%5]"
    many = text_of(sum(1 << n for n in range(0, 400, 3)) | 2)
    assert len(shown_id(36, 0, None, many)) < 80
    assert shown_id(36, 0, None, many).endswith(",...]")


def test_lists_of_ids_are_split_between_arrays_however_long_they_are() -> None:
    assert split_ids("7,8,9_[3-4,6],,10_2") == ["7", "8", "9_[3-4,6]", "10_2"]
    assert len(split_ids("1," * 300_000 + "9_[" + "1," * 100_000)) == 400_000  # it took hours


def test_elements_that_take_long_to_list_are_no_id() -> None:
    assert parse_id("1_[0-3999999:2]") == JobId(1, "0-3999998:2")
    with pytest.raises(UsageError, match="names too many indices"):
        parse_id("1_[0-3999999:2,1]")
