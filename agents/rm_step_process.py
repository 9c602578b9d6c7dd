"""The process of a step daemon: its socket, its start by the supervisor, and its end."""

import contextlib
import os
import signal
import socket

from rm_cgroup import send
from rm_step_peer import SOCKET
from rm_stepd import StepDaemon


def listen(folder, user):
    """The socket on which the attempt's steps are asked for; the user alone may connect."""
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    path = folder.at(SOCKET)
    with contextlib.ExitStack() as failed:
        failed.callback(sock.close)
        mask = os.umask(0o177)
        try:
            sock.bind(path)
        finally:
            os.umask(mask)
        failed.callback(os.unlink, path)  # else nobody could bind it later
        if os.getuid() == 0:
            os.chown(path, user.uid, user.gid)
        sock.listen(128)
        sock.setblocking(False)
        failed.pop_all()
    return sock


def start(listener, folder, group, request, user, fence, say, leave):
    """Fork the step daemon; its process id. `leave` closes what is the supervisor's alone."""
    pid = os.fork()
    if pid:
        return pid
    try:
        signal.set_wakeup_fd(-1)
        leave()
        for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP, signal.SIGCHLD}:
            with contextlib.suppress(OSError, ValueError):
                signal.signal(number, signal.SIG_IGN)
        StepDaemon(listener, folder, group, request, user, fence, say).run()
    except BaseException:
        import traceback

        with open(folder.at("supervisor.err"), "a") as file:
            file.write(traceback.format_exc())
    finally:
        os._exit(0)


def end(pid):
    send([pid], signal.SIGKILL)
