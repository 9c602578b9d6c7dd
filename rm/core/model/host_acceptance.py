"""What a host's description must be for rm to accept it, from any client and any inventory.

Names stand in lists, file names, log lines and command lines, and numbers in columns of 64 bits: no later
place looks at them again.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Iterator

from rm.core.model.acceptance import NAME_BYTES, NUMBER_MAX
from rm.core.model.host import Host
from rm.core.model.network.fabric import LEAF_VARIABLE
from rm.errors import UsageError
from rm.units import is_host_name

GPUS = 1024
NAMES = 4096  # partitions or features
VARIABLE_BYTES = 1 << 20  # of all variables of a host
PORT_MAX = 65_535
_COUNTS = ("cpus", "mem_bytes", "nic_bps")
# the variables by which the daemon and playbooks reach a host, and by which rm knows its place
_WORDS = frozenset((
    "ansible_become", "ansible_become_method", "ansible_become_user", "group_names", LEAF_VARIABLE,
))  # fmt: skip
_PASSWORDS = frozenset((
    "ansible_become_pass", "ansible_become_password", "ansible_password", "ansible_ssh_pass",
    "ansible_ssh_password", "ansible_sudo_pass",
))  # fmt: skip
_KEYS = ("ansible_private_key_file", "ansible_ssh_private_key_file")
_PYTHON = "ansible_python_interpreter"
# one that only root installs: where a play says connection: local, this machine runs it
_SYSTEMS_PYTHON = re.compile(
    r"auto(_legacy)?(_silent)?|(/usr/(local/)?(bin|libexec)/)?(platform-)?python[0-9.]*"
)
_THIS_MACHINE = ("localhost", "127.0.0.1")  # in playbooks
_TEMPLATE = re.compile(r"\{[{%#]|#jinja2:")


def accept_host(host: Host) -> None:
    """
    Raises:
        UsageError: with the first thing that is wrong.
    """
    problem = next(_problems(host), "")
    if problem:
        raise UsageError(f"The host {host.name[:80]!a} cannot be accepted: {problem}.")


def keys_of(hosts: Iterable[Host]) -> set[str]:
    """The files of private keys by which hosts are reached."""
    return {value for host in hosts for name, value in host.variables if name in _KEYS}


def steering(new: Host, old: Host | None, keys: Collection[str]) -> list[str]:
    """What of a host, other than it was, steers what playbooks do on the daemon's machine: which files are
    read there, which programs run. Variables, its name where that is the machine's own, and words that would
    lead out of a folder of files (vars_files: "zones/{{ rm_zone }}.yml"). `keys`: those that hosts have."""
    known = dict(old.variables) if old else {}
    news = [(name, value) for name, value in new.variables if known.get(name) != value]

    def describes(name: str, value: str) -> bool:
        """A key is one that this machine's owner gave some host: another may be any user's here, whose
        other doors it opens."""
        if name in _KEYS:
            return value in keys
        if name == _PYTHON:
            return _SYSTEMS_PYTHON.fullmatch(value) is not None
        if name == "group_names" and not _are_names(value):
            return False
        plain = _plain(value)
        if plain is None or _TEMPLATE.search(plain):
            return False
        return name in _PASSWORDS or (name in _WORDS and "/" not in plain)

    named = ["name"] if old is None and new.name in _THIS_MACHINE else []
    for what in ("zone", "address", "login", "interface", "partitions", "features"):
        said = getattr(new, what)
        if (old is None or said != getattr(old, what)) and "/" in "".join(said):
            named.append(what)
    return named + sorted(name for name, value in news if not describes(name, value))


def _are_names(value: str) -> bool:
    """Is it a list of names of groups?"""
    try:
        names = json.loads(value)
    except (ValueError, RecursionError):
        return False
    return isinstance(names, list) and all(isinstance(name, str) for name in names)


def _plain(value: str) -> str | None:
    """The value without characters that JSON writes by their numbers; None: it is nested too deep."""
    try:
        return json.dumps(json.loads(value), ensure_ascii=False)
    except RecursionError:
        return None
    except ValueError:
        return value


def _problems(host: Host) -> Iterator[str]:
    if not is_host_name(host.name):  # also of patterns of playbooks, file names and shells
        yield "its name can stand in no list of hosts: use letters, digits, dots, dashes and underscores"
    for what in ("name", "address", "login", "interface"):
        yield from _word(what, getattr(host, what))
    if any(getattr(host, what).startswith("-") for what in ("address", "login")):
        yield "its address or login begins with a dash, as an option does"
    if "@" in host.address or host.address.count(":") == 1:  # an address of IPv6 has several
        yield (
            "its address names a login or a port, which have fields of their own "
            "(in an inventory ansible_user and ansible_port)"
        )
    if set("[],") & set(host.address):
        yield "its address has brackets or a comma, and must be one address"
    yield from _text("zone", host.zone)
    for what, names in (("partition", host.partitions), ("feature", host.features)):
        if len(names) > NAMES:
            yield f"it has {len(names)} {what}s, and may have {NAMES}"
        for name in names:
            if not name or "," in name:
                yield f"the name of a {what} must be a word without commas"
            yield from _word(what, name)
    yield from _numbers(host)
    for name, value in host.variables:
        if not name or not name.isprintable() or "\0" in value:
            yield "a variable has a name that is no word, or a NUL byte in its value"
    if sum(_bytes(name) + _bytes(value) for name, value in host.variables) > VARIABLE_BYTES:
        yield f"its variables have more than {VARIABLE_BYTES} bytes"


def _numbers(host: Host) -> Iterator[str]:
    if not 0 <= host.port <= PORT_MAX:
        yield f"its port is {host.port}, and must be 0 to {PORT_MAX}"
    for what in _COUNTS:
        if not 0 <= getattr(host, what) <= NUMBER_MAX:
            yield f"{what} is {getattr(host, what)}, and must be 0 to {NUMBER_MAX}"
    if len(host.gpus) > GPUS:
        yield f"it has {len(host.gpus)} GPUs, and may have {GPUS}"
    indices = [gpu.index for gpu in host.gpus]
    if len(set(indices)) < len(indices) or not all(0 <= index < 1 << 31 for index in indices):
        yield "its GPUs need different indices of at least 0"
    for gpu in host.gpus:
        yield from _text("model of a GPU", gpu.model)
        yield from _word("UUID of a GPU", gpu.uuid)
        if not 0 <= gpu.mem_bytes <= NUMBER_MAX:
            yield f"the memory of a GPU is {gpu.mem_bytes} bytes, and must be 0 to {NUMBER_MAX}"


def _word(what: str, text: str) -> Iterator[str]:
    yield from _text(what, text)
    if any(map(str.isspace, text)):
        yield f"its {what} has blanks"


def _text(what: str, text: str) -> Iterator[str]:
    if not text.isprintable():
        yield f"its {what} has control characters"
    if _TEMPLATE.search(text):
        yield f"its {what} is a template, and must be written out"
    if _bytes(text) > NAME_BYTES:
        yield f"its {what} is longer than {NAME_BYTES} bytes"


def _bytes(text: str) -> int:
    return len(text.encode(errors="replace"))  # an unpaired surrogate has no bytes of its own
