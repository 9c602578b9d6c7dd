"""What each account and user has used: it grows while their jobs run, and decays (see `usage.py`)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from rm.core.model.host import Host
from rm.core.model.job import Job
from rm.core.model.replacing import replace
from rm.core.sharing.fair_tree import Pair
from rm.core.sharing.resources import Resources, resources_of
from rm.core.sharing.usage import UNUSED, Usage

GIB = 1 << 30


@dataclass(frozen=True, slots=True)
class Billing:
    """What a GPU, a processor and a GiB of memory count for in each second that a job has them, and after
    which time half of that is left (microseconds; 0: it does not decay)."""

    gpu: float = 1.0
    cpu: float = 0.0
    mem_gib: float = 0.0
    half_life_us: int = 7 * 86_400 * 1_000_000

    def rate(self, job: Job, hosts: Mapping[str, Host]) -> float:
        """What the job counts for in each second while it is placed."""
        return self.of(resources_of(job.spec, job.tasks, hosts))

    def of(self, has: Resources) -> float:
        """What these resources count for in each second."""
        return self.gpu * has.gpus + self.cpu * has.cpus + self.mem_gib * has.mem_bytes / GIB


@dataclass(slots=True)
class Ledger:
    """`used` of each account and user, and what each job that runs adds to it in a second."""

    billing: Billing = Billing()
    used: dict[Pair, Usage] = field(default_factory=dict)
    rates: dict[int, tuple[Pair, float]] = field(default_factory=dict)
    running: Counter[Pair] = field(default_factory=Counter)  # how many jobs of each have a rate

    def copy(self) -> Ledger:
        """One that goes its own way."""
        return Ledger(self.billing, dict(self.used), dict(self.rates), Counter(self.running))

    def follow(
        self, job: Job, hosts: Mapping[str, Host], now_us: int, factor: Callable[[str], float]
    ) -> Pair | None:
        """A job has changed: whose usage grows at another rate from now on, if anybody's does. `factor`: how
        often what jobs of a QOS use counts."""
        runs = bool(job.account) and job.occupies and not job.waits_in_slice
        if runs == (job.id in self.rates):
            return None
        if runs:
            pair, rate = (job.account, job.spec.user), self.billing.rate(job, hosts) * factor(job.qos)
            self.rates[job.id] = pair, rate
            self.running[pair] += 1
        else:
            pair, rate = self.rates.pop(job.id)
            rate = -rate
            self.running[pair] -= 1
        used = self.used.get(pair, UNUSED).changed(rate, now_us, self.billing.half_life_us)
        # without a job that runs it is nothing, and not what rounding has left
        self.used[pair] = used if self.running[pair] else replace(used, rate=0.0)
        return pair

    def go_on(
        self,
        jobs: Iterable[Job],
        hosts: Mapping[str, Host],
        now_us: int,
        factor: Callable[[str], float],
    ) -> None:
        """These jobs were running when the usage was written down, and have been since."""
        for job in jobs:
            if job.account and job.occupies and not job.waits_in_slice:
                pair, rate = (job.account, job.spec.user), self.billing.rate(job, hosts) * factor(job.qos)
                used = self.used.get(pair, Usage(at_us=now_us))
                self.used[pair] = replace(used, rate=used.rate + rate)
                self.rates[job.id] = pair, rate
                self.running[pair] += 1

    def clock_stepped(self, by_us: int) -> None:
        self.used = {pair: replace(used, at_us=used.at_us + by_us) for pair, used in self.used.items()}

    def amounts(self, now_us: int) -> dict[Pair, float]:
        """Weighted resource-seconds, decayed."""
        return {pair: used.at(now_us, self.billing.half_life_us) for pair, used in self.used.items()}
