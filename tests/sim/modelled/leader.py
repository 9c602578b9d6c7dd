"""The daemon of the modelled world: the real core over a store in memory. It dies between any two actions."""

from __future__ import annotations

import random
from typing import Any

import msgspec

from rm.adapters.store.memory import MemoryDatabase, MemoryStore
from rm.core.jobs import events as ev
from rm.core.jobs.actions import ACTIONS, Action, Collect, Discard, Freeze, Intent, Launch, Mail, Start, Stop
from rm.core.jobs.lifecycle import Rules
from rm.core.jobs.reconcile import (
    before_its_end,
    is_end,
)
from rm.core.jobs.state import rebuild
from rm.core.journal.journal import Chosen, Recorder
from rm.core.model.host import HostState
from rm.core.model.job import JobState
from rm.core.model.replacing import replace
from rm.core.registry import KINDS, load
from rm.core.scheduling.cycle import Cycle
from rm.core.scheduling.engine import Policies, Tuning
from rm.core.sharing.accounts import NO_ACCOUNTS, REQUEUE, SUSPEND, Accounts, Qos
from rm.core.store import Batch, Measured, StoredAction
from tests import builders
from tests.invariants import Seen, validate_state
from tests.sim.choices import Choices
from tests.sim.modelled.hosts import ModelHost

S = 1_000_000
VALIDATED = 8  # of so many seeds one, since it costs as much as the steps themselves; and what is replayed
CPUS = 4  # of a host
ELEMENTS, MANY_ELEMENTS = "0-2", "0-6"  # of each job array
PLAIN = {"queue": Chosen("fifo"), "placement": Chosen("first-fit"), "comm": Chosen("none")}
RULES = Rules(grace_us=2 * S, down_after_us=20 * S, max_losses=0)  # here hosts fail all the time
PREEMPTING = Accounts(
    qos=(
        Qos("batch", preempt_mode=SUSPEND),
        Qos("spare", preempt_mode=REQUEUE),
        Qos("urgent", preempts=("batch", "spare")),
    )
)
SLICE_US = 60 * S  # of expected work: hosts give back what they come to too late


def stored(intent: Intent) -> StoredAction:
    a = intent.action
    return StoredAction(intent.id, a.kind, a.job, a.attempt, a.host, msgspec.to_builtins(a))


def is_beside(one: Action, other: Action) -> bool:
    """Is the one a launch and the other an order that may have to wait for it, or the other way round?"""
    first, second = (one, other) if isinstance(one, Launch) else (other, one)
    place = (first.job, first.attempt, first.host) == (second.job, second.attempt, second.host)
    return place and isinstance(first, Launch) and isinstance(second, Stop | Freeze)


class Leader:
    """What it sends, hosts carry out (`tests.sim.modelled.agents`)."""

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

    def carry_out(self, host: ModelHost, action: Action, sent_us: int, over: bool) -> list[ev.Event]:
        """What the host says to that. `over`: its attempt was to end before it was sent."""
        raise NotImplementedError
