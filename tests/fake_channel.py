"""A channel to a host, for those who attend what runs there."""

from __future__ import annotations


class Channel:
    """To a host that has said `words`; what it is told is in `heard`."""

    def __init__(self, words: bytes) -> None:
        self._words = words
        self.heard = b""

    def settimeout(self, seconds: float | None) -> None: ...

    def sendall(self, data: bytes) -> None:
        self.heard += data

    def recv(self, most: int) -> bytes:
        data, self._words = self._words[:most], self._words[most:]
        return data

    def recv_stderr_ready(self) -> bool:
        return False

    def close(self) -> None: ...
