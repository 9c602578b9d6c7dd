"""The use case that says how the daemon is."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Collection, Mapping
from typing import Any

from rm import __version__
from rm.core.model.job import Job
from rm.core.scheduling.cycle import Cycle
from rm.core.scheduling.engine import Policies
from rm.core.scheduling.limits.licensing import counted
from rm.daemon.services.asking import SCANNED, Asking
from rm.daemon.services.host_service import shown
from rm.daemon.services.stored import StoredCounts
from rm.errors import StoreUnavailable


class DaemonStatus:
    """Its methods run in the web server's event loop.

    Args:
        asking: the way to the leader.
        stored: how many jobs the store holds.
        policies: their names.
        facts: of the daemon: version, agents, started_us, epoch.
        policy_faults: sentences about policies that failed, by their names.
    """

    def __init__(
        self,
        *,
        asking: Asking,
        stored: StoredCounts,
        policies: Policies,
        facts: Mapping[str, Any],
        policy_faults: Mapping[str, str],
    ) -> None:
        self._asking = asking
        self._stored = stored
        self._policies = policies
        self._facts = facts
        self._policy_faults = policy_faults

    async def status(self) -> Mapping[str, Any]:
        def ask(cycle: Cycle, now_us: int) -> dict[str, Any]:
            state = cycle.state
            hosts: dict[str, int] = {}
            for host in state.hosts.values():
                seen = shown(host, state.jobs_on.get(host.name, set())).state
                hosts[seen] = hosts.get(seen, 0) + 1
            ours = self._facts["agents"]
            others = [h.name for h in state.hosts.values() if h.agent_version not in ("", ours)]
            counts = None if len(state.jobs) > SCANNED else count((state.jobs.values(), state.licenses))
            return {**known, "hosts": hosts, "other_agents": sorted(others), **(counts or {})}

        def copied(cycle: Cycle, now_us: int) -> tuple[Collection[Job], Mapping[str, int]]:
            return list(cycle.state.jobs.values()), cycle.state.licenses

        def count(of: tuple[Collection[Job], Mapping[str, int]]) -> dict[str, Any]:
            jobs = dict(Counter(job.state for job in of[0] if not job.state.final))
            licenses = [
                {"name": n, "total": total, "used": used} for n, (total, used) in counted(*of).items()
            ]
            return {"jobs": jobs, "licenses": licenses}

        policies = self._policies
        known = {
            "daemon": {"version": __version__, "pid": os.getpid(), **self._facts},
            "policies": {
                "queue": policies.queue.name,
                "placement": policies.placement.name,
                "comm": policies.comm.name,
            },
        }
        try:
            answer = await self._asking.ask(ask)
            if "jobs" not in answer:
                answer |= await self._asking.scan(copied, count)
            held = await self._stored.now()
        except StoreUnavailable as error:  # that is how the daemon is
            return {**known, "jobs": {}, "hosts": {}, "waiting": str(error)}
        jobs = answer["jobs"] | {state: count for state, count in held.counts.items() if state.final}
        faults = list(self._policy_faults.values())
        return {**answer, "jobs": jobs, "set_aside": [one.why for one in held.aside], "policy_faults": faults}
