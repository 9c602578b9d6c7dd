"""The way to a host's sshd: straight, or as ~/.ssh/config and the inventory's options of ssh say.

OpenSSH itself says what its configuration means for a host (`ssh -G`), with every Host, Match, Include and
token. rm follows where to connect, by which hosts or program, as whom, and with which keys; what it does not
follow it refuses by name, unless it changes nothing that rm does.
"""

from __future__ import annotations

import os
import pwd
import re
import subprocess
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path

from rm.adapters.hosts.options import FOLLOWED, NOTHING
from rm.adapters.hosts.settings import SshSettings
from rm.core.model.host import Host
from rm.errors import ConfigError
from rm.playbook.model.connection import SSH_ARGS
from rm.playbook.model.ssh_arguments import is_jump, outside_program, words_of
from rm.quick_dataclass import dataclass

ASK_S = 20.0  # for the program ssh, which may run others


@dataclass(frozen=True, slots=True)
class Route:
    """`program` is what leads there, with an open connection as its standard input and output; () = straight.

    `known_as` is the name of the host in a file of known hosts. `identity_files` are the configuration's.
    """

    address: str
    port: int
    login: str
    known_as: str
    program: tuple[str, ...] = ()
    identity_files: tuple[Path, ...] = ()
    identities_only: bool = False
    known_hosts: tuple[Path, ...] = ()
    unchecked: bool = False  # ssh itself would take an unknown key


def route_to(host: Host, settings: SshSettings) -> Route:
    """Raises ConfigError where the configuration or the options of ssh say what rm does not follow."""
    words = arguments(host, settings)
    straight = Route(host.address, host.port, host.login, known_as(host.address, host.port))
    if not words and not configured(settings.config):
        return straight
    asked = [*words, *(["-p", str(host.port)] if host.port != 22 else [])]
    said = _ask(host, settings.config, asked)
    plain = _plain()
    for key, values in said.items():
        if key not in NOTHING and key not in FOLLOWED and values != plain.get(key):
            raise ConfigError(
                f"For host {host.name} the configuration of ssh says {key} {' '.join(values)}, which rm does "
                "not follow.",
                'Remove it for this host, or set ssh.config = "none" in rm.toml.',
            )
    address, port = _one(said, "hostname", host.address), int(_one(said, "port", "22"))
    alias = _one(said, "hostkeyalias", "")
    files = [] if said.get("identityfile") == plain.get("identityfile") else said.get("identityfile", [])
    known = [*said.get("userknownhostsfile", []), *said.get("globalknownhostsfile", [])]
    return Route(
        address, port, host.login, alias or known_as(address, port),
        _program(host, said, address, port, settings),
        tuple(Path(file).expanduser() for file in files if file != "none"),
        _one(said, "identitiesonly", "no") == "yes",
        tuple(Path(file).expanduser() for line in known for file in line.split()),
        _one(said, "stricthostkeychecking", "ask") in ("false", "no", "off", "accept-new"),
    )  # fmt: skip


def known_as(address: str, port: int) -> str:
    """The name of a host in a file of known hosts."""
    return address if port == 22 else f"[{address}]:{port}"


def login_of(host: Host, settings: SshSettings) -> str:
    """The user that ssh's configuration names for a host whose inventory names none; "" = none."""
    words = arguments(host, settings)
    if not words and not configured(settings.config):
        return ""
    user = _one(_ask(host, settings.config, words), "user", "")
    return "" if user == pwd.getpwuid(os.getuid()).pw_name else user


def arguments(host: Host, settings: SshSettings) -> list[str]:
    """The options of ssh that the inventory gives for this host. Raises ConfigError."""
    given, words = {**dict(settings.arguments), **dict(host.variables)}, []
    for name in SSH_ARGS:
        text = str(given.get(name, ""))
        if "{{" in text:
            raise ConfigError(f"{name} of host {host.name} is a template, '{text}'.", "Write it out.")
        if not settings.trusts_inventory and (option := outside_program(text)):
            raise ConfigError(
                f"{name} of host {host.name} says '{option}': the daemon does not take it from an inventory.",
                "Write it into ~/.ssh/config of the daemon's account.",
            )
        try:
            words += words_of(text)
        except ValueError as problem:
            raise ConfigError(f"{name} of host {host.name} is '{text}': {problem}.") from None
    return words


def configured(config: str) -> bool:
    """May the configuration of ssh say anything that matters?"""
    if config == "none":
        return False
    if config:
        return True
    home = Path(pwd.getpwuid(os.getuid()).pw_dir)
    system = Path("/etc/ssh")
    for file in (home / ".ssh/config", system / "ssh_config", *system.glob("ssh_config.d/*.conf")):
        with suppress(OSError, UnicodeDecodeError):
            if any(map(_matters, file.read_text().splitlines())):
                return True
    return False


def _matters(line: str) -> bool:
    word, _, rest = line.strip().replace("=", " ", 1).partition(" ")
    word, rest = word.lower(), rest.strip()
    if not word or word.startswith("#") or word in ("host", "match") or word in NOTHING:
        return False
    return word != "include" or rest != "/etc/ssh/ssh_config.d/*.conf"


def _ask(host: Host, config: str, words: list[str]) -> dict[str, list[str]]:
    argv = ["ssh", *(["-F", config] if config else []), "-G", *words, "--", host.address]
    try:
        done = subprocess.run(
            argv, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False, timeout=ASK_S
        )
    except subprocess.TimeoutExpired:
        raise ConfigError(
            f"ssh did not evaluate its configuration for host {host.name} within {ASK_S:g} s.",
            "Check whether a Match exec of ~/.ssh/config or /etc/ssh/ssh_config, or a name look-up, hangs: "
            f"ssh -G {host.address}",
        ) from None
    except OSError:
        raise ConfigError(
            f"Host {host.name} is reached by the configuration of ssh, and the program ssh is not installed.",
            'Install openssh-client, or set ssh.config = "none" in rm.toml.',
        ) from None
    if done.returncode:
        why = (done.stderr.strip().splitlines() or ["it gives no reason"])[-1]
        raise ConfigError(f"ssh refuses its configuration for host {host.name}: {why}.")
    return _parsed(done.stdout)


@cache
def _plain() -> Mapping[str, list[str]]:
    """What ssh says where nothing is configured."""
    done = subprocess.run(
        ["ssh", "-F", "none", "-G", "--", "host"], capture_output=True, text=True, stdin=subprocess.DEVNULL,
        check=True,
    )  # fmt: skip
    return _parsed(done.stdout)


def _parsed(text: str) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for line in text.splitlines():
        key, _, value = line.partition(" ")
        found.setdefault(key.lower(), []).append(value.strip())
    return found


def _one(said: Mapping[str, list[str]], key: str, default: str) -> str:
    value = said.get(key, [default])[0]
    return default if value == "none" else value


def _program(
    host: Host, said: Mapping[str, list[str]], address: str, port: int, settings: SshSettings
) -> tuple[str, ...]:
    jump, command = _one(said, "proxyjump", ""), _one(said, "proxycommand", "")
    if jump:
        if not is_jump(jump):
            raise ConfigError(f"ProxyJump of host {host.name} is '{jump}'.", "Write [user@]host[:port].")
        *before, last = jump.split(",")
        return (
            "ssh", *(["-F", settings.config] if settings.config else []), "-o", "BatchMode=yes",
            "-o", f"ConnectTimeout={max(1, round(settings.connect_timeout_s))}",
            *(["-J", ",".join(before)] if before else []),
            "-W", f"[{address}]:{port}", last if last.startswith("ssh://") else f"ssh://{last}",
        )  # fmt: skip
    if not command:
        return ()
    tokens = {"%%": "%", "%h": address, "%n": host.address, "%p": str(port), "%r": host.login}
    unknown = next((one for one in re.findall("%.", command) if one not in tokens), "")
    if unknown:
        raise ConfigError(f"ProxyCommand of host {host.name} uses {unknown}, which rm does not know.")
    for token in set(re.findall("%.", command)) - {"%%"}:
        if not re.fullmatch(r"[\w.:@-]+", tokens[token]):
            raise ConfigError(f"ProxyCommand of host {host.name} cannot be given '{tokens[token]}'.")
    return ("/bin/sh", "-c", "exec " + re.sub("%.", lambda found: tokens[found[0]], command))
