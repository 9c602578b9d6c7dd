"""`client.playbooks`: playbooks that the daemon runs, their surveys, reports and schedules."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rm.api.playbooks import (
    OUTCOMES_MOST,
    ListedPlaybook,
    ListedPlaybooks,
    OnePlaybookRun,
    OnePlaybookSchedule,
    PlaybookRun,
    PlaybookRuns,
    PlaybookSchedule,
    PlaybookSchedules,
    SchedulePlaybook,
    StartPlaybook,
    Survey,
    TaskOutcome,
    TaskOutcomes,
    TellPlaybook,
    TellProgress,
)
from rm.client.asking import Asking


class Playbooks:
    def __init__(self, ask: Asking) -> None:
        self._ask = ask

    def list(self) -> Sequence[ListedPlaybook]:
        """Those that may be started."""
        return self._ask.get(ListedPlaybooks, "playbooks").playbooks

    def survey(self, name: str) -> Survey:
        """What who starts the playbook is asked."""
        return self._ask.get(Survey, "playbooks", name)

    def start(self, name: str, answers: Mapping[str, Any] | None = None, **options: Any) -> PlaybookRun:
        """Start it, with fields of a StartPlaybook; it runs when the answer comes, or waits for its turn."""
        body = StartPlaybook(answers=dict(answers or {}), **options)
        return self._ask.post(OnePlaybookRun, "playbooks", name, "start", body=body).run

    def runs(self, limit: int = 50, before: int = 0, playbook: str = "") -> Sequence[PlaybookRun]:
        """The newest first; those with an id below `before`."""
        return self._ask.get(
            PlaybookRuns, "playbook-runs", limit=limit, before=before or None, playbook=playbook or None
        ).runs

    def run(self, id: int) -> OnePlaybookRun:
        """One run, with what its hosts are at while it goes on."""
        return self._ask.get(OnePlaybookRun, "playbook-runs", str(id))

    def outcomes(self, id: int, host: str = "", status: str = "") -> Iterator[TaskOutcome]:
        """What tasks came to on hosts, in order; of one host, of statuses (with commas)."""
        after = 0
        while True:
            asked = {"host": host or None, "status": status or None, "after": after, "limit": OUTCOMES_MOST}
            path: tuple[str | int, ...] = ("playbook-runs", id, "outcomes")
            told = self._ask.get(TaskOutcomes, *path, answer_within_s=0, **asked)
            yield from told.outcomes
            if not told.next:
                return
            after = told.next

    def tell(self, playbook: str, **options: Any) -> PlaybookRun:
        """Tell of a run that begins outside the daemon, with fields of a TellPlaybook."""
        body = TellPlaybook(playbook=playbook, **options)
        return self._ask.post(OnePlaybookRun, "playbook-runs", body=body).run

    def progress(self, id: int, **told: Any) -> PlaybookRun:
        """What such a run has come to since, with fields of a TellProgress."""
        path = ("playbook-runs", str(id), "progress")
        return self._ask.post(OnePlaybookRun, *path, body=TellProgress(**told)).run

    def stop(self, id: int) -> PlaybookRun:
        """Break the run off, as Ctrl-C does."""
        return self._ask.post(OnePlaybookRun, "playbook-runs", str(id), "stop").run

    def schedules(self) -> Sequence[PlaybookSchedule]:
        """Playbooks that are started by cron."""
        return self._ask.get(PlaybookSchedules, "playbook-schedules").schedules

    def schedule(
        self, name: str, cron: str, answers: Mapping[str, Any] | None = None, **options: Any
    ) -> PlaybookSchedule:
        """Start it by cron, with fields of a StartPlaybook; private answers are refused."""
        body = SchedulePlaybook(playbook=name, cron=cron, answers=dict(answers or {}), **options)
        return self._ask.post(OnePlaybookSchedule, "playbook-schedules", body=body).schedule

    def unschedule(self, id: int) -> PlaybookSchedule:
        """Remove the schedule; a run that goes on is not stopped."""
        return self._ask.delete(OnePlaybookSchedule, "playbook-schedules", str(id)).schedule
