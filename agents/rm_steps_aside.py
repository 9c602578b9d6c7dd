"""Where a new file is written before it takes the old one's place: one fixed name beside it, locked.

So the next run clears what an interrupted one left, and waits for one that is still at work.
"""

import contextlib
import errno
import fcntl
import os
import stat as stat_module
import time

from rm_steps_base import StepFailed

LINKS_MOST = 40  # as of the kernel's own
ASIDE_S = 60.0  # how long a step waits for another run that writes the same file


def aside_of(path):
    directory, name = os.path.split(path)
    return os.path.join(directory, ".%s.rm-new" % name[:200])


def refuse_led_away(path, user=None):
    """Root follows a link that another user has made, or may move since its directory is his, on the way
    to `path` only to what is that user's own: who makes his `.ssh` a link to root's would else be given
    what a playbook writes there. Where it leads to nothing, the directory that exists counts. The last
    name is looked at where `path` ends in a /. A link of root's that a group or everybody may move is not
    followed. With `user` (a number) it has to be his, whose link it may be. Says whether there was such a
    link."""
    try:
        return os.geteuid() == 0 and _is_led_away(path, user)
    except OSError as problem:  # removed while it was looked at
        told = "%s, on the way to %s, cannot be looked at: %s. Run the step again."
        raise StepFailed(told % (problem.filename or "A directory", path, problem.strerror)) from None


def _is_led_away(path, user):
    # in a user namespace the root outside of it is another one
    roots, here, links, diverted = {0, os.stat("/").st_uid}, "/", 0, False
    left = os.path.join(os.getcwd(), os.path.dirname(path)).split("/")[::-1]
    path = path.rstrip("/") or "/"
    while left:
        name = left.pop()
        if not isinstance(name, str):
            _refuse_end(here, name, path)
            continue
        if name in ("", "."):
            continue
        at = os.path.normpath(os.path.join(here, name))  # no link is in `here`
        try:
            seen = os.lstat(at)
        except OSError:
            # root makes what is not there; a `..` would lead from there to anywhere
            for end in (one for one in left if not isinstance(one, str)):
                _refuse_end("/" if ".." in left else here, end, path)
            return diverted
        if not stat_module.S_ISLNK(seen.st_mode):
            here = at
            continue
        links += 1
        if links > LINKS_MOST:
            raise StepFailed("Too many links are on the way to %s." % path)
        about = os.stat(here)
        makers = {seen.st_uid, about.st_uid} - roots
        others_move = about.st_mode & 0o022 and not about.st_mode & stat_module.S_ISVTX  # or an access list
        if seen.st_uid in roots and others_move:  # a user's leads to what is his, whatever it is called
            told = "%s, on the way to %s, is a link of root's that others may move: a group or everybody"
            raise StepFailed((told + " may write %s. Name the real path.") % (at, path, here))
        diverted = diverted or bool(makers)
        if makers:
            left.append((at, makers if user is None else {user}))
        if diverted and _of_processes(seen.st_dev):
            told = "%s, on the way to %s, leads to what a process has open. Name the real path."
            raise StepFailed(told % (at, path))
        target = os.readlink(at)
        left += target.split("/")[::-1]
        here = "/" if os.path.isabs(target) else here
    return diverted


def _refuse_end(here, end, path):
    """Where a link of another user's leads, `here`, has to be his: who made it, or may move it, alone."""
    import pwd

    link, owners = end
    if {os.stat(here).st_uid} == owners:
        return
    names = []
    for number in sorted(owners):
        try:
            names.append(pwd.getpwuid(number).pw_name)
        except KeyError:
            names.append(str(number))
    told = "%s, on the way to %s, is a link that another user made or may move. It leads to what is not %s's."
    raise StepFailed((told + " Name the real path.") % (link, path, "'s and ".join(names)))


def _of_processes(device):
    """Is it the file system of /proc, whose links lead by no name, also to what a user has mounted?"""
    number = "%d:%d" % (os.major(device), os.minor(device))
    with open("/proc/self/mountinfo", "rb") as mounts:
        return any(b" - proc " in one and one.split()[2] == number.encode() for one in mounts)


def followed(path):
    """What `path` is or leads to, where root may follow it."""
    refuse_led_away(path + "/")
    return os.path.realpath(path)


@contextlib.contextmanager
def set_aside(path):
    """(descriptor, name) of an empty new file beside `path`; without a rename it is gone afterwards.

    It is locked: a step that an interrupted run left at work on the same file is waited for, and what a
    killed one left there is removed.
    """
    refuse_led_away(path)
    name, deadline = aside_of(path), time.monotonic() + ASIDE_S
    while True:
        try:
            fd = os.open(name, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        except FileExistsError:
            clear_aside(path, deadline)
            continue
        lock = _locked(name)
        if lock not in (None, -1) and os.fstat(fd).st_nlink:
            break
        os.close(fd)  # somebody cleared it before it was locked
        if lock not in (None, -1):
            os.close(lock)
    try:
        yield fd, name
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(name)
        raise
    finally:
        os.close(lock)


def clear_aside(path, deadline=0.0):
    """Remove what a killed run left beside `path`. Somebody who still writes there is waited for until the
    deadline (of the monotonic clock); without one he is left alone."""
    name = aside_of(path)
    try:
        seen = os.lstat(name)
    except OSError:
        return
    if stat_module.S_ISDIR(seen.st_mode):
        if deadline:
            raise StepFailed("%s is in the way." % name)
        return
    lock = _locked(name) if stat_module.S_ISREG(seen.st_mode) else -1
    if lock is None:
        if deadline and time.monotonic() > deadline:
            raise StepFailed("Another run is writing %s." % path)
        time.sleep(0.02 if deadline else 0)
        return
    try:
        if lock == -1 or os.fstat(lock).st_nlink:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(name)
    finally:
        if lock != -1:
            os.close(lock)


def _locked(name):
    """A descriptor that holds the lock of a file, None while another one does, -1 where it is not ours."""
    try:
        fd = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    except OSError:  # somebody else's: his directory says whether it may be removed
        return -1
    shared = os.stat(os.path.dirname(name) or ".").st_mode & 0o1002 == 0o1002
    if shared and os.fstat(fd).st_uid not in (0, os.geteuid()):
        os.close(fd)  # in /tmp and its like anybody could keep us waiting
        return -1
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(fd)
        return None
    except OSError:  # a file system without locks
        pass
    return fd


def sync_directory(path):
    fd = os.open(path or ".", os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    except OSError as problem:
        if problem.errno not in (errno.EINVAL, errno.EROFS):  # some file systems cannot
            raise
    finally:
        os.close(fd)
