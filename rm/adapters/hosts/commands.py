"""The command lines that start the agent's program on a host."""

from __future__ import annotations

import shlex

from rm.adapters.hosts.settings import SshSettings
from rm.core.model.host import Host
from rm.errors import ConfigError

AGENT_PATH = "/opt/rm/agents/rm_agent.py"


def agent_command(host: Host, settings: SshSettings) -> str:
    """The command line that serves the agent's channel on `host`; by sudo when its inventory says so."""
    given = dict(host.variables)
    python = python_of(given.get("ansible_python_interpreter"), settings)
    command = settings.agent_command or shlex.join([*words_of(python), "-S", "-E", AGENT_PATH, "--serve"])
    become = given.get("ansible_become", "").lower() in ("true", "yes", "1")
    return f"sudo -n {command}" if become else command


def python_of(said: object, settings: SshSettings) -> str:
    """The host's Python: `said` is its inventory's `ansible_python_interpreter`, if any."""
    text = str(said or "auto")
    return settings.python if text.startswith("auto") else text


def words_of(python: str) -> list[str]:
    """As in Ansible the shell of the host reads it: `/usr/bin/env python3` has an argument."""
    try:
        return shlex.split(python)
    except ValueError:  # a quotation mark without its other one
        return [python]


def attend_command(host: Host, settings: SshSettings) -> str:
    """The command line that attends a session of a job on `host`.

    Raises:
        ConfigError: the configured command of the agent cannot be asked for it.
    """
    command = agent_command(host, settings)
    if "--serve" not in command:
        raise ConfigError(
            "ssh.agent_command does not end in --serve, so that sessions of jobs cannot be attended.",
            "Let it start rm_agent.py with the arguments that rm gives.",
        )
    before, _, after = command.rpartition("--serve")
    return f"{before}--attend{after}"
