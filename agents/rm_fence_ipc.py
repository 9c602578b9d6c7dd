"""An IPC namespace of a job's own: System V memory, semaphores and message queues, and POSIX message queues.

The supervisor lives in it, so that every process of the job is born there; with the last of them the kernel
removes everything in it. A new namespace has the kernel's limits: those that the host's administrator has set
are set there as well.
"""

import contextlib
import ctypes
import json
import os

from rm_fence_mounts import MS_NODEV, MS_NOSUID, mount, must

CLONE_NEWIPC = 0x8000000
QUEUES = "/dev/mqueue"
SETTINGS = "/proc/sys"
LIMITS = tuple("kernel/" + name for name in (
    "shmmax", "shmall", "shmmni", "shm_rmid_forced", "sem", "msgmax", "msgmnb", "msgmni",
)) + tuple("fs/mqueue/" + name for name in (
    # a default is at most its maximum, so it comes after it
    "msg_max", "msgsize_max", "msg_default", "msgsize_default", "queues_max",
))  # fmt: skip
_libc = ctypes.CDLL(None, use_errno=True)


def limits():
    """The limits of this process's namespace, by name; those that the kernel does not have are left out."""
    found = {}
    for name in LIMITS:
        with contextlib.suppress(OSError), open(os.path.join(SETTINGS, name)) as file:
            found[name] = file.read().strip()
    return found


def limits_of_a_new_one():
    """The limits that a new namespace has; None where this kernel or this user makes none."""
    read, write = os.pipe()
    pid = os.fork()
    if not pid:
        try:
            _unshare()
            os.write(write, json.dumps(limits()).encode())
        finally:
            os._exit(0)
    os.close(write)
    with open(read, "rb") as file:
        said = file.read()
    os.waitpid(pid, 0)
    return json.loads(said) if said else None


def enclose(wanted):
    """Move this process into a new namespace with the limits `wanted`; the names of those that could not be
    set. Raises OSError where there can be no new one."""
    _unshare()
    refused = []
    for name, value in wanted.items():
        try:
            with open(os.path.join(SETTINGS, name), "w") as file:
                file.write(value)
        except OSError:
            refused.append(os.path.basename(name))
    return refused


def mount_queues():
    """The directory of POSIX message queues shows this namespace's. The mounts are the job's own."""
    if os.path.ismount(QUEUES):
        mount("rm-mqueue", QUEUES, "mqueue", MS_NOSUID | MS_NODEV)


def _unshare():
    must(_libc.unshare(CLONE_NEWIPC), "unshare")
