"""A host that is back: what of the outbox is repeated, and what has happened there meanwhile."""

from __future__ import annotations

import logging
from dataclasses import replace

from rm.core.jobs import events as ev
from rm.core.jobs.actions import Collect, Discard, Intent, Launch, Start
from rm.core.jobs.reconcile import reconcile, worth_repeating
from rm.core.jobs.remembered import with_memory
from rm.core.jobs.state import ClusterState
from rm.daemon.execution.claims import IDS_MOVED_MAX
from rm.daemon.execution.executor import Executor
from rm.daemon.execution.greeting import HostReport
from rm.protocol.codes import Code

log = logging.getLogger(__name__)
STRAYS_NAMED = 5  # attempts in one line of the log


class Returns:
    """In the leader's thread."""

    def __init__(self, state: ClusterState, executor: Executor) -> None:
        self._state = state
        self._executor = executor
        self._ids_until = state.next_job + IDS_MOVED_MAX

    def events(self, report: HostReport, now_us: int) -> list[ev.Event]:
        """What the report tells, unless its channel has ended since; open actions are sent again."""
        state, host = self._state, report.up.host
        if host not in state.hosts or not self._executor.is_current(report):
            return []
        told, notes = with_memory(state, report.tasks, report.remembered)
        launches: dict[tuple[int, int], Intent] = {}
        ends: set[tuple[int, int]] = set()
        failed: list[ev.Event] = []
        for intent in self._executor.open_intents(host):
            action = intent.action
            if isinstance(action, Collect | Discard):
                ends.add((action.job, action.attempt))
            if not isinstance(action, Launch | Start):
                continue
            if not worth_repeating(state, report.up, told, action):
                self._executor.drop(intent)
            elif self._executor.is_worn_out(intent):
                self._executor.drop(intent)
                why = f"its agent did not answer this {action.kind}, in repeated requests"
                failed.append(ev.LaunchFailed(action.job, action.attempt, host, Code.UNREACHABLE, why))
            elif isinstance(action, Launch):
                launches[action.job, action.attempt] = intent
        found = reconcile(state, host, told, launches, ends, now_us)
        for e in found:
            if isinstance(e, ev.LaunchWithheld):
                self._executor.drop(launches[e.job, e.attempt])
        self._executor.repeat_open(host)
        up = replace(report.up, newest_job=self._newest_job(host, report.newest_job))
        strays = [e for e in found if isinstance(e, ev.StrayFound) and e.running]
        if strays:
            named = ", ".join(f"attempt {e.attempt} of job {e.job}" for e in strays[:STRAYS_NAMED])
            more = f" and {len(strays) - STRAYS_NAMED} more" * (len(strays) > STRAYS_NAMED)
            what = "the database has given up, or does not have, and they are stopped"
            log.warning("%s still runs %s%s: these %s", host, named, more, what)
        return [up, *failed, *found, *notes]

    def _newest_job(self, host: str, told: int) -> int:
        """What ids of new jobs are to be above: hosts may remember jobs of a newer copy of the database."""
        if told < self._state.next_job:
            return 0
        if told >= self._ids_until:
            log.error("%s reports job %d, which cannot be one of this cluster's", host, told)
            return 0
        log.warning(
            "%s remembers job %d, which this database does not know: an older copy of it was restored. What "
            "runs there and is not known is stopped; new jobs get ids from %d on",
            host,
            told,
            told + 1,
        )
        return told
