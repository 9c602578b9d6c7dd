"""`--clusters` of Slurm's commands, on the one cluster of a daemon."""

from __future__ import annotations

from rm.cli.jobs.clusters import own_cluster
from rm.cli.slurm.asking import Asking

TYPE_CHECKING = False
if TYPE_CHECKING:
    from rm.cli.slurm.words import Given

OPTION, ALIAS = "clusters/M=", "cluster="
VARIABLES = {"SLURM_CLUSTERS": "clusters"}


def cluster_of(given: Given) -> str:
    """The cluster's name where the options name it, "" where they name none.

    Raises:
        NotFound: they name another.
    """
    asked = given.options.get("clusters", given.options.get("cluster"))
    return "" if asked is None else checked(asked)


def checked(asked: str) -> str:
    """The cluster's name. Raises NotFound where `asked` names another."""
    with Asking() as client:
        return own_cluster(asked, client)


def say_cluster(given: Given) -> None:
    """The line above the header of a list that was asked of named clusters."""
    if (cluster := cluster_of(given)) and "noheader" not in given.options:
        print(f"CLUSTER: {cluster}")
