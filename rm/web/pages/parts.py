"""The parts of the page: what each asks of the API, and the fields of its template."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeVar
from urllib.parse import quote, urlencode

import msgspec

from rm.api.alerts import Alerts
from rm.api.hosts import Hosts
from rm.api.job_steps import JobSteps
from rm.api.jobs import Iterations, Job, Jobs, WholeJob
from rm.api.monitoring import Changes, Grid, Mesh, Meshes
from rm.api.network import History, Links, Pairs
from rm.api.playbooks import OnePlaybookRun, PlaybookRuns, TaskOutcomes
from rm.api.reasons import Why
from rm.api.status import Status
from rm.errors import Conflict, Forbidden, NotFound, RmError
from rm.web.pages import (
    alert_view,
    circle_view,
    grid_view,
    iteration_view,
    job_view,
    mesh_view,
    network_view,
    overview_view,
    pair_view,
    playbook_view,
    queue_view,
    timeline_view,
    why_view,
)
from rm.web.pages.people import Person
from rm.web.pages.source import View
from rm.web.pages.text import Looks

RUNNING, ENDED = "R,CF,S,CG", "CD,F,CA,TO,NF,PR,OOM"
SLOW_S = 5.0  # so old may be what changes slowly: hosts and measurements
Fields = dict[str, Any]
Kind = TypeVar("Kind", bound=msgspec.Struct)
Query = Mapping[str, str]


class Parts:
    """As one person gets them; `fields` never raises what the daemon may answer."""

    def __init__(self, view: View, person: Person, looks: Looks) -> None:
        self._source = view
        self._person = person
        self._look = looks

    async def fields(self, name: str, query: Query, now_us: int) -> Fields:
        """Of the template: `error` is why there is nothing else, or None."""
        try:
            return {"error": None, **await _PARTS[name](self, query, now_us)}
        except RmError as error:
            return {"error": error}

    async def _maybe(self, kind: type[Kind], path: str, fresh_s: float | None = None) -> Kind | None:
        """None: this daemon has no such answer, or none for this person."""
        try:
            return await self._source.get(kind, path, fresh_s)
        except (Conflict, Forbidden):
            return None

    # -- above all

    async def _status(self, _: Query, now_us: int) -> Fields:
        status, hosts, links, alerts, monitor = await asyncio.gather(
            self._source.get(Status, "status"),
            self._source.get(Hosts, "hosts", SLOW_S),
            self._source.get(Links, "links", SLOW_S),
            self._maybe(Alerts, "alerts"),
            self._maybe(Meshes, "monitor", SLOW_S),
        )
        tiles = overview_view.tiles(
            status.jobs,
            hosts.hosts,
            links.links,
            None if alerts is None else alerts.alerts,
            () if monitor is None else monitor.meshes,
        )
        return {"tiles": tiles, "daemon": status.daemon, "policies": status.policies.values()}

    async def _alerts(self, _: Query, now_us: int) -> Fields:
        answer = await self._maybe(Alerts, "alerts")
        if answer is None:
            return {"alerts": None}
        return {"alerts": alert_view.alerts(answer.alerts, now_us, answer.silences)}

    # -- jobs

    async def _groups(self, query: Query) -> list[Sequence[Job]]:
        """The newest that run, those whose turn is next, and the newest that have ended."""
        most, user = queue_view.MOST + 1, query.get("user", "")
        only = f"limit={most}" + (f"&{urlencode({'user': user})}" if user else "")
        asked = (f"jobs?state={RUNNING}&{only}", f"queue?{only}", f"jobs?state={ENDED}&{only}")
        answers = await asyncio.gather(*(self._source.get(Jobs, path) for path in asked))
        groups = [answer.jobs for answer in answers]
        self._look.see(job.id for job in groups[0])
        return groups

    async def _beyond(self, running: Sequence[Job], query: Query) -> int:
        """How many running jobs there are besides these, which the API answered; not known of one user."""
        if query.get("user"):
            return 0
        counts = (await self._source.get(Status, "status")).jobs
        there = sum(n for state, n in counts.items() if queue_view.group_of(state) == "running")
        return max(0, there - len(running))

    async def _jobs(self, query: Query, now_us: int) -> Fields:
        groups, status, mine = await asyncio.gather(
            self._groups(query), self._source.get(Status, "status"), self._mine(query)
        )
        user = query.get("user", "")
        counts = {} if user else status.jobs
        drawn = queue_view.queue([job for g in groups for job in g], counts, now_us, self._look)
        own = [queue_view.own(mine, now_us, self._look)] if mine is not None else []
        return {"groups": own + drawn, "chosen": query.get("job", ""), "user": user}

    async def _mine(self, query: Query) -> Sequence[Job] | None:
        """The person's own jobs, the newest last; None where they are not asked for."""
        if not self._person.known or query.get("user"):
            return None
        return (await self._source.get(Jobs, f"jobs?mine=1&limit={queue_view.OWN_MOST + 1}")).jobs

    async def _why(self, query: Query, now_us: int) -> Fields:
        """Of the job that was chosen, else of the first that waits or runs."""
        running, waiting, ended = await self._groups(query)
        chosen = query.get("job", "")
        jobs = [*waiting, *running, *ended]
        if chosen:
            job = next((j for j in jobs if str(j.id) == chosen), None)
            if job is None:
                job = (await self._source.get(WholeJob, f"jobs/{chosen}")).job
        elif not jobs:
            return {"why": None}
        else:
            job = jobs[0]
        answer = await self._source.get(Why, f"jobs/{job.id}/why")
        return {"why": why_view.why(job, answer, now_us, self._look)}

    async def _timeline(self, query: Query, now_us: int) -> Fields:
        running, _waiting, ended = await self._groups(query)
        remaining = {j.id: j.progress.remaining_us for j in running if j.progress}
        drawn = timeline_view.timeline([*running, *ended], remaining, now_us, self._look)
        return {"timeline": drawn, "beyond": await self._beyond(running, query)}

    # -- jobs in time

    async def _told(self, jobs: Sequence[int]) -> dict[int, Iterations]:
        """The newest iterations of these jobs, of those that report them."""
        last = iteration_view.LAST
        answers = await asyncio.gather(
            *(self._source.get(Iterations, f"jobs/{job}/iterations?last={last}") for job in jobs),
            return_exceptions=True,
        )
        return {job: a for job, a in zip(jobs, answers, strict=True) if isinstance(a, Iterations)}

    async def _links(self, query: Query, now_us: int) -> Fields:
        groups, answer = await asyncio.gather(self._groups({}), self._source.get(Links, "links"))
        names = {job.id: job.spec.name for job in groups[0]}
        alike = circle_view.alike(answer.links)
        drawn = alike[: circle_view.MOST]
        told = await self._told(list(dict.fromkeys(job for group in drawn for job in group[0].jobs)))
        return {
            "links": [circle_view.link(group, names, told, self._look) for group in drawn],
            "left_out": sum(len(group) for group in alike[circle_view.MOST :]),
        }

    async def _iterations(self, query: Query, now_us: int) -> Fields:
        running = (await self._groups(query))[0]
        asked = running[-iteration_view.MOST :]
        told = await self._told([job.id for job in asked])
        return {
            "charts": iteration_view.charts(asked, told, self._look),
            "left_out": len(running) - len(asked) + await self._beyond(running, query),
        }

    # -- hosts

    async def _network(self, query: Query, now_us: int) -> Fields:
        hosts, network, (meshes, cells) = await asyncio.gather(
            self._source.get(Hosts, "hosts", SLOW_S),
            self._source.get(Pairs, "network", SLOW_S),
            self._cells(),
        )
        wanted = query.get("zone", "")
        zones, across = await asyncio.to_thread(network_view.zones, hosts.hosts, network.pairs, cells, wanted)
        kept = {name: query[name] for name in ("job", "user") if name in query}
        return {"zones": zones, "across": across, "kept": kept, "meshes": mesh_view.meshes(meshes, now_us)}

    async def _cells(self) -> tuple[Sequence[Mesh], grid_view.Cells]:
        """The meshes, and the statuses of all; none from a daemon that has none."""
        monitor = await self._maybe(Meshes, "monitor", SLOW_S)
        meshes = () if monitor is None else monitor.meshes
        grids = [await self._maybe(Grid, f"monitor/{quote(mesh.name, safe='')}", SLOW_S) for mesh in meshes]
        told = (
            grid_view.Tested(grid.mesh, cell) for grid in grids if grid is not None for cell in grid.cells
        )
        return meshes, grid_view.worst_of(told)

    async def _pair(self, query: Query, now_us: int) -> Fields:
        source, destination = query.get("from", ""), query.get("to", "")
        if not source or not destination:
            return {"pair": None}
        since = query.get("since", pair_view.USUAL)
        asked = {"source": source, "destination": destination, "since_s": pair_view.SPANS_S[since]}
        try:
            (meshes, cells), told = await asyncio.gather(
                self._cells(), self._source.get(History, f"network/history?{urlencode(asked)}", SLOW_S)
            )
        except NotFound as error:
            return {"pair": None, "missing": error}
        mine = [cells[key] for key in cells if key[1:] == (source, destination)]
        of = dict.fromkeys(one.mesh for one in mine)
        answers = await asyncio.gather(
            *(
                self._maybe(Changes, f"monitor/{quote(mesh, safe='')}/changes?{urlencode(asked)}", SLOW_S)
                for mesh in of
            )
        )
        changes = [
            change
            for mesh, answer in zip(of, answers, strict=True)
            if answer is not None
            for change in answer.changes
            if any(one.mesh == mesh and one.cell.check == change.check for one in mine)
        ]
        kept = {name: query[name] for name in ("job", "user", "zone") if name in query}
        drawn = await asyncio.to_thread(pair_view.pair, told, since, meshes, mine, changes, now_us)
        return {"pair": drawn, "kept": kept}

    # -- playbooks

    async def _runs(self, _: Query, now_us: int) -> Fields:
        answer = await self._source.get(PlaybookRuns, f"playbook-runs?limit={playbook_view.RUNS_MOST}")
        return {"runs": [playbook_view.run_row(run, now_us) for run in answer.runs]}

    async def _run(self, query: Query, now_us: int) -> Fields:
        path = f"playbook-runs/{query.get('run', '')}"
        chosen = {name: query[name] for name in ("host", "status") if query.get(name)}
        asked = {**chosen, "after": query.get("after", "0"), "limit": str(playbook_view.SHOWN_MOST)}
        told, found = await asyncio.gather(
            self._source.get(OnePlaybookRun, path),
            self._source.get(TaskOutcomes, f"{path}/outcomes?{urlencode(asked)}"),
        )
        drawn = await asyncio.to_thread(playbook_view.report, told, found, now_us)
        return {
            "report": drawn, "counted": playbook_view.COUNTED, "filtered": bool(chosen),
            "next": {**chosen, "after": drawn.next},
        }  # fmt: skip

    # -- one job

    async def _job(self, query: Query, now_us: int) -> Fields:
        chosen = query.get("job", "")
        if not chosen:
            raise NotFound("No job is named.")
        job = (await self._source.get(WholeJob, f"jobs/{chosen}")).job
        steps = None
        if job.spec.launch == "batch" and job.attempt:
            path = f"jobs/steps?jobs={job.id}&limit={job_view.STEPS_MOST}"
            told = await self._source.get(JobSteps, path)
            steps = job_view.steps(job, told, now_us)
        return {"job": job_view.job(job, self._person, now_us, self._look), "steps": steps}


_PARTS: Mapping[str, Callable[[Parts, Query, int], Awaitable[Fields]]] = {
    "status": Parts._status,
    "alerts": Parts._alerts,
    "jobs": Parts._jobs,
    "why": Parts._why,
    "timeline": Parts._timeline,
    "links": Parts._links,
    "iterations": Parts._iterations,
    "network": Parts._network,
    "pair": Parts._pair,
    "job": Parts._job,
    "runs": Parts._runs,
    "run": Parts._run,
}
ALL_PARTS = tuple(_PARTS)
PAGE_PARTS = tuple(name for name in ALL_PARTS if name not in ("job", "runs", "run"))  # in the page's order
