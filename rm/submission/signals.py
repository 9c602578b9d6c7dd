"""Signals by name or number, and --signal: the one that a job gets before its time limit."""

from __future__ import annotations

import re
import signal
from collections.abc import Mapping
from typing import Any

from rm.errors import UsageError
from rm.submission.remarks import Remarks

_WARNING = re.compile(r"(?:([A-Za-z]+):)?([A-Za-z0-9+-]+)(?:@(\d{1,5}))?\Z")
_BEFORE_S, _BEFORE_MAX_S = 60, 65_535  # Slurm's


def signal_number(text: str) -> int:
    """Of a name, with or without SIG, or of a number.

    Raises:
        UsageError: there is no such signal.
    """
    name = text.upper().removeprefix("SIG")
    try:
        return int(signal.Signals(int(name)) if name.isdecimal() else signal.Signals[f"SIG{name}"])
    except (ValueError, KeyError):
        raise UsageError(
            f"There is no signal '{text}'.", "Write a name or number, such as USR1 or 10."
        ) from None


def warning_signal(values: Mapping[str, Any], remarks: Remarks) -> dict[str, Any]:
    """--signal=[B:]SIGNAL[@SECONDS]."""
    text = values.get("signal")
    if not text:
        return {}
    match = _WARNING.match(text)
    if match is not None and (match[1] or "").upper() in ("R", "RB", "BR"):
        raise UsageError(
            f"--signal is '{text}': R: lets a job overlap a reservation, which is not supported.",
            "Write [B:]SIGNAL[@SECONDS] and a time limit that ends before the reservation.",
        )
    if match is None or (match[1] or "B").upper() != "B":
        raise UsageError(
            f"--signal is '{text}'.", "Write [B:]SIGNAL[@SECONDS], such as USR1@90 or B:TERM@300."
        )
    before_s = int(match[3]) if match[3] else _BEFORE_S
    if before_s > _BEFORE_MAX_S:
        raise UsageError(f"--signal is '{text}': {before_s} s are too many.", f"At most {_BEFORE_MAX_S}.")
    try:
        number = signal_number(match[2])
    except UsageError as error:
        raise UsageError(f"--signal is '{text}': {error.what}", error.hint) from None
    if "time" not in values:
        remarks.warnings.append(
            f"--signal={text} is sent before a time limit, and the job has no --time: where nothing else "
            "gives it a limit, the signal is sent only when another job preempts it."
        )
    return {"warn_signal": number, "warn_before_us": before_s * 1_000_000, "warn_batch": bool(match[1])}


def shown(number: int, before_us: int, batch: bool) -> str:
    """A warning signal as --signal has it."""
    try:
        name = signal.Signals(number).name.removeprefix("SIG")
    except ValueError:
        name = str(number)
    return f"{'B:' * batch}{name}@{before_us // 1_000_000}"
