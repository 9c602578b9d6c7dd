"""What this host's kernel knows of a job: its control group, its processes, its byte counters.

Shared by rm_shape.py, rm_pause.py and rm_probe.py, which lie in the same directory. Counters are read
by netlink, without starting a program: about 50 microseconds each, so that they can be sampled.
"""

import fcntl
import json
import os
import re
import socket
import struct
import sys
import time
import zlib

DEFAULT_STATE = "/var/lib/rm"
STATE = os.environ.get("RM_AGENT_STATE") or DEFAULT_STATE
# Hosts have one agent and the group "rm"; another state directory (tests) has a group of its own.
PARENT = "rm" if STATE == DEFAULT_STATE else "rm-%08x" % zlib.crc32(STATE.encode())
TABLE = "rm_shape"
NO_NAME = re.compile(r"[:/\s\x00-\x1f\x7f]")  # is in no interface's name


class KernelRefused(Exception):
    """An operation that cannot be done: `code` for programs, one sentence for people."""

    def __init__(self, code, sentence):
        super().__init__(sentence)
        self.code = code


class Locked:
    """One change of its kind at a time on this host, whichever process makes it."""

    def __init__(self, kind):
        self.folder = "%s/%s" % (STATE, kind)

    def __enter__(self):
        os.makedirs(self.folder, exist_ok=True)
        self.file = open(self.folder + "/lock", "w")
        fcntl.flock(self.file, fcntl.LOCK_EX)

    def __exit__(self, *_):
        self.file.close()
        return False


def now_us():
    """Wall clock of this host, microseconds since the epoch."""
    return time.time_ns() // 1000


def read_text(path, default=""):
    """A file's text, or `default` when it is not there."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return default


# --- control groups and processes -------------------------------------------------------------------


def cgroup_mounts(kind="cgroup2", option=""):
    """Mount points of a cgroup file system (`cgroup2`, or v1 `cgroup` with an option such as `freezer`)."""
    found = []
    for line in read_text("/proc/self/mounts").splitlines():
        fields = line.split()
        if len(fields) > 3 and fields[2] == kind and (not option or option in fields[3].split(",")):
            found.append(fields[1])
    return found


def cgroup_root():
    """The cgroup2 mount to use: /sys/fs/cgroup (pure v2), …/unified (hybrid), "" when there is none."""
    mounts = cgroup_mounts()
    mounts.sort(
        key=lambda path: (not os.path.isdir("%s/%s" % (path, PARENT)), not path.startswith("/sys/fs/cgroup"))
    )
    return mounts[0] if mounts else ""


def job_cgroup(job, attempt):
    """Path of the job's control group, "" when it does not exist. An element of a slice is in the slice's."""
    path = "%s/%s/job_%d_%d" % (cgroup_root(), PARENT, job, attempt)
    if not os.path.isdir(path):
        path = _noted(job_state(job, attempt)).get("cgroup") or ""
    return path if path and os.path.isdir(path) else ""


def job_state(job, attempt):
    """The folder in which the agent keeps this attempt."""
    return "%s/jobs/%d.%d" % (STATE, job, attempt)


def job_processes(job, attempt):
    """Process ids of the job: its cgroup's, else those below its supervisor or its ranks."""
    group = job_cgroup(job, attempt)
    if group:
        pids = set()
        for folder, _, _ in os.walk(group):
            pids.update(int(pid) for pid in read_text(folder + "/cgroup.procs").split())
        return pids
    folder = job_state(job, attempt)
    roots, supervisor = set(), _recorded(folder, "supervisor")
    if supervisor:
        # it reaps all that the job leaves behind, so that all of it is below
        return process_tree({supervisor}) - {supervisor}
    for name in os.listdir(folder) if os.path.isdir(folder) else ():
        roots.add(_recorded("%s/%s" % (folder, name), "pid"))
    return process_tree(roots - {0})


def _recorded(folder, key):
    """A process id in the folder's meta.json, 0 when there is none or the process is gone."""
    try:
        pid = int(_noted(folder).get(key) or 0)
    except (ValueError, TypeError):
        return 0
    return pid if pid > 1 and os.path.isdir("/proc/%d" % pid) else 0


def _noted(folder):
    """What the folder's meta.json holds."""
    try:
        found = json.loads(read_text(folder + "/meta.json", "{}"))
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def process_tree(roots):
    """The given processes and all their descendants."""
    children = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            stat = read_text("/proc/%s/stat" % name)
            after = stat.rpartition(")")[2].split()
            if len(after) > 1:
                children.setdefault(int(after[1]), []).append(int(name))
    found, todo = set(), list(roots)
    while todo:
        pid = todo.pop()
        if pid not in found:
            found.add(pid)
            todo.extend(children.get(pid, ()))
    return found


# --- netlink ----------------------------------------------------------------------------------------

_DUMP = 0x1 | 0x300  # NLM_F_REQUEST | NLM_F_DUMP
_GETTCLASS, _NEWTCLASS = 42, 40
_GETOBJ, _NEWOBJ = (10 << 8) | 19, (10 << 8) | 18
_NETLINK_ROUTE, _NETLINK_NETFILTER = 0, 12


def _dump(protocol, kind, body):
    """The payloads that answer a netlink dump request; [] when the kernel refuses it."""
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, protocol) as link:
        link.settimeout(2.0)
        link.bind((0, 0))
        link.send(struct.pack("=IHHII", 16 + len(body), kind, _DUMP, 1, 0) + body)
        payloads = []
        while True:
            data = link.recv(1 << 18)
            offset = 0
            while offset + 16 <= len(data):
                length, answer = struct.unpack_from("=IH", data, offset)
                if answer == 3:  # NLMSG_DONE
                    return payloads
                if answer == 2:  # NLMSG_ERROR: no such table, or no such subsystem
                    return []
                payloads.append(data[offset + 16 : offset + length])
                offset += (length + 3) & ~3


def _attributes(data, offset=0):
    """Netlink attributes: type → bytes."""
    found = {}
    while offset + 4 <= len(data):
        length, kind = struct.unpack_from("=HH", data, offset)
        if length < 4:
            break
        found[kind & 0x3FFF] = data[offset + 4 : offset + length]
        offset += (length + 3) & ~3
    return found


def attribute(kind, value):
    return struct.pack("=HH", 4 + len(value), kind) + value + b"\0" * (-len(value) % 4)


def change(kind, body):
    """Ask the kernel to make something new by a netlink request; KernelRefused with its reason."""
    flags = 0x1 | 0x4 | 0x200 | 0x400  # NLM_F_REQUEST | NLM_F_ACK | NLM_F_EXCL | NLM_F_CREATE
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _NETLINK_ROUTE) as link:
        link.settimeout(2.0)
        link.bind((0, 0))
        link.send(struct.pack("=IHHII", 16 + len(body), kind, flags, 1, 0) + body)
        answer = link.recv(1 << 16)
    (number,) = struct.unpack_from("=i", answer, 16)
    if number:
        raise KernelRefused("refused-by-kernel", "the kernel refused: %s" % os.strerror(-number))


def named_counters(table=TABLE):
    """Every named counter of an nftables `inet` table of this network namespace: name → (bytes, packets)."""
    body = struct.pack("=BBH", 1, 0, 0) + attribute(1, table.encode() + b"\0")
    found = {}
    for payload in _dump(_NETLINK_NETFILTER, _GETOBJ, body):
        fields = _attributes(payload, 4)
        if fields.get(3) != b"\0\0\0\1" or fields.get(1, b"").rstrip(b"\0") != table.encode():
            continue
        values = _attributes(fields.get(4, b""))
        if 1 in values and 2 in values:
            name = fields[2].rstrip(b"\0").decode()
            found[name] = (struct.unpack(">Q", values[1])[0], struct.unpack(">Q", values[2])[0])
    return found


def class_counters(interface):
    """Traffic classes of an interface: "major:minor" → {bytes, packets, drops, backlog_bytes}."""
    body = struct.pack("=BxxxiIII", 0, interface_index(interface), 0, 0, 0)
    found = {}
    for payload in _dump(_NETLINK_ROUTE, _GETTCLASS, body):
        handle = struct.unpack_from("=I", payload, 8)[0]
        stats = _attributes(_attributes(payload, 20).get(7, b""))
        if 1 not in stats or 3 not in stats:
            continue
        count, packets = struct.unpack_from("=QI", stats[1])
        _, backlog, drops = struct.unpack_from("=III", stats[3])
        found["%x:%x" % (handle >> 16, handle & 0xFFFF)] = {
            "bytes": count,
            "packets": packets,
            "drops": drops,
            "backlog_bytes": backlog,
        }
    return found


def interface_index(interface):
    """The interface's index in this network namespace."""
    return _interface(interface)[0]


def interface_name(interface):
    """The kernel's own name of the interface, which may be asked for by another one that it has."""
    return _interface(interface)[1]


def _interface(interface):
    """(index, name). The kernel passes over what follows a colon, which programs would read."""
    try:
        if NO_NAME.search(interface):
            raise OSError
        index = socket.if_nametoindex(interface)
        return index, socket.if_indextoname(index)
    except (OSError, ValueError):
        raise KernelRefused(
            "no-such-interface", "there is no interface %r on this host; see `facts`" % (interface,)
        ) from None


def interface_counters(interface):
    """(rx_bytes, tx_bytes) of an interface of this network namespace."""
    interface = interface_name(interface)
    for line in read_text("/proc/self/net/dev").splitlines():
        name, found, values = line.partition(":")
        if found and name.strip() == interface:
            fields = values.split()
            return int(fields[0]), int(fields[8])
    raise KernelRefused("no-counters", "the kernel shows no counters of interface %s" % interface)


# --- each agent program by itself -------------------------------------------------------------------


def require(request, *names):
    """The named arguments of a request, or a refusal that says which one is missing."""
    missing = [name for name in names if request.get(name) is None]
    if missing:
        raise KernelRefused("bad-request", "%s needs %s" % (request.get("op", "this"), ", ".join(missing)))
    return [request[name] for name in names]


def serve_lines(operations):
    """JSON request lines on standard input, reply lines on standard output, until end of file."""

    def write(line):
        sys.stdout.write(json.dumps(line) + "\n")
        sys.stdout.flush()

    for text in sys.stdin:
        if not text.strip():
            continue
        number = None
        try:
            request = json.loads(text)
            number = request.get("id")
            operation = operations.get(request.get("op"))
            if operation is None:
                raise KernelRefused("no-such-op", "there is no operation %r here" % (request.get("op"),))
            request["notify"] = write
            write({"id": number, "ok": True, "result": operation(request)})
        except KernelRefused as error:
            write({"id": number, "ok": False, "code": error.code, "error": str(error)})
        except (OSError, ValueError, TypeError, AttributeError, KeyError) as error:
            write(
                {
                    "id": number,
                    "ok": False,
                    "code": "failed",
                    "error": "%s: %s" % (type(error).__name__, error),
                }
            )
