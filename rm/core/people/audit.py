"""The audit log: who did what, from where, in which role, with which outcome. Only ever added to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from rm.core.jobs import events as ev
from rm.core.model.replacing import replace

SHOWN = 20  # names in one entry
TEXT_MOST = 500  # characters


class Outcome(StrEnum):
    DONE = "done"
    REFUSED = "refused"  # for who asked, or for what was asked
    FAILED = "failed"  # on the way
    BEGUN = "begun"  # its end is not waited for


@dataclass(frozen=True, slots=True)
class Act:
    """One request. `via` is the door (unix, ssh, https, or a program such as page), `origin` the process or
    address behind it. `verb` is the route's name, `target` what it names, `detail` a sentence. Neither
    scripts nor environments are in it."""

    at_us: int
    user: str
    uid: int
    role: str
    via: str
    origin: str
    verb: str
    target: str = ""
    token: str = ""
    outcome: Outcome = Outcome.DONE
    detail: str = ""

    def ended(self, outcome: Outcome, detail: str) -> Act:
        return replace(self, outcome=outcome, detail=detail)


def with_targets(act: Act, events: Sequence[ev.Event]) -> Act:
    """The act with the jobs or hosts that its events add as its target."""
    jobs = [str(event.job) for event in events if isinstance(event, ev.JobSubmitted)]
    hosts = [event.host.name for event in events if isinstance(event, ev.HostAdded)]
    kind, names = ("job", jobs) if jobs else ("host", hosts)
    return replace(act, target=clean(f"{kind} {listed(names)}")) if names else act


def listed(names: Sequence[str]) -> str:
    return ",".join(names[:SHOWN]) + (f",… ({len(names)} in all)" if len(names) > SHOWN else "")


def clean(text: str) -> str:
    """What a database keeps and a terminal shows."""
    if text.isprintable() and len(text) <= TEXT_MOST:
        return text
    return "".join(c if c.isprintable() else "?" for c in text[:TEXT_MOST])
