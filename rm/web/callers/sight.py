"""What one caller may see of others: `[privacy]` of rm.toml, applied to every answer in one place.

Operators see everything. What a whole route shows of hosts or of used resources is closed to others by its
line in `rm.api.routes` (`private`); here is what answers keep for those who may ask.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from rm.config import PrivacyConfig
from rm.core.jobs.chain import Chain
from rm.core.model.choice import Choice
from rm.core.model.host import Host
from rm.core.model.host_reservation import HostReservation
from rm.core.model.job import Job, JobState
from rm.core.model.network.alignment import Alignment, Schedule
from rm.core.model.network.slowed import SOME, with_more
from rm.core.model.reasons import USED_BY, HostVerdict, Reason
from rm.core.model.replacing import replace
from rm.core.model.snapshot import Free
from rm.core.people.privacy import veiled, without_others
from rm.core.scheduling.foreseen import Start
from rm.core.scheduling.queue_position import QueuePosition
from rm.core.sharing.accounts import Accounts
from rm.errors import ImpossibleRequest
from rm.web.callers.identity import Caller

MOST_US = 1 << 62
FOR_OPERATORS = "The details are for operators."
Listed = tuple[Host, Free | None, Sequence[int]]


class OfUser(Protocol):
    """`user` "": of nobody, but all."""

    @property
    def user(self) -> str: ...


Told = TypeVar("Told", bound=OfUser)


@dataclass(frozen=True, slots=True)
class Sight:
    """`own`: the numbers of the caller's jobs, where something is closed: jobs of others, hosts without a job
    of the caller's, what is in use."""

    caller: Caller
    own: Collection[int] = ()
    jobs: bool = False
    hosts: bool = False
    usage: bool = False

    def of(self, job: int) -> bool:
        return not self.jobs or job in self.own

    def text(self, text: str, asked: str = "") -> str:
        """Without the jobs that may not be known, but those whose numbers are in what was `asked`."""
        if not self.jobs:
            return text
        return without_others(text, lambda job: self.of(job) or re.search(rf"\b{job}\b", asked) is not None)

    # -- jobs

    def job(self, job: Job) -> Job:
        """One that the caller may know of."""
        if self.caller.operates:
            return job
        if self.caller.user != job.spec.user:
            job = veiled(job)
            if self.hosts:
                spec = replace(job.spec, hosts_only=(), hosts_excluded=())
                job = replace(job, spec=spec, tasks=(), avoid=())
        if not (self.jobs or self._vague):
            return job
        if self.jobs:
            history = tuple((at_us, self.text(what)) for at_us, what in job.history)
            earlier = tuple(replace(one, why=self.text(one.why)) for one in job.earlier)
            by = job.preempted_by if self.of(job.preempted_by) else 0
            slowed = with_more((), ((n if self.of(n) else SOME, us) for n, us in job.slowed), MOST_US)
            job = replace(job, history=history, earlier=earlier, preempted_by=by, slowed=slowed)
            job = replace(job, yields_to=tuple(number for number in job.yields_to if self.of(number)))
        return job if job.reason is None else replace(job, reason=self.why(job, job.reason))

    def why(self, job: Job, reason: Reason | None) -> Reason | None:
        """Why the job waits or ended, as far as the caller may know it."""
        if reason is None or self.caller.operates or not (self.jobs or self._vague):
            return reason
        return self.reason(reason) if job.state is JobState.PENDING else self._known(reason)

    def reason(self, reason: Reason) -> Reason:
        """Why something waits."""
        if self._vague:
            return replace(reason, message=FOR_OPERATORS, numbers=())
        return self._known(reason)

    def _known(self, reason: Reason) -> Reason:
        """Without the jobs that may not be known, and who has them."""
        if not self.jobs:
            return reason
        numbers = tuple(
            (n, v) for n, v in reason.numbers if n != USED_BY and (not n.endswith("_job") or self.of(int(v)))
        )
        return replace(reason, message=self.text(reason.message), numbers=numbers)

    def start(self, start: Start) -> Start:
        """When a job is expected to start; on which hosts is theirs to know who know the hosts."""
        return replace(start, hosts=()) if self.hosts else start

    def explained(self, answer: Mapping[str, Any], user: str) -> Mapping[str, Any]:
        """Of why and plan, about a job of this user."""
        if self.hosts and user != self.caller.user:
            answer = {**answer, "placement": None}
        waits = answer.get("state", JobState.PENDING) == JobState.PENDING
        verdicts: Iterable[HostVerdict] = () if self._vague else answer["verdicts"]
        return {
            **answer,
            "reasons": [self.reason(reason) for reason in answer["reasons"]] if waits else answer["reasons"],
            "verdicts": [
                v if v.refused is None else replace(v, refused=self.reason(v.refused)) for v in verdicts
            ],
            "alignment": self._alignment(answer["alignment"]),
            **({"choice": self._choice(answer["choice"])} if "choice" in answer else {}),
            "queue_position": self._queue_position(answer.get("queue_position")),
            "chain": self._chain(answer.get("chain", Chain())),
        }

    def _chain(self, chain: Chain) -> Chain:
        """Links between jobs that may be known; the others count."""
        known = tuple(one for one in chain.links if self.of(one.job) and self.of(one.awaited))
        return Chain(known, chain.left_out + len(chain.links) - len(known))

    def _queue_position(self, place: QueuePosition | None) -> QueuePosition | None:
        """Jobs that may not be known count, and have no name; how many wait is what is asked for."""
        if place is None or self.usage:
            return None
        return replace(place, ahead=tuple(job for job in place.ahead if self.of(job.id)))

    def _choice(self, choice: Choice | None) -> Choice | None:
        """When it was decided, and of what was compared and refused as much as may be known."""
        if choice is None or not (self._vague or self.jobs):
            return choice
        if self._vague:
            return replace(choice, chosen=(), refused=(), refused_hosts=None, passed_over_hosts=None,
                           compared=())  # fmt: skip
        compared = (
            replace(
                one,
                note=self.text(one.note),
                rejected=None if one.rejected is None else self.reason(one.rejected),
            )
            for one in choice.compared
        )
        return replace(choice, compared=tuple(compared))

    def _alignment(self, told: Alignment | None) -> Alignment | None:
        if told is None or self._vague:
            return None
        if not self.jobs:
            return told
        links = tuple(
            replace(
                link,
                jobs=tuple(filter(self.of, link.jobs)),
                rotations=tuple(one for one in link.rotations if self.of(one.job)),
            )
            for link in told.links
        )
        return replace(
            told,
            links=links,
            schedules=tuple(filter(None, (self.schedule(s) for s in told.schedules if self.of(s.job)))),
            shaping=tuple(rule for rule in told.shaping if self.of(rule.job)),
            paths=tuple(one for one in told.paths if self.of(one.job)),
            unmatched=tuple(filter(self.of, told.unmatched)),
            rejected=None if told.rejected is None else self.reason(told.rejected),
            plans=(),
        )

    def schedule(self, told: Schedule | None) -> Schedule | None:
        """Of a job that may be known. A component is named by the smallest number of its jobs."""
        return told if told is None or self.of(told.component) else replace(told, component=told.job)

    def refusal(self, error: ImpossibleRequest) -> ImpossibleRequest:
        """It quotes the reasons of hosts."""
        if not self._vague:
            return error
        return ImpossibleRequest("The job could never run on this cluster.", FOR_OPERATORS)

    # -- who shares the cluster

    def accounts(self, found: Accounts) -> Accounts:
        """Where users do not know of each other, one's own place in them."""
        return replace(found, members=tuple(filter(self._own, found.members))) if self.jobs else found

    def shares(self, found: Iterable[Told]) -> list[Told]:
        """What accounts have used, and of users what may be known."""
        return [one for one in found if not (self.jobs and one.user) or self._own(one)]

    def reservation(self, one: HostReservation) -> HostReservation:
        """What runs in it is a file of the control machine, and operators' business."""
        if not self.caller.operates:
            one = replace(one, playbook="", result="")
        if not self.jobs:
            return one
        return replace(one, users=tuple(u for u in one.users if u == self.caller.user), accounts=())

    def _own(self, one: OfUser) -> bool:
        return one.user == self.caller.user

    # -- hosts and links

    def listed(self, found: Sequence[Listed]) -> list[Listed]:
        """Hosts; where they are closed, those on which the caller's jobs run."""
        shown: list[Listed] = []
        for host, free, jobs in found:
            if self.hosts and not any(job in self.own for job in jobs):
                continue
            known = [job for job in jobs if self.of(job)]
            if free is not None:
                free = None if self.usage else replace(free, strays=tuple(filter(self.of, free.strays)))
            shown.append((self.host(host), free, known))
        return shown

    def host(self, host: Host) -> Host:
        if not self.jobs:
            return host
        return replace(host, drained_by=self.text(host.drained_by), reason=self.text(host.reason))

    def links(self, found: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
        if not self.jobs:
            return list(found)
        return [
            {
                **link,
                "jobs": [job for job in link["jobs"] if self.of(job)],
                "rotations": [one for one in link["rotations"] if self.of(_job_in(one))],
                "demands": [one for one in link.get("demands", ()) if self.of(_job_in(one))],
            }
            for link in found
        ]

    # -- the daemon

    def alerts(self, told: Mapping[str, Any]) -> Mapping[str, Any]:
        if not self.jobs:
            return told
        kept = [row for row in told["alerts"] if self.text(row["subject"]) == row["subject"]]
        return {**told, "alerts": [{**row, "message": self.text(row["message"])} for row in kept]}

    def status(self, told: Mapping[str, Any]) -> Mapping[str, Any]:
        hidden: dict[str, Any] = {}
        if self.jobs:
            hidden |= {"set_aside": (), "policy_faults": ()}
        if self.usage:
            hidden["jobs"] = {}
            hidden["licenses"] = [{**one, "used": None} for one in told.get("licenses", ())]
        if self.hosts:
            hidden |= {"hosts": {}, "other_agents": ()}
        return {**told, **hidden} if hidden else told

    @property
    def _vague(self) -> bool:
        """Do the reasons of jobs reveal more of hosts, or of what others use, than the caller may know?"""
        return self.hosts or self.usage


def _job_in(one: Any) -> int:
    job: int = one["job"] if isinstance(one, Mapping) else one.job
    return job


def is_open(privacy: PrivacyConfig) -> bool:
    return not (privacy.jobs or privacy.hosts or privacy.usage)


def sight_of(privacy: PrivacyConfig, caller: Caller, own: Collection[int]) -> Sight:
    """`own`, the numbers of the caller's jobs, is needed where something is closed."""
    if caller.operates:
        return Sight(caller)
    return Sight(caller, frozenset(own), privacy.jobs, privacy.hosts, privacy.usage)
