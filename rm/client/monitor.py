"""`client.monitor`: the meshes that measure the network, their grids, and archives, read and written."""

from __future__ import annotations

from rm.api.monitoring import (
    Archives,
    Change,
    Changes,
    Grid,
    Meshes,
    OneMesh,
    OneSource,
    Run,
    RunMesh,
    Source,
    Sources,
)
from rm.client.asking import Asking

RUN_WITHIN_S = 24 * 3600.0


class Monitor:
    def __init__(self, ask: Asking) -> None:
        self._ask = ask

    def meshes(self) -> Meshes:
        """The meshes and the archives' grids, malformed tables of rm.toml, and maintenance windows."""
        return self._ask.get(Meshes, "monitor")

    def grid(self, mesh: str) -> Grid:
        """The mesh's cells: the status of each check of each direction."""
        return self._ask.get(Grid, "monitor", mesh)

    def changes(
        self,
        mesh: str,
        *,
        check: str = "",
        source: str = "",
        destination: str = "",
        since_s: float = 604_800,
        limit: int = 10_000,
    ) -> list[Change]:
        """The changes of its cells' statuses, in the order of time: the newest `limit` that match."""
        answer = self._ask.get(
            Changes, "monitor", mesh, "changes", check=check, source=source, destination=destination,
            since_s=since_s, limit=limit,
        )  # fmt: skip
        return list(answer.changes)

    def run(self, mesh: str, *, all_rounds: bool = False) -> Run:
        """Run the mesh now: the rounds that are due in one run, or all; answered when it is over."""
        body = RunMesh(all=all_rounds)
        return self._ask.post(OneMesh, "monitor", mesh, "run", body=body, answer_within_s=RUN_WITHIN_S).mesh

    def pause(self, mesh: str) -> Run:
        """Let the mesh measure nothing until it is resumed."""
        return self._ask.post(OneMesh, "monitor", mesh, "pause").mesh

    def resume(self, mesh: str) -> Run:
        """Let the paused mesh go on."""
        return self._ask.post(OneMesh, "monitor", mesh, "resume").mesh

    def sources(self) -> Sources:
        """The archives that are read, and malformed tables of rm.toml."""
        return self._ask.get(Sources, "sources")

    def archives(self) -> Archives:
        """The archives that results are sent to, and malformed tables of rm.toml."""
        return self._ask.get(Archives, "archives")

    def read_source(self, name: str) -> Source:
        """Read the archive now."""
        return self._ask.post(OneSource, "sources", name, "read", answer_within_s=RUN_WITHIN_S).source
