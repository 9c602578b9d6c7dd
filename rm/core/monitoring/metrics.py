"""What is measured between two hosts, and of services that a host asks: names, units and bounds, the test
that finds each, the check on it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from rm.core.monitoring.continuous import LATENCYBG


class Unit(Enum):
    PERCENT = "%"
    MICROSECONDS = "us"
    BITS_PER_SECOND = "bit/s"
    BYTES = "bytes"
    HOPS = "hops"


@dataclass(frozen=True, slots=True)
class Metric:
    """No value can be below 0 or above `largest`. `test` finds it; `check` judges it, if any does."""

    name: str
    title: str
    unit: Unit
    largest: float
    test: str
    check: str = ""


METRICS = (
    Metric("loss_pct", "loss", Unit.PERCENT, 100.0, "latency", "loss"),
    Metric("delay_us", "one-way delay", Unit.MICROSECONDS, 600e6, "latency", "delay"),
    Metric("rtt_us", "round trip", Unit.MICROSECONDS, 600e6, "latency"),
    Metric("bandwidth_bps", "bandwidth", Unit.BITS_PER_SECOND, 1e14, "throughput", "bandwidth"),
    Metric("mtu_bytes", "path MTU", Unit.BYTES, 1 << 24, "mtu", "mtu"),
    Metric("delay_p95_us", "one-way delay of 95 %", Unit.MICROSECONDS, 600e6, "latency", "delay_p95"),
    Metric("jitter_us", "jitter", Unit.MICROSECONDS, 600e6, "latency", "jitter"),
    # beyond the bound of its error, which is left out: what is certain
    Metric("clock_offset_us", "difference of clocks", Unit.MICROSECONDS, 1e15, "latency", "clock"),
    # bounds the error of the one-way delay
    Metric("clock_error_us", "clock error", Unit.MICROSECONDS, 600e6, "latency"),
    Metric("hops", "hops", Unit.HOPS, 64.0, "trace", "trace"),
    Metric("dns_us", "DNS answer", Unit.MICROSECONDS, 600e6, "dns", "dns"),
    Metric("http_us", "HTTP answer", Unit.MICROSECONDS, 600e6, "http", "http"),
)
BY_NAME: Mapping[str, Metric] = {metric.name: metric for metric in METRICS}
METRIC_OF: Mapping[str, str] = {metric.check: metric.name for metric in METRICS if metric.check}
CHECKS = tuple(METRIC_OF)
ON_REQUEST = (
    "delay_p95",
    "jitter",
    "clock",
)  # of a latency test, if there is a threshold for them
RARE = (*ON_REQUEST, "trace", "dns", "http")  # checks that few meshes have
SERVICES = ("dns", "http")  # what a host tests by itself: its cells lead from the host to itself
NO_ANSWER_US = 600e6  # what stands for the time of a service's wrong answer, or of none: the largest


def checks_of_test(test: str) -> tuple[str, ...]:
    """The checks on what a test finds."""
    if test == LATENCYBG:  # finds the same, but the round trip
        test = "latency"
    if test == "clock":  # a short latency test, of which nothing else counts
        return ("clock",)
    return tuple(metric.check for metric in METRICS if metric.test == test and metric.check)
