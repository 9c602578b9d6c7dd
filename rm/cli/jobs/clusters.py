"""The cluster that a command names: Slurm's commands may name several, and a daemon has one."""

from __future__ import annotations

from rm.errors import NotFound

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Protocol

    from rm.api.status import Status

    class Tells(Protocol):
        """A client of the daemon."""

        def status(self) -> Status: ...


ALL = "all"


def own_cluster(asked: str, client: Tells) -> str:
    """The daemon's cluster, where `asked` names it: by its name in any case, or by `all`, with commas.

    Raises:
        NotFound: another name is there.
    """
    own = client.status().settings.cluster_name
    names = [name for part in asked.split(",") if (name := part.strip())]
    others = [name for name in names if name.casefold() not in (own.casefold(), ALL)]
    if others or not names:
        raise NotFound(
            f"No cluster '{', '.join(others)}' known by database.", f"The cluster of this daemon is '{own}'."
        )
    return own
