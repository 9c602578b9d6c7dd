"""What a modelled host remembers of the attempts that were sent to it."""

from __future__ import annotations

from dataclasses import dataclass, field

from rm.core.jobs.actions import Action


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
    calm_until: int = 0  # the step before which no lot of its weather is to be looked at

    def __post_init__(self) -> None:
        """The names of what may happen to it in each step: to write them costs as much as to draw the lot."""
        self.reboots = f"{self.name} is switched off and on"
        self.is_cut = f"{self.name} is cut off"
        self.freezes = f"{self.name} freezes"
