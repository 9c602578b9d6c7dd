"""To say and to hear through what does not block, for all programs that stream."""

import fcntl
import os
import select
import struct
import termios


def say(sock, outbox):
    """Send as much of the bytearray `outbox` as there is room for; it loses that. False: the peer is gone."""
    while outbox:
        try:
            del outbox[: sock.send(outbox)]
        except BlockingIOError:
            return True
        except OSError:
            return False
    return True


def hear(sock, most_bytes):
    """What has come, at most `most_bytes`. None: nothing yet. Empty: the peer is gone."""
    try:
        return sock.recv(most_bytes)
    except BlockingIOError:
        return None
    except OSError:
        return b""


def waiting_bytes(fd):
    """What stands in a pipe or socket, not read yet."""
    return struct.unpack("i", fcntl.ioctl(fd, termios.FIONREAD, bytes(4)))[0]


def feed(fd, waiting, piece_bytes):
    """Write what waits in the bytearray to the input of a task, as far as it is taken; the bytearray loses
    that. (how many bytes, does the task read still?): where it does not, all that waits is passed over, and
    counts as taken."""
    taken = 0
    try:
        while waiting:
            count = os.write(fd, waiting[:piece_bytes])
            taken += count
            del waiting[:count]
    except BlockingIOError:
        pass
    except OSError:
        taken += len(waiting)
        waiting.clear()
        return taken, False
    return taken, True


def write(fd, data):
    """All of it to a descriptor, which may be one that does not wait."""
    view = memoryview(data)
    while view:
        try:
            view = view[os.write(fd, view) :]
        except BlockingIOError:
            poll = select.poll()  # select() takes no descriptor above 1023
            poll.register(fd, select.POLLOUT)
            poll.poll()
        except OSError:
            return  # nobody reads it any more
