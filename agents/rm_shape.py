"""Per-job traffic classes of a host: control group → nftables → HTB class, verified by the counters.

One HTB per shaped interface (rm_htb.py) holds one class per job and one for everything else. nftables
(table `inet rm_shape`) counts each job's bytes and sets skb->priority, from which HTB takes the class:
no tc classifier is needed. The state is the kernel's own, plus a note of what was found, so that the
last removal restores it.
"""

import json
import os
import re
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import rm_bpf
import rm_first_come
import rm_htb
import rm_kernel
from rm_classify import known_by, left_behind, send_as
from rm_first_come import HIGH_JOBS, JOBS, MOST_JOBS
from rm_kernel import TABLE, KernelRefused, Locked, now_us, require

# minor numbers: of jobs that have a class of their own, and of those that have one per burst
OWN, ORDERED = range(0x10, JOBS), range(JOBS, JOBS + MOST_JOBS)


# --- nftables: who is who ---------------------------------------------------------------------------


def _counter(job, interface):
    return "job_%d_if%d" % (job, rm_kernel.interface_index(interface))


def _rules():
    """Our rules in the kernel: {(job, ifindex): {handle, attempt, classifier, minor}}."""
    text = rm_htb.run("nft", "-j", "list", "table", "inet", TABLE, may_fail=True)
    found = {}
    for entry in json.loads(text)["nftables"] if text.strip() else ():
        rule = entry.get("rule")
        match = rule and re.match(
            r"rm job=(\d+) attempt=(\d+) ifindex=(\d+) by=(\w+) minor=(\d+)", rule.get("comment", "")
        )
        if match:
            job, attempt, index, minor = (int(match.group(n)) for n in (1, 2, 3, 5))
            found[(job, index)] = {
                "handle": rule["handle"], "attempt": attempt, "classifier": match.group(4), "minor": minor,
            }  # fmt: skip
    return found


def _write_rule(job, attempt, interface, classifier, match, minor, old):
    """Count, and class when `minor` is not 0, the packets that `match`; replaces the old rule at once."""
    name, index = _counter(job, interface), rm_kernel.interface_index(interface)
    mark = "meta priority set %x:%x " % (rm_htb.MAJOR, minor) if minor else ""
    comment = "rm job=%d attempt=%d ifindex=%d by=%s minor=%d" % (job, attempt, index, classifier, minor)
    script = "add table inet %s\n" % TABLE
    script += "add chain inet %s output { type filter hook output priority mangle; }\n" % TABLE
    script += "add counter inet %s %s\n" % (TABLE, name)
    if old:
        script += "delete rule inet %s output handle %d\n" % (TABLE, old["handle"])
    script += 'add rule inet %s output oifname "%s" %s counter name "%s" %scomment "%s"\n' % (
        TABLE, interface, match, name, mark, comment,
    )  # fmt: skip
    rm_htb.run("nft", "-f", "-", text=script)


def _remove_rule(job, interface, old):
    script = "delete rule inet %s output handle %d\n" % (TABLE, old["handle"])
    script += "delete counter inet %s %s\n" % (TABLE, _counter(job, interface))
    rm_htb.run("nft", "-f", "-", text=script)
    if not _rules():
        rm_htb.run("nft", "delete", "table", "inet", TABLE, may_fail=True)


def _verified(job, attempt, interface, minor):
    """Does a packet of the job pass its rule and its class? None when no packet could be sent."""
    name = _counter(job, interface)
    own = rm_first_come.CLASSES if minor in ORDERED else (minor,)
    classes = {"%x:%x" % (rm_htb.MAJOR, one) for one in own}

    def seen():
        counted = rm_kernel.named_counters().get(name, (0, 0))[1]
        if not minor:
            return counted, counted
        found = rm_kernel.class_counters(interface)
        return counted, sum(found[klass]["packets"] for klass in classes & found.keys())

    before = seen()
    if not send_as(job, attempt, interface):
        return None
    for _ in range(50):  # behind a full queue it waits for its turn
        after = seen()
        if after[0] > before[0] and after[1] > before[1]:
            return True
        time.sleep(0.002)
    return False


def _mark(job, attempt, interface, minor, old):
    """Find a classifier that works and install it: (name, verified, missing)."""
    missing = []
    if old and old["attempt"] == attempt and old["minor"] == minor:
        passed = rm_kernel.named_counters().get(_counter(job, interface), (0, 0))[1] > 0
        return old["classifier"], passed or bool(_verified(job, attempt, interface, minor)), missing
    by_owner = {j: r["attempt"] for (j, _), r in _rules().items() if r["classifier"] == "skuid"}
    found = [old]  # the rule that stands now

    def write(classifier, match):
        _write_rule(job, attempt, interface, classifier, match, minor, found[0])
        found[0] = _rules().get((job, rm_kernel.interface_index(interface)))

    def remove():
        if found[0]:
            _remove_rule(job, interface, found[0])

    def verify():
        return _verified(job, attempt, interface, minor)

    classifier, verified = known_by(job, attempt, missing, by_owner, write, verify, remove)
    return classifier, verified, missing


# --- operations -------------------------------------------------------------------------------------


def shape(request):
    """Give the job its class on the interface, or change it while it runs. Needs root.

    Optional: `queue_packets` (length of the class's pfifo; else the found queue's, else 100); `bursts`:
    whoever begins a burst earlier is served before the others (rm_first_come.py), high jobs, of priority 0,
    first.
    """
    job, attempt, interface, rate, priority, class_rate, ceil = require(
        request, "job", "attempt", "interface", "rate_bps", "priority", "class_rate_bps", "ceil_bps"
    )
    interface = rm_kernel.interface_name(interface)
    with Locked("shape"):
        index = rm_kernel.interface_index(interface)
        if not rm_htb.attached(interface):
            rm_htb.attach(interface)
        note = json.loads(rm_kernel.read_text(rm_htb.note_path(interface), "{}"))
        queue = request.get("queue_packets") or rm_htb.DEFAULT_QUEUE_PACKETS
        if not request.get("queue_packets") and note.get("kind") == "pfifo":
            queue = note["options"].get("limit", queue)
        # Below someone else's equal or lower limit our own must not bite first, or it would decide nothing.
        outer = note.get("limit_bps") or 0
        link = 4 * outer if outer and rate >= outer else rate
        limit = link if outer and ceil >= outer else min(ceil, link)
        rm_htb.set_class(interface, rm_htb.LINK, 0, link, link, 0, 0)
        rm_htb.set_class(
            interface, rm_htb.OTHERS, rm_htb.LINK, min(rate, outer or rate) // 20, link, 3, queue
        )
        rules = _rules()
        old = rules.get((job, index))
        bursts = request.get("bursts")
        try:
            minor = _minor(rules, index, old, _ordered_minors(priority) if bursts else OWN)
            if bursts:
                gap_us, longest_us = require(bursts, "gap_us", "longest_us")
                drain_us = rm_first_come.drain_us(queue, min(rate, outer or rate))
                rm_first_come.order(interface, class_rate, limit, queue, (gap_us, drain_us, longest_us))
        except KernelRefused:
            _restore(interface)
            raise
        if not bursts:
            at = max(0, min(7, priority))
            rm_htb.set_class(interface, minor, rm_htb.LINK, class_rate, limit, at, queue)
        try:
            classifier, verified, missing = _mark(job, attempt, interface, minor, old)
        except KernelRefused:
            if minor not in _minors(interface):
                _remove_class(interface, minor)
            _restore(interface)
            raise
        if old and old["minor"] not in (0, minor):
            _remove_class(interface, old["minor"])
        name = "%x:%x" % (rm_htb.MAJOR, minor)
        there = bool(bursts) or name in rm_kernel.class_counters(interface)
        return {
            "class": name, "classifier": classifier, "missing": missing, "queue_packets": queue,
            "verified": bool(verified and there),
        }  # fmt: skip


def _ordered_minors(priority):
    """The names of jobs whose bursts are ordered: those of high jobs, or of the others."""
    first, after = (0, HIGH_JOBS) if priority == 0 else (HIGH_JOBS, MOST_JOBS)
    return range(JOBS + first, JOBS + after)


def _minor(rules, index, old, among):
    """The job's own of these minor numbers; the one that it has, if it is one of them."""
    if old and old["minor"] in among:
        return old["minor"]
    taken = {rule["minor"] for (_, where), rule in rules.items() if where == index}
    free = next((minor for minor in among if minor not in taken), None)
    if free is None:
        raise KernelRefused(
            "too-many-jobs", "bursts of %d jobs are ordered here already, and no more can be" % len(among)
        )
    return free


def _remove_class(interface, minor):
    """The class of a job that has left; those of ordered bursts go when no such job is left."""
    if minor in OWN:
        rm_htb.remove_classes(interface, (minor,))
    elif not set(ORDERED) & _minors(interface):
        rm_first_come.leave(interface)


def _minors(interface):
    """Of the jobs that are shaped on the interface."""
    index = rm_kernel.interface_index(interface)
    return {rule["minor"] for (_, where), rule in _rules().items() if where == index} - {0}


def _restore(interface):
    """Without any shaped job the interface is as it was found."""
    if not _minors(interface) and rm_htb.attached(interface):
        rm_first_come.leave(interface)
        rm_htb.detach(interface)


def count(request):
    """Count the job's bytes on the interface without shaping them."""
    job, attempt, interface = require(request, "job", "attempt", "interface")
    interface = rm_kernel.interface_name(interface)
    with Locked("shape"):
        old = _rules().get((job, rm_kernel.interface_index(interface)))
        minor = old["minor"] if old else 0
        classifier, verified, missing = _mark(job, attempt, interface, minor, old)
        return {"classifier": classifier, "verified": verified, "missing": missing, "added": old is None}


def unshape(request):
    """Remove the job's class, rule and counter; the last job's removal restores the interface."""
    job, interface = require(request, "job", "interface")
    interface = rm_kernel.interface_name(interface)
    with Locked("shape"):
        rules = _rules()
        index = rm_kernel.interface_index(interface)
        old = rules.pop((job, index), None)
        if old:
            _remove_rule(job, interface, old)
            if old["minor"] and rm_htb.attached(interface):
                _remove_class(interface, old["minor"])
        _restore(interface)
    left_behind(job, old["attempt"] if old else request.get("attempt") or 0)
    return {}


def shape_counters(request):
    """Counters of every shaped job's class on the interface."""
    (interface,) = require(request, "interface")
    index, classes = rm_kernel.interface_index(interface), rm_kernel.class_counters(interface)
    jobs = {}
    for (job, where), rule in _rules().items():
        found = classes.get("%x:%x" % (rm_htb.MAJOR, rule["minor"]))
        if where == index and found:
            jobs[str(job)] = found
    return {"jobs": jobs}


def class_of(job, interface):
    """The shaped job's own class, "major:minor", "" when it has none."""
    rule = _rules().get((job, rm_kernel.interface_index(interface)))
    return "%x:%x" % (rm_htb.MAJOR, rule["minor"]) if rule and rule["minor"] in OWN else ""


def job_bytes(interface):
    """Bytes sent so far by every counted job through the interface: {"<job>": bytes}. Cheap."""
    end = "_if%d" % rm_kernel.interface_index(interface)
    counters = rm_kernel.named_counters()
    return {n[4 : -len(end)]: v[0] for n, v in counters.items() if n.startswith("job_") and n.endswith(end)}


def counters(request):
    """Interface and per-job byte counters now."""
    (interface,) = require(request, "interface")
    jobs = job_bytes(interface)
    received, sent = rm_kernel.interface_counters(interface)
    return {"now_us": now_us(), "rx_bytes": received, "tx_bytes": sent, "jobs": jobs}


def watch(request):
    """Notify `counters` every `interval_us` (at least 1 ms) for `duration_us`."""
    interface, interval, duration = require(request, "interface", "interval_us", "duration_us")
    interval, samples, begin = max(1000, int(interval)), 0, time.monotonic()
    while True:
        request["notify"](dict(counters(request), event="counters", interface=interface))
        samples += 1
        due = begin + samples * interval / 1e6
        if due > begin + duration / 1e6:
            return {"samples": samples}
        time.sleep(max(0.0, due - time.monotonic()))


def features():
    """What of the kernel's traffic control works here; "bpf" is missing where bursts cannot be ordered."""
    found = rm_htb.features()
    if not rm_bpf.takes(rm_bpf.TYPE_TRAFFIC):
        found["missing"].append("bpf")
    return found


OPS = {
    "shape": shape,
    "unshape": unshape,
    "shape_counters": shape_counters,
    "counters": counters,
    "count": count,
}
SLOW_OPS = {"watch": watch}


if __name__ == "__main__":
    rm_kernel.serve_lines(dict(OPS, **SLOW_OPS))
