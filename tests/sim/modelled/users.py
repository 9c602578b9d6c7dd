"""What the users of the modelled world ask for."""

from __future__ import annotations

from collections.abc import Sequence

from rm import dependencies
from rm.arrays import parse as parse_array
from rm.core.jobs import events as ev
from rm.core.jobs.dependents import PastJob
from rm.core.model.asked.job_update import JobUpdate
from rm.core.model.asked.traffic import TrafficProfile
from rm.core.model.job import Job, JobSpec
from rm.core.model.replacing import replace
from rm.dependencies import AFTERCORR, SINGLETON
from tests import builders
from tests.sim.modelled.agents import Agents
from tests.sim.modelled.leader import S

LEASE_US = 10 * S
MAILED = "BEGIN,END,FAIL,REQUEUE,INVALID_DEPEND"
QUALITIES = ("batch", "spare", "urgent", "batch", "urgent")


class Users(Agents):
    """They submit, change, cancel and limit jobs."""

    def traffic(self) -> TrafficProfile:
        period, duty = self.measuring.choice([100, 150, 200]), self.measuring.choice([0.3, 0.6])
        return builders.profile(period, (0, duty * period, self.measuring.choice([400, 900])))

    def submit(self) -> None:
        choices, key = self.choices, f"submission {len(self.acknowledged)}"
        known = self.cycle.state.submissions.get(("alice", key))
        if known is not None:  # it was done, and the answer got lost
            self.acknowledge(known)
            return
        spec: JobSpec = builders.spec(
            ntasks=choices.among("its tasks", [1, 1, 2, 4, 6]),
            cpus_per_task=choices.number("its CPUs per task", 1, 2),
            requeue=choices.happens("it may be requeued", 0.5),
            fence_us=LEASE_US if choices.happens("it is fenced", 0.3) else None,
            name=choices.among("its name", ["a", "b"]),
            account=("", "physics")[len(self.acknowledged) % 2],
            qos=QUALITIES[len(self.acknowledged) % len(QUALITIES)] if self.accounts.qos else "",
            array=(array := choices.among("it is", self.kinds)),
            dependency=self.dependency(array),
            mail_events=MAILED if choices.happens("somebody is mailed of it", 0.2) else "",
            deadline_us=self.deadline(),
        )
        if self.journalled:
            wait_us = self.measuring.choice([None, None, None, 5 * S])
            spec = replace(
                spec,
                traffic=self.measuring.choice([None, self.traffic()]),
                licenses=("", "a", "", "b:2")[len(self.acknowledged) % 4],
                begin_us=wait_us and self.now_us + wait_us,
                expected_us=self.measuring.randrange(1, 40) * S,
                exclusive=self.measuring.random() < 0.1,
            )
        job_id = self.cycle.state.next_job
        gone = [j for j in self.db.jobs.values() if j.id not in self.cycle.state.jobs]
        past = tuple(map(PastJob.of, gone)) if spec.dependency else ()
        if self.turn([ev.JobSubmitted(job_id, spec, key, past)]):
            self.acknowledge([job_id])  # only after the commit

    def acknowledge(self, jobs: Sequence[int]) -> None:
        self.acknowledged += jobs
        self.arrays += [job for job in jobs if self.db.jobs[job].array is not None]
        self.to_submit -= 1

    def deadline(self) -> int | None:
        """Of what waits; that hosts end what runs by then is not played."""
        if not self.choices.happens("it has a deadline", 0.15):
            return None
        return self.now_us + self.choices.number("its deadline is so many seconds away", 5, 200) * S

    def missed(self, job: Job) -> bool:
        """Could it not be over by its deadline any more when it was cancelled?"""
        latest_us, ended_us = job.spec.latest_start_us, job.ended_us or 0
        return latest_us is not None and ended_us > latest_us

    def dependency(self, array: str) -> str:
        choices = self.choices
        if not choices.happens("it waits for another job", 0.3):
            return ""
        kind = choices.among("it waits for", dependencies.KINDS)
        if kind == SINGLETON or not self.acknowledged:
            return kind if kind == SINGLETON else ""
        job = choices.among("that job is", self.acknowledged)
        named_array = self.db.jobs[job].array is not None
        if kind == AFTERCORR:
            mine, theirs = parse_array(array).mask if array else 0, self.db.jobs[job].spec.array
            has_mine = named_array and not mine & ~parse_array(theirs).mask
            return f"{kind}:{job}" if has_mine or not array else ""
        if named_array and choices.happens("it waits for an element", 0.5):
            return f"{kind}:{job}_{choices.number('that element is', 0, 2)}"
        return f"{kind}:{job}"

    def limit_array(self, array: int, limit: int) -> None:
        self.turn([ev.ArrayLimitSet(array, "alice", limit)])
        for (job, attempt), then in self.allowed.items():
            if self.db.jobs[job].array_job == array:  # who was placed counts for the loosest limit since then
                self.allowed[job, attempt] = max(then, limit) if then and limit else 0

    def cancel(self, job_id: int) -> None:
        job = self.cycle.state.jobs.get(job_id)
        if job is None or job.state.final:
            return
        task = ""
        if job.array is not None and self.choices.happens("one element is cancelled", 0.5):
            task = str(self.choices.number("that element is number", 0, 2))
            if job.array.ended >> int(task) & 1:
                return
        self.cancelled.add((job_id, task))  # also when nobody hears of it
        self.turn([ev.CancelRequested(job_id, "alice", task)])

    def update(self, job_id: int) -> None:
        """What a job asks for, the name by which singletons know it, or its list of dependencies; what its
        state does not allow is refused."""
        choices = self.choices
        what = choices.among("what is changed", ["cpus_per_task", "name", "dependency", "time_limit_us"])
        value = {
            "cpus_per_task": choices.number("its CPUs per task from now on", 1, 2),
            "name": choices.among("its new name", ["a", "b"]),
            "dependency": "",
            "time_limit_us": choices.number("its new time limit", 1, 9) * 3_600 * S,
        }[what]
        named = self.db.jobs[job_id]
        alone = named.array is not None and what in ("cpus_per_task", "time_limit_us")
        if alone and choices.happens("one element alone is changed", 0.5):
            task = str(choices.number("changed alone is number", 0, 2))
            first, change = self.cycle.state.next_job, JobUpdate(**{what: value})
            self.turn([ev.JobUpdated(job_id, "root", change, (), True, task, first)])
            return
        if what == "name":  # what was placed was alone under the names of its time
            placed = {j.id: j.array_job or j.id for j in self.db.jobs.values() if j.occupies}
            self.renamed |= {(one, job_id) for one in placed}
            mine = [one for one, submitted in placed.items() if submitted == job_id]
            all_others = {j.array_job or j.id for j in self.db.jobs.values()}
            self.renamed |= {(one, other) for one in mine for other in all_others}
        if what == "dependency" and self.db.jobs[job_id].spec.dependency:
            self.waited[job_id] = self.db.jobs[job_id].spec.dependency
        self.turn([ev.JobUpdated(job_id, "root", JobUpdate(**{what: value}), may_raise=True)])

    def was_cancelled(self, job: Job) -> bool:
        """Did somebody ask for it, of the job or of one of its elements?"""
        if job.array_task is not None:
            return not self.cancelled.isdisjoint({(job.array_job, ""), (job.array_job, str(job.array_task))})
        return any(job.id == other for other, _ in self.cancelled)
