"""`iptables`: one rule, chain or policy of the running packet filter."""

from __future__ import annotations

from typing import Any

from rm.playbook.model.problems import BadArgument
from rm.playbook.module import Arg, CompileContext

_TEXTS = (
    "chain", "protocol", "source", "destination", "jump", "goto", "in_interface", "out_interface", "fragment",
    "source_port", "destination_port", "to_ports", "to_source", "to_destination", "set_dscp_mark", "comment",
    "limit", "limit_burst", "uid_owner", "gid_owner", "reject_with", "icmp_type", "log_prefix", "log_level",
    "src_range", "dst_range", "match_set", "match_set_flags", "wait",
    "gateway", "set_counters", "set_dscp_mark_class",
)  # fmt: skip
ARGS = {
    **{name: Arg() for name in _TEXTS},
    "table": Arg(choices=("filter", "nat", "mangle", "raw", "security"), default="filter"),
    "state": Arg(choices=("absent", "present"), default="present"),
    "action": Arg(choices=("append", "insert"), default="append"),
    "ip_version": Arg(choices=("ipv4", "ipv6"), default="ipv4"),
    "rule_num": Arg("int"),
    "syn": Arg(choices=("ignore", "match", "negate"), default="ignore"),
    "numeric": Arg("bool", default=False),  # rules are never looked for by their addresses' names
    "match": Arg("list"),
    "tcp_flags": Arg("dict"),
    "destination_ports": Arg("list"),
    "ctstate": Arg("list"),
    "policy": Arg(choices=("ACCEPT", "DROP", "QUEUE", "RETURN")),
    "flush": Arg("bool", default=False),
    "chain_management": Arg("bool", default=False),
}


def compile(args: dict[str, Any], context: CompileContext) -> dict[str, Any]:
    if args["chain"] is None and not args["flush"]:
        raise BadArgument("the argument 'chain' is missing")
    if args["flush"] and args["policy"]:
        raise BadArgument("give only one of 'flush' and 'policy'")
    if args["jump"] and args["goto"]:
        raise BadArgument("give only one of 'jump' and 'goto'")
    if (args["set_dscp_mark"] or args["set_dscp_mark_class"]) and (args["jump"] or "DSCP").upper() != "DSCP":
        raise BadArgument("'set_dscp_mark' goes with the jump DSCP only")
    if args["tcp_flags"] and not {"flags", "flags_set"} <= set(args["tcp_flags"]):
        raise BadArgument("'tcp_flags' needs the lists 'flags' and 'flags_set'")
    return args
