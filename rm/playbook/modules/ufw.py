"""`ufw`: the Uncomplicated Firewall's state, defaults and rules."""

from __future__ import annotations

from typing import Any

from rm.playbook.model.problems import BadArgument
from rm.playbook.module import Arg, CompileContext

ARGS = {
    "state": Arg(choices=("enabled", "disabled", "reloaded", "reset")),
    "default": Arg(choices=("allow", "deny", "reject"), aliases=("policy",)),
    "logging": Arg(choices=("on", "off", "low", "medium", "high", "full", "True", "False")),
    "rule": Arg(choices=("allow", "deny", "limit", "reject")),
    "direction": Arg(choices=("in", "incoming", "out", "outgoing", "routed")),
    "delete": Arg("bool", default=False),
    "route": Arg("bool", default=False),
    "insert": Arg("int"),
    "insert_relative_to": Arg(
        choices=("zero", "first-ipv4", "last-ipv4", "first-ipv6", "last-ipv6"), default="zero"
    ),
    "interface": Arg(aliases=("if",)),
    "interface_in": Arg(aliases=("if_in",)),
    "interface_out": Arg(aliases=("if_out",)),
    "log": Arg("bool", default=False),
    "from_ip": Arg(default="any", aliases=("from", "src")),
    "from_port": Arg(),
    "to_ip": Arg(default="any", aliases=("dest", "to")),
    "to_port": Arg(aliases=("port",)),
    "proto": Arg(
        choices=("any", "tcp", "udp", "ipv6", "esp", "ah", "gre", "igmp", "vrrp"), aliases=("protocol",)
    ),
    "name": Arg(aliases=("app",)),
    "comment": Arg(),
}


def compile(args: dict[str, Any], context: CompileContext) -> dict[str, Any]:
    if not any(args[name] for name in ("state", "default", "rule", "logging")):
        raise BadArgument("give 'state', 'default', 'rule' or 'logging'")
    both = [name for name in ("interface_in", "interface_out") if args[name]]
    if both and (args["interface"] or args["direction"]):
        raise BadArgument(f"'{both[0]}' does not go with 'interface' or 'direction'")
    if args["interface"] and not args["direction"]:
        raise BadArgument("'interface' needs 'direction'")
    if len(both) == 2 and not args["route"]:
        raise BadArgument("only rules with 'route: true' take both 'interface_in' and 'interface_out'")
    if args["name"] and (args["to_port"] or args["from_port"] or args["proto"]):
        raise BadArgument("'name' does not go with ports and 'proto'")
    if args["rule"] and args["direction"] not in ("in", "out", None):
        raise BadArgument("a rule's direction is 'in' or 'out'")
    if args["default"] and not args["rule"] and args["direction"] in ("in", "out"):
        raise BadArgument("a default's direction is 'incoming', 'outgoing' or 'routed'")
    logging = {"True": "on", "False": "off"}.get(args["logging"], args["logging"])  # YAML's on and off
    return {**args, "logging": logging}
