"""How tries make the status of a cell (`rm.core.monitoring.cells`), and the sentence that says why.

Loss is gathered over the newest tries, since the packets of one show little: 20 cannot show 1 %. It is bad
when, with the confidence of `rm.core.monitoring.loss`, it is at least the threshold, and several tries lost
packets: a link that is dead for a moment loses all packets of one try. The other checks follow when enough
tries in a row (MaDDash's `retryAttempts`) are at least as bad, or at least as good. Maintenance takes effect
at once.

A delay or a bandwidth is also compared with the usual one of its peers (`rm.core.monitoring.peers`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from rm.core.monitoring.cells import Cell, Status
from rm.core.monitoring.loss import CONFIDENCE, at_least_pct, at_most_pct
from rm.core.monitoring.mesh import Thresholds
from rm.core.monitoring.metrics import NO_ANSWER_US, SERVICES

GATHERED = 10  # tries, of which the lost packets are counted together
DELAY_FACTOR = 1.5  # a delay that is not this much longer than the peers' is ordinary
DELAYS = {"delay": "delay", "delay_p95": "delay of 95 % of the packets up to", "jitter": "jitter"}
LOSSY_TRIES = 2  # this many must have lost packets, unless `retry_attempts` is 1
Packets = tuple[tuple[int, int], ...]  # (lost, sent) of tries
GRADES = (Status.OK, Status.WARN, Status.CRITICAL)


def judge(
    check: str, value: float | None, failed: str, limits: Thresholds, usual: float | None = None
) -> tuple[Status, str]:
    """What one value says, and in words. `value` as in METRIC_OF; `failed`: why there is none; `usual`: what
    is usual among the peers, in the same unit."""
    if value is None:
        return Status.UNKNOWN, failed or "nothing was measured"
    if check == "loss":
        return _above(value, limits.loss_warn_pct, limits.loss_critical_pct, f"loss {value:.4g} %", " %")
    if check in DELAYS:
        return _judge_delay(check, value / 1_000, limits, None if usual is None else usual / 1_000)
    if check == "clock":
        said = f"clocks differ by {value / 1_000:.4g} ms at least"
        return _above(value / 1_000, limits.clock_warn_ms, limits.clock_critical_ms, said, " ms")
    if check in SERVICES:
        if value >= NO_ANSWER_US:
            return Status.CRITICAL, failed or f"{check}: no right answer"
        warn_ms, critical_ms = (getattr(limits, f"{check}_{level}_ms") for level in ("warn", "critical"))
        said = f"{check} answered in {value / 1_000:.4g} ms"
        return _above(value / 1_000, warn_ms, critical_ms, said, " ms")
    if check == "trace":
        said = f"{value:.0f} hops"
        return _above(value, limits.trace_warn_hops, limits.trace_critical_hops, said, " hops")
    if check == "bandwidth":
        return _judge_bandwidth(value / 1e6, limits, None if usual is None else usual / 1e6)
    return _below(value, limits.mtu_warn_bytes, limits.mtu_critical_bytes, f"MTU {value:.0f} bytes", " bytes")


def least_over_ms(check: str, limits: Thresholds) -> float:
    """A delay below this is ordinary for any delay of the peers."""
    over = (getattr(limits, f"{check}_{level}_over_ms") for level in ("warn", "critical"))
    return min((ms for ms in over if ms), default=math.inf)


def _judge_delay(check: str, ms: float, limits: Thresholds, usual_ms: float | None) -> tuple[Status, str]:
    def limit(level: str) -> float:
        fixed_ms = float(getattr(limits, f"{check}_{level}_ms"))
        over_ms = float(getattr(limits, f"{check}_{level}_over_ms"))
        if usual_ms is None or not over_ms:
            return fixed_ms
        relative_ms = max(usual_ms + over_ms, usual_ms * DELAY_FACTOR)
        return min(relative_ms, fixed_ms or relative_ms)

    said = f"{DELAYS[check]} {ms:.4g} ms" + ("" if usual_ms is None else f" (peers {usual_ms:.4g} ms)")
    return _above(ms, limit("warn"), limit("critical"), said, " ms")


def _judge_bandwidth(mbps: float, limits: Thresholds, usual_mbps: float | None) -> tuple[Status, str]:
    def limit(fixed_mbps: float, share_pct: float) -> float:
        return max(fixed_mbps, (usual_mbps or 0.0) * share_pct / 100)

    said = f"bandwidth {mbps:.4g} Mbit/s"
    said += "" if usual_mbps is None else f" (peers {usual_mbps:.4g} Mbit/s)"
    warn_mbps = limit(limits.bandwidth_warn_mbps, limits.bandwidth_warn_share_pct)
    critical_mbps = limit(limits.bandwidth_critical_mbps, limits.bandwidth_critical_share_pct)
    return _below(mbps, warn_mbps, critical_mbps, said, " Mbit/s")


def _above(value: float, warn: float, critical: float, said: str, unit: str) -> tuple[Status, str]:
    if critical and value >= critical:
        return Status.CRITICAL, f"{said}, critical from {critical:.4g}{unit}"
    if warn and value >= warn:
        return Status.WARN, f"{said}, a warning from {warn:.4g}{unit}"
    return Status.OK, said


def _below(value: float, warn: float, critical: float, said: str, unit: str) -> tuple[Status, str]:
    if critical and value < critical:
        return Status.CRITICAL, f"{said}, critical below {critical:.4g}{unit}"
    if warn and value < warn:
        return Status.WARN, f"{said}, a warning below {warn:.4g}{unit}"
    return Status.OK, said


def after(
    cell: Cell,
    value: float | None,
    failed: str,
    at_us: int,
    limits: Thresholds,
    attempts: int,
    *,
    sent: int = 0,
    usual: float | None = None,
    maintenance: bool = False,
) -> Cell:
    """The cell after one more try.

    Args:
        value, failed, usual: as of `judge`.
        sent: of a loss, the packets that it is a share of; 0 = not known.
        attempts: tries in a row that must agree. The first good result of a cell that never ran counts
            at once.
    """
    judged = _Judged(cell.status, Status.UNKNOWN, cell.message, cell.value, cell.packets, cell.values)
    if value is None:
        if cell.status not in GRADES:
            judged = judged._replace(message=failed or "nothing was measured")
    elif cell.check == "loss" and sent:
        judged = _gathered(cell, min(round(value * sent / 100), sent), sent, limits, attempts)
    else:
        judged = _in_a_row(cell, value, failed, limits, attempts, usual)
    status, result, message, shown, packets, values = judged
    streak = cell.streak + 1 if result is cell.result else 1
    if maintenance:
        status, packets, values = Status.MAINTENANCE, (), ()
    elif cell.status is Status.MAINTENANCE:
        status = result
    if (
        result is Status.UNKNOWN
        and streak >= attempts
        and cell.status is not Status.UNKNOWN
        and not maintenance
    ):
        status, message, shown = result, failed or "nothing was measured", None
        packets, values = (), ()
    return Cell(
        cell.mesh,
        cell.check,
        cell.source,
        cell.destination,
        status,
        message,
        shown,
        at_us,
        result,
        streak if streak < attempts else attempts,  # further ones change nothing
        at_us if status is not cell.status else cell.since_us,
        cell.path if status in (Status.WARN, Status.CRITICAL) else "",
        packets,
        values,
    )


class _Judged(NamedTuple):
    """The status, what the newest try itself says, why the status is so, in words and as a value; and of the
    tries what the next one needs."""

    status: Status
    result: Status
    message: str
    value: float | None
    packets: Packets
    values: tuple[float, ...]


def _in_a_row(
    cell: Cell, value: float, failed: str, limits: Thresholds, attempts: int, usual: float | None
) -> _Judged:
    """With one more value; kept are those since the last one that agreed with the status."""
    result, said = judge(cell.check, value, failed, limits, usual)
    if result is cell.status:
        return _Judged(result, result, said, value, (), ())
    values = (*cell.values, value)[-attempts:]
    judged = [judge(cell.check, v, failed, limits, usual) for v in values]
    status = _steady(cell.status, [level for level, _ in judged], attempts)
    if status not in GRADES:
        return _Judged(status, result, said, value, (), values)
    newest = [(why, v) for v, (level, why) in zip(values, judged, strict=True) if level is status]
    why, shown = newest[-1] if newest else (cell.message, cell.value)
    return _Judged(status, result, why, shown, (), () if result is status else values)


def _steady(status: Status, levels: Sequence[Status], attempts: int) -> Status:
    """The status after the newest tries, at least as bad or as good as which all of them are."""
    if len(levels) < attempts:
        first_good = status is Status.NOT_RUN and levels[-1] is Status.OK
        return Status.OK if first_good else status
    least, most = min(levels), max(levels)
    if status not in GRADES:
        return least
    return least if least > status else min(most, status)


def _gathered(cell: Cell, lost: int, sent: int, limits: Thresholds, attempts: int) -> _Judged:
    """With one more try that counted its packets; kept are those since the first one that lost some."""
    if not cell.packets and not lost:
        return _Judged(Status.OK, Status.OK, f"loss 0 % ({sent} packets)", 0.0, (), ())
    packets = _without_the_past((*cell.packets, (lost, sent))[-max(GATHERED, attempts) :], attempts)
    if not any(some for some, _ in packets):
        return _Judged(Status.OK, Status.OK, f"loss 0 % ({_sum(packets)[1]} packets)", 0.0, (), ())
    lossy = [n for n, (some, _) in enumerate(packets) if some]
    clean = len(packets) - 1 - lossy[-1]  # a few clean tries may be chance
    ended = packets[: lossy[-1] + 1] if clean < attempts else packets
    stretch = ended[_worst_start(ended, attempts) :]
    lost, sent = _sum(stretch)
    least_pct, value = at_least_pct(lost, sent), 100.0 * lost / sent
    level, _ = _above(least_pct, limits.loss_warn_pct, limits.loss_critical_pct, "", "")
    status = level
    if level is not Status.OK and not _lasts(stretch, limits, attempts):
        status = Status.OK if cell.status in GRADES else cell.status
    if status < cell.status and cell.status in GRADES and not _surely_below(packets, cell.status, limits):
        return _Judged(
            cell.status, level if packets[-1][0] else Status.OK, cell.message, cell.value, packets, ()
        )
    tries = f"{len(stretch)} tries" if len(stretch) > 1 else "1 try"
    said = f"loss {value:.3g} % ({lost} of {sent} packets in {tries}, at least {least_pct:.3g} %)"
    if status is Status.CRITICAL:
        said += f", critical from {limits.loss_critical_pct:g} %"
    elif status is Status.WARN:
        said += f", a warning from {limits.loss_warn_pct:g} %"
    return _Judged(status, level if packets[-1][0] else Status.OK, said, value, packets, ())


def _lasts(stretch: Packets, limits: Thresholds, attempts: int) -> bool:
    """Was it more than one dead moment, in which the packets of one try are lost together? Then the others
    alone show half of what is a warning."""
    if attempts < LOSSY_TRIES:
        return True
    worst = max(range(len(stretch)), key=lambda n: stretch[n][0])
    others = _sum(stretch[:worst] + stretch[worst + 1 :])
    return at_least_pct(*others) > 0 and (
        at_least_pct(*others) >= (limits.loss_warn_pct or limits.loss_critical_pct) / 2
    )


def _surely_below(packets: Packets, status: Status, limits: Thresholds) -> bool:
    """Is the loss below what made it so bad, with CONFIDENCE? Else a loss near a threshold would change its
    status with each handful of packets."""
    limit_pct = limits.loss_critical_pct if status is Status.CRITICAL else limits.loss_warn_pct
    return at_most_pct(*_sum(packets)) < limit_pct


def in_doubt(cell: Cell, limits: Thresholds) -> bool:
    """Has the cell lost packets of which it is open whether they are as many as a threshold? More packets
    would decide it, either way."""
    if cell.check != "loss" or cell.status not in (Status.OK, Status.WARN):
        return False
    if not any(lost for lost, _ in cell.packets):
        return False
    worse = [limits.loss_warn_pct] if cell.status is Status.OK else []
    worse = [pct for pct in (*worse, limits.loss_critical_pct) if pct]
    most_pct = at_most_pct(*_sum(cell.packets))
    return bool(worse) and most_pct >= min(worse) and (cell.status is Status.OK or _growing(cell, limits))


def _growing(cell: Cell, limits: Thresholds) -> bool:
    """Has a warning's newest try lost more than would be critical?"""
    lost, sent = cell.packets[-1]
    return bool(limits.loss_critical_pct) and 100.0 * lost >= limits.loss_critical_pct * sent


def _sum(packets: Packets) -> tuple[int, int]:
    return sum(lost for lost, _ in packets), sum(sent for _, sent in packets)


def _worst_start(packets: Packets, attempts: int) -> int:
    """From which try on up to now the most loss is shown, by LOSSY_TRIES lossy tries if there are as many:
    what was good before a fault must not hide it."""
    starts = [n for n, (lost, _) in enumerate(packets) if lost]
    starts = starts[: max(1, len(starts) + 1 - min(attempts, LOSSY_TRIES))]
    return max(starts, key=lambda start: at_least_pct(*_sum(packets[start:])))


def _without_the_past(packets: Packets, attempts: int) -> Packets:
    """Without the lossy tries, if those since show that this loss is over: as many clean packets would be
    unlikely, and as many clean tries, too, where clean ones were between the lossy ones."""
    lossy = [n for n, (lost, _) in enumerate(packets) if lost]
    if not lossy:
        return packets
    packets, last = packets[lossy[0] :], lossy[-1] - lossy[0]
    clean = packets[last + 1 :]
    if len(clean) < attempts:
        return packets
    before = packets[_worst_start(packets[: last + 1], attempts) : last + 1]
    share = sum(1 for lost, _ in before if lost) / len(before)
    unlikely = (1 - share) ** len(clean) <= 1 - CONFIDENCE
    if unlikely and at_most_pct(0, _sum(clean)[1]) < at_least_pct(*_sum(before)):
        return clean
    return packets
