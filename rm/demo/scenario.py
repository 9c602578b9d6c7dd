"""What the demo plays: the machines, the jobs, and the modes they are compared in. Data only."""

from __future__ import annotations

from dataclasses import dataclass

from rm.lab import Degrade, LabSpec

LINK_MBPS = 100
QUEUE_PACKETS = 30
CONGESTION_CONTROL = "cubic"
# zone1: two good hosts and between them, by name, one whose link is bad; zone2: two good hosts
BAD_HOST = "z1h2"
LAB = LabSpec(
    zones=2,
    hosts=5,
    gpus_per_host=2,
    link_mbps=LINK_MBPS,
    queue_packets=QUEUE_PACKETS,
    congestion_control=CONGESTION_CONTROL,
    degrade={BAD_HOST: Degrade(rate_mbps=20, loss_pct=3.0, delay_ms=8.0)},
)


@dataclass(frozen=True, slots=True)
class Training:
    """One job as its user knows it: it computes for a time, then all-reduces a number of bytes. `spread`: its
    tasks are to be on hosts of their own."""

    name: str
    priority: str
    compute_ms: float
    bytes: int
    buckets: int = 1
    spread: bool = True
    tasks: int = 2


@dataclass(frozen=True, slots=True)
class Mode:
    """One way to run the pair. `rotation` brings time-shifts, pausing, idle time and slot gating; `comm` is
    the communication policy, where there is one."""

    name: str
    title: str
    shaping: bool
    rotation: bool
    comm: str = "metronome"

    def tables(self, spec: LabSpec, shapes: bool) -> str:
        """The part of rm.toml that makes the mode; without its classes where the hosts cannot shape."""
        shaping = self.shaping and shapes
        if not (shaping or self.rotation):
            return '[policies]\ncomm = "none"\n[shaping]\nenabled = false\n'
        shaped = f"[shaping]\nenabled = {str(shaping).lower()}\nqueue_packets = {QUEUE_PACKETS}\n"
        if self.comm != "metronome":
            return f'[policies]\ncomm = "{self.comm}"\n{shaped}'
        flags = {"shaping": shaping, "rotation": self.rotation, "gating": self.rotation}
        lines = "".join(f"{key} = {str(value).lower()}\n" for key, value in flags.items())
        return f'[policies]\ncomm = "metronome"\n[policies.options.comm.metronome]\n{lines}{shaped}'


BUCKETS = 4  # gradients travel in parts, as PyTorch DDP sends them
# alone about 196 and 191 ms, of which about 86 communicate: a shift alone does not hold
PAIR = (
    Training("high", "high", 110.0, 1_020_000, BUCKETS),
    Training("low", "low", 105.0, 1_020_000, BUCKETS),
)
# about 119 of 199 ms each: two of them do not fit one link
HEAVY = tuple(Training(name, "low", 80.0, 1_430_000, BUCKETS) for name in ("heavy-1", "heavy-2"))

ALONE = "alone"
MODES = (
    Mode("unmanaged", "unmanaged", False, False),
    Mode("shaped", "shaping only", True, False),
    Mode("rotated", "rotation only", False, True),
    Mode("ordered", "first come", True, False, "first-come"),
    Mode("managed", "all of rm", True, True),
)
MANAGED = MODES[-1]


@dataclass(frozen=True, slots=True)
class Length:
    """How long everything runs: iterations per run, runs per mode, and what is left out at the start.

    The two jobs drift through each other once in 196 · 191 / 5 ms = 7.5 s: what is measured of a run
    should last at least so long.
    """

    iterations: int
    iterations_alone: int
    iterations_heavy: int
    repeats: int
    repeats_alone: int
    left_out_s: float


FULL = Length(
    iterations=52, iterations_alone=40, iterations_heavy=20, repeats=3, repeats_alone=2, left_out_s=2.0
)
QUICK = Length(
    iterations=30, iterations_alone=15, iterations_heavy=10, repeats=1, repeats_alone=1, left_out_s=1.2
)
