"""Control groups and process trees: where a job's processes are, how to signal and to end them all.

Knows pure cgroup v2 (/sys/fs/cgroup) and the hybrid layout (/sys/fs/cgroup/unified beside v1 controllers).
Without a usable cgroup the same is done over /proc: the supervisor is a child subreaper, so everything a
job ever started is among its descendants.
"""

import contextlib
import ctypes
import errno
import os
import signal
import zlib

DEFAULT_STATE = "/var/lib/rm"
MOUNT = "/sys/fs/cgroup"
CONTROLLERS = ("memory", "cpu", "pids", "devices", "cpuset", "io")
ONLY_V2 = ("cpuset", "io")  # of v1 they would need memory nodes in each group, and a move of each task
ENVIRONMENT_BYTES = 6 << 20  # the kernel takes no longer one when a program begins
LOOK_BYTES, LEAST_BYTES = 64 << 20, 64 << 10  # of all environments of a user; of each, when these are read
ALL_BYTES = 256 << 20  # of all environments: a user may have many subordinate ids
PIECE_BYTES = 64 << 10
CLONE3 = 435  # the same number on all architectures
CLONE_INTO_CGROUP = 0x200000000
_syscall = ctypes.PyDLL(None).syscall  # PyDLL keeps the interpreter's lock held, which the child needs
_syscall.restype = ctypes.c_long


class Hierarchy:
    """What this host's cgroups can do for us. `kind` is "v2", "hybrid" or "" (none usable).

    `controllers`: name -> folder below which the groups that it limits are, which is `root` itself where the
    controller belongs to v2.
    """

    def __init__(self, state, mount=MOUNT):
        # hosts have one agent and the group "rm"; another state directory (tests) must not share it
        self.parent = "rm" if state == DEFAULT_STATE else "rm-%08x" % zlib.crc32(state.encode())
        self.kind, self.root, self.freezer = "", "", False
        self.controllers = {}
        self.login = ""  # the group that the agent was started in, once it has left it
        for kind, root in (("v2", mount), ("hybrid", mount + "/unified")):
            if not os.path.exists(root + "/cgroup.controllers"):
                continue
            try:
                os.makedirs(os.path.join(root, self.parent), exist_ok=True)
            except OSError:
                continue
            if not os.access(os.path.join(root, self.parent), os.W_OK):
                continue
            self.kind, self.root = kind, root
            self.freezer = os.path.exists(os.path.join(root, self.parent, "cgroup.freeze"))
            for name in CONTROLLERS:
                folder = self._folder_of(name, mount)
                if folder:
                    self.controllers[name] = folder
            if self.version("cpu") == 2:
                # all jobs together against what else the host does: as if each processor's worth counted
                with contextlib.suppress(OSError):
                    weight = min(10_000, 100 * (os.cpu_count() or 1))
                    _write(os.path.join(root, self.parent, "cpu.weight"), str(weight))
            break

    def _folder_of(self, name, mount):
        """Folder below which a controller can limit our groups, "" when it is not to be had."""
        if self._enabled(name):
            return self.root
        if name in ONLY_V2:
            return ""
        v1 = os.path.join(mount, name)
        if os.path.exists(v1 + "/cgroup.procs"):
            with contextlib.suppress(OSError):
                os.makedirs(os.path.join(v1, self.parent), exist_ok=True)
                return v1
        return ""

    def _enabled(self, name):
        """Is the controller one of v2's, and on for the groups below our parent?"""
        try:
            for folder in (self.root, os.path.join(self.root, self.parent)):
                if name not in _read(folder + "/cgroup.controllers").split():
                    return False
                if name not in _read(folder + "/cgroup.subtree_control").split():
                    _write(folder + "/cgroup.subtree_control", "+" + name)
        except OSError:
            return False
        return True

    def version(self, controller):
        """1 or 2; 0 when the controller is not to be had."""
        folder = self.controllers.get(controller)
        return 0 if folder is None else 2 if folder == self.root else 1

    def group(self, job, attempt):
        return self._group("job_%d_%d" % (job, attempt))

    def slice_group(self, job, attempt):
        """Of the slice that begins with this attempt, for one of its elements after the other."""
        return self._group("slice_%d_%d" % (job, attempt))

    def _group(self, name):
        if not self.kind:
            return Group("")
        folders = self.controllers.items()
        homes = {c: os.path.join(folder, self.parent, name) for c, folder in folders}
        return Group(os.path.join(self.root, self.parent, name), homes)

    def attempts(self, kind="job"):
        """(job, attempt) of each group that was made for one, or for a slice, and is still there."""
        with contextlib.suppress(OSError):
            for name in os.listdir(os.path.join(self.root, self.parent)) if self.kind else ():
                words = name.split("_")
                if len(words) == 3 and words[0] == kind and words[1].isdigit() and words[2].isdigit():
                    yield int(words[1]), int(words[2])

    def home(self):
        """The agent's own group."""
        return os.path.join(self.root, self.parent, "agent")

    def adopt_agent(self):
        """Leave the login session's group, which a session manager may clear when the session ends."""
        if self.kind:
            home = self.home()
            try:
                login = [line for line in _read("/proc/self/cgroup").splitlines() if line[:3] == "0::"]
                os.makedirs(home, exist_ok=True)
                _write(home + "/cgroup.procs", "0")
                self.login = self.root + login[0][3:].rstrip("/") if login else ""
            except OSError:
                pass  # not ours to move; setsid is what the supervisors rely on

    def remove_parent(self):
        """Remove our own empty parent groups (tests clean up behind themselves with it)."""
        for root in {self.root, *self.controllers.values()} - {""}:
            with contextlib.suppress(OSError):
                os.rmdir(os.path.join(root, self.parent))


class Group:
    """The cgroup of one attempt; every method is safe when there is none.

    `homes`: controller -> the folder in which its limits are set, `path` itself where it is one of v2's.
    """

    def __init__(self, path, homes=None):
        self.path = path
        self.homes = homes or {}
        self._doors = []
        self._inside = False
        self._keeps_memory = False  # is its memory group one below another's?
        self._killed = False  # kernels then kill who is born in it, too, as if it had been there
        self._home = self._events = -1  # of one that is kept for many tasks
        self.traffic = None  # rm_network_used.Traffic, where that is counted

    def create(self, limits=()):
        """Make it, with `limits`: (controller, file, value, must), set in this order; one that the kernel has
        no file for is left out unless it must be. Whatever an earlier owner left there is killed."""
        if not self.path:
            return
        paths = list(dict.fromkeys([self.path, *(self.homes[controller] for controller, *_ in limits)]))
        for path in paths:
            try:
                os.mkdir(path)
            except FileExistsError:
                self.kill()
                if _removed(path):
                    os.mkdir(path)
        self._killed = False
        for controller, file, value, must in limits:
            try:
                _write(os.path.join(self.homes[controller], file), value)
            except OSError:
                if must:
                    raise
        flags = os.O_WRONLY | os.O_CLOEXEC
        self._doors = [(path, os.open(path + "/cgroup.procs", flags)) for path in paths]

    def below(self, name):
        """A new group below this one, which limits it: entered together with the limits of v1 controllers.
        Its memory is counted by itself where v1 has that controller."""
        if not self.path:
            return Group("")
        made = Group(os.path.join(self.path, name))
        with contextlib.suppress(FileExistsError):
            os.mkdir(made.path)
        homes = {kind: home for kind, home in self.homes.items() if home != self.path and os.path.isdir(home)}
        if memory := _memory_below(homes.get("memory", ""), name):
            homes["memory"] = made.homes["memory"] = memory
            made._keeps_memory = True
        flags = os.O_WRONLY | os.O_CLOEXEC
        paths = dict.fromkeys([made.path, *homes.values()])
        made._doors = [(path, os.open(path + "/cgroup.procs", flags)) for path in paths]
        return made

    def fork(self):
        """os.fork with the child born inside, if the kernel can (5.7): moving a process there afterwards
        makes it wait for all processors, 10 ms and more. For programs of one thread only."""
        if self.path:
            with self._open() as home:
                how = (ctypes.c_uint64 * 11)(CLONE_INTO_CGROUP, 0, 0, 0, signal.SIGCHLD, 0, 0, 0, 0, 0, home)
                pid = _syscall(CLONE3, how, ctypes.c_size_t(ctypes.sizeof(how)))
            self._inside = pid >= 0
            if self._inside:
                return pid
        return os.fork()

    def spawn(self, spawned):
        """As `fork`, of a task of rm_spawn.py: its process id, below 0 where it cannot be started so."""
        with self._open() as home:
            return spawned.begin(home, [door for path, door in self._doors if path != self.path])

    @contextlib.contextmanager
    def _open(self):
        """Its descriptor; -1 where there is no group."""
        if self._home >= 0 or not self.path:
            yield self._home
            return
        home = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            yield home
        finally:
            os.close(home)

    def join(self):
        """In the child: into a group that somebody else made, unless born there."""
        if self.path and not self._inside:
            with contextlib.suppress(OSError):
                _write(self.path + "/cgroup.procs", "0")

    def enter(self):
        """In the child: into the groups it was not born in."""
        for path, door in self._doors:
            if not (self._inside and path == self.path):
                os.write(door, b"0")

    def move(self):
        """In a child of os.fork: into all of its groups, though others of the caller's were born there."""
        if self.path:
            for path in {self.path, *self.homes.values()}:
                with contextlib.suppress(FileNotFoundError):  # it has no limits there
                    _write(path + "/cgroup.procs", "0")

    def pids(self):
        found = []
        for folder, _, _ in os.walk(self.path) if self.path else ():
            with contextlib.suppress(OSError):
                # removed meanwhile
                found += [int(pid) for pid in _read(folder + "/cgroup.procs").split()]
        return found

    def freeze(self):
        """Let its processes stand still, also those of groups below; whether the kernel can."""
        try:
            _write(self.path + "/cgroup.freeze", "1")
        except OSError:
            return False
        return bool(self.path)

    def thaw(self):
        """A frozen process cannot act on SIGTERM."""
        if self.path:
            with contextlib.suppress(OSError):
                _write(self.path + "/cgroup.freeze", "0")

    def kill(self):
        """SIGKILL to all processes in it, at once where the kernel can (5.14)."""
        if not self.path:
            return
        self._killed = True
        try:
            _write(self.path + "/cgroup.kill", "1")
        except OSError:
            send(self.pids(), signal.SIGKILL)
            self.thaw()

    def oom(self):
        """Did the kernel kill one of its processes for lack of memory?"""
        home = self.homes.get("memory", "")
        if home == self.path:
            return _killed_some(home + "/memory.events") if home else False
        # v1 counts for the group of the process alone
        return any(_killed_some(folder + "/memory.oom_control") for folder, _, _ in os.walk(home))

    def keep_open(self):
        """For many tasks, one after the other."""
        if self.path:
            self._home = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            self._events = os.open(self.path + "/cgroup.events", os.O_RDONLY | os.O_CLOEXEC)

    def is_as_made(self):
        """Of one that was kept open: is nobody in it, nothing below it, and was it neither killed nor
        frozen?"""
        if not self.path:
            return True
        if self._killed:
            return False
        events = os.pread(self._events, 4096, 0)
        return b"populated 0" in events and b"frozen 1" not in events and os.fstat(self._home).st_nlink == 2

    def remove(self):
        """Remove it; a group that is still populated stays (False)."""
        for fd in [*(door for _, door in self._doors), self._home, self._events]:
            if fd >= 0:
                os.close(fd)
        self._doors, self._home, self._events = [], -1, -1
        if self.traffic is not None:
            self.traffic.close()
            self.traffic = None
        if not os.path.isdir(self.path):
            return True  # it is made before those of other hierarchies, and goes after them
        beside = {path for path in self.homes.values() if path != self.path}
        if self._keeps_memory and self.oom():
            beside.discard(self.homes["memory"])  # the one above is asked for it, and goes with those below
        return all(_removed(path) for path in [*beside, self.path])


def _memory_below(home, name):
    """A new group of v1 for memory; "" where what is above would not limit it, or there is none."""
    with contextlib.suppress(OSError):
        if home and _read(home + "/memory.use_hierarchy").strip() == "1":
            path = os.path.join(home, name)
            with contextlib.suppress(FileExistsError):
                os.mkdir(path)
            return path
    return ""


def _killed_some(path):
    try:
        text = _read(path)
    except OSError:
        return False
    return any(line.startswith("oom_kill ") and line.split()[1] != "0" for line in text.splitlines())


def _removed(path):
    """Remove a group with those below it; False when there are processes in one of them."""
    try:
        os.rmdir(path)  # that is all, nearly always
        return True
    except FileNotFoundError:
        return True
    except OSError:
        pass  # it is busy: with groups below it, or with processes
    for folder, _, _ in os.walk(path, topdown=False):
        try:
            os.rmdir(folder)
        except OSError as error:
            if error.errno == errno.EBUSY:
                return False
    return True


def descendants(ancestor):
    """All processes below `ancestor`, by one walk over /proc."""
    children = {}
    for pid in _processes():
        try:
            with open("/proc/%d/stat" % pid, "rb") as file:
                parent = int(file.read().rpartition(b")")[2].split()[1])
        except (OSError, IndexError, ValueError):
            continue
        children.setdefault(parent, []).append(pid)
    found, todo = [], [ancestor]
    while todo:
        below = children.get(todo.pop(), [])
        found += below
        todo += below
    return found


def marked(variable, value):
    """Processes whose environment has `variable=value`: the last resort when their supervisor is gone."""
    return [pid for pid, found in marks(variable) if found == value]


def marks(variable):
    """(process, value) of all processes whose environment has the variable."""
    begin, room, all_left = b"\0" + variable.encode() + b"=", {}, ALL_BYTES
    for pid in _processes():
        owner = _owner(pid)
        left = room.get(owner, LOOK_BYTES)
        text = b"\0" + environment_of(pid, max(LEAST_BYTES, min(left, all_left, ENVIRONMENT_BYTES)))
        room[owner], all_left = left - len(text), all_left - len(text)
        at = text.find(begin)
        if at >= 0:
            value = text[at + len(begin) :]  # not split as a whole: it may be nothing but ends of words
            yield pid, value.partition(b"\0")[0].decode(errors="replace")


def environment_of(pid, most_bytes=ENVIRONMENT_BYTES):
    """The beginning of what the kernel shows as the environment of a process, b"" where it has ended. Each
    may say that all its memory is that (PR_SET_MM_MAP), however much that is."""
    found = []
    try:
        fd = os.open("/proc/%d/environ" % pid, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return b""
    try:
        with contextlib.suppress(OSError):
            while most_bytes > 0:
                found.append(os.read(fd, min(most_bytes, PIECE_BYTES)))
                most_bytes -= len(found[-1])
                if not found[-1]:
                    break
    finally:
        os.close(fd)
    return b"".join(found)


def send(pids, number):
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)


def _owner(pid):
    with contextlib.suppress(OSError):
        return os.stat("/proc/%d" % pid).st_uid
    return -1


def _processes():
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def _read(path):
    with open(path) as file:
        return file.read()


def _write(path, text):
    fd = os.open(path, os.O_WRONLY)
    try:
        os.write(fd, text.encode())
    finally:
        os.close(fd)
