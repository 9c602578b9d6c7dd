"""The HTTPS door: TLS 1.2 or newer, with a certificate that is read again when its files change."""

from __future__ import annotations

import asyncio
import logging
import os
import ssl
from asyncio import sslproto
from functools import partial

from aiohttp import web

from rm.config import HttpsConfig
from rm.errors import ConfigError
from rm.web.doors.door import Door, Guests
from rm.web.doors.errors_once import ErrorsOnce
from rm.web.doors.port import given_up, listener_at, opened
from rm.web.pages.listen import address_of

LOOK_EVERY_S = 5.0
# of a connection, from before its handshake on. asyncio takes 256 KiB: strangers may hold half of the
# descriptors, and would fill the memory
BUFFER_BYTES = 16 << 10
log = logging.getLogger("rm.web")


class Certificate:
    """`context` is what new connections are encrypted with.

    A context is not changed once connections use it: while it takes a certificate and then its key, they
    would meet the one without the other. It hands each connection to the newest one instead.
    """

    def __init__(self, config: HttpsConfig) -> None:
        self._files = (os.path.expanduser(config.certificate), os.path.expanduser(config.key))
        self._seen = self._state()
        self.context = self._newest = self._load()
        self.context.sni_callback = self._hand_over

    def look(self) -> bool:
        """Take new files, if there are; a wrong pair leaves the old one. Called in a thread."""
        state = self._state()
        if state == self._seen:
            return False
        self._seen = state
        try:
            self._newest = self._load()
        except ConfigError as error:
            log.error("the old certificate stays: %s", error)
            return False
        log.info("the certificate %s was read again", self._files[0])
        return True

    def _hand_over(self, connection: ssl.SSLObject, name: str | None, context: ssl.SSLContext) -> None:
        """Called in each handshake, whether or not the client names a server."""
        connection.context = self._newest

    def _state(self) -> tuple[tuple[int, int, int] | None, ...]:
        found: list[tuple[int, int, int] | None] = []
        for file in self._files:
            try:
                about = os.stat(file)
                found.append((about.st_ino, about.st_size, about.st_mtime_ns))
            except OSError:
                found.append(None)
        return tuple(found)

    def _load(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_CIPHER_SERVER_PREFERENCE
        context.set_alpn_protocols(["http/1.1"])
        try:
            context.load_cert_chain(*self._files, password=_no_passphrase)
        except (OSError, ssl.SSLError, ValueError) as error:
            raise ConfigError(
                f"The certificate {self._files[0]} with the key {self._files[1]} cannot be used: "
                f"{getattr(error, 'strerror', None) or error}.",
                "https.certificate and https.key must be a pair of PEM files that the daemon may read.",
            ) from None
        return context


def _no_passphrase() -> str:
    """OpenSSL would ask for it on the terminal."""
    raise ValueError("the key has a passphrase")


class HttpsDoor:
    """Open from `start` to `stop`. Made with a certificate that cannot be used: ConfigError."""

    def __init__(self, config: HttpsConfig) -> None:
        self._config = config
        self._certificate = Certificate(config)
        self._opening: asyncio.Task[None] | None = None
        self._looking: asyncio.Task[None] | None = None

    async def start(self, runner: web.AppRunner, guests: Guests, does: str, waits: bool = False) -> None:
        """Open it, or, if it `waits` for a port that is taken, as soon as that is free; `runner` closes it.
        `does`: what it is there for."""
        self._opening = await opened(partial(self._open, runner, guests, does), waits)

    async def _open(self, runner: web.AppRunner, guests: Guests, does: str) -> None:
        told = f"https.listen: {self._config.listen} cannot be used"
        address = address_of(self._config.listen, "https.listen")
        listener = listener_at(*address, told, "Name an address of this machine and a free port.")
        sslproto.SSLProtocol.max_size = BUFFER_BYTES  # of all TLS of asyncio's in this process
        await Door(runner, listener, guests, self._certificate.context).start()
        self._looking = asyncio.create_task(self._look())
        log.info("https: port %d %s", listener.getsockname()[1], does)

    async def stop(self, _: web.Application) -> None:
        await given_up(self._opening)
        await given_up(self._looking)

    async def _look(self) -> None:
        errors = ErrorsOnce(f"The files of the certificate cannot be looked at, every {LOOK_EVERY_S:g} s")
        while True:
            await asyncio.sleep(LOOK_EVERY_S)
            try:
                await asyncio.to_thread(self._certificate.look)
                errors.forget()
            except Exception as error:  # no thread can be started, for one: that passes
                errors.tell(error)
