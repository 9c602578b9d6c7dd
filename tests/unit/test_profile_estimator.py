"""The transparent profiler finds period and phases of synthetic byte counters with jitter and noise."""

from __future__ import annotations

import importlib.util
import random
import sys
from pathlib import Path
from types import ModuleType

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

AGENTS = Path(__file__).parents[2] / "agents"


def load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, AGENTS / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


rm_profile = load("rm_profile")


def begins(period_ms: float, jitter: float, length_ms: float, seed: int) -> list[float]:
    """When the iterations of a job begin, ms; each period is drawn anew."""
    chance = random.Random(seed)
    found = [50.0]
    while (at := found[-1] + period_ms * (1 + jitter * chance.gauss(0, 1))) < length_ms:
        found.append(at)
    return found


def counter(
    period_ms: float, phases: list[tuple[float, float, float]], *, jitter: float = 0.0, noise: int = 0,
    length_ms: int = 4000, step_ms: float = 2.0, seed: int = 1,
) -> list[tuple[int, int]]:  # fmt: skip
    """Samples of a job's counter; phases are (offset ms, length ms, Mbit/s) from the first phase on."""
    chance = random.Random(seed)
    spans = [
        (at + offset, at + offset + length, rate)
        for at in begins(period_ms, jitter, length_ms, seed)
        for offset, length, rate in phases
    ]
    samples, total, now, first = [], 0.0, 0.0, 0
    while now < length_ms:
        step = step_ms * chance.uniform(0.8, 1.3)
        while first < len(spans) and spans[first][1] < now:
            first += 1
        for start, end, rate in spans[first : first + 3]:
            total += max(0.0, min(end, now + step) - max(start, now)) * rate * 125
        total += chance.randrange(noise + 1)
        now += step
        samples.append((int(now * 1000), int(total)))
    return samples


@settings(max_examples=12)
@given(
    period=st.integers(80, 400),
    duty=st.floats(0.15, 0.75),
    jitter=st.sampled_from([0.0, 0.01, 0.03]),
    noise=st.sampled_from([0, 300]),
    seed=st.integers(0, 1000),
)
def test_period_and_duty_cycle_of_one_phase(
    period: int, duty: float, jitter: float, noise: int, seed: int
) -> None:
    found = rm_profile.estimate(
        counter(period, [(0, period * duty, 90)], jitter=jitter, noise=noise, seed=seed)
    )
    drawn = begins(period, jitter, 4000, seed)  # ten periods with jitter are not `period` long on average
    mean_us = (drawn[-1] - drawn[0]) / (len(drawn) - 1) * 1000
    assert abs(found["period_us"] - mean_us) <= 0.02 * mean_us + 1000
    assert len(found["phases"]) == 1
    offset, length, rate = found["phases"][0]
    assert offset == 0
    assert abs(length - period * duty * 1000) <= 6000
    assert rate == pytest.approx(90e6, rel=0.15)
    assert found["confidence"] > 0.6


def test_two_unlike_phases_begin_after_the_longest_silence() -> None:
    found = rm_profile.estimate(counter(300, [(0, 40, 90), (90, 60, 50)], jitter=0.01, noise=100))
    assert abs(found["period_us"] - 300_000) < 6000
    assert [round(p[0] / 10_000) for p in found["phases"]] == [0, 9]
    assert [round(p[1] / 10_000) for p in found["phases"]] == [4, 6]
    assert found["phases"][1][2] == pytest.approx(50e6, rel=0.15)


def test_origins_are_when_the_phases_began() -> None:
    found = rm_profile.estimate(counter(200, [(0, 80, 90)]))
    assert all(abs((at - 50_000 + 100_000) % 200_000 - 100_000) <= 4000 for at in found["origins"])


def test_silence_and_steady_traffic_have_no_period() -> None:
    assert rm_profile.estimate([(n * 2000, 0) for n in range(1000)])["confidence"] == 0
    steady = rm_profile.estimate([(n * 2000, n * 20_000) for n in range(1000)])
    assert steady["period_us"] == 0


def test_irregular_traffic_is_not_trusted() -> None:
    chance = random.Random(3)
    spans = sorted(chance.uniform(0, 6000) for _ in range(25))
    samples, total = [], 0
    for n in range(3000):
        total += 20_000 if any(s <= n * 2 < s + chance.choice([20, 50, 90]) for s in spans) else 0
        samples.append((n * 2000, total))
    assert rm_profile.estimate(samples)["confidence"] < 0.5


def test_iterations_of_which_each_sends_something_else_are_not_trusted() -> None:
    """Two of four bursts have a pause, each at another place, as on a host without a free core."""
    samples, total = [], 0
    for n in range(2000):
        at_ms = n * 2
        iteration, inside_ms = divmod(at_ms, 1000)
        pause_ms = {1: (180, 280), 3: (200, 300)}.get(iteration, (0, 0))
        if inside_ms < 370 and not pause_ms[0] <= inside_ms < pause_ms[1]:
            total += 25_000
        samples.append((at_ms * 1000, total))
    assert rm_profile.estimate(samples)["confidence"] < 0.5


def test_one_iteration_that_sends_more_does_not_matter() -> None:
    samples = counter(400, [(0, 100, 90)])
    extra = [(at_us, total + 11_250 * min(100, max(0, at_us / 1000 - 1745))) for at_us, total in samples]
    found = rm_profile.estimate(extra)
    assert found["confidence"] > 0.6
    assert found["phases"] == rm_profile.estimate(samples)["phases"]


@pytest.mark.parametrize(("period_ms", "sends_ms"), [(50, 15), (100, 10), (1_000, 370), (2_400, 1_000)])
def test_samples_that_become_rarer_show_short_and_long_periods(period_ms: int, sends_ms: int) -> None:
    """As of a job of which nobody knows the period: it is watched for 24 s, at last every 12 ms."""
    times_ms = [*range(0, 4_000, 2), *range(4_000, 24_000, 12)]
    samples = [
        (at_ms * 1000, 12_500 * (at_ms // period_ms * sends_ms + min(at_ms % period_ms, sends_ms)))
        for at_ms in times_ms
    ]
    found = rm_profile.estimate_of_all(samples, 2_000, 2_000)
    assert found["period_us"] == pytest.approx(period_ms * 1000, rel=0.02)
    ((_, duration_us, rate_bps),) = found["phases"]
    assert duration_us == pytest.approx(sends_ms * 1000, rel=0.1)
    assert duration_us * rate_bps == pytest.approx(sends_ms * 1e11, rel=0.1)
    assert found["confidence"] > 0.6


@pytest.mark.parametrize("samples", [[], [(0, 0)], [(0, 0), (2000, 5)]])
def test_too_little_to_tell(samples: list[tuple[int, int]]) -> None:
    assert rm_profile.estimate(samples)["period_us"] == 0
