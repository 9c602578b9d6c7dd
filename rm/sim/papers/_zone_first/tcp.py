"""What a TCP connection carries over a lossy path.

J. Padhye, V. Firoiu, D. Towsley, J. Kurose: *Modeling TCP Throughput: A Simple Model and its
Empirical Validation*, SIGCOMM 1998, the approximation with time-outs (also RFC 5348 Sec. 3.1):

    B(p) = 1 / (RTT √(2bp/3) + T₀ min(1, 3 √(3bp/8)) p (1 + 32 p²))    packets a second

B counts what is sent; 1 − p of it arrives. That is Reno of 1998; what Linux carries today was measured over
a path of 100 Mbit/s and a short round trip (`measured_bps`).
"""

from __future__ import annotations

import math

import numpy as np

from rm.sim.papers.frame.parameters import parameters


def throughput_bps(rate_bps: float, loss: float, rtt_s: float) -> float:
    """Payload in bit/s over a path of `rate_bps` that loses the part `loss` (0 to 1) of all packets."""
    if loss <= 0:
        return rate_bps
    tcp = parameters("tcp")
    acked = tcp["segments_an_ack"]
    timeout_s = rtt_s + tcp["least_timeout_s"]
    recovery = rtt_s * math.sqrt(2 * acked * loss / 3)
    waiting = timeout_s * min(1.0, 3 * math.sqrt(3 * acked * loss / 8)) * loss * (1 + 32 * loss**2)
    sent_bps = 8 * tcp["mss_bytes"] / (recovery + waiting)
    return min(rate_bps, float((1 - loss) * sent_bps))


def measured_bps(rate_bps: float, loss: float, rtt_s: float) -> float:
    """The same from what was measured, in proportion to the path's rate; between two points the logarithm is
    linear. Only for round trips as short as those of the measurement."""
    known = parameters("tcp")
    at, carried = np.array(known["measured"]).T
    share = np.exp(np.interp(loss, at, np.log(carried / known["measured_over_bps"])))
    return float(rate_bps * min(1.0, share))
