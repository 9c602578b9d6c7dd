"""What an attempt uses on this host: processor time, memory, and bytes of disks and of the network.

The control group counts what all of its processes used, also those that nobody waited for. Where it lacks a
counter, what the kernel says of each process that was reaped (wait4) counts in its place: an attempt's
supervisor reaps all that the job leaves behind. Memory without file caches has no maximum in the kernel: it
is looked at while the attempt runs, more and more seldom, and is at least its largest process's.
"""

import contextlib
import os
import time

import rm_network_used

NETWORK = ("interface", "received_bytes", "sent_bytes")
KEYS = ("user_us", "system_us", "mem_bytes", "peak_bytes", "read_bytes", "written_bytes")
FIRST_LOOK_S, LOOK_S = 1.0, 30.0
BLOCK_BYTES = 512  # of ru_inblock and ru_oublock, whatever the disk's are
INTERFACES = 32  # of which the bytes are told
PIDS = 2_000  # of which the memory is added up, where there is no control group for it


def told(numbers):
    """The numbers of a record as a message has them; None for a record of an older supervisor."""
    if not numbers:
        return None
    found = {key: numbers[place] for place, key in enumerate(KEYS)}
    if len(numbers) > len(KEYS):
        found["network"] = [dict(zip(NETWORK, line)) for line in numbers[len(KEYS)]]  # noqa: B905
    return found


def of_children(usage):
    """[user_us, system_us, mem_bytes, peak_bytes, read_bytes, written_bytes] of one reaped process and those
    that it had reaped; the memory is the largest process's."""
    most = usage.ru_maxrss * 1024
    return [int(usage.ru_utime * 1e6), int(usage.ru_stime * 1e6), most, 0,
            usage.ru_inblock * BLOCK_BYTES, usage.ru_oublock * BLOCK_BYTES]  # fmt: skip


def processor_times(path):
    """(user_us, system_us) that a control group of version 2 counted; None where it does not."""
    words = _text(path, "cpu.stat").split()
    cpu = dict(zip(words[::2], words[1::2]))  # noqa: B905
    found = _number(cpu.get("user_usec")), _number(cpu.get("system_usec"))
    return found if any(found) else None


def peak(home):
    """The most memory that a memory group had, with files; 0: not known."""
    return max(_number(_text(home, name)) for name in ("memory.peak", "memory.max_usage_in_bytes"))


def resident(home):
    """The memory that a memory group has now, without files; None: not known."""
    table = _table(home, "memory.stat")
    if "total_rss" in table:  # v1: of the group with those below it
        return table["total_rss"] + table.get("total_shmem", 0)
    return table["anon"] + table.get("shmem", 0) if "anon" in table else None


class Used:
    """Of one attempt."""

    def __init__(self, group):
        self._group, self._shared = group, False
        self.counted = None  # by the group, when it was last asked: as `share` takes it
        self._passed = {}  # of the network, before this attempt
        self._reaped = [0] * len(KEYS)
        self._most_bytes = 0
        self._before = (0, 0, 0, 0)
        self._every_s, self._look_at = FIRST_LOOK_S, None  # monotonic seconds

    def share(self, counted=None):
        """Its group served earlier attempts, which have ended: what it had `counted` then is not its own."""
        self._shared = True
        self._before, self._passed = counted or (self._counted(), self._traffic())

    def begin(self):
        """Its tasks are about to start."""
        self._look_at = time.monotonic() + self._every_s

    def reaped(self, usage):
        """The numbers of a process that has ended."""
        numbers = of_children(usage)
        for place, number in enumerate(numbers):
            both = (self._reaped[place], number)
            self._reaped[place] = max(both) if place == 2 else sum(both)
        return numbers

    def due(self):
        return [] if self._look_at is None else [self._look_at]

    def look(self):
        """At the memory, when that is due."""
        if self._look_at is not None and time.monotonic() >= self._look_at:
            self._most_bytes = max(self._most_bytes, self._resident())
            self._every_s = min(2 * self._every_s, LOOK_S)
            self._look_at = time.monotonic() + self._every_s

    def now(self):
        """All together, as of now; None where nothing was started."""
        if self._look_at is None:
            return None
        self.counted = counters, traffic = self._counted(), self._traffic()
        user, system, read, written = counters
        if (user, system) != (0, 0):
            user, system = user - self._before[0], system - self._before[1]
        else:
            user, system = self._reaped[:2]
        if (read, written) != (0, 0):
            read, written = read - self._before[2], written - self._before[3]
        else:
            read, written = self._reaped[4:]
        most = max(self._most_bytes, self._reaped[2])
        numbers = [user, system, most, max(self._peak(), most), read, written]
        network = rm_network_used.since(traffic, self._passed)[:INTERFACES]
        return [*numbers, network] if network else numbers

    def _traffic(self):
        return self._group.traffic.now() if self._group.traffic is not None else {}

    def _counted(self):
        """(user_us, system_us, read_bytes, written_bytes) of the group; 0 where it does not count."""
        user_us, system_us = processor_times(self._group.path) or (0, 0)
        read = written = 0
        for line in _text(self._group.homes.get("io"), "io.stat").splitlines():
            words = dict(word.split("=", 1) for word in line.split()[1:] if "=" in word)
            read += _number(words.get("rbytes"))
            written += _number(words.get("wbytes"))
        return user_us, system_us, read, written

    def _peak(self):
        """The most memory that the group had, with files that it read and wrote; 0: not known, or also
        what others had."""
        return peak("" if self._shared else self._group.homes.get("memory"))

    def _resident(self):
        """The memory that the processes have now, without files."""
        found = resident(self._group.homes.get("memory"))
        if found is not None:
            return found
        page = os.sysconf("SC_PAGE_SIZE")
        pids = self._group.pids()[:PIDS]
        return page * sum(_number(_text("/proc/%d" % pid, "statm").split()[1:2]) for pid in pids)


def _table(home, name):
    """The lines `name number` of a file; empty where it cannot be read."""
    words = (line.split() for line in _text(home, name).splitlines())
    return {pair[0]: _number(pair[1]) for pair in words if len(pair) == 2}


def _number(word):
    """The number that stands there, or at the beginning of a list; 0 where none does."""
    word = word[0] if isinstance(word, list) and word else word
    return int(word) if isinstance(word, str) and word.strip().isdigit() else 0


def _text(home, name):
    """Read at once and without a file object: this is done at the end of each attempt."""
    if not home:
        return ""
    with contextlib.suppress(OSError):
        fd = os.open(home + "/" + name, os.O_RDONLY | os.O_CLOEXEC)
        try:
            return os.read(fd, 1 << 16).decode(errors="replace")
        finally:
            os.close(fd)
    return ""
