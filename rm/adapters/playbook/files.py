"""The control machine's files for playbooks: the playbook itself and what it copies."""

from __future__ import annotations

import glob
import os
import stat
import weakref
from collections.abc import Callable
from functools import cache, cached_property
from pathlib import Path

from rm.adapters.playbook.installed import installed
from rm.adapters.playbook.plugins import Plugins
from rm.adapters.playbook.vault import HEADER, Vault
from rm.errors import UsageError
from rm.playbook.model.problems import BadArgument
from rm.playbook.model.schema import Playbook, PlayDefaults
from rm.playbook.own.place import Installed
from rm.playbook.own.plugins import learn_named
from rm.playbook.read.ansible_settings import Settings
from rm.playbook.read.parse import parse_playbook


class LocalFiles:
    """The control machine's files, each read once per run; what is encrypted is opened."""

    def __init__(self, vault: Vault | None = None, ansible: Settings | None = None) -> None:
        self.vault = vault or Vault(())
        self.read = cache(self._read)
        self._directory = ""  # of the playbook, which is read first
        said = ansible or Settings()
        usual = ("~/.ansible/roles", "/usr/share/ansible/roles", "/etc/ansible/roles")
        self.role_path = said.roles_path or tuple(map(os.path.expanduser, usual))
        self.play_defaults = PlayDefaults(
            gather_facts=said.gathering != "explicit",
            gather_once=said.gathering == "smart",
            any_errors_fatal=said.any_errors_fatal,
            force_handlers=said.force_handlers,
        )

    @cached_property
    def installed(self) -> Installed:
        """What of Ansible is on this machine, for modules that are not rm's."""
        return installed()

    @cached_property
    def plugins(self) -> Plugins:
        """The filters and tests that the playbook and its roles bring along."""
        found = Plugins(self.installed)
        weakref.finalize(self, found.close)
        return found

    @property
    def decrypt(self) -> Callable[[str], str] | None:
        """Opens `!vault` values; None without passwords: then only the use of such a value is an error."""
        return self.vault if self.vault.passwords else None

    def _read(self, path: str, decrypt: bool = True) -> bytes:
        try:
            data = Path(path).read_bytes()
        except OSError as problem:
            raise BadArgument(f"the local file {path} cannot be read: {problem.strerror}") from None
        if decrypt and data.startswith(HEADER.encode()):
            try:
                data = self.vault.open_file(data)
            except UsageError as problem:
                raise BadArgument(f"the local file {path}: {problem}".rstrip(".")) from None
        self._directory = self._directory or os.path.dirname(path)
        learn_named(self.plugins, data, self._directory)
        return data

    def glob(self, pattern: str) -> list[str]:
        return sorted(path for path in glob.glob(pattern, recursive=True) if os.path.isfile(path))

    def exists(self, path: str) -> bool:
        return os.path.exists(path)

    def mode(self, path: str) -> int:
        return stat.S_IMODE(os.stat(path).st_mode)


def read_playbook(path: str | Path, files: LocalFiles | None = None) -> Playbook:
    """Parse and check a playbook; raises UsageError with file, line and what to do."""
    local = files or LocalFiles()
    try:
        text = local.read(str(path)).decode()
    except (BadArgument, UnicodeDecodeError) as problem:
        why = str(problem).rpartition(": ")[2] if isinstance(problem, BadArgument) else "it is not UTF-8 text"
        raise UsageError(
            f"The playbook {path} cannot be read: {why}.", "Give the path of a YAML file."
        ) from None
    return parse_playbook(text, str(path), local)
