"""One play on one host, purely: compile tasks until one needs an unknown result, take the answers, go on.

    run = HostPlay(play, host, files, options)
    while (batch := run.next_batch()) is not None:
        run.record(answers to batch.steps)          # [] when the batch needs no host
    run.results, host.failed

Nothing here touches a host, a clock or a file (`Files` does that on behalf of `copy`, `template`).
`rm/playbook/run/conduct.py` runs the hosts of a play beside each other.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from rm.playbook.model.flow import Frame, Position, first_time, included, rescues, to_task
from rm.playbook.model.keywords import DYNAMIC_INCLUDES
from rm.playbook.model.problems import TemplateProblem
from rm.playbook.model.schema import Play, Task
from rm.playbook.model.steps import THE_HOSTS, Batch, Step, TaskResult, Way
from rm.playbook.model.tags import selected
from rm.playbook.module import Files
from rm.playbook.modules import brings_facts, called, changes_groups, control, registry
from rm.playbook.run.answers import GATHERS
from rm.playbook.run.compile import Item, Skip, TaskProblem
from rm.playbook.run.crew import Alone, Blocked, Crew, OnceResult, Options
from rm.playbook.run.learning import INCLUDED, accepted, bound_of, cacheable, failed_task, learn, told
from rm.playbook.run.making import Making
from rm.playbook.run.outcome import name_of, summarise, unreached
from rm.playbook.run.waiting import Waiting, in_pieces, piece_batch, split, take
from rm.playbook.template.template import PENDING, NeedResult, has_template
from rm.playbook.template.variables import HostState

__all__ = ["HostPlay", "HostState", "Options", "selected"]
BATCH_STEPS_MAX = 500


class HostPlay(Making):
    def __init__(
        self, play: Play, host: HostState, files: Files, options: Options, crew: Crew | None = None
    ) -> None:
        super().__init__(play, host, files, options, crew or Alone(host))
        self.results: list[TaskResult] = []
        self.learnt_once: OnceResult | None = None  # of the last settled task for one host
        self.waiting_for_others = False
        self._sync = False  # the next task waits for the other hosts
        self._blocked_at: Position | None = None

    # -- compiling -----------------------------------------------------------------------------

    def next_batch(self) -> Batch | None:
        """The next steps to run; None when the play is done on this host, or, with
        `waiting_for_others`, when another host has to come further first."""
        self.waiting_for_others = False
        blocked = self._doomed is None and self.at_task and self.position == self._blocked_at
        if blocked and not self.crew.reached(self.host.name, self.position):
            self.waiting_for_others = True
            return None
        self._blocked_at = None
        if self._waiting and self._waiting[-1].pieces:
            return self._piece(first=False)
        steps: list[Step] = []
        become: bool | None = None
        way = THE_HOSTS
        while not self.host.failed and self._frame is not None:
            self._frame, failed = to_task(self._frame)
            if failed:
                self._fail_finally()
                continue
            if self._frame is None:
                break
            if self._doomed is not None and not self._waiting and self._frame.position > self._doomed:
                self._suffer()
                continue
            frame, task = self._frame, self._frame.task
            if not frame.handlers and not self._chosen(task):
                self._frame = frame.after()
                continue
            try:
                if task.module == "meta":
                    if self._waiting and not self._known_flush(task):
                        break
                    self._meta(frame, task)
                    continue
                if not self._may_start(frame, task):
                    break
                scope = self.scoping.scope(task, frame)
                made = self._make(frame, task, scope)
            except Blocked:
                break
            except NeedResult as needed:
                if self._waiting:
                    break
                if not self.crew.reached(self.host.name, frame.position):
                    self._blocked_at = frame.position
                    break
                made = self._problem(frame, task, TaskProblem(f"'{needed}' is not known here."))
            except TemplateProblem as problem:
                made = self._problem(frame, task, problem)
            if made is None:
                continue
            new = made.steps()
            own = next((item.way for item in made.items if item.step is not None), way)
            by_control = control(task.module) if task.module in registry() else False
            root = any(getattr(item.work, "become", False) for item in made.items) and self._unprivileged(
                task, own
            )
            if steps and new and (root != become or by_control or own != way):
                break
            if steps and new and _bounded(steps) != _bounded(new):
                break  # what has time limits only is waited for only so long
            pieces = in_pieces(made)
            if self._waiting and pieces and new:
                break
            self._take_up(made)
            if pieces and new:
                split(made)
                return self._piece(first=True)
            if new:
                become, way = root, own
                steps += new
            if by_control and new:
                return Batch(tuple(steps), root, True, way=way, where=frame.position)
            here = bool(new) and own.connection == "local"  # lookups and tests of paths look at this machine
            if here or self._ends_batch(made) or len(steps) >= BATCH_STEPS_MAX:
                break
        if not self._waiting:
            self.waiting_for_others = self._frame is not None and not self.host.failed
            return None
        if not steps:
            return Batch((), False)
        return Batch(tuple(steps), bool(become), way=way)

    def _unprivileged(self, task: Task, way: Way, target: str = "") -> bool:
        """Does whoever logs in need sudo to be root?"""
        if target and target != self.host.name:
            other = self.crew.states.get(target)
            return other is None or way.connection == "local" or (way.login or other.login) != "root"
        return (way.login or self.host.login) != "root" or bool(task.delegate_to and not target)

    def _may_start(self, frame: Frame, task: Task) -> bool:
        """Are the other hosts far enough? False: not yet. A task that another host did is passed over."""
        name, where = self.host.name, frame.position
        linear = self.play.strategy == "linear"
        once = self._once(task, frame)
        for_all = bool(task.delegate_to) or changes_groups(task.module)
        together = once or self.crew.lockstep or (linear and (self._sync or for_all))
        if together and not self.crew.reached(name, where):
            self._blocked_at = where
            return False
        if together and self._waiting:
            return False
        self._blocked_at = None
        return True

    def _take_up(self, made: Waiting) -> None:
        """The task is next: go on behind it, and let later tasks know what can be known already."""
        task, frame = made.task, made.frame
        self._waiting.append(made)
        self._last, self._frame = frame, frame.after()
        if task.module in DYNAMIC_INCLUDES:
            parts = []
            for item in made.items:
                if item.answer is not None and "nodes" in item.answer:
                    nodes = first_time(item.answer.pop("nodes"), self._done)
                    parts.append((nodes, bound_of(task, item)))
            self._frame = included(frame, parts)
        if task.delegate_to or changes_groups(task.module) or self.scoping.looked:
            self._sync = True  # nobody goes on to what those behind would see too early
        elif made.steps():
            self._sync = False
        self.scoping.looked = False
        if task.module in GATHERS:
            self.scoping.gathering()
        if task.register:
            self.scoping.foreseen[task.register] = PENDING
        for item in made.items:
            if item.answer is not None and task.module == "set_fact" and not task.delegate_to:
                self.scoping.foreseen.update(item.answer.get("ansible_facts", {}))
                if cacheable(item):
                    self.scoping.foreseen["ansible_facts"] = PENDING

    def _ends_batch(self, made: Waiting) -> bool:
        task = made.task
        if any(item.answer is not None and item.answer.get("failed") for item in made.items):
            return True
        uncertain = task.failed_when not in (None, (False,))
        return (
            uncertain
            or made.once
            or self.crew.lockstep
            or bool(task.ignore_unreachable)
            or (task.module == "include_vars")
            or brings_facts(task.module)
            or any(has_template(word) or not self._hears(word, made.frame) for word in task.notify)
        )

    def _piece(self, first: bool) -> Batch:
        made = self._waiting[-1]
        task = made.task
        try:
            batch = piece_batch(made, first)
        except TemplateProblem as problem:
            made.items = [Item("", None, {"failed": True, "msg": f"{problem}.", "uncompiled": True})]
            made.pieces.clear()
            return Batch((), False)
        return replace(
            batch,
            control=control(task.module),
            become=batch.become and self._unprivileged(task, batch.way, batch.target),
        )

    @property
    def doing(self) -> tuple[str, int]:
        """The name of the first task that waits for its answers, and how many wait with it. Tasks that this
        host skips ask nothing of it."""
        asking = [one for one in self._waiting if one.steps()]
        if not asking:
            return "", 0
        return name_of(asking[0].task, asking[0].scope), len(asking) - 1

    # -- meta tasks and failures ---------------------------------------------------------------

    def _meta(self, frame: Frame, task: Task) -> None:
        """A `meta` task; nothing waits. Raises Blocked."""
        word = str(task.args.get("_raw", ""))
        if word == "flush_handlers" and (not task.when or self._flushing[0] == frame.position):
            self._flush(frame)
            return
        for_all = word in ("end_play", "end_batch", "clear_host_errors", "refresh_inventory")
        if for_all and not self.crew.reached(self.host.name, frame.position):
            raise Blocked
        scope = self.scoping.scope(task, frame)
        holds = True
        if task.when:
            made = self._compile(frame, replace(task, when=task.when), scope)
            holds = not isinstance(made.items[0].work, Skip)
            if made.items[0].answer and made.items[0].answer.get("failed"):
                self._waiting.append(made)
                raise Blocked
        if for_all:
            turn = self.crew.once(self.host.name, frame.position)
            if turn is None:
                raise Blocked
            if isinstance(turn, OnceResult):
                self._pass(frame, turn)
                return
            ends = word if holds and word.startswith("end_") else ""
            if holds and word == "clear_host_errors":  # for the plays that follow, as in Ansible
                for state in map(self.crew.states.get, self.options.active.get("ansible_play_hosts", ())):
                    if state is not None:
                        state.ended = state.ended or state.failed  # this play goes on without it
                        state.failed = state.unreachable = state.failed_along = False
            self.learnt_once = OnceResult(False, {}, {}, frozenset(), ends)
            self._frame = None if ends else frame.after()
            return
        if word == "flush_handlers" and holds:
            self._flush(frame)
            return
        self._frame = frame.after()
        if not holds:
            return
        if word == "end_host":
            self._frame, self.host.ended = None, True
        elif word == "clear_facts":
            self.host.forget_facts()
        elif word == "end_role" and task.role is not None:
            while self._frame is not None:
                self._frame, _ = to_task(self._frame)
                if self._frame is None or self._frame.task.role != task.role:
                    break
                self._frame = self._frame.after()

    # -- recording -----------------------------------------------------------------------------

    def record(self, answers: Iterable[Mapping[str, Any]]) -> list[TaskResult]:
        """Take the executor's answers (by step id) and return the results of the tasks they settle."""
        raw = {int(answer["id"]): dict(answer) for answer in answers}
        by_id: dict[int, dict[str, Any]] = {}
        for made in self._waiting:
            by_id |= accepted(made, raw, self.play, self.host, self.crew.states)
        if self._waiting and self._waiting[-1].pieces:
            made = self._waiting[-1]
            take(made, by_id)
            if made.pieces:
                return []
            by_id = made.answers
        waiting, self._waiting = self._waiting, []
        return self._settle(waiting, by_id)

    def _settle(self, waiting: list[Waiting], by_id: dict[int, dict[str, Any]]) -> list[TaskResult]:
        self.scoping.settled()
        settled: list[TaskResult] = []
        for made in waiting:
            result, registered = summarise(self.host.name, self.play.name, made, by_id)
            failed = result.status == "failed" and not result.ignored
            if failed and rescues(made.frame):
                result = replace(result, rescued=True)
            learnt = learn(made, registered, self.host, self.crew.states)
            notified = told(made) if registered.get("changed") and result.status != "failed" else frozenset()
            unheard = [f"'{word}'" for word in sorted(notified) if not self._hears(word, made.frame)]
            if unheard and self.play.error_on_missing_handler:
                what = f"It changed something and notifies {', '.join(unheard)}: no handler is called so."
                result = replace(result, status="failed", message=f"{what} The run ends here.")
                self.ends_run = failed = True
            settled.append(result)
            self._notified |= notified
            if made.once:
                included = dict(learnt.pop(INCLUDED, {}))
                self.learnt_once = OnceResult(failed, learnt, included, notified)
            if failed:
                self.host.learnt["ansible_failed_result"] = registered
                self.host.learnt["ansible_failed_task"] = failed_task(made)
                self._frame, self.failed_at = made.frame, made.frame.position
                if self.ends_run:
                    self.host.failed, self._frame = True, None
                else:
                    self._fail()
                break
        self.results += settled
        if self._failing and self._frame is None:
            self.host.failed = True
        return settled

    def abandon(self, message: str, target: str = "", at_work: bool = False) -> list[TaskResult]:
        """The host was lost while a batch ran (`at_work`), or before: nothing is known of what it was asked.
        The results of the batch's tasks before that, which needed no host, and of the one that did."""
        asked = next((n for n, one in enumerate(self._waiting) if one.steps()), 0)
        before, self._waiting = self._waiting[:asked], self._waiting[asked:]
        settled = self._settle(before, {}) if before else []
        made = self._waiting[0] if self._waiting else None
        frame = made.frame if made else self._frame
        at = made.task if made else frame.task if frame is not None else self.play.common
        if at_work and len(self._waiting) > 1:
            last = self._waiting[-1]
            message += (
                f" It was at this task or at one of the {len(self._waiting) - 1} that were sent with it"
            )
            message += f", up to '{name_of(last.task, last.scope)}'."
        self._waiting = []
        self.scoping.settled()
        ignored = bool(made and made.flags.ignore_unreachable)
        name = name_of(at, made.scope) if made else at.name
        items, registered = unreached(made, message) if made else ((), {})
        hidden = bool(made and made.flags.no_log)
        result = TaskResult(
            self.host.name, self.play.name, name, called(at.module), "unreachable", message, ignored,
            line=at.line, file=at.file, delegated=target,
            items=() if hidden else items, result={} if hidden else registered,
            fatal=bool(made and (made.flags.fatal or made.once)),
        )  # fmt: skip
        self.results.append(result)
        if ignored and frame is not None:
            if at.register:
                self.host.learnt[at.register] = registered
            self._frame = frame.after()
            return [*settled, result]
        if made and made.once:
            self.learnt_once = OnceResult(True, {}, {}, frozenset())
        self.host.unreachable = self.host.failed = True
        self.failed_at = frame.position if frame is not None else ()
        self._frame = None
        return [*settled, result]


def _bounded(steps: Iterable[Step]) -> bool:
    """Has each of the steps a time limit?"""
    return all(step.timeout_s for step in steps)
