"""What a job keeps of an attempt that a requeue followed."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class EarlierAttempt:
    """An attempt that a requeue followed: on which hosts it was, how it ended, and why it is not the last."""

    attempt: int
    hosts: tuple[str, ...] = ()
    started_us: int | None = None  # None: it never started
    ended_us: int | None = None
    exit_code: int | None = None
    exit_signal: int | None = None
    why: str = ""
