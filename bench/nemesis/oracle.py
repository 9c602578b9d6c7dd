"""Judges a run by what its tasks noted outside rm, and by what the clients were told. Nothing of rm is used.

A task's notes (task.sh): `S time host gpus cpus` at its start, `B time` while it lives, `T time` at SIGTERM,
`E time code` at its end. All hosts share this machine's clock.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

from bench.nemesis.ledger import Ledger, Order

SLACK_S = 2.0  # between a fault and what it causes, beyond the time after which a host is given up
FINAL = {"COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "OUT_OF_MEMORY"}


@dataclass(slots=True)
class Life:
    """One start of one rank. `last` is the time of its last note, `code` that of its end."""

    job: str  # as 36, or 36_2
    attempt: int
    rank: int
    begun: float
    host: str = ""
    gpus: tuple[int, ...] = ()
    cpus: int = 1
    last: float = 0.0
    code: int | None = None


@dataclass(frozen=True, slots=True)
class Told:
    """What rm says of a job in the end. `logs`: each rank's, None where it could not be read; empty where
    nobody looked."""

    name: str
    state: str
    attempt: int
    exit_code: int | None
    logs: tuple[str | None, ...] = ()


@dataclass(frozen=True, slots=True)
class Silence:
    """A time during which a host may have been taken for lost, or its tasks been ended by a fault."""

    host: str
    begun: float
    ended: float
    disk_full: bool = False  # what tasks print then cannot be kept, and their logs must say so


@dataclass(slots=True)
class Findings:
    """Sentences by kind of finding; those of BAD must not be."""

    found: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    acknowledged: int = 0
    starts: int = 0

    def add(self, kind: str, what: str) -> None:
        self.found[kind].append(what)

    def bad(self) -> list[str]:
        return [kind for kind in BAD if self.found.get(kind)]


LOST, DOUBLED, STUCK, AFTER = "lost", "doubled", "stuck", "begun after cancel"
EARLY = "begun before what it waits for"
BAD = (LOST, DOUBLED, STUCK, AFTER, EARLY)
CODES, GPUS, CPUS = "wrong exit codes", "GPUs given out twice", "CPUs given out twice"
NOT_KEPT = "bytes of output are not kept here"  # a log that says what it lacks
LOGS, LEFT, BESIDE = "logs missing", "left over on hosts", "beside a given-up attempt"
KINDS = (*BAD, CODES, GPUS, CPUS, LOGS, LEFT, BESIDE)


def read(notes: Path) -> list[Life]:
    """All lives, in the order of their starts."""
    found: list[Life] = []
    for file in notes.iterdir():
        parts = file.name.split(".")
        if len(parts) == 3 and all(part.replace("_", "").isdigit() for part in parts):
            found += _lives(
                parts[0], int(parts[1]), int(parts[2]), file.read_text(errors="replace").splitlines()
            )
    return sorted(found, key=lambda life: life.begun)


def _lives(job: str, attempt: int, rank: int, lines: Iterable[str]) -> list[Life]:
    found: list[Life] = []
    for line in lines:
        words = line.split()
        if len(words) < 2 or (words[0] != "S" and not found):
            continue  # a line that a crash cut short
        at = float(words[1])
        if words[0] == "S" and len(words) == 5:
            gpus = tuple(int(gpu) for gpu in words[3].split(",")) if words[3] != "-" else ()
            found.append(Life(job, attempt, rank, at, words[2], gpus, int(words[4]), at))
        elif found:
            found[-1].last = max(found[-1].last, at)
            if words[0] == "E" and len(words) == 3:
                found[-1].code = int(words[2])
    return found


def judge(
    ledger: Ledger,
    lives: Sequence[Life],
    told: Mapping[str, Told],
    silences: Sequence[Silence],
    given_up_after_s: float,
    cpus_of_host: int,
) -> Findings:
    """Everything that is wrong. `silences` explain second attempts; a second attempt beside the first is
    explained only by a silence that outlasts `given_up_after_s`."""
    findings = Findings(acknowledged=len(ledger.orders), starts=len(lives))
    of_job: dict[str, list[Life]] = defaultdict(list)
    for life in lives:
        of_job[life.job].append(life)
    for ref in ledger.again:
        findings.add(DOUBLED, f"job {ref}: its number was given out twice")
    lost_hosts = [s for s in silences if s.ended - s.begun >= given_up_after_s - SLACK_S]
    for order in ledger.orders.values():
        mine = of_job.get(order.ref, [])
        said = told.get(order.ref)
        _waited(findings, order, mine, of_job, ledger, told)
        _starts(findings, order, mine, said, silences, lost_hosts, given_up_after_s)
        if said is None:
            findings.add(LOST, f"job {order.ref}: rm does not know it")
        elif said.name != order.name:
            findings.add(LOST, f"job {order.ref}: it was {order.name}, and is {said.name}")
        elif said.state not in FINAL:
            findings.add(STUCK, f"job {order.ref}: {said.state}")
        else:
            _end(findings, order, mine, said, may_be_given_up(order, ledger, told))
            _logs(findings, order, mine, said, silences)
    _given_out(findings, lives, lost_hosts, cpus_of_host)
    return findings


def _starts(
    findings: Findings, order: Order, mine: Sequence[Life], said: Told | None, silences: Sequence[Silence],
    lost_hosts: Sequence[Silence], given_up_after_s: float,
) -> None:  # fmt: skip
    """Each rank of each attempt starts once, no attempt without a cause, none when it must not."""
    name = f"job {order.ref}"
    seen: set[tuple[int, int]] = set()
    for life in mine:
        if (life.attempt, life.rank) in seen:
            findings.add(DOUBLED, f"{name}: rank {life.rank} of attempt {life.attempt} started twice")
        seen.add((life.attempt, life.rank))
        if order.held and (not order.release_sent or life.begun < order.release_sent):
            findings.add(DOUBLED, f"{name}: it started while it was held")
        if any(life.attempt < other.attempt and life.begun > other.begun for other in mine):
            findings.add(DOUBLED, f"{name}: attempt {life.attempt} started after a later one")
        again = any(at >= order.cancel_sent for at in order.requeues)  # an ended job may be requeued
        late = order.cancel_acked and not again and life.begun > order.cancel_acked + SLACK_S
        if late and not _thawed(life, order.cancel_acked, silences):
            later_s = life.begun - order.cancel_acked
            findings.add(AFTER, f"{name}: it started {later_s:.1f} s after it was cancelled")
    attempts = sorted({life.attempt for life in mine})
    for earlier, later in pairwise(attempts):
        before = [life for life in mine if life.attempt == earlier]
        after = min(life.begun for life in mine if life.attempt == later)
        asked = any(at <= after for at in order.requeues)
        if not asked and not _explained(order.ranks, before, after, silences, given_up_after_s):
            findings.add(DOUBLED, f"{name}: attempt {later} without a requeue or a fault")
        for life in before:
            if life.last > after:
                text = f"{name}: attempts {earlier} and {later} ran side by side {life.last - after:.1f} s"
                given_up = any(s.host == life.host and s.begun <= after for s in lost_hosts)
                findings.add(BESIDE if given_up else DOUBLED, text)


def _thawed(life: Life, cancelled: float, silences: Sequence[Silence]) -> bool:
    """Did its host hear the launch and the cancel, one after the other, when its silence ended? Then the task
    was ended before its own end."""
    return life.code is None and any(
        s.host == life.host and s.begun <= cancelled and s.ended - SLACK_S <= life.begun <= s.ended + SLACK_S
        for s in silences
    )


def _explained(
    ranks: int, before: Sequence[Life], after: float, silences: Sequence[Silence], given_up_after_s: float
) -> bool:
    """Did a host of the attempt suffer before the next one began? That of a rank which did not start is
    unknown, and may be any."""
    hosts = {life.host for life in before}
    if len({life.rank for life in before}) < ranks:
        hosts |= {s.host for s in silences}
    begun = min(life.begun for life in before)
    return any(
        s.host in hosts and s.begun <= after and s.ended + given_up_after_s + SLACK_S >= begun
        for s in silences
    )


def _waited(
    findings: Findings, order: Order, mine: Sequence[Life], of_job: Mapping[str, Sequence[Life]],
    ledger: Ledger, told: Mapping[str, Told],
) -> None:  # fmt: skip
    """Nothing starts before the jobs that it waits for have ended as it wants."""
    if order.after is None or not mine:
        return
    kind, refs = order.after
    begun = min(life.begun for life in mine)
    for ref in refs:
        over = [life for life in of_job.get(ref, ()) if life.last <= begun]
        cancelled = ref in ledger.orders and 0 < ledger.orders[ref].cancel_sent <= begun
        never = not of_job.get(ref) and ref in told and told[ref].state in FINAL  # it could not be started
        good = any(life.code == 0 for life in over)
        bad = cancelled or never or any(life.code != 0 for life in over)
        if not {"afterok": good, "afternotok": bad}.get(kind, good or bad):
            findings.add(EARLY, f"job {order.ref}: it started {kind} {ref}, which had not ended so")


def may_be_given_up(order: Order, ledger: Ledger, told: Mapping[str, Told]) -> bool:
    """May the job have been cancelled because a job that it waits for did not end as it wants?"""
    if order.after is None:
        return False
    kind, refs = order.after
    for ref in refs:
        other, said = ledger.orders.get(ref), told.get(ref)
        if other is None or said is None or other.requeues:
            return True  # it may have ended otherwise before
        if (kind == "afterok") == (said.state != "COMPLETED") and kind != "afterany":
            return True
    return False


def _end(findings: Findings, order: Order, mine: Sequence[Life], said: Told, given_up: bool) -> None:
    last = [life for life in mine if life.attempt == said.attempt]
    if said.state == "COMPLETED":
        if {life.rank for life in last} != set(range(order.ranks)) or any(life.code is None for life in last):
            findings.add(LOST, f"job {order.ref}: COMPLETED, and not all of its ranks ran to their end")
        elif order.ends != 0:
            findings.add(CODES, f"job {order.ref}: COMPLETED, and its code was {order.ends}")
    if said.state == "CANCELLED" and not order.cancel_sent and not given_up:
        findings.add(LOST, f"job {order.ref}: CANCELLED, and nobody asked for it")
    if said.state == "FAILED":
        codes = {life.code for life in last}
        if order.ends == 0 and codes == {0} and len(last) == order.ranks:
            findings.add(CODES, f"job {order.ref}: FAILED with {said.exit_code}, and all ranks gave 0")
        elif order.ends and order.ends in codes and said.exit_code != order.ends:
            findings.add(CODES, f"job {order.ref}: code {said.exit_code} instead of {order.ends}")


def printed(name: str, rank: int) -> str:
    """What a task prints that runs to its end."""
    return f"first line of {name}, rank {rank}\nlast line of {name}, rank {rank}\n"


def _logs(
    findings: Findings, order: Order, mine: Sequence[Life], said: Told, silences: Sequence[Silence]
) -> None:
    """Each rank's log is what the task printed, or says what it lacks since its host's disk was full."""
    for rank, text in enumerate(said.logs):
        what = f"job {order.ref}: {said.state}, and the log of rank {rank}"
        lives = [life for life in mine if (life.attempt, life.rank) == (said.attempt, rank)]
        full = any(
            s.disk_full and s.host == life.host and s.begun <= life.last for s in silences for life in lives
        )
        if text is None:
            findings.add(LOGS, f"{what} cannot be read")
        elif text != printed(order.name, rank) and not (full and NOT_KEPT in text):
            findings.add(LOGS, f"{what} is {text!r}")


def _given_out(
    findings: Findings, lives: Sequence[Life], lost_hosts: Sequence[Silence], cpus_of_host: int
) -> None:
    """What tasks held at the same time, by host."""
    for host in sorted({life.host for life in lives}):
        here = [life for life in lives if life.host == host]
        for first, second, gpus in _sharing(here):
            what = f"{host}: GPU {gpus} of jobs {first.job} and {second.job}"
            findings.add(GPUS, f"{what}, {first.last - second.begun:.1f} s")
        most, when = _most(here, lambda life: life.cpus)
        if most > cpus_of_host:
            findings.add(CPUS, f"{host}: {most} of {cpus_of_host} at {when:.1f}")


def _sharing(here: Sequence[Life]) -> Iterable[tuple[Life, Life, str]]:
    """Pairs of tasks of different jobs or attempts that held a GPU at the same time."""
    holders: dict[int, Life] = {}
    for life in here:  # in the order of their starts
        for gpu in life.gpus:
            other = holders.get(gpu)
            if other is not None and other.last > life.begun and _key(other) != _key(life):
                yield other, life, str(gpu)
            if other is None or other.last < life.last:
                holders[gpu] = life


def _key(life: Life) -> tuple[str, int, int]:
    return life.job, life.attempt, life.rank


def _most(here: Sequence[Life], of: Callable[[Life], int]) -> tuple[int, float]:
    """The largest sum at any time, and when."""
    steps = sorted([(life.begun, of(life)) for life in here] + [(life.last, -of(life)) for life in here])
    held = most = 0
    when = 0.0
    for at, change in steps:
        held += change
        if held > most:
            most, when = held, at
    return most, when
