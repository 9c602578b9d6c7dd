"""The task at a host's cursor: compiled to steps, found wrong, or taken over from who did it for all."""

from __future__ import annotations

import posixpath
from dataclasses import replace

from rm.errors import RmError
from rm.playbook.model.flow import Frame
from rm.playbook.model.keywords import DYNAMIC_INCLUDES
from rm.playbook.model.problems import TemplateProblem, sentence
from rm.playbook.model.schema import Play, Task
from rm.playbook.model.steps import Step
from rm.playbook.module import Files
from rm.playbook.modules import registry
from rm.playbook.run.compile import Flags, Item, Skip, TaskProblem, compile_task, flags_of, hides, truth
from rm.playbook.run.crew import Blocked, Crew, OnceResult, Options
from rm.playbook.run.learning import bound_of
from rm.playbook.run.scoping import Scoping
from rm.playbook.run.waiting import Waiting, up_to_break
from rm.playbook.run.walk import Walk
from rm.playbook.template.template import NeedResult, Scope
from rm.playbook.template.variables import HostState


class Making(Walk):
    """Compiles one task at a time; when, and what becomes of the answers, `HostPlay` decides."""

    def __init__(self, play: Play, host: HostState, files: Files, options: Options, crew: Crew) -> None:
        super().__init__(play, host, options, Scoping(play, host, files, options, crew))
        self.files, self.crew = files, crew
        self._steps = 0  # numbers steps
        self._tasks = 0  # numbers tasks

    def _once(self, task: Task, frame: Frame) -> bool:
        if task.module in registry() and getattr(registry()[task.module], "RUN_ONCE", False):
            return True
        if task.run_once is False or self.play.strategy != "linear":  # as Ansible, which warns of it
            return False
        return truth(task.run_once, self.scoping.scope(task, frame))

    def _make(self, frame: Frame, task: Task, scope: Scope) -> Waiting | None:
        """The compiled task; None when the host went past it without a result of its own."""
        if self._once(task, frame):
            turn = self.crew.once(self.host.name, frame.position)
            if turn is None:
                raise Blocked
            if isinstance(turn, OnceResult):
                self._pass(frame, turn)
                return None
            made = self._compile(frame, task, scope)
            made.once = True
            return made
        return self._compile(frame, task, scope)

    def _pass(self, frame: Frame, turn: OnceResult) -> None:
        self._last = frame
        self.host.learnt.update(turn.learnt)
        self.host.included.update(turn.included)
        self._notified |= turn.notified
        if turn.ends:
            self._frame = None
        elif turn.failed:
            self._fail()
        else:
            self._frame = frame.after()

    def _compile(self, frame: Frame, task: Task, scope: Scope) -> Waiting:
        try:
            flags = flags_of(task, scope)
            items = compile_task(task, self.scoping.context(task, scope), self.options.check)
            if task.loop is not None and not isinstance(task.no_log, bool):  # items may differ
                for item in items:
                    item.hidden = hides(task, item.scope or scope)
                flags = replace(flags, no_log=any(item.hidden for item in items))
        except (TaskProblem, TemplateProblem) as problem:
            return self._problem(frame, task, problem)
        self._tasks += 1
        for item in items:
            work = item.work
            if isinstance(work, Skip) or work is None:
                continue
            if work.op == "note":
                note = work.args
                item.answer = {"failed": bool(note.get("failed")), **note["result"]}
                item.answer |= {"skipped": True} if note.get("skipped") else {}
                continue
            # a module that is not rm's writes its arguments to the host's system log, unless it is asked
            args = {**work.args, "no_log": True} if flags.no_log and work.op == "own_module" else work.args
            ignore = flags.ignore_errors or task.failed_when == (False,)
            item.step = Step(
                self._steps, self._tasks, work.op, args, work.user, work.environment, ignore,
                work.check, work.timeout_s, work.background_s,
            )  # fmt: skip
            self._steps += 1
            try:
                item.way = self.scoping.way(task, item.scope or scope, item.target, work.become)
            except TemplateProblem as problem:
                return self._problem(frame, task, problem)
        items = up_to_break(task, items, scope)
        if task.module in DYNAMIC_INCLUDES:
            self._include(frame, task, items)
            if any(item.answer and item.answer.get("failed") for item in items):
                # what cannot be read is never ignored, as in Ansible
                flags = replace(flags, ignore_errors=False)
        return Waiting(task, items, scope, frame, flags)

    def _problem(self, frame: Frame, task: Task, problem: Exception) -> Waiting:
        item = Item("", None, {"failed": True, "msg": sentence(problem), "uncompiled": True})
        scope = self.scoping.scope(task, frame)
        try:
            hidden = hides(task, scope)
        except NeedResult:
            hidden = True
        flags = Flags(ignore_errors=task.ignore_errors is True, no_log=hidden)
        return Waiting(task, [item], scope, frame, flags)

    def _include(self, frame: Frame, task: Task, items: list[Item]) -> None:
        """Find what each item includes; the cursor goes there when the include is taken up."""
        for item in items:
            if item.answer is None:
                continue
            given = item.answer["include"]
            try:
                nodes = self.play.shelf.expand(task, given)
            except RmError as problem:
                item.answer = {"failed": True, "msg": str(problem), "uncompiled": True}
                continue
            if task.module == "include_role":
                self.play.shelf.use(posixpath.basename(str(given["name"])))
                bound = bound_of(task, item) + frame.bound
                brought = self.play.shelf.handlers_of(task, given)
                self.included += brought
                opened = self.play.shelf.public_roles(task, given)
                again = {id(one) for one in opened}  # as often as it is included, each stands once, and last
                roles = self.scoping.roles
                roles[:] = [*(one for one in roles if id(one) not in again), *opened]
                self.bound_of.update((id(one), bound) for one in brought)
            shown = given.get("name") or given.get("file")
            item.answer = {"include": shown, "msg": f"included: {shown}", "nodes": nodes}
