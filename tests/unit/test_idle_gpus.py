"""Jobs whose GPUs do nothing: found by readings of all their hosts, told to their users, and stopped."""

from concurrent.futures import Future
from typing import Any

import pytest

from rm.bootstrap.choices import alert_rules
from rm.config import Config
from rm.config.sections import AlertsConfig
from rm.core.alerts.findings import HostFacts
from rm.core.alerts.idle_gpus import GpuJob, Watches, idle_findings, watched
from rm.core.jobs import events as ev
from rm.core.jobs.actions import Mail, Stop
from rm.core.model.job import JobState, Placement, TaskPlacement
from rm.daemon.alerts.facts import facts_of
from rm.daemon.alerts.idle_gpus import IdleGpus
from rm.errors import ConfigError, Conflict
from rm.protocol.hosts import Gpu
from rm.protocol.hosts import HostFacts as Told
from tests.unit.test_lifecycle import World

S = 1_000_000
HOUR = 3_600 * S
JOB = GpuJob(7, 1, "7", 10 * S, {"a": ((0, "GPU-a0"), (1, "")), "b": ((2, ""),)})


def told(at_us: int, *busy: int | None) -> HostFacts:
    gpus = [Gpu(index=n, uuid=f"GPU-a{n}", busy_pct=pct) for n, pct in enumerate(busy)]
    return facts_of(Told(gpus=gpus), at_us)


class Readings:
    """Readings of both hosts, one after the other."""

    def __init__(self) -> None:
        self.watches: Watches = {}
        self.facts: dict[str, HostFacts] = {}

    def take(
        self, at_us: int, a: tuple[int | None, ...] = (0, 0), b: tuple[int | None, ...] = (9, 9, 0)
    ) -> None:
        self.facts = {"a": told(at_us, *a), "b": told(at_us, *b)}
        self.watches = watched(self.watches, [JOB], self.facts, HOUR)

    def row(self, first_s: int, last_s: int) -> None:
        for at_s in range(first_s, last_s + 1, 60):
            self.take(at_s * S)

    @property
    def found(self) -> list[str]:
        return [f.message for f in idle_findings([JOB], self.watches, HOUR)]


def test_a_job_is_idle_when_no_gpu_of_its_hosts_did_anything_for_the_time() -> None:
    seen = Readings()
    seen.take(5 * S)  # before it began
    seen.row(60, 3600)
    assert seen.found == []
    seen.take(3660 * S)
    assert seen.found == ["the 3 GPUs of job 7 did nothing for 1:00:00"]
    assert [(f.condition, f.subject, f.hosts) for f in idle_findings([JOB], seen.watches, HOUR)] == [
        ("gpus-idle", "job 7", ("a", "b"))
    ]


@pytest.mark.parametrize(
    ("a", "b"), [((0, 1), (9, 9, 0)), ((0, 0), (0, 0, 50)), ((0, None), (0, 0, 0)), ((0,), (0, 0, 0))]
)
def test_one_gpu_that_works_or_does_not_say_begins_the_time_anew(a: Any, b: Any) -> None:
    seen = Readings()
    seen.row(60, 3600)
    seen.take(3630 * S, a, b)
    seen.row(3660, 7200)
    assert seen.found == []
    seen.take(7260 * S)
    assert seen.found


def test_what_nobody_measured_does_not_count() -> None:
    seen = Readings()
    seen.row(60, 3000)
    seen.row(3420, 6960)  # seven minutes without: longer than a tenth of the hour
    assert seen.found == []
    seen.take(7020 * S)
    assert seen.found
    seen.facts.pop("b")
    seen.watches = watched(seen.watches, [JOB], seen.facts, HOUR)
    assert seen.found  # one host is silent for a moment: the last readings still hold
    assert watched(seen.watches, [], {}, HOUR) == {}


class Refusing:
    """A leader that answers when it is told to, from whichever thread does so."""

    def __init__(self) -> None:
        self.asked: list[Future[Any]] = []

    def request(self, make: Any) -> Future[Any]:
        self.asked.append(Future())
        return self.asked[-1]


def test_a_refusal_that_comes_during_a_look_disturbs_nothing_and_the_next_look_asks_again() -> None:
    leader = Refusing()
    idle = IdleGpus(leader, AlertsConfig(gpus_idle_s=3600), mails=False)  # type: ignore[arg-type]
    for at_s in range(60, 3661, 60):
        idle.look([JOB], {"a": told(at_s * S, 0, 0), "b": told(at_s * S, 9, 9, 0)})
    (first,) = leader.asked

    class Jobs(list[GpuJob]):
        """The leader refuses while these are gone through for the second time."""

        rounds = 0

        def __iter__(self) -> Any:
            self.rounds += 1
            if self.rounds == 2:
                before = set(idle._told)
                first.set_exception(Conflict("not now"))
                assert idle._told == before, "only the thread that looks changes it"
            return super().__iter__()

    jobs, facts = Jobs([JOB]), {"a": told(3720 * S, 0, 0), "b": told(3720 * S, 9, 9, 0)}
    idle.look(jobs, facts)
    assert jobs.rounds > 1
    assert len(leader.asked) == 1
    idle.look([JOB], facts)
    assert len(leader.asked) == 2


# -- what becomes of it ----------------------------------------------------------------------------


def a_running_job() -> World:
    world = World(Placement((TaskPlacement(0, "h1", (0,)),)), mail_user="ann@example.org", name="x")
    world.place()
    world.do(ev.TasksStarted(1, 1, "h1", 100, (0,)))
    assert world.job.state is JobState.RUNNING
    return world


def test_its_user_is_mailed_without_having_asked() -> None:
    world = a_running_job()
    (mail,) = world.do(ev.GpusIdle(1, 1, HOUR, mail=True))
    assert isinstance(mail, Mail)
    assert (mail.to, mail.subject) == ("ann@example.org", "Job_id=1 Name=x GPUs idle, 1:00:00")
    assert world.job.state is JobState.RUNNING
    assert world.job.history[-1][1] == "its GPUs did nothing for 1:00:00"
    assert world.do(ev.GpusIdle(1, 1, HOUR)) == []  # nobody can be mailed


def test_it_is_stopped() -> None:
    world = a_running_job()
    mail, stop = world.do(ev.GpusIdle(1, 1, 3 * HOUR, stop=True, mail=True))
    assert mail.subject == "Job_id=1 Name=x GPUs idle, 3:00:00, stopped"
    assert isinstance(stop, Stop)
    world.do(ev.TaskExited(1, 1, "h1", 0, 0, 15, 100, 100, why="cancel"))
    assert world.job.state is JobState.CANCELLED
    assert world.job.reason is not None
    assert world.job.reason.message == "stopped: its GPUs did nothing for 3:00:00"


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"gpus_idle_stop_s": 60}, "gpus_idle_s is 0"),
        ({"gpus_idle_s": 90, "gpus_idle_stop_s": 60}, "gpus_idle_s is 90"),
        ({"drain_on": ("gpus-idle",)}, "no fault of a host|not of its host"),
    ],
)
def test_settings_that_contradict_each_other_are_refused(settings: Any, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        alert_rules(Config(alerts=AlertsConfig(**settings)))
