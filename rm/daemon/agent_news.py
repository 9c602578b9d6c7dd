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


def started(host: str, m: Started, offset_us: int) -> ev.TasksStarted:
    return ev.TasksStarted(m.job, m.attempt, host, m.started_us - offset_us, (m.rank,))


def exited(host: str, m: Exit, offset_us: int, now_us: int) -> ev.TaskExited | ev.TasksLost:
    if m.code is None and m.signal is None:  # its supervisor is gone
        return ev.TasksLost(m.job, m.attempt, host, (m.rank,), m.why[:WORDS_MAX])
    ended_us = ours(m.ended_us, offset_us)
    return ev.TaskExited(
        m.job,
        m.attempt,
        host,
        m.rank,
        m.code or 0,
        m.signal or 0,
        ours(m.started_us, offset_us),
        now_us if ended_us is None else ended_us,
        m.oom,
        m.why[:WORDS_MAX],
    )


def reported(t: TaskReport, offset_us: int) -> ReportedTask:
    return ReportedTask(
        t.job,
        t.attempt,
        t.rank,
        t.state,
        ours(t.started_us, offset_us),
        ours(t.ended_us, offset_us),
        t.code or 0,
        t.signal or 0,
        t.oom,
        t.why[:WORDS_MAX],
    )


def ours(at_us: int | None, offset_us: int) -> int | None:
    return None if at_us is None else at_us - offset_us
