"""A kept-open conversation with `rm_steps.py` on a host where no agent is needed: one exec, JSON lines."""

from __future__ import annotations

import json
import threading
from contextlib import suppress
from typing import Any

from rm.adapters.hosts import ssh
from rm.adapters.hosts.commands import words_of
from rm.adapters.hosts.settings import LOGIN_LINES, SshSettings
from rm.adapters.playbook import become as playbook_become
from rm.adapters.playbook.become import Passwords, Refused
from rm.adapters.playbook.program import HINT, LOADER, Conversation, OutcomeUnknown, answers_within_s, late
from rm.core.model.host import Host
from rm.errors import RmError, Unreachable

LINE_BYTES_MAX = 128 << 20


class StepsChannel:
    """Connects, starts the program, and answers `steps` requests one at a time.

    Raises what `ssh.connect` raises, Refused when sudo does not let the login become root, and Unreachable
    when the host is lost while steps run: their outcome is unknown then, and running the playbook again
    finishes the work.
    """

    def __init__(
        self, host: Host, settings: SshSettings, become: bool, passwords: Passwords | None = None
    ) -> None:
        self.host, self.become = host, become
        self._closing = threading.Lock()
        given = passwords or Passwords()
        self.connection = ssh.connect(host, settings, given.login)
        argv = [*words_of(settings.python), "-S", "-E", "-c", LOADER]
        if become:
            argv = playbook_become.argv(argv, given.become)
        try:
            self.channel = ssh.open_channel(self.connection, ssh.quote(argv))
            if become and given.become:
                self._become(given.become)
            self.lines = self.channel.makefile("rb")
            self._talk = Conversation()
            self._greeting_lines = LOGIN_LINES  # that may still come before the first reply
            self.channel.settimeout(settings.connect_timeout_s)  # a host may take in nothing
            self._write(self._talk.opening())
            self.channel.settimeout(None)
        except BaseException:
            self.connection.close()
            raise

    def _become(self, password: str) -> None:
        self.channel.set_combine_stderr(True)  # sudo asks on standard error
        self.channel.settimeout(playbook_become.ANSWER_S)

        def read() -> bytes | None:
            try:
                return self.channel.recv(4096)
            except TimeoutError:
                return None

        playbook_become.converse(self.host.name, password, read, self._write)
        self.channel.settimeout(None)
        self.channel.set_combine_stderr(False)

    def _write(self, data: bytes) -> None:
        try:
            self.channel.sendall(data)
        except (OSError, EOFError):
            raise self._ended() from None

    def steps(self, request: dict[str, Any]) -> dict[str, Any]:
        """The result of one `steps` request."""
        self.channel.settimeout(answers_within_s(request))
        try:
            self.channel.sendall(self._talk.asking(request))  # a stopped host takes no more than SSH's window
            reply = self._reply()
        except TimeoutError:
            raise late(self.host.name) from None
        except (OSError, EOFError):
            raise self._ended() from None
        self.channel.settimeout(None)
        if reply["ok"] is not True:
            raise RmError(f"Host {self.host.name} refused the steps: {str(reply.get('error', ''))[:2000]}")
        result: dict[str, Any] = reply["result"]  # its shape is checked where it arrives
        return result

    def _reply(self) -> dict[str, Any]:
        """The next line, which is a reply; a login script may print some lines before the first one."""
        while True:
            line = self.lines.readline(LINE_BYTES_MAX)
            if not line:
                raise self._ended()
            if len(line) >= LINE_BYTES_MAX:
                said = f"Host {self.host.name} answers more than {LINE_BYTES_MAX >> 20} MiB at once."
                raise Unreachable(said, "Take large files with `fetch`, and let commands write into files.")
            try:
                reply = json.loads(line)
            except (ValueError, RecursionError):
                reply = None
            if isinstance(reply, dict) and ("result" if reply.get("ok") is True else "ok") in reply:
                self._greeting_lines = 0
                return reply
            if not self._greeting_lines:
                said = bytes(line)[:200].decode(errors="replace").strip()
                raise Unreachable(
                    f"Host {self.host.name} returns something other than step results: '{said}'.",
                    f"A login script may write to standard output for {self.host.login}.",
                )
            self._greeting_lines -= 1

    def _ended(self) -> RmError:
        """Why the program on the host is gone."""
        code, said = -1, ""
        with suppress(OSError, EOFError):
            self.channel.settimeout(5)
            said = self.channel.recv_stderr(1 << 16).decode(errors="replace").strip()
            code = self.channel.recv_exit_status() if self.channel.exit_status_ready() or said else -1
        last = said.splitlines()[-1] if said else ""
        if self.become and code == 1 and last.startswith("sudo:"):
            return Refused(playbook_become.sentence(self.host.name, said))
        if code == 127 or "not found" in last:
            return Unreachable(f"Host {self.host.name} has no python3.", "Install Python 3.8 or newer there.")
        if code > 0:
            return Unreachable(f"Steps cannot run on host {self.host.name}: {last or f'exit code {code}'}.")
        return OutcomeUnknown(
            f"The connection to host {self.host.name} was lost while steps ran; their outcome is unknown.",
            HINT,
        )

    def close(self) -> None:
        """From any thread; Paramiko's client cannot be closed by two at once."""
        with self._closing, suppress(OSError, EOFError):
            self.channel.close()
            self.connection.close()
