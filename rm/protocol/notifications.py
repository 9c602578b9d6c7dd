"""What agents say unasked."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from rm.protocol.job_steps import StepUsed
from rm.protocol.network import PerJob
from rm.protocol.scalars import (
    AliveUs,
    Attempt,
    AtUs,
    Bytes,
    Count,
    DurationUs,
    ExitCode,
    HeardEpoch,
    Job,
    Pid,
    Port,
    Rank,
    Sentence,
    Signal,
    SignedUs,
    Word,
)
from rm.protocol.streams import Data, Place
from rm.protocol.used import Used


class Notification(Struct, frozen=True, kw_only=True, tag_field="event"):
    """The tag is the event's name."""


class Enforced(Struct, frozen=True, kw_only=True):
    """What limits jobs: `v1` or `v2` for a controller of control groups; `bpf`, `devices` or `cover`
    for GPUs, `namespace` for System V IPC; empty for what cannot be limited."""

    memory: Word = ""
    cpu: Word = ""
    pids: Word = ""
    gpus: Word = ""
    ipc: Word = ""


class Features(Struct, frozen=True, kw_only=True):
    """What the host's kernel and files can do. `steps` is the SHA-256 of the executor's files;
    `containers` the runtime of containers that the host has; `missing` names what is missing."""

    cgroup: Word = ""  # v2, hybrid, or none
    freezer: bool = False
    nft: bool = False
    htb: bool = False
    enforced: Enforced = Enforced()
    steps: Word = ""
    containers: Word = ""
    missing: Annotated[list[Word], Meta(max_length=256)] = []


class Hello(Notification, frozen=True, kw_only=True, tag="hello"):
    """The first line. `now_us` by the host's clock; `alive_us` since its boot, 0: it knows no leases; `epoch`
    is the largest of a leader that it has obeyed; `cluster` the id of the cluster that it belongs to,
    `led_at` where that is led, `known_as` its name there since its boot; `newest_job` the largest id of a job
    that it remembers. Without `room` its spool cannot be written; `room` follows when it can."""

    version: Word
    protocol: Annotated[int, Meta(ge=0, le=1 << 31)]
    host: Word = ""
    boot_id: Word = ""
    pid: Pid = 0
    uid: Annotated[int, Meta(ge=0, le=(1 << 32) - 1)] | None = None
    now_us: AtUs = 0
    alive_us: AliveUs = 0
    epoch: HeardEpoch = 0
    cluster: Word = ""
    led_at: Word = ""
    known_as: Word = ""
    newest_job: Job = 0
    features: Features = Features()
    room: bool = True


class Exit(Notification, frozen=True, kw_only=True, tag="exit"):
    """A task has ended; the one of the attempt's last rank on a host is sent when no process of the attempt
    is left there. A task whose start failed has `code` 1, `started_us` null and the reason in `why`; one that
    was lost has `code` and `signal` null. `ran_us` is the time from start to end by a clock that is never
    set, null where the task never ran. `why` is empty, `cancel`, `timeout`, `abort`, `discard`, `fence` (its
    lease was over), `requeue` (a task of the job asked for it), `unstarted` (it waited in a slice, and was
    given back), or a sentence when the task could not be started or was lost. `log_bytes` is the size of
    its log in the spool, null where that may still grow, or where it named files. `used`: by this task alone,
    where it is one of several; `whole`, with the last one on the host: by the attempt there."""

    job: Job
    attempt: Attempt
    rank: Rank
    code: ExitCode | None
    signal: Signal | None
    started_us: AtUs | None = None
    ended_us: AtUs | None = None
    ran_us: DurationUs | None = None
    oom: bool = False
    why: Sentence = ""
    epilog: Sentence = ""  # how the epilog failed
    log_bytes: Bytes | None = None
    used: Used | None = None
    whole: Used | None = None


class Started(Notification, frozen=True, kw_only=True, tag="started"):
    """A task runs."""

    job: Job
    attempt: Attempt
    rank: Rank
    started_us: AtUs
    pid: Pid = 0


Iteration = tuple[SignedUs, SignedUs, SignedUs, SignedUs, SignedUs, SignedUs | None]


class Iterations(Notification, frozen=True, kw_only=True, tag="iterations"):
    """Iterations that the tasks have reported since the last such line, sent at most every 20 ms: (rank,
    number, start_us, duration_us, paused_us, comm_us or null). The job's program wrote them."""

    job: Job
    attempt: Attempt
    items: Annotated[list[Iteration], Meta(max_length=16_384)]


class Communication(Notification, frozen=True, kw_only=True, tag="communication"):
    """Rank 0 of the attempt is ready to communicate, for the time of this `number`, or has `ended` that. Sent
    at once. The job's program says so."""

    job: Job
    attempt: Attempt
    number: Count
    ended: bool = False


class Counters(Notification, frozen=True, kw_only=True, tag="counters"):
    """A sample of `watch`."""

    interface: Word
    now_us: AtUs
    rx_bytes: Bytes
    tx_bytes: Bytes
    jobs: PerJob


class Reflecting(Notification, frozen=True, kw_only=True, tag="reflecting"):
    """A reflector listens; with `reached`, a first question has come."""

    port: Port
    reached: bool = False


class Room(Notification, frozen=True, kw_only=True, tag="room"):
    """The spool can be written again, after a hello without room, or a refusal with `no-space`,
    `no-descriptors` or `spool`."""


class Streamed(Notification, frozen=True, kw_only=True, tag="stream"):
    """A piece of a stream of the attempt's steps, for its host of this `place`: `stream` there."""

    job: Job
    attempt: Attempt
    place: Place
    stream: Word
    offset: Bytes
    data: Data
    ack: Bytes
    end: bool = False
    gone: bool = False
    used: StepUsed | None = None


class Stepped(Notification, frozen=True, kw_only=True, tag="stepped"):
    """Steps of the attempt have begun or ended since the last such line, sent at most once a second, before
    each exit and with each answer to `tasks`: `job-steps` tells of them."""

    job: Job
    attempt: Attempt


class Asked(Notification, frozen=True, kw_only=True, tag="asked"):
    """Programs of the attempt on this host wait for a client of the daemon: `waiting` of them. Sent at once,
    at most every 50 ms, and again each second while some wait. `--attend` brings the two together."""

    job: Job
    attempt: Attempt
    waiting: Count


Unasked = (
    Hello
    | Exit
    | Started
    | Iterations
    | Communication
    | Counters
    | Reflecting
    | Room
    | Streamed
    | Stepped
    | Asked
)
