"""The HTB of an interface: where it is put, its classes, and how the interface is put back as it was.

Ours has the handle 726d:. It becomes the interface's root, or the child of a tbf or of an HTB default
leaf that was found there, so that a limit set by others stays in force.
"""

import json
import os
import re
import shutil
import subprocess

import rm_kernel
from rm_kernel import STATE, KernelRefused

MAJOR = 0x726D
OTHERS = 0xFFFF  # class of traffic that belongs to no shaped job
LINK = 0xFFFE  # the class all others borrow from: the link itself
DEFAULT_QUEUE_PACKETS = 100
RESTORABLE = {"pfifo", "bfifo", "fq_codel", "fq", "sfq", "pfifo_fast", "mq", "noqueue", "cake"}


def run(program, *arguments, **options):
    """Run a program; its standard output, or a refusal that carries its first line of complaint."""
    path = shutil.which(program, path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin")
    if path is None:
        raise KernelRefused("missing-program", "%s is not installed on this host" % program)
    done = subprocess.run(
        (path, *arguments), input=options.get("text", ""), stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        universal_newlines=True, check=False,
    )  # fmt: skip
    if done.returncode != 0 and not options.get("may_fail"):
        complaint = (done.stderr or done.stdout).strip().splitlines() or ["no reason given"]
        shown = " ".join(arguments)[:120] or options.get("text", "")[:120]
        raise KernelRefused("refused-by-kernel", "%s %s: %s" % (program, shown, complaint[0]))
    return done.stdout


def qdiscs(interface):
    return json.loads(run("tc", "-j", "qdisc", "show", "dev", interface) or "[]")


def attached(interface):
    return any(q["kind"] == "htb" and q["handle"] == "%x:" % MAJOR for q in qdiscs(interface))


def note_path(interface):
    return "%s/shape/%s.json" % (STATE, interface)


def attach(interface):
    """Put our HTB where the interface's traffic passes; notes what was there. The place as tc words."""
    rm_kernel.interface_index(interface)
    found = qdiscs(interface)
    root = next((q for q in found if q.get("root")), {"kind": "noqueue", "handle": "0:"})
    note = {"place": ["root"], "kind": root["kind"], "options": root.get("options", {}), "limit_bps": 0}
    if root["kind"] == "tbf":
        leaf = root["handle"] + "1"
        below = next((q for q in found if q.get("parent") == leaf), None)
        if below and below["kind"] not in RESTORABLE:
            raise KernelRefused(
                "foreign-qdisc", "the tbf of %s already holds a %s" % (interface, below["kind"])
            )
        note.update(place=["parent", leaf], limit_bps=int(root["options"]["rate"]) * 8)
        if below:
            note.update(kind=below["kind"], options=below["options"], handle=below.get("handle", ""))
    elif root["kind"] == "htb":
        leaf = root["handle"] + "%x" % int(str(root["options"].get("default", "0")), 16)
        shown = run("tc", "class", "show", "dev", interface)
        line = re.search(r"^class htb %s .*\bceil (\S+)" % re.escape(leaf), shown, re.M)
        if line is None:
            raise KernelRefused("foreign-qdisc", "the HTB on %s has no default class to shape in" % interface)
        below = next((q for q in found if q.get("parent") == leaf), {"kind": "pfifo", "options": {}})
        if below["kind"] not in RESTORABLE:
            raise KernelRefused(
                "foreign-qdisc", "class %s of %s already holds a %s" % (leaf, interface, below["kind"])
            )
        note.update(place=["parent", leaf], limit_bps=rate_of(line.group(1)))
        note.update(kind=below["kind"], options=below["options"], handle=below.get("handle", ""))
    elif root["kind"] not in RESTORABLE:
        raise KernelRefused(
            "foreign-qdisc", "%s has a %s that could not be restored" % (interface, root["kind"])
        )
    with open(note_path(interface), "w") as file:
        json.dump(note, file)
    run("tc", "qdisc", "replace", "dev", interface, *note["place"], "handle", "%x:" % MAJOR, "htb",
         "default", "%x" % OTHERS)  # fmt: skip
    return note


def detach(interface):
    """Remove our HTB and put back what was found."""
    note = json.loads(rm_kernel.read_text(note_path(interface), "{}"))
    place, kind, options = note.get("place", ["root"]), note.get("kind", ""), note.get("options", {})
    words = [kind]
    for name, value in options.items():
        if name in ("limit", "flows", "quantum", "perturb", "interval", "target", "memory_limit"):
            words += [name, "%dus" % value if name in ("interval", "target") else str(value)]
    if kind == "tbf":  # its child, as tbf itself makes it
        size = options["rate"] * options.get("lat", 0) // 1000000 + options["burst"]
        words = ["bfifo", "limit", str(options.get("limit", size))]
    if note.get("handle", "0:") not in ("", "0:"):
        words = ["handle", note["handle"], *words]
    if place == ["root"]:
        run("tc", "qdisc", "del", "dev", interface, "root")
        if kind not in ("", "noqueue", "mq", "pfifo_fast"):  # the kernel itself brings these back
            run("tc", "qdisc", "replace", "dev", interface, "root", *words)
    else:
        run("tc", "qdisc", "replace", "dev", interface, *(place + words))
    if os.path.exists(note_path(interface)):
        os.unlink(note_path(interface))


def rate_of(text):
    """A rate as tc prints it, in bit/s."""
    number, unit = re.match(r"([\d.]+)([A-Za-z]*)", text).groups()
    scale = {"": 1, "bit": 1, "kbit": 10**3, "mbit": 10**6, "gbit": 10**9, "tbit": 10**12}
    return int(float(number) * scale[unit.lower()])


def set_class(interface, minor, parent, rate_bps, ceil_bps, priority, queue_packets):
    """Create or change one class; a leaf (queue_packets > 0) keeps its queue and what waits in it."""
    set_classes(interface, [(minor, priority)], parent, rate_bps, ceil_bps, queue_packets)


def set_classes(interface, classes, parent, rate_bps, ceil_bps, queue_packets):
    """The same for several, given by their minor numbers and priorities."""
    above = "%x:%x" % (MAJOR, parent) if parent else "%x:" % MAJOR
    burst = max(4000, int(ceil_bps / 8 / 1000))  # what the ceiling lets through in 1 ms
    rates = "rate %dbit ceil %dbit" % (max(8000, rate_bps), max(8000, ceil_bps))
    lines = [
        "class replace dev %s parent %s classid %x:%x htb %s prio %d quantum 6056 burst %d cburst %d"
        % (interface, above, MAJOR, minor, rates, priority, burst, burst)
        for minor, priority in classes
    ]
    leaves = {q.get("parent"): q for q in qdiscs(interface)} if queue_packets else {}
    for name in ["%x:%x" % (MAJOR, minor) for minor, _ in classes] if queue_packets else ():
        leaf, limit = leaves.get(name), "pfifo limit %d" % queue_packets
        if leaf is None or leaf["kind"] != "pfifo":
            lines.append("qdisc add dev %s parent %s %s" % (interface, name, limit))
        elif leaf["options"].get("limit") != queue_packets:
            words = (interface, name, leaf["handle"], limit)
            lines.append("qdisc change dev %s parent %s handle %s %s" % words)
    run("tc", "-batch", "-", text="\n".join(lines) + "\n")


def remove_classes(interface, minors):
    """Classes, with what waits in them; those that are not there stay away."""
    lines = ["class del dev %s classid %x:%x" % (interface, MAJOR, minor) for minor in minors]
    run("tc", "-force", "-batch", "-", text="\n".join(lines) + "\n", may_fail=True)


def features():
    """What of the kernel's traffic control works here, tried on the loopback of a namespace of its own."""
    kinds = ("htb", "fq_codel", "netem", "prio")
    lines = ["qdisc add dev lo root %s\nqdisc show dev lo\nqdisc del dev lo root\n" % kind for kind in kinds]
    try:
        tried = subprocess.run(["unshare", "-n", "tc", "-force", "-batch", "-"], input="".join(lines),
                               capture_output=True, text=True, timeout=5)  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return {"htb": False, "missing": list(kinds)}
    works = [line.split()[1] for line in tried.stdout.splitlines() if line.startswith("qdisc ")]
    return {"htb": "htb" in works, "missing": [kind for kind in kinds if kind not in works]}
