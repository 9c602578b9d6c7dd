"""What the leader makes of a host that is back: which of its orders are repeated."""

from __future__ import annotations

from typing import Any, cast

from rm.core.jobs import events as ev
from rm.core.jobs.actions import Intent, Launch
from rm.core.jobs.lifecycle import Changes, Rules, apply
from rm.core.jobs.reconcile import Reported, ReportedTask
from rm.core.jobs.state import ClusterState
from rm.core.model.job import Placement, TaskPlacement
from rm.daemon.execution.executor import Executor
from rm.daemon.execution.greeting import HostReport
from rm.daemon.leading.returns import Returns
from tests import builders

PLACE = Placement((TaskPlacement(0, "h1"),))


class Orders:
    """Stands for the executor, which has these orders open; `done` is what it was told to do with them."""

    def __init__(self, *intents: Intent) -> None:
        self.intents, self.done = list(intents), list[str]()

    def is_current(self, report: HostReport) -> bool:
        return True

    def open_intents(self, host: str) -> list[Intent]:
        return list(self.intents)

    def is_worn_out(self, intent: Intent) -> bool:
        return False

    def drop(self, intent: Intent) -> None:
        self.intents.remove(intent)
        self.done.append(f"drop {intent.id}")

    def repeat_open(self, host: str) -> None:
        self.done.append("repeat " + " ".join(str(intent.id) for intent in self.intents))


def returned(*tasks: ReportedTask) -> tuple[list[ev.Event], list[str]]:
    """Two launches of two processors each are open for a host of four, which says that it runs these."""
    state = ClusterState()
    apply(state, ev.HostAdded(builders.host("h1", cpus=4, boot_id="boot")), 100, Rules(), Changes())
    for job in (1, 2):
        spec = builders.spec(ntasks=1, cpus_per_task=2)
        for event in (ev.JobSubmitted(job, spec), ev.JobPlaced(job, PLACE)):
            apply(state, event, 100, Rules(), Changes())
    orders = Orders(*(Intent(10 + job, Launch(job, 1, "h1", PLACE.on("h1"), hold=False)) for job in (1, 2)))
    report: Any = HostReport(ev.HostUp("h1", "boot", "1"), Reported(tasks), 1)
    return Returns(state, cast(Executor, orders)).events(report, 100), orders.done


def test_a_launch_whose_place_is_held_by_what_was_given_up_is_dropped_before_the_others_are_repeated() -> (
    None
):
    events, done = returned(ReportedTask(9, 1, 0, "running", cpus=2, gpus=()))
    assert ev.LaunchWithheld(2, 1, "h1") in events
    assert done == ["drop 12", "repeat 11"]


def test_all_are_repeated_on_a_host_with_room() -> None:
    assert returned()[1] == ["repeat 11 12"]
