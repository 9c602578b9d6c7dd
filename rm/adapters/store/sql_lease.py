"""The lease of the leader, in the cluster's row."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import sqlalchemy as sa

from rm.adapters.store import schema, statements
from rm.adapters.store.set_aside import sound_cluster
from rm.adapters.store.sql_connections import SqlConnections
from rm.core.store import NO_DOORS, Doors, Lease


class SqlLease(SqlConnections):
    """Its epoch is this store's right to commit."""

    def lease(self) -> Lease:
        with self._reading("read the lease") as c:
            return _lease(sound_cluster(c.execute(sa.select(schema.cluster)).mappings().one()))

    def acquire_lease(
        self, holder: str, now_us: int, ttl_us: int, over: Lease | None = None, doors: Doors = NO_DOORS
    ) -> int | None:
        with self._turn("take the lease"):
            if over is not None and self._engine.dialect.name == "postgresql":
                self._end_former_leader()
            return self._acquire_lease(holder, now_us, ttl_us, over, doors)

    def _end_former_leader(self) -> None:
        """It may hang inside its commit, and hold the cluster's row: while the server waits for more of a
        pipeline, none of its timeouts counts."""
        with self._transaction("end a former leader's commit") as c:
            c.execute(statements.END_WRITERS)

    def _acquire_lease(
        self, holder: str, now_us: int, ttl_us: int, over: Lease | None, doors: Doors
    ) -> int | None:
        with self._transaction("take the lease") as c:
            cluster = sound_cluster(c.execute(statements.CLUSTER_FOR_UPDATE).mappings().one())
            if cluster["holder"] not in ("", holder) and _lease(cluster) != over:
                return None
            epoch: int = cluster["epoch"] + 1
            c.execute(
                sa.update(schema.cluster),
                {
                    "holder": holder,
                    "lease_expires_us": now_us + ttl_us,
                    "lease_us": ttl_us,
                    "epoch": epoch,
                    "leader_https_url": doors.https,
                    "leader_page_url": doors.page,
                    "leader_machine": doors.machine,
                },
            )
        self._epoch = epoch
        return epoch

    def renew_lease(self, now_us: int, ttl_us: int) -> bool:
        return self._change_lease("renew the lease", lease_expires_us=now_us + ttl_us)

    def epoch(self) -> int:
        with self._reading("read the epoch") as c:
            return int(sound_cluster(c.execute(sa.select(schema.cluster.c.epoch)).mappings().one())["epoch"])

    def release_lease(self) -> None:
        self._change_lease("release the lease", holder="", lease_expires_us=0)
        self._epoch = None

    def _change_lease(self, purpose: str, **values: str | int) -> bool:
        """False when the lease is not (any more) this store's."""
        if self._epoch is None:
            return False
        with self._turn(purpose), self._transaction(purpose) as c:
            return bool(c.execute(statements.UPDATE_LEASE, {"b_epoch": self._epoch, **values}).rowcount)


def _lease(cluster: Mapping[Any, Any]) -> Lease:
    columns = ("holder", "epoch", "lease_expires_us", "lease_us", "version")
    holder, epoch, expires_us, ttl_us, version = (cluster[name] for name in columns)
    doors = Doors(*(cluster[name] for name in ("leader_https_url", "leader_page_url", "leader_machine")))
    return Lease(holder, epoch, expires_us, ttl_us, version, doors)
