"""The hosts of one part of a play beside each other: which may go on, and which waits for which.

Hosts run ahead of each other, except where a play could notice: a task for one host, a delegated task, a
look at another host's variables, and plays that stop when too many fail. There they wait, so that the
end is Ansible's (`strategy: linear`), without a wait after every task.

    part = Part(play, states, files, options)
    while not part.done:
        for host, batch in part.ready(): …          # run the steps, then part.record or part.lost
        part.settled()                              # results since the last call
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from rm.playbook.model.flow import END, Position
from rm.playbook.model.schema import Play, tasks_of
from rm.playbook.model.steps import Batch, TaskResult
from rm.playbook.module import Files
from rm.playbook.run.compile import truth
from rm.playbook.run.crew import OnceResult, Options
from rm.playbook.run.evaluate import HostPlay
from rm.playbook.template.variables import HostState


class Part:
    """The hosts of one `serial` batch. `states` are all hosts'; `names` those of this part, in order."""

    def __init__(
        self,
        play: Play,
        names: Sequence[str],
        states: Mapping[str, HostState],
        files: Files,
        options: Options,
        max_fail: float | None = None,
    ) -> None:
        self.play, self.names, self.states, self.max_fail = play, tuple(names), states, max_fail
        fatal = [play.any_errors_fatal, *(task.any_errors_fatal for task in tasks_of(play.tasks))]
        self.lockstep = (
            max_fail is not None or bool(play.unheard) or any(one not in (False, None) for one in fatal)
        )
        self.stopped = False  # too many failed, or nobody hears what one notifies: the whole run ends
        self.goes_on = (
            False  # unreachable under `any_errors_fatal`: as in ansible-core 2.19 the run does not end
        )
        self.ended = False  # meta: end_play
        self.cut_short: list[str] = []  # stopped though nothing failed on them
        self._once: dict[Position, OnceResult | str] = {}  # the result, or who is at it
        self._busy: dict[str, Batch] = {}
        self._held: dict[str, Batch] = {}
        self._settled: list[TaskResult] = []
        self.runs: dict[str, HostPlay] = {}
        for name in names:
            self.runs[name] = HostPlay(play, states[name], files, options, self)
        self._all_fatal = {
            name: truth(play.any_errors_fatal, run.scoping.plain()) for name, run in self.runs.items()
        }

    # -- what a host asks about the others ------------------------------------------------------

    def reached(self, host: str, where: Position) -> bool:
        return all(run.position >= where for name, run in self.runs.items() if name != host)

    def behind(self, host: str, where: Position) -> bool:
        run = self.runs.get(host)
        return run is not None and run.position < where

    def once(self, host: str, where: Position) -> OnceResult | bool | None:
        state = self._once.get(where)
        if isinstance(state, OnceResult):
            return state
        if state is not None:
            return True if state == host else None
        first = next(n for n in self.names if self.runs[n].position == where and self.runs[n].at_task)
        if first != host:
            return None
        self._once[where] = host
        return True

    # -- the runner's side -----------------------------------------------------------------------

    @property
    def done(self) -> bool:
        return not self._busy and not self._held and all(run.position == END for run in self.runs.values())

    @property
    def failed(self) -> list[str]:
        return [name for name in self.names if self.states[name].failed]

    def ready(self) -> Iterator[tuple[str, Batch]]:
        """What can be started now, each as soon as it is known: the first hosts are at work while steps are
        compiled for the others. A batch without steps is settled at once. Nothing is recorded meanwhile."""
        moved = True
        while moved:
            moved = False
            for name in self.names:
                if name in self._busy:
                    continue
                run = self.runs[name]
                if run.position == END and name not in self._held:
                    continue
                before, held = run.position, self._held.pop(name, None)
                batch = held or self._next(name)
                if batch is None:
                    moved = moved or run.position != before
                    continue
                if self._too_many(name, batch):
                    self._held[name] = batch
                    moved = moved or held is None  # others may have waited for this one
                    continue
                if batch.steps:
                    self._busy[name] = batch
                    yield name, batch
                    continue
                self._take(name, run.record([]))
                moved = True

    def _next(self, name: str) -> Batch | None:
        run = self.runs[name]
        batch = run.next_batch()
        self._note_once(name)
        if batch is None and not run.waiting_for_others:
            run.end()
        return batch

    def _too_many(self, name: str, batch: Batch) -> bool:
        """Does a task with `throttle` wait? As in Ansible its hosts come in the order of the play."""
        if not batch.throttle:
            return False
        if self.play.strategy == "linear":
            before = self.names[: self.names.index(name)]
            ahead = all(self.runs[one].position > batch.where or one in self._busy for one in before)
            if not ahead or not self.reached(name, batch.where):
                return True
        return sum(one.where == batch.where for one in self._busy.values()) >= batch.throttle

    def doing(self, name: str) -> tuple[str, int]:
        """The task that a busy host is at, and how many others go with it."""
        return self.runs[name].doing

    def record(self, name: str, answers: Iterable[Mapping[str, Any]]) -> None:
        """The answers to a host's batch."""
        self._busy.pop(name)
        self._take(name, self.runs[name].record(answers))

    def lost(self, name: str, message: str, at_work: bool = False) -> None:
        """A host, or the one that its steps were for, did not answer; `at_work`: it had begun with them."""
        target = self._busy.pop(name).target
        settled = self.runs[name].abandon(message, target, at_work)
        self._settled += settled
        self._note_once(name)
        if self.states[name].failed:
            fatal = self._all_fatal[name] or settled[-1].fatal
            self.goes_on = self.goes_on or fatal
            self._after_failure(name, fatal)

    def settled(self) -> list[TaskResult]:
        found, self._settled = self._settled, []
        return found

    def _take(self, name: str, results: list[TaskResult]) -> None:
        self._settled += results
        self._note_once(name)
        bad = [r for r in results if r.status == "failed" and not r.ignored]
        if bad:
            fatal = self._all_fatal[name] or any(r.fatal for r in bad)
            self._after_failure(name, fatal)

    def _note_once(self, name: str) -> None:
        """What a host did for all is known: the others take it over."""
        run = self.runs[name]
        outcome, run.learnt_once = run.learnt_once, None
        if outcome is None:
            return
        for at, state in self._once.items():
            if state == name:
                self._once[at] = outcome
                self.ended = self.ended or outcome.ends == "end_play"
                return

    def _after_failure(self, name: str, fatal: bool) -> None:
        """The others still do the task that failed here, and nothing after it."""
        where = self.runs[name].failed_at
        failed = [one for one in self.failed if not self.states[one].unreachable]  # as Ansible counts
        too_many = self.max_fail is not None and 100 * len(failed) / len(self.names) > self.max_fail
        if too_many or self.runs[name].ends_run:
            self.stopped = True
            for run in self.runs.values():
                if not run.host.failed:
                    self.cut_short.append(run.host.name)
                    run.doom(where, finally_=True)
        elif fatal and self.lockstep:
            for other, run in self.runs.items():
                run.host.failed_along = run.host.failed_along or (other != name and not run.host.failed)
                if other != name and not run.host.failed and run.position != END:
                    run.doom(where)
