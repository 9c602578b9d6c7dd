"""Policies are found by their file names, and their options are checked."""

import pytest

from rm.core import registry
from rm.errors import ConfigError


def test_a_policy_is_named_after_its_file() -> None:
    assert {"metronome", "none"} <= set(registry.names("comm"))
    assert registry.load("comm", "none").name == "none"


@pytest.mark.parametrize("kind", registry.KINDS)
def test_every_policy_loads_under_its_own_name(kind: str) -> None:
    for name in registry.names(kind):
        assert registry.load(kind, name).name == name


def test_options_reach_the_policy() -> None:
    policy = registry.load("comm", "metronome", {"g-t-us": 7000, "e_t": 1})
    assert policy.options.g_t_us == 7000
    assert policy.options.e_t == 1.0


@pytest.mark.parametrize(
    ("kind", "name", "options", "says"),
    [
        ("comm", "metronom", {}, "Did you mean 'metronome'"),
        ("tea", "earl-grey", {}, "no kind of policy 'tea'"),
        ("comm", "metronome", {"slot": 3}, "Did you mean 'slots'"),
        ("comm", "metronome", {"slots": "many"}, "must be int"),
        ("comm", "metronome", {"slots": True}, "must be int"),
        ("comm", "metronome", {"mode": "fast"}, '"default" or "paper"'),
        ("comm", "metronome", {"slots": 0}, "Use 1 or more"),
        ("comm", "none", {"slots": 3}, "has no options"),
    ],
)
def test_mistakes_are_answered_with_a_sentence(
    kind: str, name: str, options: dict[str, object], says: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        registry.load(kind, name, options)
    assert says in str(caught.value)
