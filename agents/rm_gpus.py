"""GPUs of a host and what is wrong with them: by the driver (nvidia-smi) and the kernel's log (Xid)."""

import os
import re
import stat
import subprocess
import time

KERNEL_LOG = "/dev/kmsg"
RECORD_BYTES = 1 << 14  # the kernel refuses to give a record to a smaller buffer
ANSWER_S = 30
TOLD_MAX = 64  # kinds of Xid that are reported at most
# name in the answer -> what nvidia-smi calls it
FIELDS = {
    "index": "index",
    "uuid": "uuid",
    "model": "name",
    "mem_bytes": "memory.total",
    "bus": "pci.bus_id",
    "ecc_uncorrected": "ecc.errors.uncorrected.volatile.total",
    "ecc_uncorrected_ever": "ecc.errors.uncorrected.aggregate.total",
    "retirement_pending": "retired_pages.pending",
    "remapping_pending": "remapped_rows.pending",
    "remapping_failed": "remapped_rows.failure",
    "link_width": "pcie.link.width.current",
    "link_width_max": "pcie.link.width.max",
    "busy_pct": "utilization.gpu",
}
NEEDED = ("index", "uuid", "model", "mem_bytes")
# the driver says for instance "Field "remapped_rows.pending" is not a valid field to query."
UNKNOWN = re.compile(r'[Ff]ield "([^"]+)" is not a valid field')
XID = re.compile(r"NVRM: (?:GPU at [^:]*: )?Xid \(PCI:([0-9a-fA-F:.]+)\): (\d+)(?:, (.*))?")


def gpus(tool):
    """[{index, uuid, model, mem_bytes, bus, ecc_uncorrected, ...}], one for each GPU that `tool` lists.

    The counters are None where the driver says `[N/A]`, `ecc_uncorrected` counts since the driver was
    loaded. A field that an old driver does not know is left out. [] when there is no driver or no GPU.
    """
    names = list(FIELDS)
    while True:
        query = "--query-gpu=" + ",".join(FIELDS[name] for name in names)
        try:
            answer = subprocess.run(
                [tool, query, "--format=csv,noheader,nounits"],
                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, timeout=ANSWER_S,
            )  # fmt: skip
        except (OSError, subprocess.SubprocessError):
            return []
        text = answer.stdout.decode(errors="replace")
        unknown = [name for name in names if FIELDS[name] in UNKNOWN.findall(text) and name not in NEEDED]
        if not unknown:
            break
        names = [name for name in names if name not in unknown]
    # with one GPU lost the program ends with an error and still lists the others
    found = (_gpu(names, line) for line in text.splitlines())
    return [one for one in found if one is not None]


def _gpu(names, line):
    """One line of the answer; None for a line that is a message."""
    words = [word.strip() for word in line.split(",")]
    if len(words) != len(names) or not words[0].isdigit():
        return None
    told = {name: words[place] for place, name in enumerate(names)}
    one = {"index": int(told["index"]), "uuid": told["uuid"], "model": told["model"]}
    one["mem_bytes"] = (_number(told["mem_bytes"]) or 0) << 20
    for name in names[len(NEEDED) :]:
        if name == "bus":
            one["bus"] = _bus(told["bus"])
        elif name.endswith(("pending", "failed")):
            one[name] = {"yes": True, "no": False, "1": True, "0": False}.get(told[name].lower())
        else:
            one[name] = _number(told[name])
    return one


def _number(word):
    return int(word) if word.isdigit() else None


def _bus(word):
    """`00000000:3B:00.0` of nvidia-smi and `0000:3b:00` of the kernel are one: domain:bus:device."""
    match = re.match(r"([0-9a-fA-F]+):([0-9a-fA-F]+):([0-9a-fA-F]+)", word)
    return "%04x:%02x:%02x" % tuple(int(part, 16) for part in match.groups()) if match else ""


def xids(log=KERNEL_LOG):
    """[{bus, code, count, ago_s, said}], the newest first: the driver's complaints in the kernel's log.

    Each kind is reported once for each GPU, with how often and how long ago it came last. The log reaches
    back to the boot, or as far as the kernel's buffer does; [] where it may not be read.
    """
    found = {}
    for at_us, text in _records(log):
        match = XID.search(text)
        if match:
            key = _bus(match.group(1)), int(match.group(2))
            count = found[key]["count"] if key in found else 0
            ago_s = max(0, round(time.clock_gettime(time.CLOCK_MONOTONIC) - at_us / 1e6))
            found[key] = {"bus": key[0], "code": key[1], "count": count + 1, "ago_s": ago_s}
            found[key]["said"] = (match.group(3) or "").strip()[:200]
    return sorted(found.values(), key=lambda one: one["ago_s"])[:TOLD_MAX]


def _records(log):
    """(microseconds since the boot, text) of each record: `priority,number,microseconds,flags;text`."""
    try:
        fd = os.open(log, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return
    try:
        device = stat.S_ISCHR(os.fstat(fd).st_mode)
        rest = b""
        while True:
            try:
                data = os.read(fd, RECORD_BYTES)
            except BrokenPipeError:  # older records were overwritten while we read
                continue
            except OSError:  # BlockingIOError: that was the last one
                break
            if not data:
                break
            *lines, rest = (rest + data).split(b"\n")
            for line in lines:
                head, mark, text = line.partition(b";")
                words = head.split(b",")
                if mark and len(words) >= 3 and words[2].isdigit():
                    yield int(words[2]), text.decode(errors="replace")
            if device:
                rest = b""
    finally:
        os.close(fd)
