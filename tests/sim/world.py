"""A modelled world around the real core: hosts that crash, freeze and are cut off, messages that come
twice or late, a daemon that dies between any two actions. One seed, one run, exactly."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from rm import dependencies
from rm.adapters.store.memory import MemoryDatabase, MemoryStore
from rm.arrays import parse as parse_array
from rm.core.jobs import events as ev
from rm.core.jobs.actions import ACTIONS, Action, Collect, Discard, Freeze, Intent, Launch, Mail, Start, Stop
from rm.core.jobs.dependents import PastJob
from rm.core.jobs.lifecycle import Rules
from rm.core.jobs.reconcile import (
    Reported,
    ReportedTask,
    before_its_end,
    is_end,
    reconcile,
    worth_repeating,
)
from rm.core.jobs.state import rebuild
from rm.core.journal.journal import Chosen, Recorder
from rm.core.model.asked.job_update import JobUpdate
from rm.core.model.asked.traffic import TrafficProfile
from rm.core.model.host import HostState
from rm.core.model.job import Job, JobSpec, JobState
from rm.core.model.network.links import LinkStats
from rm.core.model.progress import Progress
from rm.core.model.replacing import replace
from rm.core.registry import KINDS, load
from rm.core.scheduling.cycle import Cycle
from rm.core.scheduling.engine import Policies, Tuning
from rm.core.sharing.accounts import NO_ACCOUNTS, REQUEUE, SUSPEND, Accounts, Qos
from rm.core.store import Batch, Measured, StoredAction
from rm.dependencies import AFTER, AFTERCORR, AFTERNOTOK, AFTEROK, SINGLETON, Condition, parse
from tests import builders
from tests.invariants import Seen, validate_state
from tests.sim.choices import Choices

S = 1_000_000
VALIDATED = 8  # of so many seeds one, since it costs as much as the steps themselves; and what is replayed
CPUS = 4  # of a host
ELEMENTS, MANY_ELEMENTS = "0-2", "0-6"  # of each job array
PLAIN = {"queue": Chosen("fifo"), "placement": Chosen("first-fit"), "comm": Chosen("none")}
RULES = Rules(grace_us=2 * S, down_after_us=20 * S, max_losses=0)  # here hosts fail all the time

LATE_US = 15 * S  # a launch that reaches its host later is refused there; less than `down_after_us`
LEASE_US = 10 * S
MAILED = "BEGIN,END,FAIL,REQUEUE,INVALID_DEPEND"
QUALITIES = ("batch", "spare", "urgent", "batch", "urgent")
PREEMPTING = Accounts(
    qos=(
        Qos("batch", preempt_mode=SUSPEND),
        Qos("spare", preempt_mode=REQUEUE),
        Qos("urgent", preempts=("batch", "spare")),
    )
)
SLICE_US = 60 * S  # of expected work: hosts give back what they come to too late
FAR_US = 1 << 60
NOTICED_STEPS = 12  # until a frozen host is taken for a silent one
CLEARS_STEPS = 400  # then the weather is fair: most have ended, and a gang or two is tried again
STEP_US = S // 2
# What may happen in each step while there are faults, and how likely: first to each host
REBOOTS, CUT, FREEZES = 0.004, 0.01, 0.005
CANCELS, LIMITS, CHANGES, SUSPENDS, DIES = ASKED = (
    ("somebody cancels", 0.01),
    ("somebody limits an array", 0.02),
    ("somebody changes a job", 0.02),
    ("somebody suspends or resumes", 0.02),
    ("the daemon dies between steps", 0.005),
)
PATIENCE_US = 20 * S  # when nothing else is to be done, a job that waits longer for its next try is released


@dataclass
class Attempt:
    ranks: tuple[int, ...]
    state: str  # prepared, running, exited
    cpus: int  # of all its ranks on the host
    ends_us: int = 0
    code: int = 0
    why: str = ""
    order: int = 0  # of the last freeze or thaw
    left_us: int = 0  # of its time, while it stands still
    lease_us: int = 0  # 0: it is not fenced
    heard_us: int = 0  # when its host was certainly heard
    slice_of: int = 0  # with which others it runs one after the other
    sent_us: int = 0  # it begins soon after that, or not at all


@dataclass
class ModelHost:
    """An idempotent agent on a host that may crash (all is lost) or be cut off (all goes on)."""

    name: str
    attempts: dict[tuple[int, int], Attempt] = field(default_factory=dict)
    cut: bool = False
    heals: int = 0  # the step at which a cut ends
    thaws: int = 0  # the step at which it is not frozen any more; 0 = it is not
    greets: int = 0  # the step from which it says hello; of a frozen one, at which it is found silent
    hello_due: bool = True
    # (epoch, sent_us, action, whether its attempt was to end)
    unread: list[tuple[int, int, Action, bool]] = field(default_factory=list)
    epoch: int = 0
    boots: int = 1

    def __post_init__(self) -> None:
        """The names of what may happen to it in each step: to write them costs as much as to draw the lot."""
        self.reboots = f"{self.name} is switched off and on"
        self.is_cut = f"{self.name} is cut off"
        self.freezes = f"{self.name} freezes"


def stored(intent: Intent) -> StoredAction:
    a = intent.action
    return StoredAction(intent.id, a.kind, a.job, a.attempt, a.host, msgspec.to_builtins(a))


def is_beside(one: Action, other: Action) -> bool:
    """Is the one a launch and the other an order that may have to wait for it, or the other way round?"""
    first, second = (one, other) if isinstance(one, Launch) else (other, one)
    place = (first.job, first.attempt, first.host) == (second.job, second.attempt, second.host)
    return place and isinstance(first, Launch) and isinstance(second, Stop | Freeze)


class World:
    """`run` plays one seed; the checks are the test's."""

    def __init__(
        self,
        seed: int | Choices,
        hosts: int = 4,
        jobs: int = 12,
        faults: float = 1.0,
        journalled: dict[str, Chosen] | None = None,
        arrays: bool = True,
    ) -> None:
        """`journalled` names policies: they decide, their steps are journalled, and the hosts also
        tell of the network, of their jobs' traffic and of how far these have come. Without `arrays`
        all jobs are single ones."""
        self.choices = seed if isinstance(seed, Choices) else Choices(seed)
        self.journalled = journalled
        limited = [f"{ELEMENTS}%1", f"{MANY_ELEMENTS}%2"]
        self.kinds = [*[""] * 9, MANY_ELEMENTS, ELEMENTS, *limited] if arrays else [""]
        self.measuring = random.Random(f"measuring {seed}")  # the rest of a seed's story stays as it is
        self.faults = faults
        # hosts that are given up soon come back while what they ran still does
        self.haste = self.choices.among("hosts are given up", [1, 3])
        # those that wait for a job may hear of its end many steps later
        self.judged_max = self.choices.among("dependents are judged in parts", [RULES.judged_max, 1])
        preempting = self.choices.among("jobs preempt others", [False, False, False, True])
        self.accounts = PREEMPTING if preempting else NO_ACCOUNTS
        self.now_us = S
        self.db = MemoryDatabase()
        self.hosts = {f"h{i}": ModelHost(f"h{i}") for i in range(hosts)}
        self.acknowledged: list[int] = []
        self.arrays: list[int] = []  # of these
        self.starts: list[tuple[int, int, int]] = []  # (job, attempt, rank): each must be unique
        self.crowded: list[tuple[str, int, int]] = []  # (host, job, attempt) begun beside too many others
        self.beyond: list[tuple[int, int]] = []  # (job, attempt) begun beside more of its array than may run
        self.mails: list[tuple[int, str]] = []  # (job, what is said of it)
        self.allowed: dict[tuple[int, int], int] = {}  # the loosest limit of its array since it was placed
        self.begun: list[tuple[int, int]] = []  # (job, attempt) that began after it was given up
        self.called_back: list[tuple[int, int]] = []  # (job, attempt) begun by what was sent after its end
        self.twice: list[tuple[int, int]] = []  # (job, attempt) fenced, and run while another ran
        self.early: list[tuple[int, str]] = []  # (job, dependency) begun before that was fulfilled
        self.renamed: set[tuple[int, int]] = set()  # (job, another): one got its name when one was placed
        self.waited: dict[int, str] = {}  # what a job waited for, until somebody took that away
        self.cancelled: set[tuple[int, str]] = set()  # jobs, and elements of arrays; "" = all
        self.turns = 0
        self.seen = Seen()
        self.to_submit = jobs
        self.inbox: list[Any] = []
        self.daemons = 0
        self.boot()
        state = HostState.UNKNOWN if journalled else HostState.UP
        while not self.turn([ev.HostAdded(builders.host(n, cpus=CPUS, state=state)) for n in self.hosts]):
            pass

    # -- the daemon ----------------------------------------------------------------------------

    def boot(self) -> None:
        """A new daemon: everything it knows, it reads from the store."""
        self.daemons += 1
        self.store = MemoryStore(self.db)
        epoch = self.store.acquire_lease("daemon", self.now_us, 60 * S)
        assert epoch is not None
        self.epoch = epoch
        loaded = self.store.load(ended_after_us=self.now_us - 300 * S)  # as jobs.recent_s has it
        self.version = loaded.version
        state = rebuild(
            loaded.jobs,
            loaded.hosts,
            loaded.zones,
            {(m.source, m.destination): m.stats for m in loaded.measurements},
            loaded.next_job_id,
            loaded.next_action_id,
            self.now_us,
            accounts=self.accounts,
        )
        state.licenses = {"a": 2, "b": 3}
        chosen = self.journalled or PLAIN
        policies = Policies(*(load(kind, chosen[kind].name, chosen[kind].options) for kind in KINDS))
        down_after_us = RULES.down_after_us // self.haste
        rules = replace(RULES, down_after_us=down_after_us, judged_max=self.judged_max)
        self.cycle = Cycle(state, policies, rules, Tuning(slice_us=SLICE_US, slice_shares=0))
        self.recorder = Recorder("of this test", chosen)
        self.open = {a.id: Intent(a.id, msgspec.convert(a.body, ACTIONS[a.kind])) for a in loaded.actions}
        self.inbox = []
        self.rests = False  # its first turn needs no event
        self.greeted: set[str] = set()
        for host in self.hosts.values():
            host.hello_due = True

    def dies(self, where: str, chance: float, *of: int) -> bool:
        """Does the daemon die here?"""
        if not self.faults or not self.choices.happens(where, chance * self.faults, *of):
            return False
        self.boot()
        return True

    def turn(self, events: list[ev.Event]) -> bool:
        """One turn of the leader's loop; False when the daemon died before it told of it. Without an event
        there is one only when it is due: nothing may wait for more."""
        if not events and self.rests:
            due_us = self.cycle.next_due_us()
            if due_us is None or due_us > self.now_us:
                return True
        self.rests = True
        self.turns += 1
        entries = self.recorder.before(self.cycle, self.now_us) if self.journalled else ()
        outcome = self.cycle.step(events, self.now_us)
        if self.choices.seed % VALIDATED == 0:
            validate_state(self.cycle.state, self.seen)
        if self.journalled:
            entries += self.recorder.after(self.cycle, events, outcome, self.now_us)
        if self.dies("the daemon dies before commit {}", 0.01, self.turns):
            return False  # as if nothing had been said
        state, changes = self.cycle.state, outcome.changes
        self.version = self.store.commit(
            Batch(
                events=entries,
                zones=tuple([state.zones[z] for z in sorted(changes.zones)]),
                measurements=tuple([Measured(*m) for m in changes.measured]),
                ended=tuple(changes.ended),
                jobs=tuple([state.jobs[j] for j in sorted(changes.jobs)]),
                hosts=tuple([state.hosts[h] for h in sorted(changes.hosts)]),
                actions=tuple([stored(i) for i in outcome.intents]),
                finished_actions=tuple(changes.settled),
            ),
            self.version,
        )
        if self.dies("the daemon dies after commit {}", 0.01, self.turns):
            return False  # it is done, and nobody knows
        if outcome.recompute is not None:
            self.inbox.append(outcome.recompute.run())
        for intent in outcome.intents:
            self.open[intent.id] = intent
            if isinstance(intent.action, Launch):
                self.allowed[intent.action.job, intent.action.attempt] = self.limit_of(intent.action.job)
        for intent in outcome.intents:
            if self.dies("the daemon dies before action {}", 0.01, intent.id):
                return True
            self.send(intent)
        return True

    def send(self, intent: Intent) -> None:
        if isinstance(intent.action, Mail):
            return  # by a thread of its own: with the next step
        host = self.hosts[intent.action.host]
        if host.name not in self.greeted or host.cut:
            return  # stays open until the next hello
        action = self.wanted(intent)
        if action is None:
            return
        if host.thaws:
            host.unread.append((self.epoch, self.now_us, action, self.is_over(action)))
            return  # it may be carried out when the host thaws
        if self.choices.happens("the request of action {} is lost", 0.02 * self.faults, intent.id):
            self.lose_channel(host)
            return
        key = (intent.action.job, intent.action.attempt)
        held = host.attempts.get(key)
        if isinstance(intent.action, Collect | Discard) and held is not None and held.state == "running":
            return  # stays open: the exit brings us back
        ordered = isinstance(action, Launch | Stop | Freeze)
        later = [i for i in self.open.values() if is_beside(i.action, action)] if ordered else []
        if isinstance(action, Stop | Freeze) and held is None and later:
            return  # stays open, as in the executor: a launch is to come, and follows it
        news = self.carry_out(host, action, self.now_us, self.is_over(action))
        if self.choices.happens("the answer to action {} is lost", 0.02 * self.faults, intent.id):
            self.lose_channel(host)  # it was carried out
            return
        self.inbox += news
        self.inbox.append(ev.ActionSettled(intent.id))
        self.open.pop(intent.id, None)
        if isinstance(action, Launch):
            for other in later:
                self.send(other)

    def mail(self) -> None:
        """What is to be mailed, also what a daemon left to the next one."""
        if not self.open:
            return
        for intent in [i for i in self.open.values() if isinstance(i.action, Mail)]:
            assert isinstance(intent.action, Mail)
            self.mails.append((intent.action.job, intent.action.subject))
            del self.open[intent.id]
            self.inbox.append(ev.ActionSettled(intent.id))

    def wanted(self, intent: Intent) -> Action | None:
        """What the executor sends of it."""
        action = intent.action
        if not isinstance(action, Launch | Start):
            return action
        ends = (i.action for i in self.open.values() if is_end(i.action))
        place = (action.job, action.attempt, action.host)
        if all((end.job, end.attempt, end.host) != place for end in ends):
            return action
        held = before_its_end(action)
        if held is None:
            self.open.pop(intent.id)
            self.inbox.append(ev.ActionSettled(intent.id))
        return held and replace(held, slice_of=0)

    def is_over(self, action: Action) -> bool:
        """Was its attempt given up, or cancelled, for good before it is sent?"""
        job = self.db.jobs[action.job]
        return job.attempt != action.attempt or not job.occupies or job.state is JobState.COMPLETING

    def lose_channel(self, host: ModelHost) -> None:
        self.greeted.discard(host.name)
        host.hello_due = True
        # a hello comes after the news of the lost channel, as in the executor: these may be of the next step
        host.greets = self.choices.step + self.choices.number(f"{host.name} needs so long to greet", 2, 6)
        self.inbox.append(ev.HostSilent(host.name, "the connection broke"))

    # -- a host --------------------------------------------------------------------------------

    def carry_out(self, host: ModelHost, action: Action, sent_us: int, over: bool) -> list[ev.Event]:
        """`over`: its attempt was to end before it was sent."""
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

    def limit_array(self, array: int, limit: int) -> None:
        self.turn([ev.ArrayLimitSet(array, "alice", limit)])
        for (job, attempt), then in self.allowed.items():
            if self.db.jobs[job].array_job == array:  # who was placed counts for the loosest limit since then
                self.allowed[job, attempt] = max(then, limit) if then and limit else 0

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

    def renew(self, host: ModelHost) -> None:
        """A renewal came: it counts from the answer to the one before."""
        if host.name in self.greeted and not host.cut and self.is_heard(host):
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

    # -- time ----------------------------------------------------------------------------------

    def step(self) -> None:
        self.now_us += STEP_US
        choices, rate = self.choices, self.faults
        choices.step += 1
        if self.to_submit and choices.happens("somebody submits a job", 0.5):
            self.submit()
        for host in self.hosts.values():
            known = self.cycle.state.hosts.get(host.name)
            if known is not None and known.unwritable and choices.happens(f"{host.name} has room", 0.05):
                self.inbox.append(ev.SpoolWritable(host.name))
            if rate and choices.strikes(host.reboots, REBOOTS * rate):
                host.attempts.clear()
                host.unread.clear()
                host.boots += 1
                host.cut, host.thaws = False, 0
                self.lose_channel(host)
            if rate or host.cut or host.thaws:
                self.weather(host)
                if host.thaws:
                    continue
            exits: list[ev.Event] = []
            if host.attempts:
                if any(attempt.lease_us for attempt in host.attempts.values()):
                    self.renew(host)
                    self.fence(host)
                exits = self.exits(host)
            if exits and host.name in self.greeted and not host.cut:
                self.inbox += exits
                ended = {(e.job, e.attempt) for e in exits if isinstance(e, ev.TaskExited)}
                for intent in [i for i in self.open.values() if i.action.host == host.name]:
                    if (intent.action.job, intent.action.attempt) in ended:
                        self.send(intent)
                if choices.happens(f"{host.name} says an exit twice", 0.1 * rate):
                    self.inbox += exits
            if host.hello_due and not host.cut and choices.step >= host.greets:
                self.hello(host)
        if self.acknowledged and self.strikes(CANCELS):
            self.cancel(choices.among("cancelled is", self.acknowledged))
        if self.arrays and self.strikes(LIMITS):
            array = choices.among("limited is", self.arrays)
            self.limit_array(array, choices.number("how many may run", 0, 3))
        if self.acknowledged and self.strikes(CHANGES):
            self.update(choices.among("changed is", self.acknowledged))
        placed = self.cycle.state.placed
        running = bool(placed) and not placed.keys().isdisjoint(self.acknowledged)
        if running and self.strikes(SUSPENDS):
            mine = [i for i in self.acknowledged if i in placed]
            job = self.cycle.state.jobs[choices.among("suspended or resumed is", mine)]
            ask = ev.ResumeRequested if job.state is JobState.SUSPENDED else ev.SuspendRequested
            if not job.yields_to:
                self.turn([ask(job.id, "root")])
        if self.journalled:
            self.inbox += self.measure()
        self.mail()
        events, self.inbox = self.inbox, []
        choices.shuffle("inbox", events, 0.1 * rate)
        self.turn(events)
        if self.strikes(DIES):
            self.boot()

    def strikes(self, asked: tuple[str, float]) -> bool:
        what, probability = asked
        return self.choices.strikes(what, probability * self.faults)

    def pass_over(self, until: int) -> None:
        """Go on to the step before the next one in which anything may happen, `until` at the latest: each
        step before it would leave the world as it is."""
        choices, state, rate = self.choices, self.cycle.state, self.faults
        if self.journalled or self.to_submit or self.inbox or not self.rests:
            return
        if len(self.greeted) < len(self.hosts) or any(isinstance(i.action, Mail) for i in self.open.values()):
            return
        due_us = [] if (cycle_us := self.cycle.next_due_us()) is None else [cycle_us]
        soonest = [choices.soonest(what, probability * rate) for what, probability in ASKED]
        for host in self.hosts.values():
            known = state.hosts.get(host.name)
            if host.cut or host.thaws or host.hello_due or not self.is_heard(host):
                return
            if known is None or known.unwritable:
                return
            soonest.append(choices.soonest(host.reboots, REBOOTS * rate))
            soonest.append(choices.soonest(host.is_cut, CUT * rate))
            soonest.append(choices.soonest(host.freezes, FREEZES * rate))
            due_us += [a.ends_us for a in host.attempts.values() if a.ends_us and a.state != "exited"]
        left_us = max(0, min(due_us) - self.now_us) if due_us else FAR_US
        steps = min(until, *(at - 1 for at in soonest)) - choices.step
        steps = min(steps, -(-left_us // STEP_US) - 1)
        if steps > 0:
            choices.step += steps
            self.now_us += steps * STEP_US
            for host in self.hosts.values():
                self.renew(host)

    def weather(self, host: ModelHost) -> None:
        """Cuts and frosts come and go."""
        choices, rate, step = self.choices, self.faults, self.choices.step
        if host.cut and step >= host.heals:
            host.cut = False
        elif not host.cut and choices.strikes(host.is_cut, CUT * rate):
            host.cut, host.heals = True, step + choices.number(f"{host.name} is cut off so long", 1, 50)
            self.lose_channel(host)
        if host.thaws and step >= host.thaws:
            self.thaw(host)
        elif not host.thaws and choices.strikes(host.freezes, FREEZES * rate):
            host.thaws = step + choices.number(f"{host.name} is frozen so long", 1, 60)
            host.greets = step + NOTICED_STEPS
        if host.thaws and host.name in self.greeted and step >= host.greets:
            self.lose_channel(host)

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

    def measure(self) -> list[ev.Event]:
        """What the hosts tell by the way: some directions of the network, and about their jobs."""
        state, pick = self.cycle.state, self.measuring
        found: list[ev.Event] = []
        if pick.random() < 0.5:
            a, b = pick.sample(sorted(self.hosts), 2)
            stats = LinkStats(pick.choice([0.0, 0.5]), pick.randrange(50, 400), 10**9, 3, self.now_us)
            found.append(ev.Measured(a, b, pick.choice([stats, LinkStats(failures=1)])))
        if pick.random() < 0.05:
            found.append(ev.ZoneMeasured("z1", pick.choice([1000, 2000])))
        running = [state.jobs[j] for j in sorted(state.placed) if state.jobs[j].state is JobState.RUNNING]
        if running and pick.random() < 0.2:
            told = tuple(Progress(j.id, j.attempt, pick.randrange(S), pick.randrange(S)) for j in running)
            found.append(ev.JobsProgressed(told))
        if running and pick.random() < 0.1:
            job = pick.choice(running)
            found.append(ev.ProfileMeasured(job.id, job.attempt, self.traffic(), True))
        return found

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

    def busy(self) -> bool:
        awake = (host.attempts for host in self.hosts.values() if host.attempts)
        return any(a.state == "running" for attempts in awake for a in attempts.values())

    def run(self, max_steps: int = 2_000) -> dict[int, Job]:
        """Play until every acknowledged job has ended and nothing is open; the jobs by id."""
        clears = min(CLEARS_STEPS, max_steps // 2)
        while self.choices.step < max_steps:
            if self.choices.step != clears:
                self.pass_over(clears if self.choices.step < clears else max_steps - 1)
            if self.choices.step == clears:
                self.faults = 0.0  # the weather clears: everything must come to rest
                standing = [j for j in self.db.jobs.values() if j.state is JobState.SUSPENDED]
                self.inbox += [ev.ResumeRequested(j.id, "root") for j in standing if not j.yields_to]
                for host in self.hosts.values():
                    host.heals, host.thaws = 0, min(host.thaws, self.choices.step)
                    self.inbox.append(ev.HostResumed(host.name, "root"))
            self.step()
            jobs = self.db.jobs
            if self.to_submit or self.inbox or self.db.actions or self.busy():
                continue
            if all(jobs[j].state.final for j in self.acknowledged):
                self.faults = 0.0  # and every host comes back
                if len(self.greeted) == len(self.hosts):
                    break
            else:  # a job that lost hosts again and again may wait for hours
                until_us = self.now_us + (PATIENCE_US if self.faults else 0)
                waiting = (j for j in jobs if jobs[j].not_before_us > until_us)
                self.inbox += [ev.ReleaseRequested(j, "root") for j in waiting if not jobs[j].state.final]
        return dict(self.db.jobs)
