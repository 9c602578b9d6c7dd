"""`rm_burn_in_network`: every pair of the play's hosts tests the path between them; names the bad cable.

The pairs run in rounds in which each host has one peer, so that a test is disturbed by no other. The
judgement is in `rm/playbook/inventory/cables.py`.
"""

from __future__ import annotations

from typing import Any

from rm.playbook.model.problems import BadArgument
from rm.playbook.module import Arg, CompileContext

ARGS = {
    "hosts": Arg("list"),  # else those of the play
    "port": Arg("int", default=8621),
    "seconds": Arg("float", default=2.0),  # of throughput, each pair and direction
    "rate_mbps": Arg("int", default=0),  # 0: as fast as it goes
    "count": Arg("int", default=200),  # probes for loss, each pair
    "size": Arg("int", default=1200),  # bytes of each
    "max_loss_pct": Arg("float", default=0.1),
    "min_mbps": Arg("int", default=0),
    "min_share_pct": Arg("int", default=70),  # of the usual (see cables.py)
    "address_variable": Arg(default=""),  # else rm_address, else the host's address for SSH
}
CONTROL = True
RUN_ONCE = True


def compile(args: dict[str, Any], context: CompileContext) -> dict[str, Any]:
    if not 1 <= args["port"] <= 65_535:
        raise BadArgument("'port' must be from 1 to 65535")
    hosts = args["hosts"] or list(context.scope.lookup("ansible_play_batch"))
    variables = context.scope.lookup("hostvars")
    names = [name for name in (args["address_variable"], "rm_address") if name]
    addresses = {}
    for host in hosts:
        own = variables[host]
        addresses[host] = str(
            next((own[name] for name in names if name in own), own.get("ansible_host", host))
        )
    return {**args, "hosts": hosts, "addresses": addresses}
