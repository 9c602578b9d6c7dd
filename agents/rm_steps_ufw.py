"""`ufw`: the Uncomplicated Firewall, by its own program; what it keeps before and after says what changed."""

import glob
import re

from rm_steps_base import must, state_diff, tool

RULES = ("/lib/ufw/user*.rules", "/etc/ufw/user*.rules", "/var/lib/ufw/user*.rules")
VERBS = {"enabled": "enable", "disabled": "disable", "reloaded": "reload", "reset": "reset"}
MARK = "### tuple"


def _rules():
    found = []
    for path in sorted({path for pattern in RULES for path in glob.glob(pattern)}):
        with open(path, encoding="utf-8", errors="replace") as file:
            found += [line.rstrip("\n") for line in file if line.startswith(MARK)]
    return found


def _is_6(line):
    return ":" in line.split("comment=")[0].partition(MARK)[2]


def _place(args, program):
    """Where a rule goes in, as `ufw insert` counts; None: at the end."""
    if args["insert"] is None or args["delete"]:
        return None
    if args["insert_relative_to"] == "zero":
        return args["insert"]
    listed = must([program, "status", "numbered"])
    rows = [(int(match[1]), "(v6)" in match[0]) for match in re.finditer(r"^\[ *(\d+)\] .*$", listed, re.M)]
    last = max((number for number, _ in rows), default=0)
    last_4 = max((number for number, six in rows if not six), default=0)
    has_6 = any(six for _, six in rows)
    base = {"first-ipv4": 1, "last-ipv4": last_4 or 1, "first-ipv6": last_4 + 1,
            "last-ipv6": last if has_6 else last + 1}[args["insert_relative_to"]]  # fmt: skip
    place = args["insert"] + base
    return place if place <= last else None


def _rule(args, program):
    place = _place(args, program)
    words = ["route"] if args["route"] else []
    words += ["delete"] if args["delete"] else []
    words += ["insert", str(place)] if place is not None else []
    words += [args["rule"]]
    words += [args["direction"]] if args["direction"] else []
    words += ["on", args["interface"]] if args["interface"] else []
    words += ["in", "on", args["interface_in"]] if args["interface_in"] else []
    words += ["out", "on", args["interface_out"]] if args["interface_out"] else []
    words += ["log"] if args["log"] else []
    for key, word in (("from_ip", "from"), ("from_port", "port"), ("to_ip", "to"), ("to_port", "port"),
                      ("proto", "proto"), ("name", "app"), ("comment", "comment")):  # fmt: skip
        words += [word, args[key]] if args[key] else []
    return words


def _foreseen(args, dry, status, rules):
    """Would a command of a dry run change anything?"""
    kind, out = dry
    if kind == "state":
        active = " active" in status
        return args["state"] in ("reloaded", "reset") or active != (args["state"] == "enabled")
    if kind == "logging":
        match = re.search(r"Logging: (on|off)(?: \(([a-z]+)\))?", status)
        if match is None:
            return True
        if args["logging"] == "off" or match.group(1) == "off":
            return (args["logging"] == "off") != (match.group(1) == "off")
        return args["logging"] not in ("on", match.group(2))
    if kind == "default":
        match = re.search(r"Default: (\w+) \(incoming\), (\w+) \(outgoing\), (\w+) \(routed\)", status)
        if match is None:
            return True
        now = {"incoming": match.group(1), "outgoing": match.group(2), "routed": match.group(3)}
        return now[args["direction"] or "incoming"] not in (args["default"], "disabled")
    lines = out.splitlines()
    if lines and all("Skipping" in line for line in lines):
        return False
    new = [line for line in lines if line.startswith(MARK)]
    given = args["from_ip"] + args["to_ip"]
    if ":" in given or re.search(r"\d+\.\d+\.", given):  # only the rules of this kind are shown
        six = ":" in given
        return [one for one in rules if _is_6(one) == six] != [one for one in new if _is_6(one) == six]
    return rules != new


def do_ufw(run, args):
    program = tool("ufw")
    status, rules = must([program, "status", "verbose"]), _rules()
    dry = ["--dry-run"] if run.check else []
    said, changed = [], False
    for kind in ("state", "default", "rule", "logging"):
        if not args[kind]:
            continue
        if kind == "state":
            words = ["-f", VERBS[args["state"]]]
        elif kind == "rule":
            words = _rule(args, program)
        else:
            direction = [args["direction"]] if kind == "default" and args["direction"] else []
            words = [kind, args[kind], *direction]
        said.append("ufw " + " ".join(words))
        if run.check and kind != "rule":
            changed = _foreseen(args, (kind, ""), status, rules) or changed
            continue
        out = must([program, *dry, *words])
        if run.check or kind == "logging":  # as Ansible: an inactive firewall shows no level
            changed = _foreseen(args, (kind, out), status, rules) or changed
        elif args["state"] in ("reloaded", "reset") and kind == "state":
            changed = True
    result = {"commands": said}
    if not run.check:
        now = must([program, "status", "verbose"])
        changed = changed or now != status or _rules() != rules
        result["msg"] = now.rstrip()
    if run.check and changed:
        changed = run.is_new_state(" ".join(said), True)
    return dict(result, changed=changed, diff=state_diff(run, "firewall", said if changed else []))
