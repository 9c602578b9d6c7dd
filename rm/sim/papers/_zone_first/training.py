"""How long training takes on given hosts: in step by ring all-reduce, or each worker at its own pace.

The paper says neither which of the two its jobs used nor how large the models are; both are
modelled, with the sizes of the well-known examples for these data sets.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rm.sim.papers._zone_first.tcp import throughput_bps
from rm.sim.papers._zone_first.testbed import Egress, one_way_s, rtt_s
from rm.sim.papers.frame.parameters import parameters

Tcp = Callable[[float, float, float], float]  # rate in bit/s, loss, round trip in s -> bit/s


@dataclass(frozen=True, slots=True)
class Training:
    """One job: parameters as 4-byte floats, images a batch and in all, computation for a batch."""

    name: str
    parameters: int
    batch: int
    images: int
    compute_s: float

    @property
    def bits(self) -> float:
        return 32.0 * self.parameters

    @property
    def batches(self) -> float:
        """Batches that all workers together work through."""
        return float(parameters("zone-first")["epochs"]) * self.images / self.batch


def trainings() -> tuple[Training, Training]:
    """CIFAR-10 and notMNIST."""
    known = parameters("zone-first")
    cifar, letters = (
        Training(
            name, known[f"{key}_parameters"], known[f"{key}_batch"], known[f"{key}_images"],
            known["cifar10_batch_s"] * known[f"{key}_batch"] * known[f"{key}_multiply_adds"]
            / (known["cifar10_batch"] * known["cifar10_multiply_adds"]),
        )
        for name, key in (("CIFAR-10", "cifar10"), ("notMNIST", "notmnist"))
    )  # fmt: skip
    return cifar, letters


def ring_s(training: Training, hosts: Sequence[Egress], tcp: Tcp = throughput_bps) -> float:
    """Training time by ring all-reduce (Patarasuk and Yuan 2009): all compute, then 2(n − 1) steps.

    In each step a host sends 1/n of the gradient to the next one: as soon as it has received
    what it is to send and has sent what came before. A step arrives a one-way delay later.
    """
    n = len(hosts)
    send_s, travel_s = [], []
    for i, host in enumerate(hosts):
        after = hosts[(i + 1) % n]
        send_s.append(training.bits / n / _rate_bps(host, after, tcp))
        travel_s.append(one_way_s(host))
    have, sent = [training.compute_s] * n, [0.0] * n
    for _ in range(2 * (n - 1)):
        sent = [max(have[i], sent[i]) + send_s[i] for i in range(n)]
        have = [sent[i - 1] + travel_s[i - 1] for i in range(n)]
    return training.batches / n * max(have)


def asynchronous_s(training: Training, hosts: Sequence[Egress], tcp: Tcp = throughput_bps) -> float:
    """Training time with asynchronous parameter servers on unimpaired hosts: nobody waits for anybody.

    Each worker asks for the parameters, pulls them, computes on a batch, pushes its gradient and
    is answered; TensorFlow's default (`sync_replicas=False`). There are servers enough that none
    of them is the bottleneck, so this is the most that impaired workers can cost: a worker
    that is stopped costs its share, 1/n.
    """
    link_bps = float(parameters("zone-first")["link_bps"])
    server = Egress(link_bps, link_bps)
    batches_a_s = 0.0
    for host in hosts:
        pull_s = training.bits / _rate_bps(server, host, tcp)
        push_s = training.bits / _rate_bps(host, server, tcp)
        batches_a_s += 1 / (2 * rtt_s(host, server) + pull_s + training.compute_s + push_s)
    return training.batches / batches_a_s


def _rate_bps(source: Egress, target: Egress, tcp: Tcp) -> float:
    rate = min(source.rate_bps, target.link_bps)
    return tcp(rate, source.loss, rtt_s(source, target))
