"""What hosts' agents say (docs/agent-protocol.md), as events; `offset_us` is their clock minus ours."""

from __future__ import annotations

from typing import Any

from rm.core import events as ev
from rm.core.host import Gpu
from rm.core.reconcile import ReportedTask


def up_event(host: str, facts: dict[str, Any], hello: dict[str, Any]) -> ev.HostUp:
    interfaces = facts.get("interfaces", [])
    named = next((i for i in interfaces if i.get("primary")), interfaces[0] if interfaces else {})
    return ev.HostUp(
        host,
        facts.get("boot_id", ""),
        hello.get("version", ""),
        facts.get("cpus", 0),
        facts.get("mem_bytes", 0),
        tuple(
            Gpu(g["index"], g.get("uuid", ""), g.get("model", ""), g.get("mem_bytes", 0))
            for g in facts.get("gpus", [])
        ),
        named.get("name", ""),
        named.get("speed_bps") or 0,
    )


def exited(host: str, m: dict[str, Any], offset_us: int) -> ev.TaskExited | ev.TasksLost:
    if m.get("code") is None and m.get("signal") is None:  # its supervisor is gone
        return ev.TasksLost(m["job"], m["attempt"], host, (m["rank"],), m.get("why", ""))
    return ev.TaskExited(
        m["job"],
        m["attempt"],
        host,
        m["rank"],
        m.get("code") or 0,
        m.get("signal") or 0,
        ours(m.get("started_us"), offset_us),
        m["ended_us"] - offset_us,
        bool(m.get("oom")),
        m.get("why", ""),
    )


def reported(t: dict[str, Any], offset_us: int) -> ReportedTask:
    return ReportedTask(
        t["job"],
        t["attempt"],
        t["rank"],
        t["state"],
        ours(t.get("started_us"), offset_us),
        ours(t.get("ended_us"), offset_us),
        t.get("code") or 0,
        t.get("signal") or 0,
        bool(t.get("oom")),
        t.get("why") or "",
    )


def ours(at_us: int | None, offset_us: int) -> int | None:
    return None if at_us is None else at_us - offset_us
