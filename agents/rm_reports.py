"""What a user's program appended to its file, by a fixed grammar and in bounded pieces: reports of
iterations, and the wish to be requeued.

The file belongs to the user, who may write anything into it, cut it, or give it holes of any size. So a look
at it reads at most a window of it, each line either has the form `[rank, n, start_us, duration_us,
paused_us, comm_us|null]` or `["requeue"]`, or is passed over, and a file that has grown large is emptied.
"""

import os
import re

WINDOW_BYTES = 64 << 10  # of what came since the last look: the newest
LINE_BYTES = 256  # no report is longer
KEEP_BYTES = 4 << 20  # what a file may hold before it is emptied
ROOM_BYTES = 64 << 20  # of the disk that a file of the user's in the spool may take
_NUMBER = rb"-?[0-9]{1,16}"
_REPORT = re.compile(rb"\[" + rb", ?".join([_NUMBER] * 5) + rb", ?(?:null|" + _NUMBER + rb")\]")
_LARGEST = 1 << 53
REQUEUE = b'["requeue"]'


def parsed(line):
    """[rank, n, start_us, duration_us, paused_us, comm_us|None] of one line; None when it is not a report."""
    if not _REPORT.fullmatch(line):
        return None
    words = line[1:-1].split(b",")
    item = [None if word.strip() == b"null" else int(word) for word in words]
    return item if all(value is None or abs(value) < _LARGEST for value in item) else None


def read(path, offset, most_bytes=WINDOW_BYTES):
    """(reports after `offset`, offset of the next look, is the job to be requeued?). What lies before the
    window is passed over."""
    fd = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        size = os.fstat(fd).st_size
        offset = 0 if offset > size else offset  # it was emptied, by us or by the user
        begin = max(offset, size - most_bytes)
        text = os.pread(fd, size - begin, begin)
        end = text.rfind(b"\n") + 1
        if end == 0 and len(text) > LINE_BYTES:
            end = len(text)
        lines = text[:end].splitlines()
        if begin > offset:
            del lines[:1]  # its beginning was passed over
        begin += end
        if size > KEEP_BYTES:
            os.ftruncate(fd, 0)
            begin = 0
    finally:
        os.close(fd)
    return [item for item in map(parsed, lines) if item is not None], begin, REQUEUE in lines


def latest(path):
    """The reports at the end of a file; [] when there is none."""
    try:
        return read(path, 0)[0]
    except OSError:
        return []


def asks_requeue(path):
    """Does the end of a file say so?"""
    try:
        return size_of(path) > 0 and read(path, 0)[2]
    except OSError:
        return False


def takes_room(path):
    """Does a file of the user's in the spool take more of the disk than any that serves its purpose? It is
    emptied then, where it can be. Blocks count, not its size: those that are reserved behind its end, too."""
    try:
        if os.stat(path, follow_symlinks=False).st_blocks * 512 <= ROOM_BYTES:
            return False
    except OSError:
        return False
    empty(path)
    return True


def empty(path):
    """Nothing of it is left; False: it stays as it is, while somebody has a lease on it, for to open it would
    wait."""
    try:
        os.close(os.open(path, os.O_WRONLY | os.O_TRUNC | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC))
    except OSError:
        return False
    return True


def size_of(path):
    try:
        return os.stat(path).st_size
    except OSError:
        return 0
