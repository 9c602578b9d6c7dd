"""Where the tasks of a job go."""

from __future__ import annotations

from dataclasses import dataclass

from rm.core.model.kept import WithHosts
from rm.core.model.quickly_made import quickly_made

FEW_TASKS = 4  # which are looked through in less time than they are put in order by host


@quickly_made
@dataclass(frozen=True, slots=True)
class TaskPlacement:
    """Where one task (rank) of a job goes: the host, and the indices of the GPUs there that it sees; other
    tasks of the job there may see the same."""

    rank: int
    host: str
    gpus: tuple[int, ...] = ()


@quickly_made
@dataclass(frozen=True, slots=True)
class Placement(WithHosts):
    """A gang-complete placement: every task of the job, in rank order."""

    tasks: tuple[TaskPlacement, ...]

    @property
    def hosts(self) -> tuple[str, ...]:
        """The distinct hosts in order of their first rank."""
        try:
            return self._hosts
        except AttributeError:
            hosts = tuple(dict.fromkeys(t.host for t in self.tasks))
            object.__setattr__(self, "_hosts", hosts)
            return hosts

    def on(self, host: str) -> tuple[TaskPlacement, ...]:
        """Its tasks on the host, in the order of their ranks."""
        if len(self.tasks) <= FEW_TASKS:
            return tuple([t for t in self.tasks if t.host == host])
        try:
            by_host = self._by_host
        except AttributeError:
            found: dict[str, list[TaskPlacement]] = {}
            for task in self.tasks:
                found.setdefault(task.host, []).append(task)
            by_host = {name: tuple(tasks) for name, tasks in found.items()}
            object.__setattr__(self, "_by_host", by_host)
        return by_host.get(host, ())

    def gpus_on(self, host: str) -> tuple[int, ...]:
        """The indices of the job's GPUs on the host, each once."""
        return tuple(sorted({gpu for task in self.on(host) for gpu in task.gpus}))
