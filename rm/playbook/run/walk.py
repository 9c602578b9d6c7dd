"""The way of one host through its play: which task is next, which handlers are due, where failures lead."""

from __future__ import annotations

import fnmatch
from dataclasses import replace

from rm.playbook.model.flow import END, Bound, Frame, Position, on_failure
from rm.playbook.model.problems import TemplateProblem
from rm.playbook.model.schema import Node, Play, Task
from rm.playbook.model.tags import selected
from rm.playbook.run import notify
from rm.playbook.run.compile import truth
from rm.playbook.run.crew import Options
from rm.playbook.run.scoping import Scoping
from rm.playbook.run.waiting import Waiting
from rm.playbook.template.template import NeedResult, evaluate
from rm.playbook.template.variables import HostState


class Walk:
    """A cursor with what moves it besides the tasks themselves; `HostPlay` compiles and records them."""

    def __init__(self, play: Play, host: HostState, options: Options, scoping: Scoping) -> None:
        self.play, self.host, self.options, self.scoping = play, host, options, scoping
        nodes: tuple[Node, ...] = play.tasks
        if truth(play.gather_facts, scoping.plain()) and not (play.gather_once and host.gathered):
            setup = replace(
                play.common,
                name="Gathering Facts",
                module="setup",
                args=play.gathering,
                line=play.line,
                tags=("always",),
            )
            nodes = (setup, *nodes)
        elif nodes:  # so that positions are the same on every host
            nodes = (Task("", "meta", {"_raw": "noop"}, play.line, tags=("always",)), *nodes)
        self._frame: Frame | None = Frame(nodes)
        self._waiting: list[Waiting] = []  # compiled, and not settled yet
        self._notified: set[str] = set()
        self._due: list[Task] = []  # the handlers that this means
        self.included: list[Task] = []  # the handlers of included roles, as often as they were included
        self.bound_of: dict[int, Bound] = {}  # of a handler: what the include that brought its role binds
        self._flushing: tuple[Position, int] = (
            (),
            -1,
        )  # where, and the place of the last handler that ran there
        self._doomed: Position | None = None
        self._doomed_finally = False
        self._last: Frame | None = None  # the task done last
        self._done: set[tuple[str, str]] = set()  # roles that included ones depend on
        self.failed_at: Position = ()
        self.ends_run = False  # what was notified here no handler hears
        self._failing = False  # failed, and only the forced handlers are left

    @property
    def position(self) -> Position:
        """The first place whose task is not settled yet; END when the host is through."""
        if self._waiting:
            return self._waiting[0].frame.position
        if self._frame is None or self.host.failed:
            return END
        return self._frame.position

    @property
    def at_task(self) -> bool:
        return not self._waiting and self._frame is not None and not self.host.failed

    def doom(self, where: Position, finally_: bool = False) -> None:
        """Another host's failure there is this host's too (`any_errors_fatal`), once it is past that task;
        `finally_`: no rescue helps."""
        self._doomed, self._doomed_finally = where, finally_

    def end(self) -> None:
        """The play ends here for this host."""
        self._frame, self._waiting = None, []

    def _chosen(self, task: Task) -> bool:
        if self.options.start_at and not self.host.started:
            names = (task.name, f"{task.role.full_name} : {task.name}" if task.role else task.name)
            if any(fnmatch.fnmatchcase(name, self.options.start_at) for name in names):
                self.host.started = True
            elif task.module != "meta" and task.name != "Gathering Facts":
                return False
        if any("{{" in tag for tag in task.tags):
            try:
                scope = self.scoping.scope(task, None)
                found = [evaluate(tag, scope) for tag in task.tags]
                flat = [str(t) for one in found for t in (one if isinstance(one, list) else [one])]
                task = replace(task, tags=tuple(flat))
            except (TemplateProblem, NeedResult):
                pass
        return selected(task, self.options.tags, self.options.skip_tags)

    def _known_flush(self, task: Task) -> bool:
        """A flush whose work is known for any results of the waiting tasks."""
        quiet = not any(one.task.notify for one in self._waiting)
        return quiet and not task.when and task.args.get("_raw") in ("flush_handlers", "noop")

    def _handlers(self) -> tuple[Task, ...]:
        """All handlers in the order in which they run. One is there again for each time that its role was
        included: the last time counts for which of several is meant."""
        return (*self.play.handlers, *self.included, *self._later())

    def _later(self) -> list[Task]:
        """The handlers of roles that this host has not included yet: others of their names come first."""
        shelf = self.play.shelf
        return [h for h in shelf.foreseen if all(h is not one for one in self.included)] if shelf else []

    def _hears(self, word: str, frame: Frame) -> bool:
        return bool(notify.due(self._handlers(), (word,), lambda handler: self._named(handler, frame)))

    def _named(self, handler: Task, frame: Frame) -> str:
        if "{{" not in handler.name:
            return handler.name
        try:
            return str(evaluate(handler.name, self.scoping.scope(handler, frame)))
        except (TemplateProblem, NeedResult):
            return handler.name

    def _suffer(self) -> None:
        """Another host's failure has come to this one: it goes where its own failure there would lead."""
        self._doomed = None
        if self._doomed_finally:
            self.host.failed, self._frame = True, None
            return
        self._frame = self._last or self._frame
        self._fail()

    def _fail(self) -> None:
        """Go where a failure here leads."""
        after = on_failure(self._frame)
        if after is None:
            self._fail_finally()
        else:
            self._frame = after

    def _fail_finally(self) -> None:
        force = self.play.force_handlers
        if (self._notified or self._due) and not self._failing and truth(force, self.scoping.plain()):
            flush = Task(
                "flush handlers", "meta", {"_raw": "flush_handlers"}, self.play.line, tags=("always",)
            )
            self._failing = True
            self._frame = Frame((flush,), 0, (END[0] - 1,))
            return
        self.host.failed = True
        self._frame = None

    def _flush(self, frame: Frame) -> None:
        """Go to the next notified handler, and come back here after it. A flush goes through the handlers
        once, in their order: a notification of an earlier one is for the next flush."""
        handlers = self._handlers()
        weakest_first = (*self._later(), *self.play.handlers, *self.included)
        self._due += notify.due(weakest_first, self._notified, lambda h: self._named(h, frame))
        self._notified = set()
        where, last = self._flushing
        last = last if where == frame.position else -1
        for place, handler in enumerate(handlers):
            if place > last and any(handler is one for one in self._due):
                self._due = [one for one in self._due if one is not handler]
                self._flushing = (frame.position, place)
                bound = (*self.bound_of.get(id(handler), ()), *frame.bound)
                self._frame = notify.running(handler, place, frame, bound)
                return
        self._flushing = ((), -1)
        self._frame = frame.after()
