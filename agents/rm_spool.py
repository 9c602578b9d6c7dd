"""The spool: one folder per attempt under <state>/jobs, readable by whichever agent comes next.

    jobs/<job>.<attempt>/                  locked (flock) by the supervisor as long as it lives
                         meta.json         who, where and with which process ids
                         control           fifo: the agent's words to the supervisor
                         script, schedule.json
                         epilog.due        what is to be run at its end (rm_epilog.py)
                         <rank>/exit.json, reports.jsonl
                         logs/<rank>       what a task without --output printed, of bounded size
    slices/<job>.<attempt>/                locked by the supervisor of several attempts as long as it lives
                         members.json      which they are, in order
                         ends, spare       of those that leave no folder (rm_slot.py); others without a folder
                                           have not begun
                         control           fifo, as above
    still_open/                            files of ended attempts that their users have open
                                           (rm_still_open.py)
    discarded                              one line per discarded attempt: a late launch of it is refused
    ends                                   how such attempts ended (rm_ends.py)
    epoch                                  the largest of a leader that was obeyed
    cluster                                whose jobs these are: the id of the cluster, and where it is led
    known_as                               the name of this host in the cluster, and since which boot

locked = alive; free with exit.json = exited; free without = lost. Folders belong to the agent, so that no
user can put a link where the agent writes; only the script, the reports and the logs belong to the user, so
that they count towards a quota, and into `logs` nobody but the agent can go. Files are few on purpose: making
and removing them is most of what a short job costs.
"""

import contextlib
import errno
import fcntl
import functools
import json
import os
import re
import time

import rm_reports
import rm_still_open
from rm_files import begin, read_json, write_bytes, write_in_room, write_json

EXIT_BYTES = 2048  # reserved at launch, so that an exit can be recorded on a full disk
EPOCH_BYTES = 64
REPORTS = "reports.jsonl"
OF_THE_USER = ("script", REPORTS)  # who may write to these
NO_ROOM = (errno.ENOSPC, errno.EDQUOT)
GONE_S = 7 * 86400
DISCARDED = re.compile(rb"([0-9]{1,16}\.[0-9]{1,16}) ([0-9]{10,16})")  # a full disk has torn all others


class SpoolError(Exception):
    """A refusal: `code` for the daemon, the message a sentence for people."""

    def __init__(self, code, sentence):
        super().__init__(sentence)
        self.code = code


def sentence_of(error):
    """(code, sentence) of an OSError met while writing the spool."""
    host = os.uname().nodename
    what = "%s: %s" % (error.filename or "the spool", os.strerror(error.errno or 0))
    if error.errno in NO_ROOM:
        return "no-space", "The disk of host %s is full (%s); free some space there." % (host, what)
    if error.errno in (errno.EMFILE, errno.ENFILE):
        said = "Host %s has no file descriptors left (%s); see which program holds them." % (host, what)
        return "no-descriptors", said
    return "spool", "The spool of host %s cannot be written: %s." % (host, what)


@functools.lru_cache(maxsize=1)
def boot_id():
    with open("/proc/sys/kernel/random/boot_id") as file:
        return file.read().strip()


class Folder:
    """The folder of one attempt. It lies two levels below the state, if nothing else is said."""

    def __init__(self, path, job, attempt, state=None):
        self.path, self.job, self.attempt = path, job, attempt
        self.state = state or os.path.dirname(os.path.dirname(path))

    def at(self, *names):
        return os.path.join(self.path, *names)

    def programs(self, batch=True):
        """Where the programs are that jobs find first in their PATH (rm_stream_hub.py): those of a script
        that runs once, or those of a task that rm started."""
        return os.path.join(self.state, "bin" if batch else "task-bin")

    def reports(self, rank):
        return self.at(str(rank), REPORTS)

    def open_log(self, rank, flags):
        """The spool's own file for what a rank writes; never through a link."""
        careful = os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            home, name = os.open(self.at("logs"), os.O_RDONLY | os.O_DIRECTORY | careful), str(rank)
        except FileNotFoundError:  # launched by an agent of an earlier version
            home, name = os.open(self.at(str(rank)), os.O_RDONLY | os.O_DIRECTORY | careful), "out"
        try:
            return os.open(name, flags | careful, 0o600, dir_fd=home)
        finally:
            os.close(home)

    def lock(self):
        """Make the folder if need be and take its lock: a file descriptor, or None when it is taken."""
        tries = 0
        while True:
            self._make()
            try:
                fd = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
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
                return fd  # not one that was removed meanwhile
            os.close(fd)

    def _make(self):
        try:
            os.mkdir(self.path, 0o711)
        except FileExistsError:
            pass
        except FileNotFoundError:
            os.makedirs(self.path, 0o711, exist_ok=True)

    def alive(self):
        """Does a supervisor (or another agent, launching) hold the lock?"""
        try:
            fd = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError:
            return False
        try:
            fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
            return False
        except BlockingIOError:
            return True
        finally:
            os.close(fd)

    def fill(self, ranks, script, uid, gid, hears=True):
        """Everything a launch needs on disk, except meta.json. Raises OSError half-way; see `remove`. With
        `hears` its supervisor takes orders here."""
        theirs = [(self.at("script"), script.encode(), 0o700)]
        os.mkdir(self.at("logs"), 0o700)
        for rank in ranks:
            os.mkdir(self.at(str(rank)), 0o711)
            os.close(begin(self.at(str(rank), "exit.json.new"), b" " * EXIT_BYTES, 0o600))
            theirs.append((self.reports(rank), b"", 0o600))
        for path, data, mode in theirs:
            fd = begin(path, data, mode)
            try:
                if os.getuid() == 0:
                    os.fchown(fd, uid, gid)
            finally:
                os.close(fd)
        if hears:
            os.mkfifo(self.at("control"), 0o600)

    def write_exit(self, rank, record, sync=True):
        """Record an exit in the bytes reserved for it; with `sync` durable when this returns."""
        aside = self.at(str(rank), "exit.json.new")
        fd = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            os.pwrite(fd, json.dumps(record).encode().ljust(EXIT_BYTES), 0)
            if sync:
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

    def last_words(self):
        """What a supervisor that met a defect of its own left behind."""
        try:
            with open(self.at("supervisor.err")) as file:
                return " It said: " + file.read().strip().rpartition("\n")[2]
        except OSError:
            return ""

    def remove(self):
        _remove(self.path, rm_still_open.home_in(self.state))

    def take_from_user(self):
        """Remove what the user may write to: script and reports, which have served when all has ended."""
        for path in self.of_the_user():
            rm_still_open.take(path, rm_still_open.home_in(self.state))

    def of_the_user(self):
        """The files in it that the user may write to: script and reports."""
        try:
            ranks = [name for name in os.listdir(self.path) if name.isdigit()]
        except FileNotFoundError:
            return []
        return [self.at("script"), *map(self.reports, ranks)]

    def empty(self):
        """Of what its user made long nothing is left, once his own files are taken: logs."""
        logs = self.at("logs")
        for name in os.listdir(logs) if os.path.isdir(logs) else ():
            rm_reports.empty(os.path.join(logs, name))


class Spool:
    """All attempts known to this host, whose they are, and the largest epoch seen."""

    def __init__(self, state):
        self.state = state
        self.jobs = os.path.join(state, "jobs")
        self.slices = os.path.join(state, "slices")
        self._discarded_path = os.path.join(state, "discarded")
        self._discarded, self._discarded_seen = {}, (0, 0)  # (inode, bytes read)
        self._notes = {}  # by name: (which file it was, what it held)
        os.makedirs(self.jobs, 0o711, exist_ok=True)
        for path in (state, self.jobs):
            if os.stat(path).st_uid == os.getuid():
                os.chmod(path, 0o711)

    def folder(self, job, attempt):
        return Folder(os.path.join(self.jobs, "%d.%d" % (job, attempt)), job, attempt)

    def scan(self):
        """Every attempt's folder."""
        return (self.folder(*name) for name in _named(self.jobs))

    def slice_folder(self, job, attempt):
        """Of the slice that begins with this attempt."""
        return Folder(os.path.join(self.slices, "%d.%d" % (job, attempt)), job, attempt)

    def scan_slices(self):
        names = _named(self.slices) if os.path.isdir(self.slices) else ()
        return [self.slice_folder(*name) for name in names]

    def gone(self, job, attempt):
        """Was it discarded here? Another agent's discards count too."""
        self._read_discarded()
        return "%d.%d" % (job, attempt) in self._discarded

    def gone_of(self, names):
        """Which of many (job, attempt) were."""
        self._read_discarded()
        return [name for name in names if "%d.%d" % name in self._discarded]

    def mark_gone(self, *names):
        """Each is (job, attempt)."""
        lines = "".join("%d.%d %d\n" % (*name, time.time()) for name in names).encode()
        fd = os.open(self._discarded_path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            size = os.fstat(fd).st_size
            if size and os.pread(fd, 1, size - 1) != b"\n":
                lines = b"\n" + lines  # a full disk took a piece of the last one
            if os.write(fd, lines) < len(lines):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), self._discarded_path)
        finally:
            os.close(fd)

    def newest_job(self):
        """The largest id of a job that this host has run and remembers; 0 when there is none."""
        self._read_discarded()
        names = [*os.listdir(self.jobs), *self._discarded]
        return max(
            (int(job) for job in (name.partition(".")[0] for name in names) if job.isdigit()), default=0
        )

    def prune(self):
        """Forget discards so old that no launch can still be on the way."""
        self._read_discarded()
        kept = {name: at for name, at in self._discarded.items() if time.time() - at < GONE_S}
        if len(kept) < len(self._discarded):
            text = "".join("%s %d\n" % item for item in kept.items())
            with contextlib.suppress(OSError):  # on a full disk the next agent does it
                write_bytes(self._discarded_path, text.encode(), 0o600)

    def _read_discarded(self):
        try:
            about = os.stat(self._discarded_path)
            if self._discarded_seen == (about.st_ino, about.st_size):
                return
            with open(self._discarded_path, "rb") as file:
                about = os.fstat(file.fileno())
                if self._discarded_seen != (about.st_ino, about.st_size):
                    if about.st_ino != self._discarded_seen[0]:
                        self._discarded_seen = (about.st_ino, 0)
                        self._discarded = {}
                    file.seek(self._discarded_seen[1])
                    text = file.read()
                    text = text[: text.rfind(b"\n") + 1]
                    self._discarded_seen = (about.st_ino, self._discarded_seen[1] + len(text))
                    lines = filter(None, map(DISCARDED.fullmatch, text.split(b"\n")))
                    self._discarded.update((line.group(1).decode(), int(line.group(2))) for line in lines)
        except FileNotFoundError:
            self._discarded = {}

    def _noted(self, name):
        """What a file of the state holds, which each message asks for: read again when it was replaced."""
        path = os.path.join(self.state, name)
        try:
            about = os.stat(path)
        except OSError:
            return None
        seen = about.st_ino, about.st_mtime_ns, about.st_size
        if self._notes.get(name, (None, None))[0] != seen:
            self._notes[name] = seen, read_json(path)
        return self._notes[name][1]

    def cluster(self):
        """(id, where it is led) of the cluster that this host belongs to; empty when it belongs to none."""
        known = self._noted("cluster")
        known = known if isinstance(known, dict) else {}
        return str(known.get("id", "")), str(known.get("led_at", ""))

    @contextlib.contextmanager
    def _alone(self, name):
        """While no other agent writes to that file of the state; what one has just written is read again."""
        lock = os.open(self.state, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)  # needs no room on the disk
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            self._notes.pop(name, None)
            yield os.path.join(self.state, name)
        finally:
            os.close(lock)

    def join(self, cluster, led_at, instead_of):
        """From now on this host belongs to that cluster; durable when this returns. Refused when it belongs
        to another than `instead_of` meanwhile."""
        if self.cluster() == (cluster, led_at):
            return
        with self._alone("cluster") as path:
            mine = self.cluster()[0]
            if mine != instead_of:
                self.check_cluster(cluster)
            if mine not in ("", cluster):
                self._forget_cluster()
            write_json(path, {"id": cluster, "led_at": led_at}, sync=True)

    def _forget_cluster(self):
        """Nothing of the cluster that led this host until now counts for the next one: ids begin anew."""
        for name in ("discarded", "ends", "epoch", "known_as"):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(os.path.join(self.state, name))

    def known_as(self):
        """The name that the cluster uses for this host since its boot; empty before one was given. After a
        boot nothing runs here, and a copy of a disk is another machine."""
        known = self._noted("known_as")
        known = known if isinstance(known, dict) else {}
        return str(known.get("name", "")) if known.get("boot_id") == boot_id() else ""

    def take_name(self, name, instead_of):
        """Take the name, unless there is another than `instead_of`; the name that counts. Agents queue."""
        with self._alone("known_as") as path:
            now = self.known_as()
            if now in ("", instead_of) and name:
                now = name
                with contextlib.suppress(OSError):  # on a full disk it is asked for again
                    write_json(path, {"name": name, "boot_id": boot_id()})
            return now

    def check_cluster(self, cluster):
        """Refuse another cluster's daemon. One that names none is older than clusters' ids."""
        mine, led_at = self.cluster()
        if cluster and mine and cluster != mine:
            raise SpoolError(
                "foreign-cluster",
                "Host %s belongs to cluster %s (led at %s), not to %s."
                % (os.uname().nodename, mine, led_at, cluster),
            )

    def epoch(self):
        """The largest epoch of a leader that this host has obeyed; 0 when none is known."""
        known = self._noted("epoch")
        return known if isinstance(known, int) else 0

    def check_epoch(self, epoch):
        """Refuse an older leader; remember a newer one durably before anything is done for it."""
        if not self._is_newer(epoch):
            return
        with self._alone("epoch") as path:
            if self._is_newer(epoch):
                # also on a full disk, where a new leader must be able to end what runs
                write_in_room(path, json.dumps(epoch).encode(), EPOCH_BYTES, 0o600, sync=True)

    def _is_newer(self, epoch):
        """Than the largest that is known? An older one is refused."""
        known = self.epoch()
        if epoch < known:
            raise SpoolError(
                "stale-epoch", "Epoch %d is over: a leader with epoch %d is in charge." % (epoch, known)
            )
        return epoch > known


def _named(where):
    """(job, attempt) of each folder there."""
    for name in sorted(os.listdir(where)):
        job, _, attempt = name.partition(".")
        if job.isdigit() and attempt.isdigit():
            yield int(job), int(attempt)


def _remove(folder, home):
    """`home`: of what a user still has open."""
    with contextlib.suppress(FileNotFoundError):
        for entry in list(os.scandir(folder)):
            if entry.is_dir(follow_symlinks=False):
                _remove(entry.path, home)
            elif entry.name in OF_THE_USER:
                rm_still_open.take(entry.path, home)
            else:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(entry.path)
        os.rmdir(folder)
