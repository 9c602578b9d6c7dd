"""What one element of a slice leaves to the next: its folder, its empty log and its control group.

To make and to remove these is most of what a short element costs. So the folder of an element that has left
nothing in it becomes the next one's, by a rename, and the end of the first is kept beside the members' names.
An element that has printed something, or left anything else, keeps its folder, with its end in it.

    slices/<job>.<attempt>/ends     a record for each member, in order; blank: it has not ended, or the record
                                    lies in its own folder
                           spare    the folder, between two elements
"""

import contextlib
import ctypes
import json
import os

from rm_files import read_json, write_in_room
from rm_reports import size_of
from rm_spool import Folder

RECORD_BYTES = 512
SCRIPT_BYTES = 64 << 10  # one that is longer is not compared, but written anew
AT_CWD, NOREPLACE = -100, 1
LEFT = {"0", "logs", "meta.json", "script"}
_renameat2 = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)  # glibc 2.28, Linux 3.15


class Ends:
    """The room for them is taken before the first element begins: an end can be recorded on a full disk."""

    def __init__(self, folder, count):
        self.file = os.open(folder.at("ends"), os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        left = memoryview(b" " * (RECORD_BYTES * count))
        while left:
            left = left[os.write(self.file, left) :]

    def write(self, place, record):
        """Does it fit there?"""
        data = json.dumps(record, separators=(",", ":")).encode()
        return len(data) < RECORD_BYTES and os.pwrite(self.file, data, place * RECORD_BYTES) == len(data)


def end_of(folder, place):
    """How that member of the slice ended, where it left no folder; else None."""
    try:
        fd = os.open(folder.at("ends"), os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        return json.loads(os.pread(fd, RECORD_BYTES, place * RECORD_BYTES))
    except ValueError:
        return None
    finally:
        os.close(fd)


class Slot:
    """Of one slice. All its elements have the same script and user."""

    def __init__(self, spool, folder, script, user):
        self.spool, self.user = spool, user
        self.script, self.text = script, script.encode()
        self.spare = folder.at("spare")
        self.folder = None  # the one in use, under its present name
        self.lock = -1  # of it; -1: there is none
        self.running = -1  # its script, to be read
        self.log = None  # the capture whose file lies in it
        self.meta = b""  # what its meta.json holds

    def take(self, name):
        """The locked folder of the next element; None when another agent has it. After an OSError `drop`
        leaves nothing of it."""
        folder = self.spool.folder(*name)
        if self.lock >= 0 and _renamed(self.spare, folder.path):
            self.folder = folder
            return folder
        self.drop()
        lock = folder.lock()
        if lock is None:
            return None
        self.lock = lock
        if read_json(folder.at("meta.json")) is not None:
            self.leave()
            return None
        self.folder = folder
        folder.fill([0], self.script, self.user.uid, self.user.gid, hears=False)
        self.running = os.open(folder.at("script"), os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        return folder

    def write_meta(self, folder, data, room_bytes):
        if data != self.meta:
            write_in_room(folder.at("meta.json"), data, room_bytes, 0o600)
            self.meta = data

    def is_as_before(self, folder):
        """Has the element left nothing in the folder, and its script as it was?"""
        log = self.log
        if _renameat2 is None or log is None or log.size or log.lost or size_of(folder.reports(0)):
            return False
        about = os.fstat(self.running)
        if about.st_mode & 0o7777 != 0o700 or about.st_size != len(self.text) or about.st_size > SCRIPT_BYTES:
            return False
        return os.pread(self.running, about.st_size, 0) == self.text and set(os.listdir(self.lock)) == LEFT

    def keep(self, folder):
        """The element has ended, and that is recorded elsewhere: its folder is the next one's."""
        if _renamed(folder.path, self.spare):
            self.folder = Folder(self.spare, folder.job, folder.attempt, self.spool.state)
        else:
            self.leave()

    def leave(self):
        """The folder stays the element's."""
        for fd in (self.lock, self.running):
            if fd >= 0:
                os.close(fd)
        if self.log is not None:
            os.close(self.log.file)
        self.folder, self.lock, self.running, self.log, self.meta = None, -1, -1, None, b""

    def drop(self):
        """Nothing of it is needed."""
        if self.folder is not None:
            with contextlib.suppress(OSError):
                self.folder.remove()
        self.leave()


def _renamed(old, new):
    """Rename what is not there yet under the new name."""
    return _renameat2(AT_CWD, os.fsencode(old), AT_CWD, os.fsencode(new), NOREPLACE) == 0
