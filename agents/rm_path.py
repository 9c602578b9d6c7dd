"""The path of a job's packets: the code point by which switches choose it, set where they leave this host.

nftables (table `inet rm_path`) writes the code point (DSCP) into the packets that the job sends through an
interface; what is sent through others, or by others, stays as it is. Which code point leads over which spine
is the switches' own matter: static rules there.
"""

import json
import os
import re
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import rm_htb
import rm_kernel
from rm_classify import known_by, left_behind, send_as
from rm_kernel import Locked, require

TABLE = "rm_path"
COMMENT = re.compile(r"rm job=(\d+) attempt=(\d+) ifindex=(\d+) by=(\w+) dscp=(\d+)")


def _rules():
    """Ours in the kernel: {(job, ifindex): {handles, attempt, classifier, dscp, packets}}."""
    text = rm_htb.run("nft", "-j", "list", "table", "inet", TABLE, may_fail=True)
    found = {}
    for entry in json.loads(text)["nftables"] if text.strip() else ():
        rule = entry.get("rule")
        match = rule and COMMENT.match(rule.get("comment", ""))
        if not match:
            continue
        job, attempt, index, dscp = (int(match.group(n)) for n in (1, 2, 3, 5))
        mine = found.setdefault(
            (job, index),
            {"handles": [], "attempt": attempt, "classifier": match.group(4), "dscp": dscp, "packets": 0},
        )
        mine["handles"].append(rule["handle"])
        mine["packets"] += sum(part["counter"]["packets"] for part in rule["expr"] if "counter" in part)
    return found


def _write(job, attempt, interface, classifier, match, dscp, old):
    """Both families of addresses need a rule; they replace the old ones at once."""
    index = rm_kernel.interface_index(interface)
    comment = "rm job=%d attempt=%d ifindex=%d by=%s dscp=%d" % (job, attempt, index, classifier, dscp)
    script = "add table inet %s\n" % TABLE
    script += "add chain inet %s output { type filter hook output priority mangle; }\n" % TABLE
    script += _deletions(old)
    for family in ("ip", "ip6"):
        script += 'add rule inet %s output oifname "%s" %s %s dscp set %d counter comment "%s"\n' % (
            TABLE, interface, match, family, dscp, comment,
        )  # fmt: skip
    rm_htb.run("nft", "-f", "-", text=script)


def _deletions(old):
    return "".join(
        "delete rule inet %s output handle %d\n" % (TABLE, n) for n in (old or {"handles": ()})["handles"]
    )


def _remove(old):
    rm_htb.run("nft", "-f", "-", text=_deletions(old))
    if not _rules():
        rm_htb.run("nft", "delete", "table", "inet", TABLE, may_fail=True)


def _verified(job, attempt, interface, key):
    """Does a packet of the job pass the rule? None when no packet could be sent."""
    before = _rules()[key]["packets"]
    if not send_as(job, attempt, interface):
        return None
    for _ in range(10):
        if _rules()[key]["packets"] > before:
            return True
        time.sleep(0.002)
    return False


def path(request):
    """Give what the job sends through the interface this code point, or another one while it runs."""
    job, attempt, interface, dscp = require(request, "job", "attempt", "interface", "dscp")
    if not (isinstance(dscp, int) and 0 <= dscp <= 63):
        raise ValueError("dscp is a number from 0 to 63")
    interface = rm_kernel.interface_name(interface)
    with Locked("path"):
        key, missing = (job, rm_kernel.interface_index(interface)), []
        rules = _rules()
        old = rules.get(key)
        if old and (old["attempt"], old["dscp"]) == (attempt, dscp):
            works = old["packets"] > 0 or bool(_verified(job, attempt, interface, key))
            return {"classifier": old["classifier"], "verified": works, "missing": missing}
        by_owner = {j: rule["attempt"] for (j, _), rule in rules.items() if rule["classifier"] == "skuid"}
        found = [old]  # the rules that stand now

        def write(classifier, match):
            _write(job, attempt, interface, classifier, match, dscp, found[0])
            found[0] = _rules()[key]

        def verify():
            return _verified(job, attempt, interface, key)

        def remove():
            if found[0]:
                _remove(found[0])

        classifier, verified = known_by(job, attempt, missing, by_owner, write, verify, remove)
        return {"classifier": classifier, "verified": verified, "missing": missing}


def unpath(request):
    """The job's packets are sent as they are again."""
    job, interface = require(request, "job", "interface")
    with Locked("path"):
        old = _rules().get((job, rm_kernel.interface_index(interface)))
        if old:
            _remove(old)
    left_behind(job, old["attempt"] if old else request.get("attempt") or 0)
    return {}


OPS = {"path": path, "unpath": unpath}
SLOW_OPS = {}

if __name__ == "__main__":
    rm_kernel.serve_lines(dict(OPS, **SLOW_OPS))
