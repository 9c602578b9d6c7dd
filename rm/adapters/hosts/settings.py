"""How hosts are reached over SSH, as a value: who only passes it on need not load an SSH library."""

from __future__ import annotations

from pathlib import Path

from rm.quick_dataclass import dataclass

LOGIN_LINES = 200  # that a login script may print before what rm starts says something


@dataclass(frozen=True, slots=True)
class SshSettings:
    """How hosts are reached. Times in seconds.

    A connection over which nothing came for `dead_after_s` although it was asked for is dead; an agent that
    says nothing for `agent_dead_after_s` hangs. A lost host is tried again often for `down_after_s`.
    `agent_command` is run on the host as the agent's channel; "" means the deployed agent, run
    by `python`. Without `identity_files` the user's own keys and SSH agent are used; in their names %h is
    the host's name. `weak_algorithms` allows ciphers and MACs that OpenSSH no longer offers.

    `config` is the configuration of ssh that is followed: "" the user's and the system's, "none" neither,
    else a file. `arguments` are options of ssh for hosts that name none (pairs of variable and text); only
    where the inventory is the caller's own (`trusts_inventory`) may they run programs here. With
    `users_known_hosts` a key counts that the known hosts of ssh hold. `key_options` is what
    `rmx host accept-key NAME` needs besides to accept a key where these settings look for it.
    """

    known_hosts: Path
    identity_files: tuple[Path, ...] = ()
    connect_timeout_s: float = 10.0
    dead_after_s: float = 6.0
    agent_dead_after_s: float = 15.0
    down_after_s: float = 20.0
    agent_command: str = ""
    python: str = "python3"
    weak_algorithms: bool = False
    config: str = "none"
    arguments: tuple[tuple[str, str], ...] = ()
    trusts_inventory: bool = False
    users_known_hosts: bool = False
    key_options: str = ""
