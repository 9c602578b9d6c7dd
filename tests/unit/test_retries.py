"""When a lost host is tried again, by times alone."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rm.adapters.hosts.retries import FIRST_S, KEY_S, LAST_S, Retries

DOWN_AFTER_S = 20.0
JITTER = 1.3  # of the pause, at most
TRY_S = 0.2
SOON_S = 0.15 * DOWN_AFTER_S


def tries(retries: Retries, lost_at: float, until: float) -> list[float]:
    """When tries that fail quickly begin after a loss."""
    begun, now = [], lost_at
    while now < until:
        pause_s = retries.pause_s(now, now + TRY_S)
        now += TRY_S + pause_s * JITTER
        begun.append(now)
    return begun


@given(
    lives=st.lists(st.tuples(st.floats(0.01, 1000), st.floats(0, 200)), max_size=5),
    away_s=st.floats(0, DOWN_AFTER_S * 0.8),
)
def test_a_host_that_is_back_in_time_is_reached_before_it_is_given_up(
    lives: list[tuple[float, float]], away_s: float
) -> None:
    """Whatever was before: conversations of some seconds, and absences that let the pauses grow."""
    now = 0.0
    retries = Retries(DOWN_AFTER_S, now)
    for spoke_s, gone_s in lives:
        now += spoke_s + retries.pause_s(now, now + spoke_s, greeted=True)
        now = max([now, *tries(retries, now, now + gone_s)])
    spoke_until = now + 1.0
    retries.pause_s(now, spoke_until, greeted=True)
    begun = tries(retries, spoke_until, spoke_until + DOWN_AFTER_S)
    back_at = spoke_until + away_s
    assert any(back_at <= at <= back_at + SOON_S for at in begun)  # there is time left to connect and greet


def test_a_host_that_stays_away_is_tried_less_and_less() -> None:
    begun = tries(Retries(DOWN_AFTER_S, 0.0), 0.0, 600.0)
    gaps = [b - a for a, b in pairwise(begun)]
    assert max(gaps) == pytest.approx(LAST_S * JITTER + TRY_S)
    assert gaps[-1] == max(gaps)


def test_a_refused_key_is_asked_for_seldom_and_a_reason_to_hope_hurries() -> None:
    retries = Retries(DOWN_AFTER_S, 0.0)
    assert retries.pause_s(0.0, 1.0, refused=True) == KEY_S
    retries.hurry()
    assert retries.pause_s(100.0, 101.0) == FIRST_S
