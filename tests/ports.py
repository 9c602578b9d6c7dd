"""TCP ports for programs that begin to listen later, or anew after a restart."""

from __future__ import annotations

import socket


class Kept:
    """A port of 127.0.0.1 that nobody is given meanwhile: it is bound, without being listened at.

    A program that reuses addresses, as servers do, may listen at it all the same.
    """

    def __init__(self) -> None:
        self._socket = socket.socket()
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._socket.bind(("127.0.0.1", 0))
        self.number: int = self._socket.getsockname()[1]

    def close(self) -> None:
        self._socket.close()
