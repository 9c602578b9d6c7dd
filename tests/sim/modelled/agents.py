"""What the agents of modelled hosts do, and what must hold on hosts at any time."""

from __future__ import annotations

from rm.core.jobs import events as ev
from rm.core.jobs.actions import Action, Collect, Discard, Freeze, Intent, Launch, Start, Stop
from rm.core.jobs.reconcile import (
    Reported,
    ReportedTask,
    reconcile,
    worth_repeating,
)
from rm.core.model.job import Job, JobState
from rm.dependencies import AFTER, AFTERCORR, AFTERNOTOK, AFTEROK, SINGLETON, Condition, parse
from tests.sim.modelled.hosts import Attempt, ModelHost
from tests.sim.modelled.leader import CPUS, RULES, Leader, S

LATE_US = 15 * S  # a launch that reaches its host later is refused there; less than `down_after_us`
FAR_US = 1 << 60
STEP_US = S // 2


class Agents(Leader):
    """Each is idempotent."""

    def carry_out(self, host: ModelHost, action: Action, sent_us: int, over: bool) -> list[ev.Event]:
        host.epoch = max(host.epoch, self.epoch)
        key = (action.job, action.attempt)
        attempt = host.attempts.get(key)
        match action:
            case Launch():
                if attempt is None:
                    what = f"the launch of {key} on {host.name} fails"
                    if self.choices.happens(what, 0.03 * self.faults):
                        why = self.choices.among(f"why {what}", ["internal", "no-space"])
                        return [ev.LaunchFailed(action.job, action.attempt, host.name, why, "disk full")]
                    cpus = len(action.tasks) * self.db.jobs[action.job].spec.cpus_per_task
                    lease_us = self.db.jobs[action.job].spec.fence_us or 0
                    attempt = Attempt(
                        tuple(t.rank for t in action.tasks),
                        "prepared",
                        cpus,
                        lease_us=lease_us,
                        heard_us=sent_us,
                        slice_of=action.slice_of,
                        sent_us=sent_us,
                    )
                    others = self.slice_on(host, action.slice_of)
                    host.attempts[key] = attempt
                    if not action.hold and not others:
                        self.called_back += [key] * over
                        self.begin(host, key, attempt)
                if action.slice_of and attempt.state == "prepared":
                    return []
                if action.hold:
                    return [ev.TasksPrepared(action.job, action.attempt, host.name)]
                return [self.started(host, key, attempt)]
            case Start():
                if attempt is None:
                    return [ev.LaunchFailed(action.job, action.attempt, host.name, "no-such-attempt", "gone")]
                if attempt.state == "prepared":
                    if attempt.why:
                        return []  # its supervisor was told to stop before: its end is told, and no start
                    self.called_back += [key] * over
                    self.begin(host, key, attempt)
                return [self.started(host, key, attempt)]
            case Stop(why="hold"):
                if attempt is not None and attempt.state == "prepared":
                    attempt.ends_us, attempt.why = self.now_us, "unstarted"
            case Stop():
                if attempt is not None and attempt.state == "prepared":
                    attempt.ends_us, attempt.code, attempt.why = self.now_us, 143, action.why
                if attempt is not None and attempt.state == "running":
                    slow_us = self.choices.number(f"{key} takes so long to end on {host.name}", 1, 10) * S
                    attempt.ends_us = min(attempt.ends_us, self.now_us + slow_us)
                    attempt.code, attempt.why = 143, action.why
            case Freeze():
                self.freeze(attempt, action)
            case Collect() | Discard():
                if isinstance(action, Discard) and attempt is not None and attempt.state == "exited":
                    self.check_log_unwanted(host, key)
                host.attempts.pop(key, None)
        return []

    def freeze(self, attempt: Attempt | None, action: Freeze) -> None:
        """What stands still ends so much later; a repeated order changes nothing."""
        if attempt is None or attempt.state != "running" or action.order <= attempt.order or attempt.why:
            return
        attempt.order = action.order
        if action.frozen and not attempt.left_us:
            attempt.left_us = max(1, attempt.ends_us - self.now_us)
            attempt.ends_us = FAR_US
        elif not action.frozen and attempt.left_us:
            attempt.ends_us, attempt.left_us = self.now_us + attempt.left_us, 0

    def thaw(self, host: ModelHost) -> None:
        """It reads what was sent to it: of an older leader nothing, and no launch that comes late. Nobody
        hears the answers, since the connection is lost."""
        host.thaws = 0
        for epoch, sent_us, action, over in host.unread:
            late = isinstance(action, Launch | Start) and self.now_us - sent_us > LATE_US // self.haste
            if epoch >= host.epoch and not late:
                self.carry_out(host, action, sent_us, over)
        host.unread.clear()
        self.fence(host)
        self.exits(host)  # of leases that were over long ago
        for key, attempt in host.attempts.items():
            if attempt.state == "running":
                self.check_alone(key, attempt)
        self.lose_channel(host)

    def check_log_unwanted(self, host: ModelHost, key: tuple[int, int]) -> None:
        """Discarding an attempt loses its logs: none that will be, or is to be, collected."""
        wanted = [
            i.action
            for i in self.open.values()
            if isinstance(i.action, Collect)
            and (i.action.job, i.action.attempt, i.action.host) == (*key, host.name)
        ]
        assert not wanted, f"the logs of {key} on {host.name} are lost: {wanted}"
        job = self.cycle.state.jobs.get(key[0])
        if job is not None and job.occupies and job.attempt == key[1]:
            mine = [t for t in job.tasks if t.host == host.name and t.exit_code is not None]
            assert not mine, f"the logs of {key} on {host.name} are lost while the job goes on"

    def begin(self, host: ModelHost, key: tuple[int, int], attempt: Attempt) -> None:
        job = self.db.jobs.get(key[0])
        if job is None or job.attempt != key[1] or not job.occupies:
            self.begun.append(key)
        attempt.state = "running"
        running = {k: a for k, a in host.attempts.items() if a.state == "running" and not self.lends(k)}
        if sum(a.cpus for a in running.values()) > CPUS:
            self.crowded.append((host.name, *key))
        self.check_alone(key, attempt)
        if job is not None and job.array_job:
            self.check_limit(key, attempt)
        if job is not None:
            self.early += [
                (job.id, str(one)) for one in parse(job.spec.dependency).of if not self.met(job, one)
            ]
        runs = f"{key} ranks {attempt.ranks}"
        attempt.ends_us = self.now_us + self.choices.number(f"{runs} take so long", 1, 30) * S
        attempt.code = 3 if self.choices.happens(f"{runs} fail", 0.1) else 0
        self.starts += [(*key, rank) for rank in attempt.ranks]

    def lends(self, key: tuple[int, int]) -> bool:
        """Does it stand still for others, or will as soon as its host hears of it?"""
        job = self.db.jobs.get(key[0])
        return job is not None and job.attempt == key[1] and bool(job.yields_to)

    def met(self, job: Job, one: Condition) -> bool:
        """Is the dependency fulfilled, by what the database says of all jobs?"""
        array = self.db.jobs[one.job].array if one.job else None
        task = one.tasks if one.kind != AFTERCORR or job.array_task is None else str(job.array_task)
        if array is not None and task:
            become = array.set_of(int(task))
            if one.kind == AFTER:
                return become != "waiting"
            well, over = become == "completed", become not in ("waiting", "requeued", "running")
            return over and {AFTEROK: well, AFTERCORR: well, AFTERNOTOK: not well}.get(one.kind, True)
        if one.kind == SINGLETON:
            alike = (j for j in self.db.jobs.values() if j.id != job.id and j.spec.name == job.spec.name)
            others = [j for j in alike if (job.id, j.array_job or j.id) not in self.renamed]
            return not any(j.occupies and SINGLETON in j.spec.dependency for j in others)
        named = self.db.jobs[one.job]
        if one.kind == AFTER:
            return named.started_us is not None or bool(named.earlier) or named.state.final
        well = named.state is JobState.COMPLETED
        good = {AFTEROK: well, AFTERCORR: well, AFTERNOTOK: not well}
        return named.state.final and good.get(one.kind, True)

    def check_alone(self, key: tuple[int, int], attempt: Attempt) -> None:
        """Of a fenced job no two attempts run at once; what is frozen does not run."""
        awake = (h.attempts.items() for h in self.hosts.values() if not h.thaws)
        running = (k for some in awake for k, a in some if a.state == "running" and a.ends_us > self.now_us)
        if attempt.lease_us and any(other[0] == key[0] and other != key for other in running):
            self.twice.append(key)

    def limit_of(self, job: int) -> int:
        """How many elements of its array may run at once; 0: any number."""
        array = self.db.jobs.get(self.db.jobs[job].array_job)
        return 0 if array is None or array.array is None else array.array.limit

    def check_limit(self, key: tuple[int, int], attempt: Attempt) -> None:
        """No element begins beside as many of its array as its limit allows, but for those that were placed
        before it was lowered; one that waits in a slice begins only until its host hears of that."""
        now, then = self.limit_of(key[0]), self.allowed.get(key, 0)
        first = attempt.slice_of in (0, key[0])
        limit = now if not first else max(now, then) if now and then else 0
        asked_back = (i.action for i in self.open.values() if isinstance(i.action, Stop))
        if not limit or any((stop.job, stop.attempt) == key for stop in asked_back):
            return
        array = self.db.jobs[key[0]].array_job
        mine = {
            job.id
            for host in self.hosts.values()
            for (number, attempts), a in host.attempts.items()
            if a.state == "running"
            and (job := self.db.jobs[number]).array_job == array
            and job.attempt == attempts
            and job.occupies
        }
        if len(mine) > limit:
            self.beyond.append(key)

    def fence(self, host: ModelHost) -> None:
        """What supervisors do when they have heard of no daemon for the time of their lease."""
        for key, attempt in host.attempts.items():
            if not attempt.lease_us or attempt.state == "exited":
                continue
            over_us = attempt.heard_us + attempt.lease_us
            if self.now_us < over_us:
                continue
            slow = self.choices.number(f"{key} takes so long to end on {host.name}", 0, RULES.grace_us // S)
            killed_us = max(self.now_us, over_us + slow * S)
            attempt.ends_us = min(attempt.ends_us or killed_us, killed_us)
            attempt.code, attempt.why, attempt.lease_us = 143, "fence", 0

    def is_heard(self, host: ModelHost) -> bool:
        return host.name in self.cycle.state.hosts and host.name not in self.cycle.state.silent_since

    def renews(self, host: ModelHost) -> bool:
        return host.name in self.greeted and not host.cut and self.is_heard(host)

    def renew(self, host: ModelHost) -> None:
        """A renewal came: it counts from the answer to the one before."""
        if self.renews(host):
            heard_us = self.now_us - STEP_US
            for attempt in host.attempts.values():
                if attempt.heard_us < heard_us:
                    attempt.heard_us = heard_us

    def started(self, host: ModelHost, key: tuple[int, int], attempt: Attempt) -> ev.Event:
        return ev.TasksStarted(*key, host.name, self.now_us, attempt.ranks)

    def slice_on(self, host: ModelHost, slice_of: int) -> list[tuple[tuple[int, int], Attempt]]:
        """What of a slice is on a host and has not ended."""
        found = [(k, a) for k, a in host.attempts.items() if slice_of and a.slice_of == slice_of]
        return [(k, a) for k, a in found if a.state != "exited"]

    def next_of_slice(self, host: ModelHost, slice_of: int) -> list[ev.Event]:
        """The next one begins, or when it is too late none of them."""
        left = [(key, a) for key, a in self.slice_on(host, slice_of) if a.state == "running" or not a.ends_us]
        if any(a.state == "running" for _, a in left):
            return []
        for key, attempt in left:
            if self.now_us - attempt.sent_us <= LATE_US // self.haste:
                self.begin(host, key, attempt)
                if self.choices.happens(f"the start of {key} is told", 0.5):
                    return [self.started(host, key, attempt)]
                return []
            attempt.ends_us, attempt.why = self.now_us, "unstarted"
        return []

    def exits(self, host: ModelHost) -> list[ev.Event]:
        found: list[ev.Event] = []
        now_us = self.now_us
        for (job, number), attempt in host.attempts.items():
            if 0 < attempt.ends_us <= now_us and attempt.state != "exited":
                attempt.state = "exited"
                found += self.next_of_slice(host, attempt.slice_of)
                found += [
                    ev.TaskExited(
                        job, number, host.name, rank, attempt.code, 0, None, self.now_us, False, attempt.why
                    )
                    for rank in attempt.ranks
                ]
                if (job, number) in self.cycle.state.strays.get(host.name, ()):
                    found += [ev.StrayEnded(job, number, host.name, rank) for rank in attempt.ranks]
        return found

    def hello(self, host: ModelHost) -> None:
        host.hello_due = False
        reported = Reported(
            ReportedTask(
                job,
                number,
                rank,
                a.state,
                self.now_us if a.why != "unstarted" else None,
                self.now_us,
                a.code,
                0,
                False,
                a.why,
                cpus=a.cpus // len(a.ranks),
                gpus=(),
            )
            for (job, number), a in host.attempts.items()
            for rank in a.ranks
        )
        state = self.cycle.state
        up = ev.HostUp(host.name, f"boot {host.boots}", "1")
        mine = [i for i in self.open.values() if i.action.host == host.name]
        launches: dict[tuple[int, int], Intent] = {}
        ends = set()
        for intent in mine:
            action = intent.action
            if isinstance(action, Collect | Discard):
                ends.add((action.job, action.attempt))
            if not isinstance(action, Launch | Start):
                continue
            if not worth_repeating(state, up, reported, action):
                self.open.pop(intent.id)
                self.inbox.append(ev.ActionSettled(intent.id))
            elif isinstance(action, Launch):
                launches[action.job, action.attempt] = intent
        found = reconcile(state, host.name, reported, launches, ends, self.now_us)
        for kept_back in [e for e in found if isinstance(e, ev.LaunchWithheld)]:
            intent = launches[kept_back.job, kept_back.attempt]
            self.open.pop(intent.id)
            self.inbox.append(ev.ActionSettled(intent.id))
        events = [up, *found]
        self.greeted.add(host.name)
        if not self.turn(events):
            return
        for intent in sorted(mine, key=lambda i: i.id):
            if intent.id in self.open:
                self.send(intent)
