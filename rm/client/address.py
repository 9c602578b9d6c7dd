"""Where the daemon is, as the user says it: a Unix socket of this machine, or a door on another one.

RM_DAEMON and `daemon.url` in rm.toml: `ssh://[user@]host[:port][/path/of/the/socket]`,
`https://host:port`, `unix:///path` or a plain path.
"""

from __future__ import annotations

import os

from rm import paths
from rm.client.plain_toml import plain_table
from rm.errors import ConfigError, UsageError
from rm.hints import not_utf8, toml_fault
from rm.imported_later import re
from rm.quick_tuple import NamedTuple

TYPE_CHECKING = False

_WORD = r"[A-Za-z0-9_][A-Za-z0-9_.@-]*\Z"  # no option of ssh, no word of a shell
_HOST = r"[A-Za-z0-9_:][A-Za-z0-9_.:%-]*\Z"
FORMS = "Write ssh://[user@]host[:port][/path/of/the/socket], https://host:port or unix:///path."


class Address(NamedTuple):
    """`scheme` is unix, ssh or https; `path` is the socket, for ssh on the other machine; port 0 = ssh's."""

    scheme: str
    path: str = ""
    host: str = ""
    user: str = ""
    port: int = 0
    ca_file: str = ""  # https: authorities to trust besides the system's
    token_file: str = ""
    peers: tuple[Address, ...] = ()  # https: other daemons of the same cluster, by host and port

    def at(self, other: Address) -> Address:
        """Another daemon of the cluster, with the same authorities and token as this one."""
        return self._replace(host=other.host, port=other.port)

    def names(self, other: Address) -> bool:
        """Has the user named that origin, as a daemon to show the token to?"""
        origins = {(one.host, one.port) for one in (self, *self.peers)}
        return other.scheme == "https" and (other.host, other.port) in origins

    def __str__(self) -> str:
        if self.scheme == "unix":
            return self.path
        host = f"[{self.host}]" if ":" in self.host else self.host
        path = self.path if self.path != paths.SYSTEM_SOCKET else ""
        user, port = f"{self.user}@" if self.user else "", f":{self.port}" if self.port else ""
        return f"{self.scheme}://{user}{host}{port}{path}"


def find_daemon(socket_flag: str | None, config_flag: str | None, named: str | None = None) -> Address:
    """The address that is `named` in a program, --socket, RM_DAEMON__SOCKET, RM_DAEMON, [daemon] url or
    socket of rm.toml, the user's daemon, the system's.

    Reads only these keys, and for https those that say whom to trust: the daemon checks the whole file, a
    client need not.
    """
    socket = socket_flag or os.environ.get("RM_DAEMON__SOCKET")
    if socket and not named:
        return Address("unix", socket)
    address = parse(named, "The daemon's address") if named else None
    if address is not None and address.scheme != "https":
        return address
    euid = paths.effective_user()
    files = [config_flag] if config_flag else paths.config_files(os.environ, euid)
    must_exist = bool(config_flag or os.environ.get("RM_CONFIG"))
    tables: dict[str, dict[str, object]] = {
        file: _daemon_table(file) for file in files if must_exist or os.path.exists(file)
    }
    if address is not None:
        return _with_files(address, tables)
    url = os.environ.get("RM_DAEMON")
    if url:
        return _with_files(parse(url, "RM_DAEMON"), tables)
    for file, table in tables.items():
        if url := _text(table, "url"):
            return _with_files(parse(url, f"daemon.url in {file}"), {file: table})
        if path := _text(table, "socket"):
            return Address("unix", paths.expanded(path, os.environ))
    own = paths.socket_path(os.environ, euid)
    return Address("unix", own if euid == 0 or os.path.exists(own) else paths.SYSTEM_SOCKET)


def parse(text: str, where: str) -> Address:
    """An address from its text; `where` names where it was written.

    Raises:
        UsageError: it is none.
    """
    if text.startswith("/"):
        return Address("unix", text)
    from urllib.parse import unquote, urlsplit  # who has a socket of this machine does not pay for it

    try:
        parts = urlsplit(text)
        port = parts.port or 0
        host = parts.hostname or ""
    except ValueError as error:
        raise UsageError(f"{where} is '{text}', which is not an address: {error}.", FORMS) from None
    user, path = unquote(parts.username or ""), unquote(parts.path)
    if parts.scheme == "unix" and not host and path.startswith("/"):
        return Address("unix", path)
    problem = ""
    if parts.scheme not in ("ssh", "https"):
        problem = "its beginning is not one of ssh://, https:// and unix://"
    elif not re.match(_HOST, host):
        problem = "it names no host" if not host else "its host is not a name or address"
    elif parts.password is not None:
        problem = "it holds a password, which every process list would show"
    elif parts.query or parts.fragment:
        problem = "nothing may follow its path"
    elif parts.scheme == "https" and (user or path.strip("/")):
        problem = "an https address is only a host and a port"
    elif user and not re.match(_WORD, user):
        problem = f"'{user}' is not a user name"
    elif parts.scheme == "ssh" and (":" in path or any(ord(char) < 32 for char in path)):
        problem = "ssh forwards to no path with a colon or a control character"
    if problem:
        raise UsageError(f"{where} is '{text}', which is not an address of a daemon: {problem}.", FORMS)
    if parts.scheme == "https":
        return Address("https", host=host, port=port or 443)
    return Address("ssh", path.rstrip("/") or paths.SYSTEM_SOCKET, host, user, port)


def _with_files(address: Address, tables: dict[str, dict[str, object]]) -> Address:
    def first(variable: str, key: str) -> str:
        found = os.environ.get(variable) or next(filter(None, (_text(t, key) for t in tables.values())), "")
        return os.path.expanduser(found)

    if address.scheme != "https":
        return address
    return address._replace(
        ca_file=first("RM_CA_FILE", "ca_file"),
        token_file=first("RM_TOKEN_FILE", "token_file"),
        peers=next(filter(None, (_peers(table, file) for file, table in tables.items())), ()),
    )


def _peers(table: dict[str, object], file: str) -> tuple[Address, ...]:
    where, given = f"daemon.peers in {file}", table.get("peers", [])
    if not isinstance(given, list):
        raise ConfigError(f"{where} is not a list.", 'Write peers = ["https://host:port"].')
    found = tuple(parse(str(one), where) for one in given)
    for one in found:
        if one.scheme != "https":
            raise ConfigError(
                f"{where} holds {one}, which is not an https address.", "Write https://host:port."
            )
    return found


def _text(table: dict[str, object], key: str) -> str:
    found = table.get(key, "")
    return found if isinstance(found, str) else ""


def _daemon_table(file: str) -> dict[str, object]:
    try:
        with open(file, "rb") as handle:
            text = handle.read().decode("utf-8-sig")
    except OSError as error:
        raise ConfigError(f"The configuration file {file} cannot be read: {error.strerror}.") from None
    except UnicodeDecodeError as error:
        raise ConfigError(f"The configuration file {not_utf8(file, error)}", "Save it as UTF-8.") from None
    if (plain := plain_table(text, "daemon")) is not None:
        return plain
    import tomllib

    try:
        section = tomllib.loads(text).get("daemon", {})
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"The configuration file {toml_fault(file, error)}") from None
    return section if isinstance(section, dict) else {}
