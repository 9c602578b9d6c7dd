"""What is wrong with a host's GPUs, as sentences, out of its agent's facts. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from rm.protocol.hosts import Gpu, HostFacts

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


def gpu_errors(facts: HostFacts) -> tuple[str, ...]:
    """One sentence per error. A value that the driver does not report is not an error."""
    names = {gpu.bus: f"GPU {gpu.index}" for gpu in facts.gpus if gpu.bus}
    found = [said for gpu in facts.gpus for said in _counted(gpu)]
    for xid in facts.gpu_xids:
        if xid.code in HARDWARE and xid.ago_s <= RECENT_S:
            who = names.get(xid.bus, f"the GPU at {xid.bus}")
            often = f", {xid.count} times" if xid.count > 1 else ""
            found.append(f"{who} reports Xid {xid.code} ({HARDWARE[xid.code]}){often}")
    return tuple(found)


def _counted(gpu: Gpu) -> Iterator[str]:
    name = f"GPU {gpu.index}"
    if gpu.ecc_uncorrected:
        yield f"{name} has {gpu.ecc_uncorrected} uncorrected memory errors"
    if gpu.remapping_failed:
        yield f"{name} cannot replace its bad memory any more"
    if gpu.retirement_pending or gpu.remapping_pending:
        yield f"{name} has bad memory and needs a reset to leave it out"
    width, widest = gpu.link_width, gpu.link_width_max
    if width and widest and width < widest:
        yield f"{name} runs its PCIe link at x{width} of x{widest}"
