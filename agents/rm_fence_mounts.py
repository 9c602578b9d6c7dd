"""A mount namespace of a job's own: its own /tmp and /dev/shm, and device files covered up.

What the host mounts later (home directories by automounter, say) still appears inside; what is mounted inside
is not seen outside, and a user cannot take it away.
"""

import contextlib
import ctypes
import errno
import itertools
import os
import stat

CLONE_NEWNS = 0x20000
MS_NOSUID, MS_NODEV, MS_BIND, MS_REC, MS_SLAVE = 2, 4, 4096, 16384, 1 << 19
IN_MEMORY = "tmpfs"
TOGETHER = 1_000  # entries of a directory that are looked at, and removed
FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_libc = ctypes.CDLL(None, use_errno=True)


def enclose(covered=()):
    """Move this process into a namespace of its own, where nobody can open the device files `covered`."""
    must(_libc.unshare(CLONE_NEWNS), "unshare")
    mount("none", "/", "", MS_REC | MS_SLAVE)
    if covered:
        # not on the host's /dev: a file that nobody has the rights to
        aside = _make_aside("/run", "covered")
        mount("none", aside, "tmpfs", MS_NOSUID | MS_NODEV, "mode=000,size=4k,nr_inodes=4")
        blind = os.path.join(aside, "device")
        os.close(os.open(blind, os.O_CREAT | os.O_WRONLY, 0))
        for path in covered:
            mount(blind, path, "", MS_BIND)
        must(_libc.umount2(os.fsencode(aside), 2), "umount " + aside)
        os.rmdir(aside)


def make_temporary(where, name):
    """The directory for a job's /tmp below `where`, "" for memory. Made at random, entered by root alone.
    Raises OSError, also where a user could put something else in its place while root works on it."""
    if where == IN_MEMORY:
        return ""
    where = os.path.realpath(where)
    _check_is_roots(where)
    home = _make_aside(where, name)
    inside = os.path.join(home, "tmp")
    os.mkdir(inside)
    os.chmod(inside, 0o1777)
    return home


def _check_is_roots(path):
    """Nobody but root renames or removes what root makes there."""
    while True:
        about = os.stat(path)
        kept = about.st_mode & stat.S_ISVTX or not about.st_mode & 0o022
        if about.st_uid != 0 or not kept:
            raise OSError(errno.EPERM, "others than root may change what lies there", path)
        if path == "/":
            return
        path = os.path.dirname(path)


def _make_aside(where, name):
    """A new directory of root's, with any existing content below `where`."""
    path = os.path.join(where, "rm-%s-%s" % (name, os.urandom(6).hex()))
    os.mkdir(path, 0o700)
    return path


def mount_temporary(home):
    """Over /tmp and /dev/shm; the latter is memory always."""
    if home:
        mount(os.path.join(home, "tmp"), "/tmp", "", MS_BIND)
    else:
        mount("rm-tmp", "/tmp", "tmpfs", MS_NOSUID | MS_NODEV, "mode=1777")
    mount("rm-shm", "/dev/shm", "tmpfs", MS_NOSUID | MS_NODEV, "mode=1777")


def remove_temporary(home):
    """With everything in it; follows no link, and knows no directory but those that `make_temporary` made.

    A directory's own directories are moved up before it is removed: however deep a job has nested them, it is
    never gone into further than one step. Some entries are looked at together: however many there are, they
    take no memory of root's.
    """
    if not home or not os.path.basename(home).startswith("rm-"):
        return
    with contextlib.suppress(OSError):
        top = os.open(home, FOLDER)
        try:
            while _removes_some(top, top):
                pass
        finally:
            os.close(top)
        os.rmdir(home)


def _removes_some(folder, top):
    """Take the first entries out of a directory, its directories by moving them into `top`, or out of `top`
    for good; false when none could be. It is root's from here on: who holds it open puts nothing more into
    it."""
    os.fchown(folder, 0, 0)
    os.fchmod(folder, 0o700)
    with os.scandir(folder) as found:
        first = [(e.name, e.is_dir(follow_symlinks=False)) for e in itertools.islice(found, TOGETHER)]
    gone = 0
    for name, is_folder in first:
        with contextlib.suppress(OSError):
            if not is_folder:
                os.unlink(name, dir_fd=folder)
            elif folder == top:
                _remove_folder(name, top)
            else:
                os.rename(name, os.urandom(8).hex(), src_dir_fd=folder, dst_dir_fd=top)
            gone += 1
    return gone > 0


def _remove_folder(name, top):
    inside = os.open(name, FOLDER, dir_fd=top)
    try:
        while _removes_some(inside, top):
            pass
    finally:
        os.close(inside)
    os.rmdir(name, dir_fd=top)


def namespace():
    """A descriptor of this process's mount namespace, for `move_to`."""
    return os.open("/proc/self/ns/mnt", os.O_RDONLY | os.O_CLOEXEC)


def move_to(space):
    """Move this process into a namespace, to its root directory."""
    must(_libc.setns(space, CLONE_NEWNS), "setns")


def mount(source, target, kind, flags, options=""):
    """By the kernel's mount(2). Raises OSError with the target."""
    words = [os.fsencode(word) if word else None for word in (source, target, kind)]
    must(_libc.mount(*words, ctypes.c_ulong(flags), os.fsencode(options) or None), "mount on " + target)


def must(result, what):
    """Raise the error of a call of the C library that did not return 0."""
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), what)
