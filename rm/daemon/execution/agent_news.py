"""What hosts' agents say (docs/agent-protocol.md), as events; `offset_us` is their clock minus ours."""

from __future__ import annotations

from collections.abc import Sequence

from rm.core.jobs import events as ev
from rm.core.jobs.reconcile import ReportedTask
from rm.core.model.host import Gpu, Nic
from rm.core.model.used import NetworkUsed, Used
from rm.protocol.attempts import TaskReport
from rm.protocol.hosts import HostFacts, Interface
from rm.protocol.notifications import Enforced, Exit, Features, Hello, Started
from rm.protocol.used import Used as UsedTold

NICS_MAX = 64
WORDS_MAX = 1_000  # characters of a host's sentence that are kept


def up_event(host: str, facts: HostFacts, hello: Hello) -> ev.HostUp:
    nics = nics_of(facts.interfaces)
    named = nics[0] if nics else Nic("")
    return ev.HostUp(
        host,
        facts.boot_id,
        hello.version,
        facts.cpus,
        facts.mem_bytes,
        tuple(Gpu(g.index, g.uuid, g.model, g.mem_bytes) for g in facts.gpus),
        named.name,
        named.speed_bps,
        nics,
        unenforced(hello.features.enforced, bool(facts.gpus)),
        hello.room,
        containers=hello.features.containers,
        unshaped=unshaped(hello.features),
        machine=facts.machine,
        kernel=facts.kernel,
        booted_us=facts.booted_us,
    )


def nics_of(interfaces: Sequence[Interface]) -> tuple[Nic, ...]:
    """The interfaces that can carry jobs' traffic; first the one that does.

    That is the one through which most of the other hosts are reached; without other hosts the one that leads
    to the daemon, else the fastest that has an address. The loopback interface counts only where the routes
    lead through it: where all hosts are this machine.
    """

    def rank(one: Interface) -> tuple[int, bool, bool, int, str]:
        return -one.routes, not one.control, not one.address, -one.speed_bps, one.name

    usable = [
        i for i in interfaces if i.routes or i.control or (i.up and (i.address or i.rdma) and i.name != "lo")
    ]
    return tuple(
        Nic(
            i.name,
            i.address,
            i.speed_bps,
            i.mtu_bytes,
            i.numa_node,
            i.rdma,
            i.routes,
            i.network,
            i.routed,
            tuple(i.altnames),
        )
        for i in sorted(usable, key=rank)[:NICS_MAX]
    )


def unenforced(how: Enforced, has_gpus: bool) -> tuple[str, ...]:
    """What the host cannot limit for a job."""
    means = [("memory", how.memory), ("cpus", how.cpu), ("processes", how.pids), ("ipc", how.ipc)]
    return tuple(name for name, by in [*means, *([("gpus", how.gpus)] if has_gpus else [])] if not by)


def unshaped(features: Features) -> tuple[str, ...]:
    """What the host cannot do to the traffic of jobs; bursts are ordered among classes."""
    classes = features.htb and features.nft
    works = {"classes": classes, "bursts": classes and "bpf" not in features.missing}
    return tuple(name for name, does in works.items() if not does)


def sentence(said: str) -> str:
    """A host's words, of bounded length and on one line: a second one could pass for words of rm's own."""
    return " ".join(said[:WORDS_MAX].split())


def started(host: str, m: Started, offset_us: int, now_us: int) -> ev.TasksStarted:
    return ev.TasksStarted(m.job, m.attempt, host, ours(m.started_us, offset_us, now_us), (m.rank,))


def exited(host: str, m: Exit, offset_us: int, now_us: int) -> ev.TaskExited | ev.TasksLost:
    if m.code is None and m.signal is None:  # its supervisor is gone
        epilog = sentence(m.epilog)
        return ev.TasksLost(m.job, m.attempt, host, (m.rank,), sentence(m.why), epilog)
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
        sentence(m.why),
        m.ran_us,
        sentence(m.epilog),
        m.log_bytes == 0,
        used(m.used),
        used(m.whole),
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
        sentence(t.why),
        t.cpus,
        t.mem_bytes,
        None if t.gpus is None else tuple(t.gpus),
        t.ran_us,
        sentence(t.epilog),
        used(t.used),
        used(t.whole),
    )


def used(told: UsedTold | None) -> Used | None:
    if told is None:
        return None
    return Used(
        told.user_us,
        told.system_us,
        told.mem_bytes,
        told.peak_bytes,
        told.read_bytes,
        told.written_bytes,
        told.gpu_us,
        told.gpu_busy_us,
        told.gpu_mem_bytes,
        told.energy_mj,
        tuple(NetworkUsed(one.interface, one.received_bytes, one.sent_bytes) for one in told.network),
    )


def ours(at_us: int, offset_us: int, now_us: int) -> int:
    """A host's instant on our clock; nothing that it reports is in the future."""
    return min(at_us - offset_us, now_us)
