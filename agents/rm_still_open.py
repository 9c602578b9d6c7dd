"""Files of ended attempts that a process of their user still has open for writing.

The script and the reports of an attempt belong to the user, whose other jobs may open them as well. Removed
while one has them open, they would go on to take the disk of the spool, out of sight. So they are put aside
under <state>/still_open, are looked at as long as somebody has them open, and are removed then.
"""

import contextlib
import fcntl
import os
import signal

import rm_reports


def is_written_to(path):
    """Has any process the file open for writing? The kernel gives no lease on reading it then; False, too,
    where the file system gives none at all."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return False
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


class StillOpen:
    def __init__(self, state):
        self.home = os.path.join(state, "still_open")

    def remove(self, folder):
        """Remove the attempt's folder, and put aside what of it is still open."""
        for at, path in enumerate(folder.of_the_user()):
            if is_written_to(path):
                with contextlib.suppress(OSError):  # no room for its name: it is removed with the others
                    os.makedirs(self.home, 0o700, exist_ok=True)
                    os.rename(path, os.path.join(self.home, "%d.%d.%d" % (folder.job, folder.attempt, at)))
        folder.remove()

    def look(self):
        """The ids of the users who fill the disk with such files, which are emptied. What nobody writes to
        any more is removed."""
        try:
            names = os.listdir(self.home)
        except FileNotFoundError:
            return set()
        users = set()
        for name in names:
            path = os.path.join(self.home, name)
            with contextlib.suppress(OSError):
                if rm_reports.takes_room(path):
                    users.add(os.lstat(path).st_uid)
                elif not is_written_to(path):
                    os.unlink(path)
        return users
