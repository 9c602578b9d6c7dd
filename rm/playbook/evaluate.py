"""One play on one host, purely: compile tasks until one needs an unknown result, take the answers, go on.

    run = HostPlay(play, host, files, options)
    while (batch := run.next_batch()) is not None:
        run.record(answers to batch.steps)          # [] when the batch needs no host
    run.results, host.failed

Nothing here touches a host, a clock or a file (`Files` does that on behalf of `copy`, `template`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rm.playbook.compile import Item, Skip, TaskProblem, compile_task
from rm.playbook.facts import gather
from rm.playbook.module import CompileContext, Files, control
from rm.playbook.outcome import summarise
from rm.playbook.schema import Play, Task
from rm.playbook.steps import Batch, Step, TaskResult
from rm.playbook.template import PENDING, Layer, NeedResult, Scope

BATCH_STEPS_MAX = 500


@dataclass(slots=True)
class HostState:
    """What is known about one host through all plays. `inventory` are its admin-written variables."""

    name: str
    inventory: Mapping[str, Any]
    login: str = "root"
    facts: dict[str, Any] | None = None
    learnt: dict[str, Any] = field(default_factory=dict)  # registered results and set_fact
    failed: bool = False
    unreachable: bool = False


@dataclass(frozen=True, slots=True)
class Options:
    """`extra` is `-e`, stronger than all else; `magic` the names the runner provides; both plain values."""

    directory: str
    extra: Mapping[str, Any] = field(default_factory=dict)
    magic: Mapping[str, Any] = field(default_factory=dict)
    check: bool = False
    tags: tuple[str, ...] = ()
    skip_tags: tuple[str, ...] = ()


def selected(task: Task, tags: Sequence[str], skip_tags: Sequence[str]) -> bool:
    """Ansible's rule for `--tags` and `--skip-tags`, with `always`, `never`, `all`, `tagged`, `untagged`."""
    own = set(task.tags)
    chosen = not own & {"never"}
    if tags and "all" not in tags:
        hit = own & set(tags) or ("tagged" in tags and own) or ("untagged" in tags and not own)
        chosen = bool(hit) or ("always" in own and "always" not in skip_tags)
    elif "never" in own and own & set(tags) - {"all"}:
        chosen = True
    dropped = own & set(skip_tags) or ("tagged" in skip_tags and own) or ("untagged" in skip_tags and not own)
    return chosen and not dropped


_SETUP = Task("Gathering Facts", "setup", {}, 0)


@dataclass(slots=True)
class _Waiting:
    """A compiled task whose steps are in the current batch."""

    task: Task
    handler: bool
    items: list[Item]
    scope: Scope


class HostPlay:
    def __init__(self, play: Play, host: HostState, files: Files, options: Options) -> None:
        self.play, self.host, self.files, self.options = play, host, files, options
        self.results: list[TaskResult] = []
        self._queue: deque[tuple[Task, bool]] = deque()
        if play.gather_facts and host.facts is None:
            self._queue.append((_SETUP, False))
        wanted = (t for t in play.tasks if selected(t, options.tags, options.skip_tags))
        self._queue.extend((t, False) for t in wanted)
        self._notified: set[str] = set()
        self._waiting: list[_Waiting] = []
        self._pending_facts = False
        self._steps = 0  # numbers steps
        self._tasks = 0  # numbers tasks
        magic = {
            **options.magic,
            "inventory_hostname": host.name,
            "inventory_hostname_short": host.name.partition(".")[0],
            "ansible_check_mode": options.check,
            "playbook_dir": options.directory,
            "ansible_play_name": play.name,
        }
        self._extra = Layer(options.extra, False)
        self._magic = Layer(magic, False)

    # -- compiling -----------------------------------------------------------------------------

    def next_batch(self) -> Batch | None:
        """The next steps to run, None when the play is done on this host."""
        steps: list[Step] = []
        become: bool | None = None
        while not self.host.failed:
            if not self._queue and not self._queue_handlers(bool(steps)):
                break
            task, handler = self._queue[0]
            if task.module == "meta" and task.args.get("_raw") == "flush_handlers":
                if steps:
                    break
                self._queue.popleft()
                self._queue_handlers(False)
                continue
            needs_root = self._becomes(task)
            by_control = control(task.module)
            if steps and (needs_root != become or by_control):
                break
            try:
                scope = self._scope(task)
                items = self._compile(task, scope, len(steps))
            except NeedResult:
                break
            except TaskProblem as problem:
                if steps:
                    break  # first see whether the host gets this far
                self._queue.popleft()
                items = [Item("", None, {"failed": True, "msg": str(problem)})]
                self._waiting.append(_Waiting(task, handler, items, scope))
                return Batch((), False)
            self._queue.popleft()
            become = needs_root
            self._waiting.append(_Waiting(task, handler, items, scope))
            steps += [item.step for item in items if item.step is not None]
            self._foresee(task, items)
            if by_control and steps:
                return Batch(tuple(steps), needs_root, control=True)
            if task.failed_when not in (None, (False,)) or len(steps) >= BATCH_STEPS_MAX:
                break
        if not self._waiting:
            return None
        if all(step.op == "note" for step in steps):
            return Batch((), False)
        return Batch(tuple(steps), bool(become))

    def _becomes(self, task: Task) -> bool:
        become = self.play.become if task.become is None else task.become
        return bool(become) and self.host.login != "root"

    def _queue_handlers(self, unknown: bool) -> bool:
        """Queue the notified handlers, in the order they are written. `unknown`: steps still wait."""
        if unknown and any(w.task.notify for w in self._waiting):
            return False
        due = [h for h in self.play.handlers if self._notified & {h.name, *h.listen}]
        self._notified = set()
        self._queue.extendleft((handler, True) for handler in reversed(due))
        return bool(due)

    def _scope(self, task: Task) -> Scope:
        host, facts = self.host, self.host.facts or {}
        layers = [
            self._extra,
            self._magic,
            Layer(host.learnt, False),
            Layer(task.variables, True),
            Layer(self.play.variables, True),
            Layer({"ansible_facts": facts} if host.facts is not None else {}, False),
            Layer({f"ansible_{name}": value for name, value in facts.items()}, False),
            Layer(host.inventory, True),
        ]
        pending = self._pending_facts
        return Scope(layers, lambda name: pending and name.startswith("ansible_"))

    def _compile(self, task: Task, scope: Scope, already: int) -> list[Item]:
        context = CompileContext(scope, self.files, self.options.directory)
        items = compile_task(self.play, task, context, self.options.check)
        self._tasks += 1
        for item in items:
            if isinstance(item.work, Skip) or item.work is None:
                continue
            ignore = task.ignore_errors or task.failed_when == (False,)
            item.step = Step(
                id=self._steps,
                task=self._tasks,
                op=item.work.op,
                args=item.work.args,
                user=item.work.user,
                environment=item.work.environment,
                ignore_errors=ignore,
                check=item.work.check,
            )
            self._steps += 1
        return items

    def _foresee(self, task: Task, items: list[Item]) -> None:
        """What later tasks may know before the batch has run."""
        if task.module in ("setup", "gather_facts"):
            self._pending_facts = True
        if task.register:
            self.host.learnt[task.register] = PENDING
        if task.module == "set_fact":
            for item in items:
                if item.step is not None:
                    self.host.learnt.update(item.step.args["result"]["ansible_facts"])

    # -- recording -----------------------------------------------------------------------------

    def record(self, answers: Iterable[Mapping[str, Any]]) -> list[TaskResult]:
        """Take the executor's answers (by step id) and return the results of the tasks they settle."""
        by_id = {int(answer["id"]): dict(answer) for answer in answers}
        self._pending_facts = False
        settled: list[TaskResult] = []
        for waiting in self._waiting:
            if self.host.failed:
                self.host.learnt.pop(waiting.task.register, None)
                continue
            result, registered = summarise(self.host.name, self.play.name, waiting, by_id)
            for answer in registered.get("results", [registered]):
                raw = answer.pop("raw_facts", None)
                if raw is not None:
                    self.host.facts = gather(raw)
            if waiting.task.register:
                self.host.learnt[waiting.task.register] = registered
            if result.status == "changed":
                self._notified.update(waiting.task.notify)
            if result.status == "failed" and not result.ignored:
                self.host.failed = True
            settled.append(result)
        self._waiting = []
        self.results += settled
        return settled

    def abandon(self, message: str) -> TaskResult:
        """The host was lost while a batch ran (or before): nothing about it is known."""
        self.host.unreachable = self.host.failed = True
        at = self._waiting[0].task if self._waiting else self._queue[0][0] if self._queue else _SETUP
        self._waiting = []
        result = TaskResult(
            self.host.name, self.play.name, at.name, at.module, "unreachable", message, line=at.line
        )
        self.results.append(result)
        return result
