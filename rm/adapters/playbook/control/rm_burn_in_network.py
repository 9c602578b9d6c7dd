"""`rm_burn_in_network`: disjoint pairs of hosts test their paths at the same time, round by round."""

from __future__ import annotations

from collections import Counter
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from rm.adapters.playbook.control import ControlFailed, Hands
from rm.errors import RmError
from rm.playbook.inventory.cables import Pair, judge, rounds
from rm.units import MBPS

PATIENCE_S = 5.0  # until the peer reflects
SILENT_PAIRS = 3  # a host that none of this many peers reaches is cut off; the others need not wait
INTERVAL_US = 2_000
PORTS = 200  # a port of its own for each round: the last one's reflectors may still wait for their end


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
    silent: Counter[str] = Counter()
    heard: set[str] = set()
    with ThreadPoolExecutor(len(hosts), thread_name_prefix="burn-in") as pool:
        for number, matched in enumerate(rounds(hosts)):
            if hands.stopping.is_set():
                raise ControlFailed("The run was ended during the network test.")
            cut = {host for host in hosts if silent[host] >= SILENT_PAIRS and host not in heard}
            port = args["port"] + number % PORTS
            tests = [
                (pair, [pool.submit(_side, hands, args, port, pair, leads) for leads in (True, False)])
                for pair in matched
                if not cut & {*pair}
            ]
            measured += [_cut(*ends) for one in matched if cut & {*one} for ends in (one, one[::-1])]
            for pair, sides in tests:
                found = _directions(pair, sides)
                measured += found
                if all(one.answered for one in found):
                    heard.update(pair)
                else:
                    silent.update(pair)
    verdict = judge(
        measured,
        max_loss_pct=args["max_loss_pct"],
        min_bps=args["min_mbps"] * MBPS,
        min_share_pct=args["min_share_pct"],
    )
    report = verdict.report()
    rows = [
        {"from": p.source, "to": p.target, "loss_pct": p.loss_pct, "mbps": p.throughput_bps // MBPS}
        for p in measured
    ]
    bad = [f"{host}: {why}" for host, why in verdict.cables.items()]
    bad += [f"path between {' and '.join(pair)}: {why}" for pair, why in verdict.paths.items()]
    said = "; ".join(bad) if bad else f"{count} paths held, median {report['median_mbps']} Mbit/s"
    return {"changed": False, "failed": bool(bad), "msg": said, "pairs": rows, **report}


def _side(
    hands: Hands, args: dict[str, Any], port: int, pair: tuple[str, str], leads: bool
) -> dict[str, Any]:
    """What one side of a pair measured; a host that cannot be reached has not answered."""
    here, there = pair if leads else pair[::-1]
    last_s = 2 * PATIENCE_S + args["count"] * INTERVAL_US / 1e6 + args["seconds"] + 20
    asked = {
        "leads": leads,
        "address": args["addresses"][there],
        "port": port,
        "count": args["count"],
        "interval_us": INTERVAL_US,
        "size_bytes": args["size"],
        "duration_us": int(args["seconds"] * 1e6),
        "rate_bps": args["rate_mbps"] * 1_000_000,
        "patience_s": PATIENCE_S,
        "longest_us": int(last_s * 1e6),
    }
    try:
        found = hands.ask("network_pair", asked, here)
    except RmError:
        return {"answered": False}
    return {"answered": False} if found.get("failed") else found


def _directions(pair: tuple[str, str], sides: list[Future[dict[str, Any]]]) -> tuple[Pair, Pair]:
    one, other = pair
    forward, backward = (side.result() for side in sides)
    if not forward["answered"] or not backward["answered"]:
        return _cut(one, other), _cut(other, one)
    return (
        Pair(one, other, float(forward["loss_forward_pct"]), int(forward["throughput_bps"])),
        Pair(other, one, float(forward["loss_backward_pct"]), int(backward["throughput_bps"])),
    )


def _cut(source: str, target: str) -> Pair:
    return Pair(source, target, 100.0, 0, answered=False)
