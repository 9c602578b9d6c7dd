"""`iptables`: one rule, one chain or one policy of the running packet filter."""

from rm_steps_base import StepFailed, asks, must, state_diff, tool

_NEGATABLE = {
    "protocol": "-p", "source": "-s", "destination": "-d", "in_interface": "-i", "out_interface": "-o",
    "source_port": "--source-port", "destination_port": "--destination-port",
}  # fmt: skip


def _rule(args):
    """The words of the rule."""
    words = []
    for name in ("protocol", "source", "destination"):
        words += _matched(_NEGATABLE[name], args[name])
    for one in args["match"] or ():
        words += ["-m", one]
    if args["tcp_flags"]:
        flags = args["tcp_flags"]
        words += ["--tcp-flags", ",".join(flags["flags"]), ",".join(flags["flags_set"])]
    dscp = args["set_dscp_mark"] or args["set_dscp_mark_class"]
    jump = args["jump"] or ("REJECT" if args["reject_with"] else "DSCP" if dscp else "")
    words += ["-j", jump] if jump else []
    words += ["--gateway", args["gateway"]] if args["gateway"] and jump.upper() == "TEE" else []
    for name, flag in (("log_prefix", "--log-prefix"), ("log_level", "--log-level"),
                       ("to_source", "--to-source"), ("to_destination", "--to-destination")):  # fmt: skip
        words += [flag, args[name]] if args[name] else []
    words += ["-g", args["goto"]] if args["goto"] else []
    for name in ("in_interface", "out_interface"):
        words += _matched(_NEGATABLE[name], args[name])
    words += ["-f"] if args["fragment"] else []
    words += ["-c", *args["set_counters"].split()] if args["set_counters"] else []
    for name in ("source_port", "destination_port"):
        words += _matched(_NEGATABLE[name], args[name])
    if args["destination_ports"]:
        words += ["-m", "multiport", "--dports", ",".join(args["destination_ports"])]
    words += ["--to-ports", args["to_ports"]] if args["to_ports"] else []
    words += ["--set-dscp", args["set_dscp_mark"]] if args["set_dscp_mark"] else []
    words += ["--set-dscp-class", args["set_dscp_mark_class"]] if args["set_dscp_mark_class"] else []
    words += {"match": ["--syn"], "negate": ["!", "--syn"]}.get(args["syn"], [])
    named = args["match"] or ()
    if args["ctstate"]:
        old = "state" in named and "conntrack" not in named
        words += [] if old or "conntrack" in named else ["-m", "conntrack"]
        words += ["--state" if old else "--ctstate", ",".join(args["ctstate"])]
    for name, flag in (("src_range", "--src-range"), ("dst_range", "--dst-range")):
        if args[name]:
            words += [] if "iprange" in words else ["-m", "iprange"]
            words += [flag, args[name]]
    if args["match_set"]:
        words += [] if "set" in named else ["-m", "set"]
        words += ["--match-set", args["match_set"], args["match_set_flags"] or "src"]
    if args["limit"] or args["limit_burst"]:
        words += ["-m", "limit"] + (["--limit", args["limit"]] if args["limit"] else [])
        words += ["--limit-burst", args["limit_burst"]] if args["limit_burst"] else []
    words += ["-m", "owner"] if args["uid_owner"] or args["gid_owner"] else []
    for name, flag in (("uid_owner", "--uid-owner"), ("gid_owner", "--gid-owner")):
        words += _matched(flag, args[name])
    words += ["--reject-with", args["reject_with"]] if args["reject_with"] else []
    icmp = "--icmpv6-type" if args["ip_version"] == "ipv6" else "--icmp-type"
    words += [icmp, args["icmp_type"]] if args["icmp_type"] else []
    if args["comment"]:
        words += ["-m", "comment", "--comment", args["comment"]]
    return words


def _matched(flag, value):
    if not value:
        return []
    return ["!", flag, value[1:].strip()] if value.startswith("!") else [flag, value]


def do_iptables(run, args):
    base = [tool("ip6tables" if args["ip_version"] == "ipv6" else "iptables")]
    base += ["-w", str(args["wait"])] if args["wait"] else ["-w"]
    base += ["-t", args["table"]]
    chain, rule, changes = args["chain"], _rule(args), []
    result = {"chain": chain, "table": args["table"], "state": args["state"], "rule": " ".join(rule)}
    result.update(ip_version=args["ip_version"], flush=args["flush"])

    def do(words):
        changes.append(" ".join(words))
        if not run.check:
            must([*base, *words])

    def there():
        return asks([*base, "-nL", chain])[0] == 0

    if args["flush"]:
        listed = asks([*base, "-S", *([chain] if chain else [])])[1]
        if any(line.startswith("-A") for line in listed.splitlines()):
            do(["-F", *([chain] if chain else [])])
    elif args["policy"]:
        first = (asks([*base, "-S", chain])[1].splitlines() or [""])[0].split()
        if not first:
            raise StepFailed("There is no chain '%s' in the table '%s'." % (chain, args["table"]))
        if first[-1] != args["policy"]:
            do(["-P", chain, args["policy"]])
    elif args["chain_management"] and not rule:
        if args["state"] == "present" and not there():
            do(["-N", chain])
        elif args["state"] == "absent" and there():
            do(["-X", chain])
    else:
        if args["chain_management"] and args["state"] == "present" and not there():
            do(["-N", chain])
        seen = asks([*base, "-C", chain, *rule])[0] == 0 and not (run.check and changes)
        if args["state"] == "absent" and seen:
            do(["-D", chain, *rule])
        elif args["state"] == "present" and not seen:
            number = [str(args["rule_num"])] if args["rule_num"] else []
            do(["-I" if args["action"] == "insert" else "-A", chain, *number, *rule])
    return dict(result, changed=bool(changes), diff=state_diff(run, "iptables", changes))
