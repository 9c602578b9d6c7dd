"""Patterns that are compiled at their first use are as those of `re.compile`."""

import re

import pytest

from rm.compiled_later import compiled_later


def test_they_find_what_the_usual_ones_find() -> None:
    later, usual = compiled_later(r"(a+)(?P<rest>.*)", re.DOTALL), re.compile(r"(a+)(?P<rest>.*)", re.DOTALL)
    for _ in range(2):
        found, wanted = later.match("aab\nc"), usual.match("aab\nc")
        assert found is not None
        assert wanted is not None
        assert found.groupdict() == wanted.groupdict()
    assert later.sub("x", "aab") == usual.sub("x", "aab")
    assert (later.pattern, later.flags) == (usual.pattern, usual.flags)


def test_one_that_is_never_used_is_never_compiled() -> None:
    wrong = compiled_later("(")
    with pytest.raises(re.error):
        wrong.match("x")
    later = compiled_later("a")
    with pytest.raises(AttributeError):
        later.nothing  # type: ignore[attr-defined]  # noqa: B018
