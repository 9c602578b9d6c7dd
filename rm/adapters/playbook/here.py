"""What lookups do on the control machine: crypt(3), web servers, and passwords that files keep."""

from __future__ import annotations

import base64
import ctypes
import ctypes.util
import fcntl
import glob
import grp
import http.client
import netrc
import os
import pwd
import re
import ssl
import stat
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import cache
from typing import Any
from urllib.parse import unquote, urlsplit, urlunsplit

from rm.playbook.model.problems import BadArgument
from rm.playbook.template.filters import to_bool
from rm.written_aside import written_aside

_CRYPTING = threading.Lock()  # crypt(3) answers in one place


@cache
def _libcrypt() -> Any:
    for name in (ctypes.util.find_library("crypt"), "libcrypt.so.1", "libcrypt.so.2"):
        if name:
            try:
                function = ctypes.CDLL(name, use_errno=True).crypt
            except (OSError, AttributeError):
                continue
            function.argtypes, function.restype = (ctypes.c_char_p, ctypes.c_char_p), ctypes.c_char_p
            return function
    raise BadArgument("this machine has no libcrypt, which hashes passwords")


def crypt(secret: str, setting: str) -> str:
    """crypt(3); raises BadArgument."""
    if "\0" in secret:
        raise BadArgument("a password holds no zero byte")
    with _CRYPTING:
        found = _libcrypt()(secret.encode(), setting.encode())
        text = found.decode() if found else ""
    if not text.startswith(setting[:3]):  # "*0": a setting that it does not know
        raise BadArgument(f"this machine's libcrypt does not know hashes that begin with {setting[:3]}")
    return text


def _is_vaulted(path: str) -> bool:
    with open(path, "rb") as file:
        return file.read(len(VAULTED)) == VAULTED


def _files_of(pattern: str) -> list[str]:
    return sorted(path for path in glob.glob(pattern) if os.path.isfile(path))


def _tree_of(top: str) -> list[dict[str, Any]]:
    """What lies below a directory, in its order: directories, files, links, which are not followed."""
    found = []
    for directory, below, files in os.walk(top):
        for path in (os.path.join(directory, name) for name in [*below, *files]):
            seen = os.lstat(path)
            kind = _KINDS.get(stat.S_IFMT(seen.st_mode))
            if kind is None:
                continue
            one: dict[str, Any] = {"root": top, "path": os.path.relpath(path, top), "state": kind}
            if kind != "directory":
                one["src"] = os.readlink(path) if kind == "link" else path
            one |= {"uid": seen.st_uid, "gid": seen.st_gid}
            one |= {"owner": seen.st_uid, "group": seen.st_gid}
            with suppress(KeyError):
                one["owner"] = pwd.getpwuid(seen.st_uid).pw_name
            with suppress(KeyError):
                one["group"] = grp.getgrgid(seen.st_gid).gr_name
            one |= {"mode": f"0{stat.S_IMODE(seen.st_mode):03o}", "size": seen.st_size}
            found.append(one | {"mtime": seen.st_mtime, "ctime": seen.st_ctime})
    return found


_KINDS = {stat.S_IFREG: "file", stat.S_IFDIR: "directory", stat.S_IFLNK: "link"}
VAULTED = b"$ANSIBLE_VAULT"
_LOOKS: Mapping[str, Callable[[str], Any]] = {
    "file": os.path.isfile, "directory": os.path.isdir, "link": os.path.islink, "exists": os.path.exists,
    "link_exists": os.path.lexists, "mount": os.path.ismount, "vaulted_file": _is_vaulted,
    "realpath": os.path.realpath, "expandvars": os.path.expandvars, "fileglob": _files_of,
    "tree": _tree_of,
}  # fmt: skip


def looks(kind: str, path: str, other: str) -> Any:
    """What a test or a filter says of a path of this machine. Raises BadArgument."""
    try:
        return os.path.samefile(path, other) if kind == "same_file" else _LOOKS[kind](path)
    except (OSError, ValueError) as problem:
        raise BadArgument(f"{path}: {getattr(problem, 'strerror', None) or problem}") from None


class _Redirects(urllib.request.HTTPRedirectHandler):
    """Follows redirects, or as `follow_redirects: none` asks none."""

    def __init__(self, followed: bool) -> None:
        self.followed = followed

    def redirect_request(self, *args: Any) -> urllib.request.Request | None:
        return super().redirect_request(*args) if self.followed else None


def _shown(url: str) -> str:
    """A URL without the user and the password that it may hold; also one that is none, as with a password
    that holds a slash."""
    return re.sub(r"^((?:[^/?#]*:)?//|)(?:[^/?#]*@|[^/?#@]*:(?!\d*(?:[/?#]|$)).*@)", r"\1", url)


def fetch(url: str, options: Mapping[str, Any]) -> bytes:
    """What a web server has; raises BadArgument."""
    try:
        parts = urlsplit(url)
    except ValueError as problem:
        raise BadArgument(f"'{_shown(url)}' is not a URL that can be asked for: {problem}") from None
    if parts.scheme not in ("http", "https", "ftp", "file"):
        raise BadArgument(f"'{_shown(url)}' is not a URL that can be asked for")
    user, word = options["username"], options["password"]
    if parts.username is not None:
        user, word = user or unquote(parts.username), word or unquote(parts.password or "")
        url = urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))
    if user is None and options["use_netrc"]:
        user, word = _netrc(parts.hostname or "")
    context = ssl.create_default_context(cafile=options["ca_path"])
    if not to_bool(options["validate_certs"]):
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    followed = str(options["follow_redirects"]).lower() not in ("none", "no", "false")
    handlers: list[urllib.request.BaseHandler] = [
        urllib.request.HTTPSHandler(context=context), _Redirects(followed),
        *([] if to_bool(options["use_proxy"]) else [urllib.request.ProxyHandler({})]),
    ]  # fmt: skip
    request = urllib.request.Request(url, headers={"User-Agent": options["http_agent"]})
    if to_bool(options["force"]):
        request.add_header("Cache-Control", "no-cache")
    unredirected = {name.lower() for name in options["unredirected_headers"] or ()}
    for name, value in (options["headers"] or {}).items():
        add = request.add_unredirected_header if name.lower() in unredirected else request.add_header
        add(name, str(value))
    if user is not None and to_bool(options["force_basic_auth"]):
        pair = base64.b64encode(f"{user}:{word or ''}".encode()).decode()
        request.add_unredirected_header("Authorization", f"Basic {pair}")
    elif user is not None:
        known = urllib.request.HTTPPasswordMgrWithDefaultRealm()
        known.add_password(None, url, user, word or "")
        handlers += [urllib.request.HTTPBasicAuthHandler(known), urllib.request.HTTPDigestAuthHandler(known)]
    shown = _shown(url)
    try:
        with urllib.request.build_opener(*handlers).open(
            request, timeout=float(options["timeout"])
        ) as answer:
            return bytes(answer.read())
    except urllib.error.HTTPError as problem:
        raise BadArgument(f"{shown} answers {problem.code} {problem.reason}") from None
    except (OSError, ValueError, http.client.HTTPException) as problem:
        raise BadArgument(f"{shown} cannot be asked: {getattr(problem, 'reason', problem)}") from None


def _netrc(host: str) -> tuple[str | None, str | None]:
    try:
        found = netrc.netrc(os.environ.get("NETRC")).authenticators(host)
    except (OSError, netrc.NetrcParseError):
        return None, None
    return (found[0], found[2]) if found else (None, None)


def keep(path: str, content: Callable[[str | None], str]) -> None:
    """Bring a private file to what `content` makes of it. Raises BadArgument."""
    path = os.path.realpath(os.path.expanduser(path))
    if path == "/dev/null":
        content(None)
        return
    try:
        os.makedirs(os.path.dirname(path), 0o700, exist_ok=True)
        # another's link of this name is not followed, and what the file holds stays as it is
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        with open(os.open(os.path.dirname(path) + "/.rm-passwords.lock", flags, 0o600), "rb") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            old = _read(path)
            new = content(old)
            if new != old:
                with written_aside(path, 0o600) as file:
                    file.write(new.encode() + b"\n")
    except (OSError, UnicodeError) as problem:
        raise BadArgument(f"the file {path} cannot keep a password: {problem}") from None


def _read(path: str) -> str | None:
    try:
        with open(path, encoding="utf-8") as file:
            return file.read().rstrip()
    except FileNotFoundError:
        return None
