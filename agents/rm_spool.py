"""The spool: one folder per attempt under <state>/jobs, readable by whichever agent comes next.

    jobs/<job>.<attempt>/lock              held (flock) by the supervisor as long as it lives
                         meta.json         who, where and with which process ids
                         control           fifo: the agent's words to the supervisor
                         script, schedule.json, reports/<rank>.jsonl
                         <rank>/out, err, exit.json
    jobs/<job>.<attempt>.gone              discarded: a late launch of it is refused

lock held = alive; free with exit.json = exited; free without = lost. Folders belong to the agent, so that
no user can put a link where the agent writes; only the script and the reports belong to the user.
"""

import contextlib
import errno
import fcntl
import json
import os
import time

EXIT_BYTES = 2048  # reserved at launch, so that an exit can be recorded on a full disk
GONE_S = 7 * 86400


class SpoolError(Exception):
    """A refusal: `code` for the daemon, the message a sentence for people."""

    def __init__(self, code, sentence):
        super().__init__(sentence)
        self.code = code


def sentence_of(error):
    """(code, sentence) of an OSError met while writing the spool."""
    what = "%s: %s" % (error.filename or "the spool", os.strerror(error.errno or 0))
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return "no-space", "The disk of host %s is full (%s); free some space there." % (
            os.uname().nodename,
            what,
        )
    return "spool", "The spool of host %s cannot be written: %s." % (os.uname().nodename, what)


def write_json(path, value, sync=False):
    """Replace `path` atomically."""
    write_bytes(path, json.dumps(value, separators=(",", ":")).encode(), 0o600, sync)


def write_bytes(path, data, mode, sync=False):
    aside = path + ".new"
    fd = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, mode)
    try:
        os.fchmod(fd, mode)
        view = memoryview(data)
        while view:
            view = view[os.write(fd, view) :]
        if sync:
            os.fsync(fd)
    finally:
        os.close(fd)
    os.rename(aside, path)


def read_json(path):
    """The object in `path`; None when it is missing or was cut short."""
    try:
        with open(path, "rb") as file:
            return json.loads(file.read())
    except (OSError, ValueError):
        return None


def boot_id():
    with open("/proc/sys/kernel/random/boot_id") as file:
        return file.read().strip()


class Folder:
    """The folder of one attempt."""

    def __init__(self, path, job, attempt):
        self.path, self.job, self.attempt = path, job, attempt

    def at(self, *names):
        return os.path.join(self.path, *names)

    def lock(self):
        """Make the folder if need be and take its lock: a file descriptor, or None when it is taken."""
        tries = 0
        while True:
            os.makedirs(self.path, 0o711, exist_ok=True)
            try:
                fd = os.open(self.at("lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            except FileNotFoundError:
                continue  # discarded between the two steps
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(fd)
                tries += 1
                if tries == 5:
                    return None
                time.sleep(0.001)  # another agent may just be looking whether it is held
                continue
            if os.fstat(fd).st_nlink:
                return fd
            os.close(fd)

    def alive(self):
        """Does a supervisor (or another agent, launching) hold the lock?"""
        try:
            fd = os.open(self.at("lock"), os.O_RDWR | os.O_CLOEXEC)
        except OSError:
            return False
        try:
            fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
            return False
        except BlockingIOError:
            return True
        finally:
            os.close(fd)

    def fill(self, ranks, script, uid, gid):
        """Everything a launch needs on disk, except meta.json. Raises OSError half-way; see `remove`."""
        write_bytes(self.at("script"), script.encode(), 0o700)
        os.mkdir(self.at("reports"), 0o711)
        for rank in ranks:
            os.mkdir(self.at(str(rank)), 0o700)
            fd = os.open(
                self.at(str(rank), "exit.json.new"),
                os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC,
                0o600,
            )
            try:
                os.write(fd, b" " * EXIT_BYTES)
            finally:
                os.close(fd)
            report = os.open(
                self.at("reports", "%d.jsonl" % rank), os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644
            )
            try:
                if os.getuid() == 0:
                    os.fchown(report, uid, gid)
            finally:
                os.close(report)
        if os.getuid() == 0:
            os.chown(self.at("script"), uid, gid)
        os.mkfifo(self.at("control"), 0o600)

    def write_exit(self, rank, record):
        """Record an exit in the bytes reserved for it; durable when this returns."""
        aside = self.at(str(rank), "exit.json.new")
        fd = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            os.pwrite(fd, json.dumps(record).encode().ljust(EXIT_BYTES), 0)
            os.fsync(fd)
        finally:
            os.close(fd)
        os.rename(aside, self.at(str(rank), "exit.json"))

    def exit(self, rank):
        return read_json(self.at(str(rank), "exit.json"))

    def tell(self, message):
        """One line to the supervisor; False when there is none."""
        try:
            fd = os.open(self.at("control"), os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:
            return False
        try:
            os.write(fd, json.dumps(message).encode() + b"\n")
            return True
        except OSError:
            return False
        finally:
            os.close(fd)

    def remove(self):
        for folder, folders, files in os.walk(self.path, topdown=False):
            for name in files:
                _forget(os.unlink, os.path.join(folder, name))
            for name in folders:
                _forget(os.rmdir, os.path.join(folder, name))
        _forget(os.rmdir, self.path)


class Spool:
    """All attempts known to this host, and the largest epoch seen."""

    def __init__(self, state):
        self.state = state
        self.jobs = os.path.join(state, "jobs")
        os.makedirs(self.jobs, 0o711, exist_ok=True)
        for path in (state, self.jobs):
            if os.stat(path).st_uid == os.getuid():
                os.chmod(path, 0o711)

    def folder(self, job, attempt):
        return Folder(os.path.join(self.jobs, "%d.%d" % (job, attempt)), job, attempt)

    def scan(self):
        """Every attempt's folder. Old marks of discarded attempts are dropped on the way."""
        for name in sorted(os.listdir(self.jobs)):
            parts = name.split(".")
            if len(parts) == 3 and parts[2] == "gone":
                path = os.path.join(self.jobs, name)
                if time.time() - os.stat(path).st_mtime > GONE_S:
                    _forget(os.unlink, path)
            elif len(parts) == 2 and parts[0].isdigit() and parts[1].isdigit():
                yield self.folder(int(parts[0]), int(parts[1]))

    def gone(self, job, attempt):
        return os.path.exists(self.folder(job, attempt).path + ".gone")

    def mark_gone(self, job, attempt):
        os.close(
            os.open(self.folder(job, attempt).path + ".gone", os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        )

    def check_epoch(self, epoch):
        """Refuse an older leader; remember a newer one durably before anything is done for it."""
        path = os.path.join(self.state, "epoch")
        known = read_json(path) or 0
        if epoch < known:
            raise SpoolError(
                "stale-epoch", "Epoch %d is over: a leader with epoch %d is in charge." % (epoch, known)
            )
        if epoch > known:
            write_json(path, epoch, sync=True)


def _forget(remove, path):
    with contextlib.suppress(FileNotFoundError):
        remove(path)
