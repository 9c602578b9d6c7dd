"""Where rm keeps things: root uses the system's places, everyone else the XDG directories.

Nothing but the standard library's cheapest parts is imported here: every client call passes by.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

SYSTEM_CONFIG = "/etc/rm/rm.toml"
SYSTEM_SOCKET = "/run/rm/rm.sock"
SYSTEM_STATE = "/var/lib/rm"
OVERFLOW_UID = 65534  # whom the kernel shows for a user that a user namespace does not know


def effective_user() -> int:
    """The user whose places are used: 0 only for the machine's root.

    Root of a user namespace (`rmx lab enter`, without root) owns neither /run nor /var/lib: it is the
    ordinary user who made the namespace, and uses the places that this user uses outside.
    """
    euid = os.geteuid()
    return OVERFLOW_UID if euid == 0 and os.stat("/").st_uid == OVERFLOW_UID else euid


def _xdg(env: Mapping[str, str], variable: str, fallback: str) -> str:
    """An XDG base directory; relative values are ignored, as the specification demands."""
    value = env.get(variable, "")
    return (
        value if value.startswith("/") else os.path.join(env.get("HOME") or os.path.expanduser("~"), fallback)
    )


def state_home(env: Mapping[str, str]) -> str:
    """The directory of what the user's programs keep."""
    return _xdg(env, "XDG_STATE_HOME", ".local/state")


def expanded(path: str, env: Mapping[str, str]) -> str:
    """A path of rm.toml. It may begin with `~/`, or with `$XDG_STATE_HOME/`: ~/.local/state unless set."""
    inside = path.removeprefix("$XDG_STATE_HOME/")
    return os.path.expanduser(path) if inside == path else os.path.join(state_home(env), inside)


def user_config(env: Mapping[str, str]) -> str:
    return os.path.join(_xdg(env, "XDG_CONFIG_HOME", ".config"), "rm", "rm.toml")


def config_files(env: Mapping[str, str], euid: int) -> list[str]:
    """The rm.toml files to look for, the most specific first; RM_CONFIG alone when it is set."""
    if env.get("RM_CONFIG"):
        return [env["RM_CONFIG"]]
    return [SYSTEM_CONFIG] if euid == 0 else [user_config(env), SYSTEM_CONFIG]


def state_dir(env: Mapping[str, str], euid: int) -> str:
    return SYSTEM_STATE if euid == 0 else os.path.join(state_home(env), "rm")


def runtime_dir(env: Mapping[str, str]) -> str:
    """$XDG_RUNTIME_DIR, "" without one. One that others own or may write to counts for nothing, as the
    specification demands: they would put their own sockets there (`su` and `sudo -E` keep the variable)."""
    runtime = env.get("XDG_RUNTIME_DIR", "")
    if not runtime.startswith("/"):
        return ""
    try:
        about = os.stat(runtime)
    except FileNotFoundError:
        return runtime
    except OSError:
        return ""
    return runtime if about.st_uid == os.geteuid() and not about.st_mode & 0o022 else ""


def socket_path(env: Mapping[str, str], euid: int) -> str:
    """The default socket of a daemon run by `euid`."""
    if euid == 0:
        return SYSTEM_SOCKET
    runtime = runtime_dir(env)
    # without a runtime directory: the state directory, which nobody else can write to
    return (
        os.path.join(runtime, "rm", "rm.sock") if runtime else os.path.join(state_dir(env, euid), "rm.sock")
    )
