"""Files of an attempt that are taken away from their user, also while a process of his writes to them.

The script and the reports of an attempt belong to the user, whose other jobs may open them as well. Removed
while one has them open, they would go on to take the disk of the spool, out of sight. So each is made
root's first, that nobody opens it from then on, and emptied. One that is open for writing is put aside under
<state>/still_open. There it is looked at as long as somebody has it open, and is removed then.

Without root the agent and its jobs are one user, and nothing can be made another's.
"""

import contextlib
import errno
import fcntl
import os
import signal

import rm_reports

FILES_MOST = 1000  # of a user: each is looked at every second
UNKNOWN = (errno.EWOULDBLOCK, errno.EMFILE, errno.ENFILE)


def home_in(state):
    return os.path.join(state, "still_open")


def is_written_to(path):
    """Has any process the file open for writing? The kernel gives no lease on reading it then. One that holds
    a lease of its own writes, too: the kernel ends that lease before long. False, too, where the file system
    gives no leases at all."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        return error.errno in UNKNOWN
    try:
        # who opens it just then has the kernel signal us, by SIGIO unless told otherwise, which would end us
        fcntl.fcntl(fd, fcntl.F_SETSIG, signal.SIGURG)
        fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_RDLCK)
        fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_UNLCK)
    except BlockingIOError:
        return True
    except OSError:
        pass
    finally:
        os.close(fd)
    return False


def take(path, home):
    """Remove a file that its user may write to. While he has it open for writing it is kept in `home`, by the
    name <user id>.<inode>."""
    with contextlib.suppress(FileNotFoundError):
        about = os.lstat(path)
        if not (_made_roots(path, about) and _is_held(path) and _put_aside(path, about, home)):
            os.unlink(path)


def _is_held(path):
    """Could what it takes of the disk stay, or grow, behind its last name? It is emptied, for who only reads
    it keeps its blocks, too."""
    return is_written_to(path) or not rm_reports.empty(path)


def _made_roots(path, about):
    """False for a file that has another name, too: he keeps it by that one, as any other file of his."""
    if about.st_uid == os.geteuid():
        return True
    with contextlib.suppress(OSError):  # not root's agent, or no room for it
        os.chown(path, 0, 0, follow_symlinks=False)
        os.chmod(path, 0)  # now nobody else can open it, nor give it one more name
        if os.lstat(path).st_nlink > 1:
            os.chown(path, about.st_uid, about.st_gid, follow_symlinks=False)
            os.chmod(path, about.st_mode & 0o777)
            return False
    return True


def _put_aside(path, about, home):
    rm_reports.empty(path)
    try:
        os.makedirs(home, 0o700, exist_ok=True)
        os.rename(path, os.path.join(home, "%d.%d" % (about.st_uid, about.st_ino)))
    except OSError:  # no room for its name
        return False
    return True


class StillOpen:
    def __init__(self, state):
        self.home = home_in(state)
        with contextlib.suppress(OSError):  # on a full disk it is made when it is needed
            os.makedirs(self.home, 0o700, exist_ok=True)

    def _names(self):
        try:
            return os.listdir(self.home)
        except OSError:
            return []

    def is_empty(self):
        return not self._names()

    def look(self):
        """The ids of the users who fill the disk with such files, which are emptied, or who have too many.
        What nobody holds any more is removed."""
        taken = {}  # user id -> (bytes of the disk, the files that take them)
        for name in self._names():
            path = os.path.join(self.home, name)
            with contextlib.suppress(OSError, ValueError):
                if not _is_held(path):
                    os.unlink(path)
                    continue
                uid = int(name.partition(".")[0])
                room, paths = taken.get(uid, (0, []))
                taken[uid] = room + os.lstat(path).st_blocks * 512, [*paths, path]
        filled = {
            uid: paths
            for uid, (room, paths) in taken.items()
            if room > rm_reports.ROOM_BYTES or len(paths) > FILES_MOST
        }
        for paths in filled.values():
            for path in paths:
                rm_reports.empty(path)
        return set(filled)
