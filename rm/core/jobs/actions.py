"""Actions: what the plan asks of the hosts. Each is idempotent and names (job, attempt)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from rm.core.model.job import TaskPlacement
from rm.core.model.quickly_made import quickly_made

HOLD = "hold"  # as the `why` of a stop


@quickly_made
@dataclass(frozen=True, slots=True)
class Launch:
    """Prepare these tasks on `host`; start them at once unless `hold` (a gang on several hosts)."""

    kind: ClassVar[str] = "launch"
    job: int
    attempt: int
    host: str
    tasks: tuple[TaskPlacement, ...]
    hold: bool
    slice_of: int = 0  # together with the others of this slice, to run one after the other; 0: by itself


@quickly_made
@dataclass(frozen=True, slots=True)
class Start:
    """Start what `Launch(hold=True)` prepared: every host of the gang is ready. `master_port` is where its
    tasks meet, as its first host chose."""

    kind: ClassVar[str] = "start"
    job: int
    attempt: int
    host: str
    master_port: int = 0


@quickly_made
@dataclass(frozen=True, slots=True)
class Stop:
    """SIGTERM, `grace_us`, SIGKILL to the whole tree; `why` is cancel, timeout or abort. With `why` hold it
    concerns only an attempt that waits in its slice: it is given back. With `warn_us` the job's own signal
    goes first, and the rest comes so much later."""

    kind: ClassVar[str] = "stop"
    job: int
    attempt: int
    host: str
    grace_us: int
    why: str
    warn_us: int = 0


@quickly_made
@dataclass(frozen=True, slots=True)
class Collect:
    """Bring the logs home, with `steps` the accounting of the job's steps, too; then let the host forget the
    attempt."""

    kind: ClassVar[str] = "collect"
    job: int
    attempt: int
    host: str
    ranks: tuple[int, ...]
    errors: bool = True  # they may have files for standard error alone: the host is asked for them, too
    steps: bool = False


@quickly_made
@dataclass(frozen=True, slots=True)
class Discard:
    """Let the host forget an attempt whose logs nobody will ask for."""

    kind: ClassVar[str] = "discard"
    job: int
    attempt: int
    host: str


@dataclass(frozen=True, slots=True)
class SetLimit:
    """From its start on the attempt may run for so long; 0: as long as it likes."""

    kind: ClassVar[str] = "limit"
    job: int
    attempt: int
    host: str
    time_limit_us: int


@quickly_made
@dataclass(frozen=True, slots=True)
class Freeze:
    """Let the tasks stand still, or go on. `order` counts from 1 in each attempt: a larger one has the last
    word. While it stands still and `lends`, others may have its processors."""

    kind: ClassVar[str] = "freeze"
    job: int
    attempt: int
    host: str
    frozen: bool
    order: int
    lends: bool = False


@quickly_made
@dataclass(frozen=True, slots=True)
class Mail:
    """Tell somebody of the job by mail; it is no host's, and names none. `user` is the job's."""

    kind: ClassVar[str] = "mail"
    job: int
    attempt: int
    host: str
    to: str
    subject: str
    user: str = ""


ToHost = Launch | Start | Stop | Collect | Discard | SetLimit | Freeze
Action = ToHost | Mail
ACTIONS: dict[str, type[Action]] = {
    a.kind: a for a in (Launch, Start, Stop, Collect, Discard, SetLimit, Freeze, Mail)
}


@quickly_made
@dataclass(frozen=True, slots=True)
class Intent:
    """An action with its place in the outbox."""

    id: int
    action: Action
