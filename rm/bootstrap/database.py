"""What is done to the database while no daemon runs on it, and what an upgrade would meet."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rm import __version__
from rm.adapters.owned_file import as_owner_of
from rm.adapters.playbook.shipped import agents_version
from rm.adapters.store.backup import (
    Restored,
    back_up_to,
    found_schema,
    home_of,
    is_sqlite,
    restore_from,
    stored_lease,
)
from rm.adapters.store.migrate import head, upgrade
from rm.adapters.store.opening import open_store, read_store
from rm.adapters.store.unsure_jobs import EVERYTHING
from rm.bootstrap.process import make_state_dir
from rm.config import Config
from rm.core.store import Loaded
from rm.daemon.leading.witness import NAME, acknowledged
from rm.errors import Conflict, RmError, StoreError
from rm.web.doors.listener import claimed

LISTED = 10
LEASE_S = 1.0  # beyond the time of a lease: then its holder would have renewed it


@dataclass(frozen=True, slots=True)
class Look:
    """What an upgrade would meet. `found` is the database's schema ("" = there is no database yet), `problem`
    why it cannot be brought to `wanted`, `damaged` counts rows that would be set aside, `hosts` have other
    agents than those of this rm, `copy` is the database as it was before the upgrade."""

    found: str
    wanted: str
    problem: str = ""
    damaged: int = 0
    hosts: tuple[str, ...] = ()
    copy: Path | None = None

    @property
    def exit_code(self) -> int:
        return StoreError.exit_code if self.problem else 0

    def as_json(self) -> dict[str, Any]:
        return {
            "rm": __version__, "schema": self.found, "wanted": self.wanted, "problem": self.problem,
            "damaged": self.damaged, "agents": agents_version(), "outdated_hosts": list(self.hosts),
            "copy": str(self.copy or ""),
        }  # fmt: skip

    def sentences(self) -> list[str]:
        lines = [f"This is rm {__version__}, with agents {agents_version()}."]
        if not self.found:
            return [*lines, "There is no database yet: the daemon makes one when it starts."]
        if self.found == self.wanted:
            lines.append(f"The database has schema {self.found}, as this rm needs.")
        else:
            lines.append(f"The database has schema {self.found}, and this rm needs {self.wanted}.")
        if self.copy:
            lines.append(
                f"The database as it was before is kept in {self.copy}. The way back: stop the daemon, "
                f"rmx restore {self.copy}, then install the older rm."
            )
        if self.problem:
            lines.append(f"It cannot be upgraded: {self.problem}")
        elif self.found != self.wanted:
            lines.append("The upgrade will work: stop the daemon, then run `rmx upgrade` or start this rm's.")
        if self.damaged:
            lines.append(f"{self.damaged} rows cannot be read and will be set aside (`rmx status`).")
        if self.hosts:
            more = f" and {len(self.hosts) - LISTED} more" if len(self.hosts) > LISTED else ""
            lines.append(
                f"{len(self.hosts)} hosts have other agents than this rm's: "
                f"{', '.join(self.hosts[:LISTED])}{more}. Run: rmx playbook run agents"
            )
        return lines


def restore_database(config: Config, file: Path, hold: bool = True) -> Restored:
    """Put a backup in the database's place, while no daemon runs on it. If commits that were acknowledged are
    not in it, jobs may have run since: with `hold` those that waited are held.

    Raises:
        Conflict: a daemon does.
        RmError: as `restore_from`.
    """
    state, url = Path(config.daemon.state_dir), config.daemon.database
    make_state_dir(state)
    with claimed(config.daemon.socket, config.daemon.shared):
        _refuse_another_leader(url)
        last = acknowledged(state)
        kept = state / f"before-restore-{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}.pgdump"
        done = restore_from(url, file.absolute(), kept, EVERYTHING if last is None else last, hold)
        (state / NAME).unlink(missing_ok=True)  # what was acknowledged after the backup is given up
    return done


def upgrade_database(config: Config) -> Path | None:
    """Bring the database to this rm's schema. The copy that was made before, of a SQLite database that had
    another one; raises Conflict when a daemon runs on it."""
    url = config.daemon.database
    make_state_dir(Path(config.daemon.state_dir))
    with claimed(config.daemon.socket, config.daemon.shared):
        _refuse_another_leader(url)
        if not is_sqlite(url):
            upgrade(url)
        copies: list[Path] = []
        with _at(url):
            open_store(url, copied=copies.append).close()
    return copies[0] if copies else None


def look(config: Config) -> Look:
    """Try the upgrade on a copy, where the database is SQLite's; change nothing."""
    url = config.daemon.database
    with _at(url):
        found = found_schema(url)
    if not found:
        return Look("", head())
    sqlite = is_sqlite(url)
    try:
        if found > head():
            raise StoreError(
                f"it was written by a newer rm (schema {found}).", "Upgrade rm, or restore a backup."
            )
        if not sqlite:
            loaded = _read(url) if found == head() else None
        else:
            with tempfile.TemporaryDirectory(prefix="rm-upgrade-") as folder:
                copy = Path(folder) / "rm.sqlite3"
                back_up_to(url, copy)
                upgrade(f"sqlite:///{copy}")
                loaded = _read(f"sqlite:///{copy}")
    except RmError as error:
        return Look(found, head(), problem=str(error))
    if loaded is None:
        return Look(found, head())
    ours = agents_version()
    others = tuple(h.name for h in loaded.hosts if h.agent_version not in ("", ours))
    return Look(found, head(), damaged=len(loaded.damaged), hosts=others)


@contextmanager
def _at(url: str) -> Iterator[None]:
    """With the rights of who owns a database of SQLite, which follows what this account has put beside it."""
    home = home_of(url)
    with nullcontext() if home is None else as_owner_of(home):
        yield


def _read(url: str) -> Loaded:
    store = read_store(url)
    try:
        return store.load()
    finally:
        store.close()


def _refuse_another_leader(url: str) -> None:
    """The socket's lock shows this machine's daemons; the lease those on other machines."""
    with _at(url):
        seen = stored_lease(url)
        if seen is None or not seen.holder:
            return
        time.sleep(seen.ttl_us / 1e6 + LEASE_S)
        changed = stored_lease(url) != seen
    if changed:
        raise Conflict(f"Another daemon leads this database: {seen.holder}.", "Stop it first.")
