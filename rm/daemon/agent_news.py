"""What hosts' agents say (docs/agent-protocol.md), as events; `offset_us` is their clock minus ours."""

from __future__ import annotations

from rm.core import events as ev
from rm.core.host import Gpu
from rm.core.reconcile import ReportedTask
from rm.protocol.attempts import TaskReport
from rm.protocol.hosts import HostFacts, Interface
from rm.protocol.notifications import Exit, Hello, Started

WORDS_MAX = 1_000  # characters of a host's sentence that are kept


def up_event(host: str, facts: HostFacts, hello: Hello) -> ev.HostUp:
    named = facts.interfaces[0] if facts.interfaces else Interface(name="")
    return ev.HostUp(
        host,
        facts.boot_id,
        hello.version,
        facts.cpus,
        facts.mem_bytes,
        tuple(Gpu(g.index, g.uuid, g.model, g.mem_bytes) for g in facts.gpus),
        named.name,
        named.speed_bps,
    )


def started(host: str, m: Started, offset_us: int, now_us: int) -> ev.TasksStarted:
    return ev.TasksStarted(m.job, m.attempt, host, ours(m.started_us, offset_us, now_us), (m.rank,))


def exited(host: str, m: Exit, offset_us: int, now_us: int) -> ev.TaskExited | ev.TasksLost:
    if m.code is None and m.signal is None:  # its supervisor is gone
        return ev.TasksLost(m.job, m.attempt, host, (m.rank,), m.why[:WORDS_MAX])
    return ev.TaskExited(
        m.job,
        m.attempt,
        host,
        m.rank,
        m.code or 0,
        m.signal or 0,
        None if m.started_us is None else ours(m.started_us, offset_us, now_us),
        now_us if m.ended_us is None else ours(m.ended_us, offset_us, now_us),
        m.oom,
        m.why[:WORDS_MAX],
    )


def reported(t: TaskReport, offset_us: int, now_us: int) -> ReportedTask:
    return ReportedTask(
        t.job,
        t.attempt,
        t.rank,
        t.state,
        None if t.started_us is None else ours(t.started_us, offset_us, now_us),
        None if t.ended_us is None else ours(t.ended_us, offset_us, now_us),
        t.code or 0,
        t.signal or 0,
        t.oom,
        t.why[:WORDS_MAX],
    )


def ours(at_us: int, offset_us: int, now_us: int) -> int:
    """A host's instant on our clock; nothing that it tells is still to come."""
    return min(at_us - offset_us, now_us)
