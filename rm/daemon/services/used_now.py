"""The use case of what a running job uses now: asked of its hosts when somebody wants to know."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence

from rm.core.model.job import Job
from rm.core.model.step_used import StepUsed, on_host, together
from rm.daemon.agents import Agents
from rm.daemon.execution.step_book import step_used
from rm.errors import RmError
from rm.protocol.job_steps import StepUsedNow
from rm.protocol.job_steps import UsedNow as Asked

log = logging.getLogger(__name__)
PATIENCE_S = 10.0
LONG = 100  # lines; more of them are added up beside the event loop


Uses = tuple[int, Sequence[tuple[int, StepUsed]], Sequence[str]]


class UsedNow:
    """`job`: finds a job by its id. Who asks while its hosts look already gets the same answer: each look is
    a walk over the processes there."""

    def __init__(self, hosts: Agents, job: Callable[[int], Awaitable[Job]]) -> None:
        self._hosts, self._job = hosts, job
        self._looks: dict[tuple[int, int], asyncio.Task[Uses]] = {}  # by job and attempt

    async def of(self, job_id: int) -> Uses:
        """The job's attempt; what its script (-1) and the steps that run use, over all hosts; and the hosts
        that do not tell it. Nothing runs of a job that waits or has ended.

        Raises:
            NotFound: there is no such job.
        """
        job = await self._job(job_id)
        key = (job.id, job.attempt)
        look = self._looks.get(key)
        if look is None:
            look = self._looks[key] = asyncio.create_task(self._look(job))
            look.add_done_callback(lambda _: self._looks.pop(key, None))
        return await asyncio.shield(look)  # who goes away ends it for nobody else

    async def _look(self, job: Job) -> Uses:
        names = list(dict.fromkeys(task.host for task in job.tasks)) if job.occupies else []
        told = await asyncio.gather(*(self._ask(name, job) for name in names))
        silent = [name for name, lines in zip(names, told, strict=True) if lines is None]
        heard = {name: lines for name, lines in zip(names, told, strict=True) if lines is not None}
        many = sum(map(len, heard.values())) > LONG
        found = await asyncio.to_thread(_added_up, heard) if many else _added_up(heard)
        return job.attempt, found, silent

    async def _ask(self, name: str, job: Job) -> Sequence[StepUsedNow] | None:
        """None: the host is silent, or its agent of an earlier version."""
        request = Asked(job=job.id, attempt=job.attempt)
        try:
            future = self._hosts.call(name, request, PATIENCE_S)
            answer = await asyncio.wait_for(asyncio.wrap_future(future), PATIENCE_S)
        except (RmError, TimeoutError) as error:
            log.debug("what job %d uses on %s: %s", job.id, name, error)
            return None
        return answer.lines


def _added_up(heard: Mapping[str, Sequence[StepUsedNow]]) -> list[tuple[int, StepUsed]]:
    parts: dict[int, list[StepUsed]] = {}
    for name, lines in heard.items():
        for line in lines:
            parts.setdefault(line.step, []).append(on_host(step_used(line.used), name))
    return [(step, whole) for step in sorted(parts) if (whole := together(parts[step])) is not None]
