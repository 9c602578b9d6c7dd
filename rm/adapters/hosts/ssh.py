"""SSH to the hosts: pinned host keys, bounded waits, and a pulse that finds a silent peer.

Stock Fabric accepts any host key, waits for minutes on a host that is cut off or frozen, reports a lost
connection as exit code -1, and loses 40 ms per message to Nagle's algorithm. `connect` returns a Fabric
connection without these.
"""

from __future__ import annotations

import logging
import re
import shlex
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import fabric
import paramiko
from invoke.exceptions import CommandTimedOut, ThreadException

from rm.adapters.hosts.bounded_transport import BoundedTransport
from rm.adapters.hosts.identity import Identities, identities
from rm.adapters.hosts.known_hosts import AUTHORITY, REVOKED, Line, about, with_key
from rm.adapters.hosts.pinning import changed
from rm.adapters.hosts.pulse import WatchedSocket, pulse
from rm.adapters.hosts.route import Route, known_as, route_to
from rm.adapters.hosts.settings import SshSettings
from rm.adapters.hosts.tunnel import Tunnel
from rm.core.model.host import Host
from rm.errors import ConfigError, HostKeyError, RmError, Unreachable

logging.getLogger("paramiko").setLevel(logging.CRITICAL)  # it logs what it also raises


@dataclass(frozen=True, slots=True)
class Result:
    """How a remote command ended, and what it wrote."""

    code: int
    out: str
    err: str


def quote(argv: Sequence[str]) -> str:
    """A command line on which every word is safe for a POSIX shell."""
    return shlex.join(argv)


class _Remote(fabric.runners.Remote):  # type: ignore[misc]
    read_chunk_size = 32768
    input_sleep = 0.001


class NoRoom(Unreachable):
    """The host's sshd takes no further channel on this connection."""


class _UnknownKey(Exception):
    def __init__(self, key: paramiko.PKey) -> None:
        self.key = key


class _Refuse(paramiko.MissingHostKeyPolicy):
    def missing_host_key(self, client: paramiko.SSHClient, hostname: str, key: paramiko.PKey) -> None:
        raise _UnknownKey(key)


def connect(host: Host, settings: SshSettings, password: str = "") -> fabric.Connection:
    """An open connection to `host`; the login's password is tried after the keys.

    Raises:
        HostKeyError: the host's key is unknown or not the accepted one; nothing was sent.
        Unreachable: no answer, or the login was refused.
        ConfigError: an identity file cannot be used.
    """
    route = route_to(host, settings)
    overrides = {"load_ssh_configs": False, "runners": {"remote": _Remote}}
    try:
        connection = fabric.Connection(
            route.address,
            user=route.login,
            port=route.port,
            connect_timeout=settings.connect_timeout_s,
            config=fabric.Config(lazy=True, overrides=overrides),
        )
    except ValueError as error:
        said = f"Host {host.name} cannot be reached at {route.address!r}: {error}"
        raise Unreachable(said, "Its login and port have fields of their own.") from None
    client: paramiko.SSHClient = connection.client
    client.set_missing_host_key_policy(_Refuse())
    lines = _lines(route, settings)
    revoked = {line.key for line in lines if line.marker == REVOKED}
    for key in reversed(list(_accepted(lines))):  # of two of a kind the one in rm's own file counts
        client.get_host_keys().add(known_as(route.address, route.port), key.get_name(), key)
    raw = _dialled(host, route, settings.connect_timeout_s)
    sock = WatchedSocket(raw, settings.dead_after_s)
    connection.connect_kwargs = {
        "sock": sock,
        "banner_timeout": settings.connect_timeout_s,
        "auth_timeout": settings.connect_timeout_s,
        "channel_timeout": settings.connect_timeout_s,
        "disabled_algorithms": disabled_algorithms(settings.weak_algorithms),
        "transport_factory": BoundedTransport,
        **_keys(host, identities(host, settings, route)),
        **({"password": password} if password else {}),
    }
    try:
        connection.open()
    except _UnknownKey as error:
        if error.key.get_base64() in revoked:
            raise _revoked(host, error.key) from None
        authority = next((line.number for line in lines if line.marker == AUTHORITY), 0)
        if authority:
            raise HostKeyError(
                f"Host {host.name} ({host.address}:{host.port}) presents a {error.key.get_name()} key that "
                f"is not known: {error.key.fingerprint}. Line {authority} of {settings.known_hosts} names a "
                "certificate authority for it (@cert-authority), and rm does not check certificates.",
                f"Compare it with the host's own, then run: {_accept(host, settings)}",
            ) from None
        unchecked = (
            " The configuration of ssh would accept it unseen; rm does not." if route.unchecked else ""
        )
        raise HostKeyError(
            f"Host {host.name} ({host.address}:{host.port}) presents a {error.key.get_name()} key that is "
            f"not known: {error.key.fingerprint}.{unchecked}",
            f"Compare it with the host's own, then run: {_accept(host, settings)}",
        ) from None
    except paramiko.BadHostKeyException as error:
        if error.key.get_base64() in revoked:
            raise _revoked(host, error.key) from None
        raise HostKeyError(
            f"The key of host {host.name} ({host.address}:{host.port}) has CHANGED: it presents "
            f"{error.key.fingerprint}, accepted was {error.expected_key.fingerprint}.",
            "Someone may be intercepting the connection. If the host was reinstalled, run: "
            f"{_accept(host, settings)}",
        ) from None
    except paramiko.AuthenticationException as error:
        if any(word in str(error) for word in ("timeout", "EOF")):  # frozen or cut off in the middle of it
            raise _unreachable(host, error, raw) from None
        raise Unreachable(
            f"Host {host.name} refuses the login of {host.login}: {str(error).rstrip('.')}.",
            "Put the daemon's public key into the authorized_keys of that user.",
        ) from None
    except (paramiko.SSHException, OSError, EOFError) as error:
        raise _unreachable(host, error, raw) from None
    finally:
        if not connection.is_connected:
            sock.close()
    transport = client.get_transport()
    assert transport is not None
    _watch(sock, transport)
    return connection


def _accept(host: Host, settings: SshSettings) -> str:
    return f"rmx host accept-key {host.name}{settings.key_options}"


def _lines(route: Route, settings: SshSettings) -> list[Line]:
    """What the known hosts say of the host. A key is revoked for an address, at any port."""
    found: list[Line] = []
    users = (route.known_hosts or USERS_KNOWN_HOSTS) if settings.users_known_hosts else ()
    for file in (settings.known_hosts, *users):
        try:
            text = file.expanduser().read_text(errors="replace")
        except OSError:
            continue
        here = {line.number for line in about(text, (route.known_as,))}
        both = about(text, (route.known_as, route.address))
        found += [line for line in both if line.marker == REVOKED or line.number in here]
    return found


USERS_KNOWN_HOSTS = (Path("~/.ssh/known_hosts"), Path("/etc/ssh/ssh_known_hosts"))


def _accepted(lines: Sequence[Line]) -> Iterator[paramiko.PKey]:
    """The keys that the host may present."""
    revoked = {line.key for line in lines if line.marker == REVOKED}
    for line in lines:
        if line.marker or line.key in revoked:
            continue
        with suppress(paramiko.SSHException, paramiko.hostkeys.InvalidHostKey):
            entry = paramiko.hostkeys.HostKeyEntry.from_line(f"host {line.kind} {line.key}")
            if entry is not None and entry.key is not None:
                yield entry.key


def _revoked(host: Host, key: paramiko.PKey) -> HostKeyError:
    return HostKeyError(
        f"Host {host.name} ({host.address}:{host.port}) presents the {key.get_name()} key {key.fingerprint}, "
        "which is revoked (@revoked in the known hosts).",
        "Anyone who has that key can intercept the connection. Give the host a new key.",
    )


def disabled_algorithms(weak: bool) -> dict[str, list[str]]:
    """What Paramiko offers and is not to be used, unless `weak`: CBC, triple DES, MACs by MD5 or SHA-1."""
    if weak:
        return {}
    offered: Any = paramiko.Transport
    kinds = {
        "ciphers": offered._preferred_ciphers,
        "macs": offered._preferred_macs,
        "kex": offered._preferred_kex,
        "keys": offered._preferred_keys,
        "pubkeys": offered._preferred_pubkeys,
    }
    return {kind: [name for name in names if _WEAK.search(name)] for kind, names in kinds.items()}


_WEAK = re.compile(r"cbc|3des|arcfour|blowfish|md5|sha1|ssh-dss|ssh-rsa")  # ssh-rsa signs with SHA-1


def _watch(sock: WatchedSocket, transport: paramiko.Transport) -> None:
    message = paramiko.Message()
    message.add_byte(paramiko.common.cMSG_GLOBAL_REQUEST)
    message.add_string("keepalive@openssh.com")
    message.add_boolean(True)  # want a reply: sshd answers that it does not know it

    def ask() -> None:
        with suppress(paramiko.SSHException, EOFError, OSError):
            if transport.clear_to_send.is_set():  # a peer need not end its exchange of keys
                transport._send_user_message(message)  # type: ignore[attr-defined]

    pulse.watch(sock, ask, transport.is_active)


def _dialled(host: Host, route: Route, timeout_s: float) -> Any:
    """A connected socket, or a Tunnel, which is like one."""
    try:
        if route.program:
            return Tunnel(route.program, timeout_s)
        raw = socket.create_connection((route.address, route.port), timeout_s)
    except (OSError, ValueError) as error:  # a name that cannot be one, such as "a..b", is a ValueError
        raise _unreachable(host, error) from None
    raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return raw


# what Paramiko says when the other side falls silent, or ends the connection, before the login
_IN_OUR_WORDS = {
    "Error reading SSH protocol banner": "it takes connections, but does not greet as an SSH server",
    "No existing session": "the connection ended before the login",
}


def _unreachable(host: Host, error: Exception, by: Any = None) -> Unreachable:
    what = str(error).strip().rstrip(".") or type(error).__name__
    what = next((ours for theirs, ours in _IN_OUR_WORDS.items() if what.startswith(theirs)), what)
    where = f"Host {host.name} ({host.address}:{host.port})"
    if isinstance(by, Tunnel):
        return Unreachable(
            f"{where} does not answer over SSH by way of "
            f"`{quote(by.program)}`: {(by.said() or what).rstrip('.')}.",
            "That command must work without asking anything.",
        )
    if isinstance(error, paramiko.ssh_exception.IncompatiblePeer):
        known = re.search("ciphers|macs", what)  # Paramiko has no other weak ones
        instead = ", or set ssh.weak_algorithms = true in rm.toml" if known else ""
        said = f"{where} offers only weak algorithms for SSH: {what}."
        return Unreachable(said, f"Let its sshd offer others{instead}.")
    return Unreachable(
        f"{where} does not answer over SSH: {what}.", "See whether it is up and its sshd runs."
    )


def _keys(host: Host, found: Identities) -> dict[str, Any]:
    """The keys as Paramiko takes them. A single one that somebody named is read at once."""
    given = {"look_for_keys": False, "allow_agent": found.agent}
    if not found.named or len(found.files) > 1:
        return {"key_filename": [str(file) for file in found.files], **given}
    (file,) = found.files
    try:
        return {"pkey": paramiko.PKey.from_path(file), **given}
    except (OSError, paramiko.SSHException, ValueError, TypeError) as error:
        raise ConfigError(
            f"The SSH identity {file} of host {host.name} cannot be used: {error}.",
            "Give an existing, unencrypted private key, or none to use your SSH agent.",
        ) from None


# commands and files


@contextmanager
def _bounded(seconds: float, end: Callable[[], None]) -> Iterator[None]:
    """`end` frees who waits for an answer to a channel's request, or an exit code: Paramiko has no bound."""
    timer = threading.Timer(seconds, end)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _active(connection: fabric.Connection) -> paramiko.Transport:
    transport: paramiko.Transport | None = connection.client.get_transport()
    if transport is None or not transport.is_active():
        raise Unreachable(f"The connection to {connection.host} is closed.", "Connect again.")
    return transport


def run(connection: fabric.Connection, command: str, timeout_s: float) -> Result:
    """Run one shell command line (see `quote`) and wait.

    After `timeout_s` the command and its children are ended on the host.

    Raises:
        Unreachable: the connection was lost, or the time is over: the outcome is unknown.
    """
    said = f"The connection to {connection.host} was lost while a command ran; its outcome is unknown."
    transport = _active(connection)
    bounded = quote(["timeout", "-k", "2", f"{timeout_s:g}", "sh", "-c", command])
    try:
        with _bounded(timeout_s + transport.channel_timeout, connection.close):
            result = connection.run(bounded, hide=True, warn=True, in_stream=False, timeout=timeout_s + 5)
    except (CommandTimedOut, ThreadException, paramiko.SSHException, OSError, EOFError):
        raise Unreachable(said) from None
    if result.exited == 124:
        raise Unreachable(f"A command on {connection.host} did not end within {timeout_s:g} s.")
    if result.exited < 0:
        raise Unreachable(said)
    return Result(result.exited, result.stdout, result.stderr)


_PUT = """umask 077; aside="$1.$$"
cat >"$aside" && chmod "$2" "$aside" && mv -f "$aside" "$1" || { rm -f "$aside"; exit 1; }"""


def put(
    connection: fabric.Connection, data: bytes, remote_path: str, mode: int, timeout_s: float = 60
) -> None:
    """Write a file on the host atomically: aside, then renamed."""
    transport = _active(connection)
    code, err = -1, b""
    with suppress(paramiko.SSHException, OSError, EOFError):
        channel = transport.open_session(timeout=timeout_s)
        with _bounded(timeout_s, channel.close):
            try:
                channel.exec_command(quote(["sh", "-c", _PUT, "sh", remote_path, f"{mode:o}"]))
                with suppress(OSError):  # it has ended without reading: why is heard all the same
                    channel.sendall(data)
                    channel.shutdown_write()
                err, code = channel.makefile_stderr("rb").read(), channel.recv_exit_status()
            finally:
                channel.close()
    if code < 0:
        raise Unreachable(f"The connection to {connection.host} was lost while {remote_path} was written.")
    if code:
        why = err.decode(errors="replace").strip().rpartition(": ")[2]
        raise RmError(f"{remote_path} cannot be written on {connection.host}: {why}.")


# host keys


def present_key(host: Host, settings: SshSettings) -> tuple[str, str, str]:
    """(type, fingerprint, base64) of the key a host presents now; this does not trust it."""
    timeout_s = settings.connect_timeout_s
    raw = _dialled(host, route_to(host, settings), timeout_s)
    transport = BoundedTransport(raw, disabled_algorithms=disabled_algorithms(settings.weak_algorithms))
    try:
        transport.banner_timeout = timeout_s
        transport.start_client(timeout=timeout_s)
        key = transport.get_remote_server_key()
    except (paramiko.SSHException, OSError, EOFError) as error:
        raise _unreachable(host, error, raw) from None
    finally:
        transport.close()
        raw.close()
    return key.get_name(), key.fingerprint, key.get_base64()


def accept_key(host: Host, fingerprint: str, settings: SshSettings) -> None:
    """Pin the key with exactly this fingerprint, in place of any other of that host.

    Raises:
        HostKeyError: the host now presents another key; nothing was changed.
    """
    (kind, presented, key), route = present_key(host, settings), route_to(host, settings)
    if presented != fingerprint:
        raise HostKeyError(
            f"Host {host.name} presents the {kind} key {presented}, not {fingerprint}: nothing was accepted.",
            "Look at the key again: more than one machine answers for this host.",
        )
    if any(line.key == key for line in _lines(route, settings) if line.marker == REVOKED):
        raise HostKeyError(
            f"The {kind} key {presented} of host {host.name} is revoked (@revoked in "
            f"{settings.known_hosts}): nothing was accepted.",
            "Give the host a new key.",
        )
    with changed(settings.known_hosts) as lines:
        lines[:] = with_key(lines, route.known_as, kind, key)


def pinned_key(host: Host, settings: SshSettings) -> tuple[str, str] | None:
    """(type, fingerprint) of the key that is trusted for the host; None when none is. Changes nothing."""
    key = next(_accepted(_lines(route_to(host, settings), settings)), None)
    return (key.get_name(), key.fingerprint) if key is not None else None


def open_channel(
    connection: fabric.Connection, command: str, window_bytes: int = 1 << 24
) -> paramiko.Channel:
    """A session running `command`, for a conversation over its standard input and output; the host may be
    ahead of its reader by `window_bytes`.

    Raises:
        NoRoom: there are as many channels on this connection as the host's sshd takes.
        Unreachable: the connection was lost.
    """
    transport = connection.client.get_transport()
    if transport is None:
        raise Unreachable(f"The connection to {connection.host} is closed.", "Connect again.")
    try:
        channel: paramiko.Channel = transport.open_session(window_size=window_bytes)
        with _bounded(transport.channel_timeout, channel.close):
            channel.exec_command(command)
    except (paramiko.SSHException, OSError, EOFError) as error:
        what = f"The agent on {connection.host} cannot be started: {error}."
        if isinstance(error, paramiko.ChannelException):
            raise NoRoom(what, "See MaxSessions of its sshd_config.") from None
        raise Unreachable(what) from None
    return channel
