"""What is wrong with a host's GPUs, as sentences, out of its agent's facts. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

RECENT_S = 86_400  # an Xid counts for a day: what lasts shows in the counters, or by GPUs that are gone
# Xid codes that speak of hardware or its driver; others (13, 31, 43, 45 …) are mostly a program's own faults
HARDWARE = {
    48: "uncorrected memory error",
    62: "its micro-controller stopped",
    64: "bad memory could not be retired",
    74: "NVLink error",
    79: "it has fallen off the bus",
    92: "many corrected memory errors",
    94: "contained memory error",
    95: "uncontained memory error",
    110: "security fault",
    119: "its system processor does not answer",
    120: "its system processor failed",
    121: "error of its link to the processor",
    140: "uncorrected memory error",
}


def gpu_errors(facts: Mapping[str, Any]) -> tuple[str, ...]:
    """One sentence per error. What an old agent or driver does not tell is no error, and no crash either."""
    gpus = [gpu for gpu in _list(facts.get("gpus")) if isinstance(gpu, Mapping)]
    names = {str(gpu["bus"]): f"GPU {gpu.get('index')}" for gpu in gpus if gpu.get("bus")}
    found = [said for gpu in gpus for said in _counted(gpu)]
    for xid in _list(facts.get("gpu_xids")):
        code = _count(xid.get("code")) if isinstance(xid, Mapping) else None
        if code in HARDWARE and (_count(xid.get("ago_s")) or 0) <= RECENT_S:
            who = names.get(str(xid.get("bus")), f"the GPU at {xid.get('bus')}")
            often = f", {count} times" if (count := _count(xid.get("count")) or 1) > 1 else ""
            found.append(f"{who} reports Xid {code} ({HARDWARE[code]}){often}")
    return tuple(found)


def _counted(gpu: Mapping[str, Any]) -> Iterator[str]:
    name = f"GPU {gpu.get('index')}"
    if errors := _count(gpu.get("ecc_uncorrected")):
        yield f"{name} has {errors} uncorrected memory errors"
    if gpu.get("remapping_failed") is True:
        yield f"{name} cannot replace its bad memory any more"
    if gpu.get("retirement_pending") is True or gpu.get("remapping_pending") is True:
        yield f"{name} has bad memory and needs a reset to leave it out"
    width, widest = _count(gpu.get("link_width")), _count(gpu.get("link_width_max"))
    if width and widest and width < widest:
        yield f"{name} runs its PCIe link at x{width} of x{widest}"


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _count(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None
