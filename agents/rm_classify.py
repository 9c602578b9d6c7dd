"""How a host's kernel knows the packets of a job: by its control group, else by what its processes are."""

import contextlib
import os
import socket
import struct
import time

import rm_htb
import rm_kernel


def matches(job, attempt, missing, by_owner):
    """Ways to identify the job's packets, best first: (name, nft expression). Says what is missing.

    `by_owner`: the attempt of each job that is known by its user here, who can stand for no other then."""
    group = rm_kernel.job_cgroup(job, attempt)
    if group:
        inside = os.path.relpath(group, "/sys/fs/cgroup")  # nft resolves names below this folder
        depth = len(os.path.relpath(group, rm_kernel.cgroup_root()).split("/"))
        yield "cgroupv2", 'socket cgroupv2 level %d "%s"' % (depth, inside)
        # Kernels before 6.11 count levels from the real root, also inside a cgroup namespace.
        for above in range(1, 6):
            yield "cgroupv2", 'socket cgroupv2 level %d "%s"' % (depth + above, inside)
        missing.append("socket-cgroupv2")
    else:
        missing.append("cgroup2")
    classid = _net_cls(job, attempt)
    if classid:
        yield "net_cls", "meta cgroup %d" % classid
    missing.append("net_cls")
    owners = _owners(job, attempt)
    if len(owners) == 1 and 0 not in owners and not _taken(owners, job, by_owner):
        yield "skuid", "meta skuid %d" % owners.pop()
    missing.append("skuid")


def known_by(job, attempt, missing, by_owner, write, verify, remove):
    """Have `write(classifier, match)` install the first way that works: (name, is it verified?). Where only
    `verify` could say, and no packet could be sent, it is taken unverified; where no way works, `remove` what
    was written: the job may have ended since it was asked for, or the kernel has no way."""
    for classifier, match in matches(job, attempt, missing, by_owner):
        try:
            write(classifier, match)
        except rm_kernel.KernelRefused as refusal:
            if refusal.code == "missing-program":
                raise
            continue
        works = verify() if classifier == "cgroupv2" else None
        if works is not False:
            return classifier, bool(works)
    remove()
    if not rm_kernel.job_cgroup(job, attempt) and not rm_kernel.job_processes(job, attempt):
        raise rm_kernel.KernelRefused(
            "no-such-attempt", "job %d (attempt %d) has no processes here" % (job, attempt)
        )
    raise rm_kernel.KernelRefused(
        "no-classifier", "this kernel offers no way to identify the packets of job %d" % job
    )


def _owners(job, attempt):
    """User ids of the job's processes."""
    found = set()
    for pid in rm_kernel.job_processes(job, attempt):
        with contextlib.suppress(OSError):
            found.add(os.stat("/proc/%d" % pid).st_uid)
    return found


def _taken(owners, job, by_owner):
    """Does a user id already stand for another job here? Then it cannot distinguish the two."""
    return any(owners & _owners(other, attempt) for other, attempt in by_owner.items() if other != job)


def _net_cls(job, attempt):
    """Move the job's processes into a net_cls group of their own; its classid, 0 when there is none."""
    for mount in rm_kernel.cgroup_mounts("cgroup", "net_cls"):
        folder = "%s/rm_job_%d_%d" % (mount, job, attempt)
        classid = (rm_htb.MAJOR << 16) | (job % 0xFF00 + 1)
        try:
            os.makedirs(folder, exist_ok=True)
            with open(folder + "/net_cls.classid", "w") as file:
                file.write(str(classid))
            for pid in rm_kernel.job_processes(job, attempt):
                with open(folder + "/cgroup.procs", "w") as file:
                    file.write(str(pid))
        except OSError:
            continue
        return classid
    return 0


def left_behind(job, attempt):
    """The job's net_cls groups go with its rules."""
    for mount in rm_kernel.cgroup_mounts("cgroup", "net_cls"):
        folder = "%s/rm_job_%d_%d" % (mount, job, attempt)
        if os.path.isdir(folder) and not rm_kernel.read_text(folder + "/cgroup.procs").split():
            os.rmdir(folder)


def send_as(job, attempt, interface):
    """One small multicast datagram from within the job's control group; False when that is impossible."""
    group = rm_kernel.job_cgroup(job, attempt)
    if not group:
        return False
    child = os.fork()
    if child == 0:
        try:
            with open(group + "/cgroup.procs", "w") as file:
                file.write("0")
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as link:
                where = struct.pack("=4s4si", b"\0" * 4, b"\0" * 4, rm_kernel.interface_index(interface))
                link.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, where)
                link.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_TTL, 1)
                link.sendto(b"rm", ("224.0.0.1", 9))
            os._exit(0)
        finally:
            os._exit(1)
    for _ in range(200):  # a frozen job would hold the child back
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return status == 0
        time.sleep(0.001)
    os.kill(child, 9)
    os.waitpid(child, 0)
    return False
