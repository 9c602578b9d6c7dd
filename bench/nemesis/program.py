"""Mixes faults of all kinds into a load of jobs, and says what was lost, doubled, stuck or begun in vain.

    python -m bench nemesis --minutes 20 [--seed N] [--hosts 6] [--daemons 2] [--database postgresql]

The seed gives the order of the faults and of each client's acts. Root's, on the lab; ends with 1 when
something was lost, doubled or stuck, or began after it had been cancelled.
"""

from __future__ import annotations

import argparse
import random
import re
import shutil
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from bench.nemesis import leftovers, oracle, recovery, report
from bench.nemesis.door import Answer, Doors, NoAnswer, Refused
from bench.nemesis.faults import Nemesis, Played
from bench.nemesis.ledger import Ledger, Order
from bench.nemesis.load import CLIENTS, Client
from bench.nemesis.oracle import Silence, Told
from bench.nemesis.plan import faults
from bench.nemesis.site import CPUS, Site, site
from rm.errors import RmError

DOWN_AFTER_S = 20.0  # hosts.down_after_s, at its default
STUCK_S = 120.0  # without a change of any job after the last fault: what has not ended is stuck
SETTLE_S = 1800.0  # in all
LOOK_S = 1.0
ASKED = 5  # times for a log, from a daemon that does not answer
UNFINISHED = "PENDING,CONFIGURING,RUNNING,COMPLETING"


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench nemesis", description=__doc__.partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=20.0, help="of faults (20)")
    parser.add_argument("--seed", type=int, help="of the order of faults; any other each time without it")
    parser.add_argument("--hosts", type=int, default=6)
    parser.add_argument("--daemons", type=int, default=2, choices=(1, 2))
    parser.add_argument("--database", default="postgresql", choices=("postgresql", "sqlite"))
    parser.add_argument(
        "--keep", metavar="DIRECTORY", help="copy the daemons' logs and the tasks' notes there"
    )
    chosen = parser.parse_args(argv)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    seed = chosen.seed if chosen.seed is not None else random.SystemRandom().randrange(100_000)
    again = f"--minutes {chosen.minutes:g} --seed {seed} --hosts {chosen.hosts} --daemons {chosen.daemons}"
    print(f"python -m bench nemesis {again} --database {chosen.database}", flush=True)
    try:
        with site(chosen.database, chosen.hosts, chosen.daemons) as made:
            try:
                return play(made, seed, chosen.minutes * 60, chosen.database)
            finally:
                if chosen.keep:
                    keep(made, Path(chosen.keep))
    except RmError as error:
        print(f"It could not be played: {error}")
        return 2


def keep(made: Site, directory: Path) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    for daemon in made.daemons:
        shutil.copy(daemon.log, directory / f"{daemon.name}.log")
    shutil.copytree(made.notes, directory / "notes", dirs_exist_ok=True)


def play(made: Site, seed: int, seconds: float, database: str) -> int:
    ledger, ended = Ledger(), threading.Event()
    sockets = [daemon.socket for daemon in made.daemons]
    probe = recovery.Probe(sockets, ledger, ended)
    clients = [Client(f"client {seed} {n}", sockets, made.notes, ledger, ended) for n in range(CLIENTS)]
    names = [host.name for host in made.lab.hosts]
    plan = faults(seed, seconds, database, names, [daemon.name for daemon in made.daemons])
    say = _teller()
    nemesis = Nemesis(made, plan, seed, probe.leader, say)
    for thread in (probe, *clients, nemesis):
        thread.start()
    nemesis.join()
    ended.set()
    say("all faults are over; waiting for the jobs")
    for thread in (probe, *clients):
        thread.join()
    doors = made.doors()
    settled_s = settle(doors, probe, ledger)
    say(f"at rest after {settled_s:.0f} s; looking")
    told = {ref: look for ref, order in ledger.orders.items() if (look := ask(doors, order)) is not None}
    lives = oracle.read(made.notes)
    findings = oracle.judge(ledger, lives, told, silences(nemesis.played), DOWN_AFTER_S, CPUS)
    for left in leftovers.leftovers(made):
        findings.add(oracle.LEFT, left)
    logs = "".join(daemon.said() for daemon in made.daemons)
    found = recovery.recoveries(nemesis.played, ledger.acks, probe.hosts, len(names))
    notes = [f"A fault could not be made: {what}" for what in nemesis.failed]
    notes += [f"A client was refused: {what}" for client in clients for what in client.problems[:3]]
    notes += _ends(made, nemesis.played, logs)
    tracebacks = len(re.findall(r"^Traceback ", logs, re.MULTILINE))
    print()
    for line in report.lines(findings, nemesis.played, found, tracebacks, ledger.unanswered, notes):
        print(line)
    bad = findings.bad()
    good = "Nothing was lost, doubled, stuck or begun after its cancellation."
    print(f"\nFailed: {', '.join(bad)}." if bad else f"\n{good}")
    return 1 if bad else 0


def settle(doors: Doors, probe: recovery.Probe, ledger: Ledger) -> float:
    """Until every job has ended, or none changes any more; the seconds. Held jobs are released."""
    begun = moved = time.monotonic()
    seen: list[tuple[int, str, int]] = []
    while (now := time.monotonic()) - begun < SETTLE_S and now - moved < STUCK_S:
        try:
            probe.cancel()
            left = unfinished(doors)
            for job in left:
                order = ledger.orders.get(str(job["id"]))
                if job["state"] == "PENDING" and (job["held"] or job.get("not_before_us")):
                    if order is not None:
                        order.release_sent = order.release_sent or time.time()
                    doors.ask("POST", f"jobs/{job['id']}/release")
            if not left:
                break
            found = [(job["id"], job["state"], job["attempt"]) for job in left]
            if found != seen:
                seen, moved = found, now
        except (NoAnswer, Refused):
            pass
        time.sleep(LOOK_S)
    return time.monotonic() - begun


def unfinished(doors: Doors) -> list[Answer]:
    """All jobs that have not ended, in pages."""
    jobs: list[Answer] = []
    before = 0
    while True:
        answer = doors.ask("GET", f"jobs?state={UNFINISHED}&before={before}", timeout_s=20.0)
        jobs = [*answer["jobs"], *jobs]
        if not answer["more"]:
            return jobs
        before = jobs[0]["id"]


def ask(doors: Doors, order: Order) -> Told | None:
    """What rm says of a job now, and the logs of one that is complete."""
    try:
        job = doors.ask("GET", f"jobs/{order.id}?{order.chosen}", timeout_s=20.0)["job"]
    except Refused:
        return None
    logs = (
        tuple(_log(doors, order, rank) for rank in range(order.ranks)) if job["state"] == "COMPLETED" else ()
    )
    return Told(job["spec"]["name"], job["state"], job["attempt"], job["exit_code"], logs)


def _log(doors: Doors, order: Order, rank: int) -> str | None:
    for _ in range(ASKED):
        try:
            return doors.fetch(f"jobs/{order.id}/logs?task={rank}&{order.chosen}").decode(errors="replace")
        except NoAnswer:  # it is busy
            time.sleep(LOOK_S)
        except Refused:
            break
    return None


def silences(played: Sequence[Played]) -> list[Silence]:
    hosts = (one for one in played if one.fault.kind.startswith("host"))
    return [
        Silence(
            one.fault.target, one.begun, max(one.begun, one.ended), one.fault.kind == "host with a full disk"
        )
        for one in hosts
    ]


def _ends(made: Site, played: Sequence[Played], logs: str) -> Iterator[str]:
    """How often daemons ended without a signal from here, and what they said: one that was deposed does."""
    sent = {"daemon killed": 1, "daemon told to end": 1, "daemon killed as it starts": 2}
    starts = sum(daemon.starts for daemon in made.daemons)
    asked = len(made.daemons) + sum(sent.get(one.fault.kind, 0) for one in played)
    yield f"The daemons ended {max(0, starts - asked)} times by themselves."
    said = Counter(line for line in logs.splitlines() if line.startswith("rmx: "))
    yield from (f"  {count} × {line.removeprefix('rmx: ')}" for line, count in said.most_common(5))


def _teller() -> Callable[[str], None]:
    begun = time.monotonic()

    def say(what: str) -> None:
        print(f"[{time.monotonic() - begun:6.1f}] {what}", flush=True)

    return say
