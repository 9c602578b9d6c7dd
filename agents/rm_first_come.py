"""First come, first served on a link: a program in the kernel's way out that gives each packet of an ordered
job the traffic class of its burst.

The order is the program's own: whoever begins a burst earlier has a class that HTB serves before those of
later bursts, and keeps it until the burst ends. No process of rm has a part in it, and it stays when the
agent ends. Classes are `SLOTS` of the interface's HTB (rm_htb.py), one per place in the order; nftables
tells the program the job by the class `JOBS` + n, which exists in no HTB. Of these the first `HIGH_JOBS` are
of high priority, whose bursts all come before those of the others.

A burst ends after a silence (`gap_us`), which counts from when the last burst before it was silent: one that
has to wait is silent because it must. A burst longer than `longest_us` goes behind those that wait. One that
has come to the front goes to the first place, when its queue is empty (after `drain_us` of silence), so that
its packets keep their order, or at once if places become few. Packets that only acknowledge are not part of
a burst, and pass before all.
"""

import json
import os
import struct

import rm_bpf as bpf
import rm_htb
import rm_kernel
from rm_kernel import KernelRefused

JOBS, MOST_JOBS, HIGH_JOBS = 0x8000, 16, 4
SLOTS, HIGH_SLOTS, ALL_SLOTS = 0xF000, 2, 8  # class SLOTS + 1 is served first
FORCED = 6  # from this place on a burst at the front does not wait for an empty queue
CLASSES = range(SLOTS + 1, SLOTS + ALL_SLOTS + 1)
NAME = "rm_first_come"
PREFERENCE = rm_htb.MAJOR  # of our filter among others'
PACKET_BYTES = 1514
NEW_FILTER, EGRESS, ALL_PROTOCOLS = 44, 0xFFFFFFF3, 0x0300
# offsets in struct __sk_buff, and of the parts of a job's record
PROTOCOL, PRIORITY = 16, 32
LAST, BEGUN, SLOT, RECORD_BYTES = 0, 8, 16, 24
KEY, BASE, TOP, CONTEXT, NOW = -4, -16, -24, -32, -40  # places on the stack


def assembled(array, gap_us, drain_us, longest_us):
    """The program, which keeps its records in the map `array` of MOST_JOBS * RECORD_BYTES.

    Times are below 2 s each.
    """
    code = bpf.Assembly()
    add = code.add
    add(bpf.COPY, 6, 1)
    add(bpf.LOAD_WORD, 9, 6, PRIORITY)
    add(bpf.SUBTRACT_WORD, 9, value=(rm_htb.MAJOR << 16) + JOBS)
    add(bpf.IF_MORE, 9, offset="out", value=MOST_JOBS - 1)
    _acknowledgement(code)
    code.place("data")
    add(bpf.STORE, bpf.FRAME, 6, CONTEXT)
    add(bpf.CALL, value=bpf.KTIME)
    add(bpf.STORE, bpf.FRAME, 0, NOW)
    add(bpf.STORE_WORD_VALUE, bpf.FRAME, 0, KEY, 0)
    add(bpf.COPY, 2, bpf.FRAME)
    add(bpf.ADD, 2, value=KEY)
    code.wide(1, array, bpf.MAP_FD)
    add(bpf.CALL, value=bpf.LOOKUP)
    add(bpf.IF_EQUAL, 0, offset="out", value=0)
    add(bpf.COPY, 8, 0)
    _look(code)
    _decide(code, gap_us * 1000, drain_us * 1000, longest_us * 1000)
    code.place("out")
    add(bpf.MOVE, 0, value=-1)  # TC_ACT_UNSPEC: others' filters have their turn
    add(bpf.EXIT)
    return code.bytes()


def _acknowledgement(code):
    """TCP over IPv4 without payload goes into the first class."""
    add = code.add
    add(bpf.LOAD_WORD, 0, 6, PROTOCOL)
    add(bpf.IF_NOT, 0, offset="data", value=0x0008)  # ETH_P_IP, in the network's order
    add(bpf.PACKET_BYTE, value=14 + 9)
    add(bpf.IF_NOT, 0, offset="data", value=6)
    add(bpf.PACKET_BYTE, value=14)
    add(bpf.MASK, 0, value=0x0F)
    add(bpf.SHIFT_LEFT, 0, value=2)
    add(bpf.COPY, 8, 0)
    add(bpf.PACKET_BYTE_AT, 0, 8, value=14 + 12)
    add(bpf.SHIFT_RIGHT, 0, value=4)
    add(bpf.SHIFT_LEFT, 0, value=2)
    add(bpf.ADD_OF, 8, 0)
    add(bpf.PACKET_HALF, value=14 + 2)
    add(bpf.IF_NOT_OF, 0, 8, "data")
    add(bpf.MOVE, 1, value=(rm_htb.MAJOR << 16) + SLOTS + 1)
    add(bpf.STORE_WORD, 6, 1, PRIORITY)
    add(bpf.GO, offset="out")


def _look(code):
    """r1: the job's place, 0 = none. When the newest packets came: r2 of all not behind it, itself included;
    r3 of those before it; r4 of all that it would have to stand behind, the last of which has the place r5.
    r6: the place before the first that it may have; r7: now; r9: its record."""
    add = code.add
    add(bpf.MOVE, 5, value=0)
    add(bpf.MOVE, 7, value=HIGH_SLOTS)
    add(bpf.IF_MORE, 9, offset="low", value=HIGH_JOBS - 1)
    add(bpf.GO, offset="either")
    code.place("low")
    add(bpf.MOVE, 5, value=HIGH_SLOTS)
    add(bpf.MOVE, 7, value=ALL_SLOTS)
    code.place("either")
    add(bpf.STORE, bpf.FRAME, 5, BASE)
    add(bpf.STORE, bpf.FRAME, 7, TOP)
    # from here on r9 points to the job's record: the kernel's verifier would follow each number by itself
    add(bpf.MULTIPLY, 9, value=RECORD_BYTES)
    add(bpf.ADD_OF, 9, 8)
    add(bpf.LOAD, 1, 9, SLOT)
    add(bpf.LOAD, 2, 9, LAST)
    add(bpf.MOVE, 3, value=0)
    add(bpf.MOVE, 4, value=0)
    for job in range(MOST_JOBS):
        after = "looked %d" % job
        add(bpf.COPY, 0, 8)
        add(bpf.ADD, 0, value=RECORD_BYTES * job)
        add(bpf.IF_EQUAL_OF, 0, 9, after)
        add(bpf.LOAD, 0, 8, RECORD_BYTES * job + SLOT)
        add(bpf.IF_EQUAL, 0, offset=after, value=0)
        add(bpf.IF_MORE_OF, 0, 7, after)
        add(bpf.LOAD, 6, 8, RECORD_BYTES * job + LAST)
        _highest(code, 4, 6)
        _highest(code, 5, 0)
        add(bpf.IF_MORE_OF, 0, 1, after)
        _highest(code, 2, 6)
        add(bpf.IF_AT_LEAST_OF, 0, 1, after)
        _highest(code, 3, 6)
        code.place(after)
    add(bpf.LOAD, 7, bpf.FRAME, NOW)
    add(bpf.LOAD, 6, bpf.FRAME, BASE)


def _highest(code, known, found):
    code.add(bpf.IF_AT_MOST_OF, found, known, 1)
    code.add(bpf.COPY, known, found)


def _since(code, at, limit_ns, then, otherwise=""):
    """To `then` if more than `limit_ns` have passed since r`at`. Another processor's packet may be newer."""
    code.add(bpf.COPY, 0, 7)
    code.add(bpf.SUBTRACT_OF, 0, at)
    code.add(bpf.IF_SIGNED_MORE, 0, offset=then, value=limit_ns)
    if otherwise:
        code.add(bpf.GO, offset=otherwise)


def _decide(code, gap_ns, drain_ns, longest_ns):
    """From what `_look` found to the job's place, and the records that follow."""
    add = code.add
    add(bpf.IF_EQUAL, 1, offset="begins", value=0)
    _since(code, 2, gap_ns, "begins")
    add(bpf.LOAD, 2, 9, BEGUN)
    _since(code, 2, longest_ns, "too long", "in time")
    code.place("too long")
    _since(code, 4, gap_ns, "in time", "begins")  # nobody else is there: it may go on
    code.place("in time")
    _since(code, 3, gap_ns, "at the front", "keep")
    code.place("at the front")
    add(bpf.COPY, 0, 6)
    add(bpf.ADD, 0, value=1)
    add(bpf.IF_AT_LEAST_OF, 0, 1, "keep")
    add(bpf.COPY, 3, 1)  # places below its own are of bursts that have ended
    add(bpf.IF_AT_LEAST, 1, offset="to the first", value=FORCED)
    add(bpf.LOAD, 2, 9, LAST)
    _since(code, 2, drain_ns, "to the first", "keep")

    code.place("begins")
    add(bpf.STORE, 9, 7, BEGUN)
    _since(code, 4, gap_ns, "nobody", "behind")
    code.place("behind")
    add(bpf.LOAD, 1, bpf.FRAME, TOP)
    add(bpf.IF_AT_LEAST_OF, 5, 1, "keep")  # the last place is shared
    add(bpf.COPY, 1, 5)
    add(bpf.ADD, 1, value=1)
    add(bpf.GO, offset="keep")
    code.place("nobody")
    add(bpf.LOAD, 3, bpf.FRAME, TOP)
    add(bpf.ADD, 3, value=1)

    code.place("to the first")  # places from r6 + 1 to r3 - 1 are free again
    for job in range(MOST_JOBS):
        after = "freed %d" % job
        add(bpf.LOAD, 0, 8, RECORD_BYTES * job + SLOT)
        add(bpf.IF_AT_MOST_OF, 0, 6, after)
        add(bpf.IF_AT_LEAST_OF, 0, 3, after)
        add(bpf.MOVE, 0, value=0)
        add(bpf.STORE, 8, 0, RECORD_BYTES * job + SLOT)
        code.place(after)
    add(bpf.COPY, 1, 6)
    add(bpf.ADD, 1, value=1)

    code.place("keep")  # the place r1
    add(bpf.STORE, 9, 7, LAST)
    add(bpf.STORE, 9, 1, SLOT)
    add(bpf.LOAD, 6, bpf.FRAME, CONTEXT)
    add(bpf.ADD, 1, value=(rm_htb.MAJOR << 16) + SLOTS)
    add(bpf.STORE_WORD, 6, 1, PRIORITY)


# --- on an interface ----------------------------------------------------------------------------------


def order(interface, class_bps, ceil_bps, queue_packets, times_us):
    """Keep the order of bursts on the interface, which has our HTB; KernelRefused when the kernel does not.

    `class_bps` is what each place is guaranteed; `times_us` are gap, drain and longest.
    """
    name = " ".join([NAME, *map(str, (*times_us, class_bps, ceil_bps, queue_packets))])
    old = ordered(interface)
    if old == name:
        return
    try:
        program = loaded(*times_us)
    except OSError as error:
        sentence = "the kernel takes no program that orders bursts: %s" % error
        raise KernelRefused("no-bpf", sentence) from None
    try:
        places = [(minor, place) for place, minor in enumerate(CLASSES)]
        rm_htb.set_classes(interface, places, rm_htb.LINK, class_bps, ceil_bps, queue_packets)
        if old:
            _detach(interface)
        if not any(q["kind"] == "clsact" for q in rm_htb.qdiscs(interface)):
            rm_htb.run("tc", "qdisc", "add", "dev", interface, "clsact")
            with open(_note(interface), "w"):
                pass
        _attach(interface, program, name)
    finally:
        os.close(program)


def loaded(gap_us, drain_us, longest_us):
    """The program's file descriptor; it holds its map. OSError when the kernel takes none."""
    array = bpf.make_array(b"rm_bursts", MOST_JOBS * RECORD_BYTES)
    try:
        code = assembled(array, gap_us, drain_us, longest_us)
        return bpf.load(code, bpf.TYPE_TRAFFIC, NAME.encode())
    finally:
        os.close(array)


def leave(interface):
    """Let bursts go as they come; the interface is as it was before `order`."""
    if ordered(interface):
        _detach(interface)
    if os.path.exists(_note(interface)):
        os.unlink(_note(interface))
        if not any(_filters(interface, way) for way in ("egress", "ingress")):
            rm_htb.run("tc", "qdisc", "del", "dev", interface, "clsact")
    rm_htb.remove_classes(interface, CLASSES)


def _detach(interface):
    rm_htb.run("tc", "filter", "del", "dev", interface, "egress", "pref", str(PREFERENCE))


def drain_us(queue_packets, link_bps):
    """How long a full queue takes to be sent, as far as the program counts."""
    return min(2_000_000, 8 * PACKET_BYTES * queue_packets * 10**6 // link_bps + 1)


def ordered(interface):
    """The name of the program that orders the interface's bursts, "" when none does."""
    ours = (f for f in _filters(interface, "egress") if f.get("pref") == PREFERENCE)
    return next((f["options"]["bpf_name"] for f in ours if f.get("options", {}).get("bpf_name")), "")


def _filters(interface, way):
    return json.loads(rm_htb.run("tc", "-j", "filter", "show", "dev", interface, way, may_fail=True) or "[]")


def _note(interface):
    """Exists while the interface has a clsact of ours."""
    return "%s/shape/%s.clsact" % (rm_kernel.STATE, interface)


def _attach(interface, program, name):
    """As `tc filter add … bpf direct-action`, which takes programs only from a mounted bpf file system."""
    of_filter = rm_kernel.attribute(6, struct.pack("=I", program))
    of_filter += rm_kernel.attribute(7, name.encode() + b"\0") + rm_kernel.attribute(8, struct.pack("=I", 1))
    body = struct.pack(
        "=BxxxiIII", 0, rm_kernel.interface_index(interface), 1, EGRESS, PREFERENCE << 16 | ALL_PROTOCOLS
    )
    body += rm_kernel.attribute(1, b"bpf\0") + rm_kernel.attribute(2, of_filter)
    rm_kernel.change(NEW_FILTER, body)
