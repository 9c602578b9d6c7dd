"""The control machine's files for playbooks: the playbook itself and what it copies."""

from __future__ import annotations

import glob
import os
import pwd
import stat
import weakref
from collections.abc import Callable, Mapping
from datetime import datetime
from functools import cache, cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rm.adapters.playbook.installed import installed, with_folders
from rm.adapters.playbook.plugins import KINDS, Plugins
from rm.adapters.playbook.vault import HEADER, Vault
from rm.errors import UsageError
from rm.playbook.model.problems import BadArgument
from rm.playbook.model.schema import Playbook, PlayDefaults
from rm.playbook.own.place import Configured, Installed
from rm.playbook.own.plugins import learn_named
from rm.playbook.read.ansible_settings import PLUGINS, Settings
from rm.playbook.read.parse import parse_playbook
from rm.playbook.read.static_names import Foreknown
from rm.playbook.run.lookups import seeker

if TYPE_CHECKING:
    from rm.adapters.playbook.fact_cache import FactCache

TREE_MAX = 10_000


class LocalFiles:
    """The control machine's files, each read once per run; what is encrypted is opened."""

    def __init__(self, vault: Vault | None = None, ansible: Settings | None = None) -> None:
        self.vault = vault or Vault(())
        self.read = cache(self._read)
        self.directory = ""  # of the playbook, which is read first
        said = ansible or Settings()
        usual = ("~/.ansible/roles", "/usr/share/ansible/roles", "/etc/ansible/roles")
        self.role_path = said.roles_path or tuple(map(os.path.expanduser, usual))
        self._said = said
        self.play_defaults = PlayDefaults(
            gather_facts=said.gathering != "explicit",
            gather_once=said.gathering == "smart",
            any_errors_fatal=said.any_errors_fatal,
            force_handlers=said.force_handlers,
            error_on_missing_handler=said.error_on_missing_handler,
        )

    @cached_property
    def installed(self) -> Installed:
        """What of Ansible is on this machine, for modules that are not rm's."""
        return installed(self._said.collections_path)

    @cached_property
    def configured(self) -> Configured:
        """The directories of modules and plug-ins that ansible.cfg names, those one level below included."""
        said = {name: with_folders(getattr(self._said, name)) for name in PLUGINS}
        kinds = [(kind, folder) for kind in KINDS for folder in said[f"{kind}_plugins"]]
        return Configured(said["library"], self._said.module_utils, said["action_plugins"], tuple(kinds))

    @cached_property
    def fact_cache(self) -> FactCache | None:
        """Where ansible.cfg keeps facts between runs, if it does. Raises UsageError."""
        said = self._said
        if said.fact_caching != "jsonfile" or not said.fact_caching_connection:
            return None
        from rm.adapters.playbook.fact_cache import FactCache  # few have one

        return FactCache(said.fact_caching_connection, said.fact_caching_prefix, said.fact_caching_timeout_s)

    @cached_property
    def plugins(self) -> Plugins:
        """The filters and tests that the playbook and its roles bring along."""
        found = Plugins(self.installed, self.configured.plugins)
        weakref.finalize(self, found.close)
        return found

    def stop(self) -> None:
        """The run is over: plug-ins that still run are broken off."""
        if "plugins" in self.__dict__:
            self.plugins.stop()

    @property
    def decrypt(self) -> Callable[[str], str] | None:
        """Opens `!vault` values; None without passwords: then only the use of such a value is an error."""
        return self.vault if self.vault.passwords else None

    def _read(self, path: str, decrypt: bool = True) -> bytes:
        try:
            data = Path(path).read_bytes()
        except OSError as problem:
            raise BadArgument(f"the local file {path} cannot be read: {problem.strerror}") from None
        except ValueError as problem:  # no name of a file: a zero byte, or no Unicode
            raise BadArgument(f"the local file {path!r} cannot be read: {problem}") from None
        if decrypt and data.startswith(HEADER.encode()):
            try:
                data = self.vault.open_file(data)
            except UsageError as problem:
                raise BadArgument(f"the local file {path}: {problem}".rstrip(".")) from None
        self.directory = self.directory or os.path.dirname(os.path.abspath(path))
        learn_named(self.plugins, data, self.directory)
        return data

    def glob(self, pattern: str) -> list[str]:
        return sorted(path for path in glob.glob(pattern, recursive=True) if os.path.isfile(path))

    def exists(self, path: str) -> bool:
        return os.path.exists(path)

    def tree(self, path: str, follow: bool) -> tuple[list[str], list[str], dict[str, str]]:
        files: list[str] = []
        directories: list[str] = []
        links: dict[str, str] = {}
        for top, below, names in os.walk(path, followlinks=follow):
            here = os.path.relpath(top, path)
            directories += [here]
            for name in sorted([*below, *names]):
                full, short = os.path.join(top, name), os.path.normpath(os.path.join(here, name))
                if os.path.islink(full) and not follow:
                    links[short] = os.readlink(full)
                elif os.path.isfile(full):
                    files.append(short)
            if len(directories) > TREE_MAX:
                raise BadArgument(f"{path} has more than {TREE_MAX} directories; do its links form a loop?")
        return files, directories, links

    def mode(self, path: str) -> int:
        return stat.S_IMODE(os.stat(path).st_mode)

    def about(self, path: str) -> tuple[str, str, datetime]:
        seen = os.stat(path)
        try:
            owner = pwd.getpwuid(seen.st_uid).pw_name
        except KeyError:
            owner = str(seen.st_uid)
        return os.path.abspath(path), owner, datetime.fromtimestamp(seen.st_mtime)


def foreknown(files: LocalFiles, variables: Mapping[str, Any]) -> Foreknown:
    """What names of imports may hold: the variables of the command line, and lookups on this machine."""
    from rm.adapters.playbook.sources import ThisMachine

    return Foreknown(variables, lambda search: seeker(files, search, ThisMachine(vault=files.vault)))


def read_playbook(
    path: str | Path,
    files: LocalFiles | None = None,
    variables: Mapping[str, Any] | None = None,
    known: Foreknown | None = None,
) -> Playbook:
    """Parse and check a playbook; raises UsageError with file, line and what to do. `variables` are those of
    the command line; `known` is what names of imports may hold instead of these and lookups."""
    local = files or LocalFiles()
    try:
        text = local.read(str(path)).decode()
    except (BadArgument, UnicodeDecodeError) as problem:
        why = str(problem).rpartition(": ")[2] if isinstance(problem, BadArgument) else "it is not UTF-8 text"
        raise UsageError(
            f"The playbook {path} cannot be read: {why}.", "Give the path of a YAML file."
        ) from None
    return parse_playbook(text, str(path), local, known=known or foreknown(local, variables or {}))
