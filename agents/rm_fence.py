"""What keeps a job to what it was given on this host: devices, memory, processors, processes, files, calls.

`Fences` is the agent's: it knows what this kernel can do, and makes the fence of an attempt before its
supervisor is forked. A `Fence` is carried by the supervisor to its control group, and by each task to itself.
"""

import contextlib
import os
import time

import rm_cores
import rm_fence_bpf
import rm_fence_devices
import rm_fence_ipc
import rm_fence_limits
import rm_fence_mounts
import rm_fence_seccomp
from rm_spool import SpoolError

# what a launch may ask, with what holds when it does not
SETTINGS = {
    "gpus": True,  # device files of other GPUs than its own are closed to a job
    "cpus": "weight",  # or "limit", "cores", "off"
    "processes": 65_536,  # and threads of a job on this host, at most; 0 = any number
    "private_tmp": "",  # "tmpfs", or the directory here that holds the jobs' own; "" = the host's /tmp
    "private_ipc": True,  # System V IPC and POSIX message queues of its own
    "login_limits": True,  # limits.conf holds for a job
    "limits": [],  # [[item of limits.conf, soft, hard], …] above it, -1 = unlimited
    "no_new_privs": False,
    "seccomp": False,
    "unenforced": "tell",  # a job that asks for what this kernel cannot keep it to; or "refuse"
}
CHOICES = {"cpus": ("weight", "limit", "cores", "off"), "unenforced": ("tell", "refuse")}
PERIOD_US = 100_000  # of cpu.max
LOOK_S = 1.0
BY_PROGRAM, BY_GROUP, BY_COVER, BY_NAMESPACE = "bpf", "devices", "cover", "namespace"


def checked_settings(given):
    """Complete settings; ValueError says which one is wrong."""
    if not isinstance(given, dict):
        raise ValueError("fence is not an object")
    settings = dict(SETTINGS)
    for name, value in given.items():
        if name not in SETTINGS or type(value) is not type(SETTINGS[name]):
            raise ValueError("fence.%s is unknown or not of its kind" % name)
        settings[name] = value
    for name, choices in CHOICES.items():
        if settings[name] not in choices:
            raise ValueError("fence.%s is not one of %s" % (name, ", ".join(choices)))
    if not 0 <= settings["processes"] < 1 << 22:
        raise ValueError("fence.processes is not a number of processes")
    for limit in settings["limits"]:
        item, *values = limit if isinstance(limit, list) and len(limit) == 3 else ("", 0, 0)
        good = all(type(value) is int and -2 < value < 1 << 62 for value in values)
        if not good or item not in rm_fence_limits.ITEMS:
            raise ValueError("fence.limits holds [item of limits.conf, soft, hard]")
    where = settings["private_tmp"]
    if where and where != rm_fence_mounts.IN_MEMORY and not (os.path.isabs(where) and "\0" not in where):
        raise ValueError("fence.private_tmp is neither tmpfs nor a directory")
    return settings


class Fences:
    """One per agent. `root` is put before the kernel's files about devices (tests)."""

    def __init__(self, hierarchy, root=""):
        self.hierarchy, self.root = hierarchy, root
        self._programs = {}  # (majors, allowed devices) -> descriptor
        self._devices, self._version = None, None
        self._login_lines = []
        self._looked_at = -LOOK_S  # at what changes seldom
        self._kept = False
        self._most_processes = _most_processes()
        self._kernels_ipc = rm_fence_ipc.limits_of_a_new_one() if os.getuid() == 0 else None
        self._ipc_limits = {}  # that this host has and a new namespace would not
        self.means = self._best_means()

    def enforced(self):
        """What jobs are kept to here, and how: for the hello. Empty = not at all."""
        found = {name: ("", "v1", "v2")[self.hierarchy.version(name)] for name in ("memory", "cpu", "pids")}
        return dict(found, gpus=self.means, ipc="" if self._kernels_ipc is None else BY_NAMESPACE)

    def _best_means(self):
        """How device files are closed: by the first way that this kernel takes."""
        if os.getuid() != 0:
            return ""
        if self.hierarchy.kind:
            with contextlib.suppress(OSError):
                self._program((), frozenset())
                return BY_PROGRAM
        return BY_GROUP if self.hierarchy.version("devices") else BY_COVER

    def of(self, request, user, held=frozenset()):
        """The fence of an attempt; others hold the processors `held`. SpoolError when its settings refuse
        what cannot be enforced here."""
        settings = request["fence"]
        fence = Fence(settings)
        self._look()
        self._limit(fence, request)
        if settings["cpus"] == "cores":
            self._give_cores(fence, request, held)
        if settings["gpus"]:
            self._close_devices(fence, [gpu for task in request["tasks"] for gpu in task["gpus"]])
        if settings["private_tmp"] and os.getuid() != 0:
            fence.lacks.append("its own /tmp: the agent is not root")
        if settings["private_ipc"] and self._kernels_ipc is not None:
            fence.ipc = self._ipc_limits
        if settings["login_limits"] and self._login_lines:
            groups = os.getgrouplist(user.name, user.gid)
            fence.login = rm_fence_limits.of_login(self._login_lines, user.name, user.uid, groups)
        if settings["seccomp"]:
            try:
                fence.filter = rm_fence_seccomp.assembled(os.uname().machine)
            except OSError as error:
                fence.lacks.append("the filter of system calls: %s" % error.strerror)
        if fence.lacks and settings["unenforced"] == "refuse":
            why = fence.lacking() + " Such jobs are refused (fence.unenforced in rm.toml)."
            raise SpoolError("not-enforced", why)
        return fence

    def _look(self):
        """What administrators and drivers may have changed; once a second at most, as launches are many."""
        if time.monotonic() - self._looked_at < LOOK_S:
            return
        self._looked_at = time.monotonic()
        self._login_lines = rm_fence_limits.lines()
        if self._kernels_ipc is not None:
            found = rm_fence_ipc.limits().items()
            self._ipc_limits = {name: value for name, value in found if self._kernels_ipc.get(name) != value}
        version = rm_fence_devices.version(self.root)
        if version != self._version:
            self._devices, self._version = rm_fence_devices.Devices(self.root), version

    # control groups

    def _limit(self, fence, request):
        version, tasks = self.hierarchy.version, len(request["tasks"])
        memory = request["mem_bytes"] or request["mem_bytes_per_task"] * tasks
        if memory and version("memory") == 2:
            fence.limits += [("memory", "memory.max", str(memory), True),
                             ("memory", "memory.swap.max", "0", False)]  # fmt: skip
        elif memory and version("memory") == 1:
            fence.limits += [("memory", "memory.limit_in_bytes", str(memory), True),
                             ("memory", "memory.memsw.limit_in_bytes", str(memory), False)]  # fmt: skip
        elif memory:
            fence.lacks.append("its memory: there is no memory controller")
        cpus, how = max(1, request["cpus_per_task"] * tasks), request["fence"]["cpus"]
        # with v1 a share would cost each launch a move between groups, which takes milliseconds
        if how == "weight" and version("cpu") == 2:
            fence.limits.append(("cpu", "cpu.weight", str(min(10_000, 100 * cpus)), False))
        elif how == "limit" and version("cpu") == 2:
            fence.limits.append(("cpu", "cpu.max", "%d %d" % (cpus * PERIOD_US, PERIOD_US), True))
        elif how == "limit" and version("cpu") == 1:
            fence.limits += [("cpu", "cpu.cfs_period_us", str(PERIOD_US), True),
                             ("cpu", "cpu.cfs_quota_us", str(cpus * PERIOD_US), True)]  # fmt: skip
        elif how == "limit":
            fence.lacks.append("its processors: there is no cpu controller")
        if request["fence"]["processes"] and version("pids"):
            # never all that the kernel can number
            most = min(request["fence"]["processes"], self._most_processes // 2)
            fence.limits.append(("pids", "pids.max", str(most), True))

    def _give_cores(self, fence, request, held):
        """Processors of its own, near its GPUs. Where too few are left it runs on any."""
        count = request["cpus"] or max(1, request["cpus_per_task"] * len(request["tasks"]))
        where = rm_cores.found(self.root)
        names = {gpu for task in request["tasks"] for gpu in task["gpus"]}
        buses = [gpu.bus for i, gpu in enumerate(self._devices.gpus) if {gpu.uuid, str(i)} & names]
        near = {rm_cores.node_of_bus(bus, self.root) for bus in buses}
        if not held:
            count = min(count, len(where.usable))  # all that there is
        cores = rm_cores.chosen(count, held, where, near)
        if cores is None:
            free = len(set(where.usable) - held)
            fence.lacks.append("processors of its own: it asks for %d, and %d are free" % (count, free))
            return
        fence.cores = cores
        if self.hierarchy.version("cpuset") == 2:
            fence.limits.append(("cpuset", "cpuset.cpus", rm_cores.written(cores), True))
            fence.cores_by_group = True

    # devices

    def _close_devices(self, fence, gpus):
        found = self._devices
        if not found.majors:
            return
        allowed, unknown = found.open_to(gpus)
        if unknown and found.gpus:
            fence.lacks.append("the GPUs %s: the driver does not know them" % ", ".join(unknown))
        if self.means == BY_PROGRAM:
            try:
                self._keep_switched_on()
                fence.program = self._program(found.majors, frozenset(allowed))
            except OSError as error:
                fence.lacks.append("its own GPUs: %s" % error.strerror)
        elif self.means == BY_GROUP:
            for major in sorted(found.majors):
                for device in self._denied(found, major, allowed):
                    minor = "*" if device[1] is None else str(device[1])
                    word = "c %d:%s rwm" % (major, minor)
                    fence.limits.append(("devices", "devices.deny", word, True))
        elif self.means == BY_COVER:
            files = found.files()
            fence.covered = [path for path, device in files if not rm_fence_devices.is_in(device, allowed)]
        else:
            fence.lacks.append("its own GPUs: the agent is not root")
            return
        fence.hides_gpus = not unknown and (fence.program >= 0 or self.means != BY_PROGRAM)

    @staticmethod
    def _denied(found, major, allowed):
        """What v1 must name: exceptions from a whole major cannot be made there."""
        if (major, None) in allowed:
            return []
        if not any(device[0] == major for device in allowed):
            return [(major, None)]
        known = {device for gpu in found.gpus for device in gpu.own} | {device for _, device in found.files()}
        return sorted(device for device in known if device[0] == major and device not in allowed)

    def _program(self, majors, allowed):
        key = frozenset(majors), allowed
        if key not in self._programs:
            self._programs[key] = rm_fence_bpf.load(rm_fence_bpf.assembled(*key))
        return self._programs[key]

    def _keep_switched_on(self):
        """The first program of a kernel costs a tenth of a second and more, as does each one after none was
        left: one that allows everything stays with the agent's own group."""
        if not self._kept:
            rm_fence_bpf.attach(self._program((), frozenset()), self.hierarchy.home(), alone=True)
            self._kept = True


@contextlib.contextmanager
def _refusing(what):
    """An error of the kernel's as a refusal of this launch; the host may be good for others."""
    try:
        yield
    except OSError as error:
        why = (os.uname().nodename, what, ": ".join(filter(None, [error.filename, error.strerror])))
        raise SpoolError("not-enforced", "Host %s cannot %s: %s." % why) from None


def limits_not_set(names):
    """One sentence about them; "" for none."""
    if not names:
        return ""
    return "Limits that could not be set on %s: %s." % (os.uname().nodename, ", ".join(names))


def _most_processes():
    with open("/proc/sys/kernel/pid_max") as file:
        return int(file.read())


class Fence:
    """Of one attempt. `lacks`: what this host cannot keep the job to, in words."""

    def __init__(self, settings):
        self.settings = settings
        self.limits = []  # of the control group, as Group.create takes them
        self.program = -1  # descriptor of the program for devices
        self.covered = []  # device files to cover up
        self.hides_gpus = False  # the job cannot open other GPUs than its own, so their driver hides them
        self.cores = []  # the processors that it alone runs on; empty = all
        self.cores_by_group = False  # is its control group kept to them?
        self.login = {}
        self.filter = b""
        self.lacks = []
        self.ipc = None  # limits of an IPC namespace of its own; None = it has none
        self.temporary = ""  # the directory that holds the job's own /tmp
        self._inside = self._outside = -1  # the job's and the host's mount namespaces

    def lacking(self):
        """One sentence about what is not enforced; "" when everything is."""
        if not self.lacks:
            return ""
        return "Host %s cannot keep the job to %s." % (os.uname().nodename, "; nor to ".join(self.lacks))

    # the supervisor

    def bind(self, group):
        if self.program >= 0:
            with _refusing("close the device files of other GPUs to the job"):
                rm_fence_bpf.attach(self.program, group.path)
            os.close(self.program)

    def enclose(self, name):
        """Move this process into an IPC namespace for it and the tasks, and make the mount namespace that
        the tasks will live in, each where one is needed. Of the latter come back. One sentence about limits
        that could not be set; "" when all were."""
        refused = []
        if self.ipc is not None:
            with _refusing("give the job an IPC namespace of its own"):
                refused = rm_fence_ipc.enclose(self.ipc)
        self._make_view(name)
        return limits_not_set(refused)

    def _make_view(self, name):
        where = self.settings["private_tmp"] if os.getuid() == 0 else ""
        if not where and not self.covered:
            return
        with _refusing("give the job mounts of its own"):
            self._outside = rm_fence_mounts.namespace()
            rm_fence_mounts.enclose(self.covered)
            if where:
                self.temporary = rm_fence_mounts.make_temporary(where, name)
                rm_fence_mounts.mount_temporary(self.temporary)
            if self.ipc is not None:
                rm_fence_ipc.mount_queues()
            self._inside = rm_fence_mounts.namespace()
            rm_fence_mounts.move_to(self._outside)

    def remove(self):
        rm_fence_mounts.remove_temporary(self.temporary)

    # a task, while it still has the agent's rights

    @property
    def has_view(self):
        """Will the task see other mounts than the host's?"""
        return self._inside >= 0

    def views(self):
        """Descriptors that keep the mount namespaces; -1 where there is none."""
        return self._inside, self._outside

    def enter_view(self):
        rm_fence_mounts.move_to(self._inside)

    @property
    def binds_tasks(self):
        """Is there something for `bind_task` to do?"""
        own = self.settings
        return bool(
            (self.cores and not self.cores_by_group)
            or self.login
            or own["limits"]
            or own["no_new_privs"]
            or self.filter
        )

    def bind_task(self, at=0, of=1):
        """Limits of this process, the `at`-th of `of` tasks that share the processors; the names of
        those that could not be set."""
        refused = []
        if self.cores and (of > 1 or not self.cores_by_group):
            try:
                os.sched_setaffinity(0, rm_cores.share(self.cores, at, of))
            except OSError:  # a processor was switched off since
                refused.append("processors")
        if self.login or self.settings["limits"]:
            refused += rm_fence_limits.impose(self.login, self.settings["limits"])
        if self.settings["no_new_privs"] or (self.filter and os.getuid() != 0):
            rm_fence_seccomp.forbid_new_privileges()
        if self.filter:
            rm_fence_seccomp.install(self.filter)
        return refused
