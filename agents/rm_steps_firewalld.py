"""`firewalld`: zones of firewalld and what is in them, by `firewall-cmd`, running and permanent."""

from rm_steps_base import StepFailed, execute, find_tool, must, plain_environment, state_diff, tool

# what is asked for -> the option's word behind --query-, --add- and --remove-; None takes no value
WORDS = {
    "icmp_block": "icmp-block",
    "icmp_block_inversion": "icmp-block-inversion",
    "service": "service",
    "protocol": "protocol",
    "port": "port",
    "port_forward": "forward-port",
    "rich_rule": "rich-rule",
    "interface": "interface",
    "forward": "forward",
    "masquerade": "masquerade",
    "source": "source",
}
BARE = ("icmp_block_inversion", "forward", "masquerade")
TIMED = ("icmp_block", "service", "protocol", "port", "port_forward", "rich_rule", "masquerade")


def _running():
    if not find_tool("firewall-cmd"):
        raise StepFailed("This host has no firewall-cmd: install firewalld.")
    return execute([tool("firewall-cmd"), "--state"], env=plain_environment())[0] == 0


class Side:
    """The running or the permanent configuration."""

    def __init__(self, args, permanent, online):
        self.args, self.permanent, self.online = args, permanent, online
        self.argv = [tool("firewall-cmd")] if online else [tool("firewall-offline-cmd")]
        self.argv += ["--permanent"] if permanent and online else []
        self.name = "permanent" if permanent else "running"

    def zoned(self, *words):
        zone = self.args["zone"]
        return [*self.argv, *(["--zone=" + zone] if zone else []), *words]

    def option(self, verb):
        what, value = self.args["what"], self.args["value"]
        text = "--%s-%s" % (verb, WORDS[what])
        if what == "port_forward":
            parts = ["port", "proto", "toport"] + (["toaddr"] if value["toaddr"] else [])
            return text + "=" + ":".join("%s=%s" % (part, value[part]) for part in parts)
        return text if what in BARE else "%s=%s" % (text, value)

    def has(self):
        args = self.args
        if args["what"] == "zone":
            return args["value"] in must([*self.argv, "--get-zones"]).split()
        if args["what"] == "target":
            wanted = args["value"] if args["state"] in ("enabled", "present") else "default"
            return (must(self.zoned("--get-target")).strip() == wanted) == (
                args["state"] in ("enabled", "present")
            )
        code, out, err = execute(self.zoned(self.option("query")), env=plain_environment())
        if code not in (0, 1):
            said = (err or out).strip()
            raise StepFailed("ERROR: Exception caught: %s" % said, rc=code)
        return code == 0

    def change(self, wanted):
        args = self.args
        if args["what"] == "zone":
            must([*self.argv, "--%s-zone=%s" % ("new" if wanted else "delete", args["value"])])
        elif args["what"] == "target":
            must(self.zoned("--set-target=" + (args["value"] if wanted else "default")))
        else:
            moves = wanted and args["what"] in ("interface", "source")  # away from the zone that has it
            verb = "change" if moves else "add" if wanted else "remove"
            timed = wanted and args["timeout"] and not self.permanent and args["what"] in TIMED
            must(self.zoned(self.option(verb), *(["--timeout=%d" % args["timeout"]] if timed else [])))


def _shown(args):
    value = args["value"]
    if args["what"] != "port_forward":
        return str(value)
    return ":".join("%s=%s" % (part, value[part]) for part in ("port", "proto", "toport", "toaddr"))


def _said(args, wanted, zone):
    """Ansible's words for a change."""
    what, shown = args["what"], _shown(args)
    if what in ("forward", "masquerade"):
        return "%s %s zone %s" % (
            "Added" if wanted else "Removed",
            what + (" to" if wanted else " from"),
            zone,
        )
    if what == "interface" and wanted:
        return "Changed %s to zone %s" % (shown, zone)
    if what in ("interface", "source"):
        return ("Added %s to zone %s" if wanted else "Removed %s from zone %s") % (shown, zone)
    if what == "target":
        return (
            "Set zone %s target to %s" % (zone, shown) if wanted else "Reset zone %s target to default" % zone
        )
    if what == "zone":
        return "%s zone %s" % ("Added" if wanted else "Removed", zone)
    return "Changed %s %s to %s" % (what if "port" in what or what == "rich_rule" else WORDS[what], shown,
                                    args["state"])  # fmt: skip


def do_firewalld(run, args):
    online = _running()
    immediate = args["immediate"]
    if args["offline"] and not online:
        immediate = False
    immediate = immediate or not args["permanent"]
    if immediate and not online:
        said = "firewall is not currently running, unable to perform immediate actions without a running"
        raise StepFailed(said + " firewall daemon")
    if args["what"] in ("zone", "target"):
        immediate = False
    wanted = args["state"] in ("enabled", "present")
    if args["what"] in BARE and not args["value"]:
        wanted = not wanted
    sides = [Side(args, permanent, online) for permanent in (True, False) if (permanent and args["permanent"])
             or (not permanent and immediate)]  # fmt: skip
    kind = "Permanent and Non-Permanent(immediate)" if len(sides) == 2 else (
        "Permanent" if args["permanent"] else "Non-permanent")  # fmt: skip
    told, changed = [kind + " operation"], []
    for side in sides:
        key = "firewalld %s %s %s %s" % (side.name, args["zone"], args["what"], _shown(args))
        if side.has() != wanted and run.is_new_state(key, wanted):
            changed.append(side.name)
            if not run.check:
                side.change(wanted)
    if changed:
        zone = args["zone"] or must([sides[0].argv[0], "--get-default-zone"]).strip()
        told.append(_said(args, wanted, zone))
    if not online:
        told.append("(offline operation: only on-disk configs were altered)")
    diff = state_diff(run, "firewalld (%s)" % " and ".join(changed), told[1:2]) if changed else []
    return {"changed": bool(changed), "msg": ", ".join(told), "diff": diff}
