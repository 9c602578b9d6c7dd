"""When a transfer should join others rather than wait: the total completion time of all of them.

Source: Ada-SRSF, eq. 5: a transfer of M bytes under k-way contention takes a + k*b*M + (k-1)*eta*M.
So each of k transfers drains at 1/c_k bytes per second, c_k = k*b + (k-1)*eta; a is left out, as in
the paper's Problem 1, since every order of starts pays it once per transfer.

One link. Let m transfers be under way, the least with r_1 <= ... <= r_m bytes left, and let a new one
of M bytes start at time t. Claim: the total completion time T(t) is least at t = 0 or at one of the
instants d_1 <= ... <= d_m at which the old ones end without it. (Theorem 2 is the case m = 1.)

Proof. n transfers with x_1 <= ... <= x_n left, all draining, end in this order, and n-i+1 of them
wait for the i-th stage, which lasts c_{n-i+1}*(x_i - x_{i-1}). So they end after

    F(x) = sum_i x_i * D_{n-i+1},    D_k = k*c_k - (k-1)*c_{k-1} = (2k-1)*(b+eta) - eta,

and D_k grows with k. Between d_i and d_{i+1} the n-1 old ones that are left drain at 1/c_{n-1} until t;
if the new one then is the p-th least of n,

    dT/dt = n - ((D_1 + ... + D_n) - D_{n-p+1}) / c_{n-1}.

As t grows the old ones shrink, p grows, D_{n-p+1} falls, and so does dT/dt: T is concave there, and
continuous at the d_i, so that its minimum over an interval is at one of its ends. After d_m waiting
only costs. QED. It follows that asking again at each end (and only then) finds the best start: what
was refused at 0 would be refused until d_1 as well.

`joins` is T(0) < min_i T(d_i), strictly: equal is to wait. For m = 1 this is the paper's eq. 13,
M/r_1 < b/(2(b+eta)). Against waiting for the first of m, and with M <= r_2 - r_1, it is
M/r_1 < c_m/(2(b+eta)): the more share the link already, the less there is to lose by joining.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Contention:
    """b and eta in seconds per byte; any other pair of units that go together will do."""

    b: float
    eta: float

    def seconds_per_byte(self, ways: int) -> float:
        """c_k: what one of `ways` transfers needs for a byte."""
        return ways * self.b + (ways - 1) * self.eta

    def joins(self, size: float, left: Sequence[float]) -> bool:
        """Should a transfer of `size` bytes start now on a link where these have so much left?"""
        if not left:
            return True
        if len(left) == 1:
            return 2 * (self.b + self.eta) * size < self.b * left[0]
        return self._total([*left, size]) < self.waiting_total(size, left)

    def waiting_total(self, size: float, left: Sequence[float]) -> float:
        """The least total completion time if the new one waits for one of the others to end."""
        old = sorted(left)
        now = ended = drained = 0.0
        best = float("inf")
        for i, mine in enumerate(old):
            now += self.seconds_per_byte(len(old) - i) * (mine - drained)
            drained = mine
            ended += now
            rest = [x - drained for x in old[i + 1 :]]
            best = min(best, ended + (len(rest) + 1) * now + self._total([*rest, size]))
        return best

    def _total(self, left: Sequence[float]) -> float:
        """F: total completion time of transfers that all start now on one link."""
        n, grown = len(left), self.b + self.eta
        return sum(x * ((2 * (n - i) - 1) * grown - self.eta) for i, x in enumerate(sorted(left)))


@dataclass(frozen=True, slots=True)
class Flow:
    """A transfer in a small forecast: its hosts and the bytes that it has left."""

    hosts: tuple[str, ...]
    left: float


def joins_hosts(model: Contention, new: Flow, met: Sequence[Flow], others: Mapping[str, int]) -> bool:
    """Should `new` start now, counting all hosts at once?

    Each transfer's k is the largest number of transfers on a host of its own, and `met` are those
    that share a host with `new`; `others` counts, per host, transfers that only these meet, which
    are taken to stay. Compared are a start now and at each end of one of `met`. On several hosts
    this small enumeration is no longer proven to hold the best start, only the better of these.
    """
    ends = _ends(model, met, others)
    waiting = min(_total_from(model, new, met, others, at) for at in ends)
    return _total_from(model, new, met, others, 0.0) < waiting


def _total_from(
    model: Contention, new: Flow, met: Sequence[Flow], others: Mapping[str, int], at: float
) -> float:
    """Total completion time of `met` and `new` when `new` starts `at`."""
    return sum(_ends(model, [*met, new], others, len(met), at))


def _ends(
    model: Contention,
    flows: Sequence[Flow],
    others: Mapping[str, int],
    late: int | None = None,
    starts: float = 0.0,
) -> list[float]:
    """When each flow ends; flow number `late` starts at `starts`, the others now."""
    left = [f.left for f in flows]
    ends = [0.0] * len(flows)
    going = {i for i in range(len(flows)) if i != late}
    pending, now = late is not None, 0.0
    while going or pending:
        if pending and starts <= now:
            assert late is not None
            going.add(late)
            pending = False
        count = dict(others)
        for i in going:
            for host in flows[i].hosts:
                count[host] = count.get(host, 0) + 1
        pace = {i: model.seconds_per_byte(max(count[h] for h in flows[i].hosts)) for i in going}
        step = min((left[i] * pace[i] for i in going), default=float("inf"))
        if pending and starts - now <= step:
            step, over = starts - now, set[int]()
        else:
            over = {i for i in going if left[i] * pace[i] <= step}
        now += step
        for i in going:
            left[i] = max(0.0, left[i] - step / pace[i])
        for i in over:
            ends[i] = now
        going -= over
        if pending and not over:
            now = max(now, starts)
    return ends
