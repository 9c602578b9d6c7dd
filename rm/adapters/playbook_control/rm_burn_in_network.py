"""`rm_burn_in_network`: disjoint pairs of hosts test their paths at the same time, round by round."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

from rm.adapters.playbook_control import ControlFailed, Hands
from rm.errors import RmError
from rm.playbook.cables import Pair, judge, rounds

PATIENCE_S = 10.0


def carry_out(hands: Hands, step: dict[str, Any]) -> dict[str, Any]:
    args = step["args"]
    hosts = args["hosts"]
    if len(hosts) < 2:
        return {"changed": False, "msg": "a single host has nobody to test with", "bad_cables": {}}
    count = len(hosts) * (len(hosts) - 1)
    if step.get("check"):
        said = f"might test {count} paths"
        return {"changed": False, "skipped": True, "might_run": True, "msg": said, "bad_cables": {}}
    measured: list[Pair] = []
    with ThreadPoolExecutor(len(hosts) + 1, thread_name_prefix="burn-in") as pool:
        for number, matched in enumerate(rounds(hosts)):
            for turned in (False, True):
                if hands.stopping.is_set():
                    raise ControlFailed("The run was ended during the network test.")
                pairs = [(b, a) if turned else (a, b) for a, b in matched]
                # a port of its own each time: the reflector of the last one may still wait for its end
                port = args["port"] + (number * 2 + turned) % 200
                futures = [pool.submit(_test, hands, args, pool, port, *pair) for pair in pairs]
                measured += [future.result() for future in futures]
    verdict = judge(
        measured,
        max_loss_pct=args["max_loss_pct"],
        min_bps=args["min_mbps"] * 1_000_000,
        min_share_pct=args["min_share_pct"],
    )
    report = verdict.report()
    rows = [
        {"from": p.source, "to": p.target, "loss_pct": p.loss_pct, "mbps": p.throughput_bps // 1_000_000}
        for p in measured
    ]
    bad = [f"{host}: {why}" for host, why in verdict.cables.items()]
    bad += [f"path between {' and '.join(pair)}: {why}" for pair, why in verdict.paths.items()]
    said = "; ".join(bad) if bad else f"{count} paths held, median {report['median_mbps']} Mbit/s"
    return {"changed": False, "failed": bool(bad), "msg": said, "pairs": rows, **report}


def _test(
    hands: Hands, args: dict[str, Any], pool: ThreadPoolExecutor, port: int, source: str, target: str
) -> Pair:
    """One direction of one pair; a host that cannot be reached counts as cut off."""
    last_us = int((args["seconds"] + 4 + PATIENCE_S) * 1e6) + args["count"] * 5_000
    reflect = {"port": port, "duration_us": last_us, "idle_us": 1_200_000, "address": "", "allow": []}
    probe = {
        "address": args["addresses"][target],
        "port": port,
        "count": args["count"],
        "interval_us": 2_000,
        "size_bytes": args["size"],
        "duration_us": int(args["seconds"] * 1e6),
        "rate_bps": args["rate_mbps"] * 1_000_000,
        "patience_s": PATIENCE_S / 2,
    }
    answering = pool.submit(hands.ask, "reflect", reflect, target)
    try:
        found = hands.ask("probe", probe, source)
        reflected = answering.result()
    except RmError:
        return Pair(source, target, 100.0, 0, answered=False)
    if found.get("failed") or reflected.get("failed") or not found["answered"]:
        return Pair(source, target, 100.0, 0, answered=False)
    return Pair(source, target, float(found["loss_pct"]), int(found["throughput_bps"]))
