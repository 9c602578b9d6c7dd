"""A modelled world around the real core: hosts that crash, freeze and are cut off, messages that come
twice or late, a daemon that dies between any two actions. One seed, one run, exactly."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import compress

from rm.core.jobs import events as ev
from rm.core.jobs.actions import Mail
from rm.core.model.job import Job, JobState
from rm.core.model.network.links import LinkStats
from rm.core.model.progress import Progress
from tests.sim.modelled.agents import FAR_US, STEP_US
from tests.sim.modelled.hosts import ModelHost
from tests.sim.modelled.leader import S
from tests.sim.modelled.users import Users

NOTICED_STEPS = 12  # until a frozen host is taken for a silent one
CLEARS_STEPS = 400  # then the weather is fair: most have ended, and a gang or two is tried again
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


def names_of(askable: Iterable[bool]) -> Iterator[str]:
    """What of ASKED each step looks at the lot of."""
    return (what for what, _ in compress(ASKED, (*askable, True)))


class World(Users):
    """`run` plays one seed; the checks are the test's."""

    calm_until = 0  # the step before which no lot of ASKED is to be looked at, while the same may be asked
    askable = (False,) * 4

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
            if choices.step >= host.calm_until or host.cut or host.thaws:
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
                host.calm_until = choices.none_before(host.reboots, host.is_cut, host.freezes)
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
        calm = choices.step < self.calm_until and self.askable == self.can_ask()
        if not calm:
            self.ask()
        if self.journalled:
            self.inbox += self.measure()
        self.mail()
        events, self.inbox = self.inbox, []
        choices.shuffle("inbox", events, 0.1 * rate)
        self.turn(events)
        if not calm:
            if self.strikes(DIES):
                self.boot()
            self.calm_until = choices.none_before(*names_of(self.askable))

    def can_ask(self) -> tuple[bool, bool, bool, bool]:
        """Which of ASKED may be, but for what asks nobody."""
        placed, known = self.cycle.state.placed, bool(self.acknowledged)
        running = bool(placed) and not placed.keys().isdisjoint(self.acknowledged)
        return known, bool(self.arrays), known, running

    def ask(self) -> None:
        choices = self.choices
        if self.acknowledged and self.strikes(CANCELS):
            self.cancel(choices.among("cancelled is", self.acknowledged))
        if self.arrays and self.strikes(LIMITS):
            array = choices.among("limited is", self.arrays)
            self.limit_array(array, choices.number("how many may run", 0, 3))
        if self.acknowledged and self.strikes(CHANGES):
            self.update(choices.among("changed is", self.acknowledged))
        self.askable = self.can_ask()
        if self.askable[-1] and self.strikes(SUSPENDS):
            mine = [i for i in self.acknowledged if i in self.cycle.state.placed]
            job = self.cycle.state.jobs[choices.among("suspended or resumed is", mine)]
            ask = ev.ResumeRequested if job.state is JobState.SUSPENDED else ev.SuspendRequested
            if not job.yields_to:
                self.turn([ask(job.id, "root")])

    def strikes(self, asked: tuple[str, float]) -> bool:
        what, probability = asked
        return self.choices.strikes(what, probability * self.faults)

    def pass_over(self, until: int) -> None:
        """Go on to the step before the next one in which anything may happen, `until` at the latest: each
        step before it would leave the world as it is."""
        choices, state, rate = self.choices, self.cycle.state, self.faults
        if self.journalled or self.to_submit or self.inbox or not self.rests:
            return
        if any(isinstance(i.action, Mail) for i in self.open.values()):
            return
        if len(self.greeted) < len(self.hosts):
            self.wait(until)
            return
        due_us = [] if (cycle_us := self.cycle.next_due_us()) is None else [cycle_us]
        soonest = [choices.soonest(what, probability * rate) for what, probability in ASKED]
        for host in self.hosts.values():
            known = state.hosts.get(host.name)
            if host.cut or host.thaws or host.hello_due or not self.is_heard(host):
                self.wait(min(until, *(at - 1 for at in soonest)))
                return
            if known is None or known.unwritable:
                return
            soonest.append(choices.soonest(host.reboots, REBOOTS * rate))
            soonest.append(choices.soonest(host.is_cut, CUT * rate))
            soonest.append(choices.soonest(host.freezes, FREEZES * rate))
            due_us += [a.ends_us for a in host.attempts.values() if a.ends_us and a.state != "exited"]
        self.skip(until, soonest, due_us)

    def wait(self, until: int) -> None:
        """As `pass_over`, while some hosts are cut off or frozen, or have yet to greet: no lot is drawn."""
        choices, rate = self.choices, self.faults
        lots = [*names_of(self.can_ask())] if rate else []
        soonest: list[int] = []
        due_us = [] if (cycle_us := self.cycle.next_due_us()) is None else [cycle_us]
        for host in self.hosts.values():
            known = self.cycle.state.hosts.get(host.name)
            if known is None or known.unwritable:
                return
            if rate:
                lots += (host.reboots, *[host.is_cut] * (not host.cut), *[host.freezes] * (not host.thaws))
            if host.cut:
                soonest.append(host.heals)
            if host.thaws:
                soonest += (host.thaws, *[host.greets] * (host.name in self.greeted))
                continue
            if host.hello_due and not host.cut:
                soonest.append(host.greets)
            awake = [a for a in host.attempts.values() if a.state != "exited"]
            due_us += [a.ends_us for a in awake if a.ends_us]
            if not self.renews(host):
                due_us += [a.heard_us + a.lease_us for a in awake if a.lease_us]
        self.skip(until, [*soonest, choices.none_before(*lots)], due_us)

    def skip(self, until: int, soonest: Iterable[int], due_us: Iterable[int]) -> None:
        """Go on to the step before the soonest one, and before the time of what is due."""
        choices = self.choices
        left_us = max(0, min(due_us, default=FAR_US) - self.now_us)
        steps = min(until, *(at - 1 for at in soonest)) - choices.step
        steps = min(steps, -(-left_us // STEP_US) - 1)
        if steps > 0:
            choices.step += steps
            self.now_us += steps * STEP_US
            for host in self.hosts.values():
                if not host.thaws:
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
