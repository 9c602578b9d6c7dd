"""Playbooks of maintenance: each runs once when its window has opened and its hosts have no jobs any more."""

from __future__ import annotations

import logging
import subprocess
import threading
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from rm.core.jobs import events as ev
from rm.core.jobs.state import ClusterState
from rm.core.model.host_reservation import HostReservation
from rm.core.scheduling.cycle import Cycle
from rm.daemon.leading.leader import Leader
from rm.errors import RmError

log = logging.getLogger(__name__)
RUNS = "it runs"
Command = Callable[[str, str], Sequence[str]]  # of a playbook and the hosts, with commas


class Maintenance:
    """`begin` is for a timer's thread. A run goes on when the window closes; one that the daemon's end has
    cut off does not begin again in the same window.

    Args:
        command: what runs a playbook on hosts.
        logs: the directory for what it prints, a file for each reservation.
        check: raises an RmError where a playbook is not one to run any more.
    """

    def __init__(self, leader: Leader, *, command: Command, logs: Path, check: Callable[[str], None]) -> None:
        self._leader = leader
        self._check = check
        self._command = command
        self._logs = logs

    def begin(self) -> None:
        """Start what is due."""
        due = self._leader.ask(_due).result()
        for one in due:
            window_us = one.windows[0][0]
            began = ev.ReservationPlayed(one.name, window_us, RUNS)
            self._leader.request(partial(_recorded, began)).result()
            threading.Thread(
                target=self._run, args=(one, window_us), name=f"maintenance {one.name}", daemon=True
            ).start()

    def _run(self, one: HostReservation, window_us: int) -> None:
        file = self._logs / f"{one.name}.log"
        try:
            self._check(one.playbook)
            file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            with file.open("ab") as out:
                words = self._command(one.playbook, ",".join(one.hosts))
                code = subprocess.run(words, stdin=subprocess.DEVNULL, stdout=out, stderr=out).returncode
            result = "done" if code == 0 else f"failed with code {code}: see {file}"
        except (OSError, RmError) as error:
            result = f"could not be started: {error}"
        log.info("the playbook %s of reservation %s: %s", one.playbook, one.name, result)
        self._leader.post(ev.ReservationPlayed(one.name, window_us, result))


def _recorded(event: ev.Event, state: ClusterState) -> list[ev.Event]:
    return [event]


def _due(cycle: Cycle, now_us: int) -> list[HostReservation]:
    return [one for one in cycle.state.reservations.values() if is_due(cycle.state, one)]


def is_due(state: ClusterState, one: HostReservation) -> bool:
    """Has its window opened, without its playbook having begun, and without a job on its hosts?"""
    if not one.is_open or not one.playbook or one.played_us == one.windows[0][0]:
        return False
    return not any(state.jobs_on.get(host) for host in one.hosts)
