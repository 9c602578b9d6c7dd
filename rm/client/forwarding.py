"""Connections of this machine to a port of a job's host: each is a session, in which a relay connects.

So it has the rights, the limits and the back-pressure of sessions, and ends with the job as they do.
"""

from __future__ import annotations

import os
import select
import socket
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress

from rm.client import attending
from rm.client.attending import Streams
from rm.client.connection import Connection
from rm.errors import RmError

AT_ONCE = 48  # of the 64 sessions of a user: the rest is for shells
REFUSED = 111  # the relay's exit code when nothing listens
RELAY = """
import os, socket, sys, threading
port, far = int(sys.argv[1]), None
for name in ("127.0.0.1", "::1", socket.gethostname()):
    try:
        far = socket.create_connection((name, port), 10)
        break
    except OSError as error:
        pass
if far is None:
    sys.exit(111)
far.settimeout(None)
def put(data):
    view = memoryview(data)
    while view:
        view = view[os.write(1, view):]
def there():
    try:
        while True:
            data = os.read(0, 32768)
            if not data:
                far.shutdown(socket.SHUT_WR)
                return
            far.sendall(data)
    except OSError:
        pass
threading.Thread(target=there, daemon=True).start()
try:
    while True:
        data = far.recv(32768)
        if not data:
            break
        put(data)
except OSError:
    pass
os._exit(0)
"""


class Forwarding:
    """What comes to `listener` goes to `port` of a host of `job`; `tell` hears sentences."""

    def __init__(
        self,
        connection: Callable[[], Connection],
        listener: socket.socket,
        job: int,
        host: str,
        port: int,
        tell: Callable[[str], None],
    ) -> None:
        self._connection, self._listener, self._job, self._host = connection, listener, job, host
        self._port, self._say = port, tell
        self._told = ""
        self._going: dict[socket.socket, int] = {}  # to the descriptor that wakes its session
        self._over, self._over_in = os.pipe()  # readable: a connection has ended
        os.set_blocking(self._over, False)
        os.set_blocking(self._over_in, False)
        self._lock = threading.Lock()

    def run(self, wakes: Sequence[int], over: Callable[[], bool]) -> None:
        """Until one of `wakes` is readable and it is `over`; every connection is closed then."""
        while True:
            poll = select.poll()
            for fd in (*wakes, self._over):
                poll.register(fd, select.POLLIN)
            with self._lock:
                going = {near.fileno(): woken for near, woken in self._going.items()}
            if len(going) < AT_ONCE:
                poll.register(self._listener, select.POLLIN)
            for fd in going:
                poll.register(fd, 0)  # only that it is closed altogether
            ready = dict(poll.poll())
            for fd in ready.keys() & {*wakes, self._over}:
                with suppress(BlockingIOError):
                    os.read(fd, 4096)
            if over():
                self._end_all()
                return
            if self._over in ready:
                continue  # a descriptor may have another meaning now
            for fd in going.keys() & ready.keys():
                self._end(fd)
            if self._listener.fileno() in ready:
                self._accept()

    def _accept(self) -> None:
        try:
            near, _ = self._listener.accept()
        except OSError:
            return
        near.setblocking(False)
        woken, wakes = os.pipe()
        with self._lock:
            self._going[near] = wakes
        threading.Thread(target=self._carry, args=(near, woken, wakes), daemon=True).start()

    def _end(self, fd: int) -> None:
        """The session of the connection with this descriptor is left; its own thread closes it."""
        with self._lock:
            found = next((near for near in self._going if near.fileno() == fd), None)
            if found is not None:
                os.write(self._going[found], b".")
                del self._going[found]

    def _end_all(self) -> None:
        with self._lock:
            going = [near.fileno() for near in self._going]
        for fd in going:
            self._end(fd)

    def _carry(self, near: socket.socket, woken: int, wakes: int) -> None:
        def left(far: attending.Session) -> bool:
            far.hang_up()
            return False

        argv = ["python3", "-S", "-E", "-c", RELAY, str(self._port)]
        begin = {"argv": argv, "terminal": False, "rows": 0, "columns": 0, "term": ""}
        name = os.urandom(10).hex()
        far = attending.Session(self._connection, self._job, self._host, name, begin, self._tell)
        try:
            ended = far.attend(Streams(near.fileno(), near.fileno(), 2, woken, left))
            if ended is not None and ended.exit_code == REFUSED:
                self._tell(f"Nothing listens at port {self._port} of {self._host} yet.")
        except RmError as error:
            self._tell(f"A connection was closed: {error.what}")
        finally:
            far.close()
            with self._lock:
                self._going.pop(near, None)
                near.close()
                os.close(woken)
                os.close(wakes)
            with suppress(BlockingIOError):
                os.write(self._over_in, b".")

    def _tell(self, text: str) -> None:
        """Not once for each of many connections."""
        if text != self._told:
            self._told = text
            self._say(text)
