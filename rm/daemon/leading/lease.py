"""Leading: to wait until nobody else does, and then to hold the lease, or to notice in time that it is not.

Durations are measured on the monotonic clock of one machine: no wall clock is compared with another's.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import TypeVar

from rm.core.ports import Clock
from rm.core.store import NO_DOORS, Doors, Lease, Store
from rm.errors import RmError, StoreUnavailable

log = logging.getLogger(__name__)

RENEWALS = 6  # within the time of the lease
LOOKS = 20  # of a standby at another's lease, within its time
LOOK_S = 0.25  # and at least so often
SILENT = 1 / 3  # of the time of the lease without a sign of life: the leader may have vanished
AWAY = 1 / 2  # of it without an answer to this side: the leader may have had none either
RETRY_S = 0.5
GIVE_BACK_S = 5.0
NOBODY = Lease()
Monotonic = Callable[[], float]
T = TypeVar("T")


def patiently(work: Callable[[], T], stopped: Callable[[], bool] = lambda: False) -> T:
    """The result of `work`, which is tried again while the database is away.

    Raises:
        StoreError: the database refused, or `stopped` before it was back.
    """
    told = False
    while True:
        try:
            return work()
        except StoreUnavailable as error:
            if stopped():
                raise
            if not told:
                log.error("%s The daemon waits for its database", error)
            told = True
            time.sleep(RETRY_S)


class Standby:
    """Waits for the lease: takes it when it is free, its own, or its holder has given no sign of life for its
    time. Renewals are signs of life, and so are commits: a long one keeps its leader from renewing. Time in
    which the database answered nobody does not count. Time in which this side did not ask, since it got no
    processor (reading the state ahead takes one), counts as one pause between two looks: never longer than it
    was, and a machine that is always late takes over at last."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        holder: str,
        lease_us: int,
        monotonic: Monotonic = time.monotonic,
        doors: Doors = NO_DOORS,
    ) -> None:
        self._store = store
        self._clock = clock
        self._holder = holder
        self._doors = doors
        self._lease_us = lease_us
        self._monotonic = monotonic
        self._seen: Lease | None = None
        self._since = 0.0  # when it became so, or the database was back; later by what does not count
        self._looked = 0.0  # when the database answered last
        self._refused = False  # it has refused since

    @property
    def pause_s(self) -> float:
        """Until the next look: never past the moment at which the lease is over."""
        left_s = self._since + self._ttl_s() - self._monotonic()
        return min(self._usual_s, left_s) if left_s > 0 else self._usual_s

    @property
    def _usual_s(self) -> float:
        return min(LOOK_S, self._lease_us / 1e6 / LOOKS)

    def _ttl_s(self) -> float:
        """Of the lease that was seen."""
        return ((self._seen.ttl_us if self._seen else 0) or self._lease_us) / 1e6

    @property
    def seen(self) -> Lease | None:
        """The lease as it was at the last look."""
        return self._seen

    @property
    def leader(self) -> Lease:
        """The lease, when it was looked last; nobody's when its holder may have vanished."""
        return self._seen if self._seen is not None and not self.is_silent else NOBODY

    @property
    def is_silent(self) -> bool:
        """Has the leader missed renewals? This daemon may lead soon."""
        return self._seen is not None and self._monotonic() - self._since >= self._ttl_s() * SILENT

    def look(self) -> HeldLease | None:
        """The lease, if it could be taken now. Call it again after `pause_s`."""
        now = self._monotonic()
        try:
            seen = self._store.lease()
        except StoreUnavailable:
            self._refused = True
            raise
        unseen_s = now - self._looked
        away = unseen_s >= self._ttl_s() * AWAY
        if away and not self._refused:  # this side was late: what it saw of the silence before holds
            away, self._since = False, self._since + unseen_s - self._usual_s
        self._looked, self._refused = self._monotonic(), False
        if away or seen != self._seen:
            if self._seen is None and seen.holder not in ("", self._holder):
                log.warning("another daemon leads this database (%s); waiting for its end", seen.holder)
            self._seen, self._since = seen, now
        over = seen if now - self._since >= self._ttl_s() else None
        if over is None and seen.holder not in ("", self._holder):
            return None
        begun = self._monotonic()
        epoch = self._store.acquire_lease(
            self._holder, self._clock.now_us(), self._lease_us, over, self._doors
        )
        if epoch is None:
            return None
        return HeldLease(self._store, self._clock, epoch, self._lease_us, begun, self._monotonic)


class HeldLease:
    """A lease that its own thread renews, and nothing else holds up.

    `on_lost(why)` is called once, when another daemon has it. While the database does not answer,
    the lease may run out: then `holds` is False until a renewal succeeds, if nobody took it meanwhile.
    """

    def __init__(
        self, store: Store, clock: Clock, epoch: int, lease_us: int, begun: float, monotonic: Monotonic
    ) -> None:
        self.epoch = epoch
        self._store = store
        self._clock = clock
        self._lease_us = lease_us
        self._monotonic = monotonic
        self._renewed = begun  # before the database was asked, so that this side never thinks longer
        self._told = False
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self, on_lost: Callable[[str], None]) -> None:
        self._thread = threading.Thread(target=self._keep, args=(on_lost,), name="lease", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stopped.set()
        if self._thread is not None:
            self._thread.join(5)

    def give_back(self, at_most_s: float = GIVE_BACK_S) -> None:
        """Let another daemon lead at once. A database that stands still may never answer, so this waits no
        longer than `at_most_s`, in a thread that the end of the process does not wait for."""
        self.stop()
        giving = threading.Thread(target=self._release, name="give back", daemon=True)
        giving.start()
        giving.join(at_most_s)
        if giving.is_alive():
            log.warning("the lease was not given back: the database has not answered for %g s", at_most_s)

    def _release(self) -> None:
        try:
            self._store.release_lease()
        except RmError as error:
            log.warning("the lease was not given back: %s", error)

    @property
    def holds(self) -> bool:
        """May this daemon act on hosts? It is sure that no other leads."""
        return self.unconfirmed_s < self._lease_us / 1e6

    @property
    def unconfirmed_s(self) -> float:
        """Since when the database has not confirmed the lease."""
        return self._monotonic() - self._renewed

    def watch(self) -> None:
        """Say when the lease ran out, and when it is held again. For a thread that never waits for the
        database."""
        held = self.holds
        if not held and not self._told:
            log.error(
                "the database has not confirmed this daemon's lease for %.1f s: another daemon may lead. "
                "Nothing is sent to the hosts until it does",
                self.unconfirmed_s,
            )
        elif held and self._told:
            log.warning("the lease is confirmed again: this daemon still leads with epoch %d", self.epoch)
        self._told = not held

    def renew(self) -> bool:
        """One renewal; False when another daemon leads.

        Raises:
            StoreError: the database did not do it.
        """
        begun = self._monotonic()
        if not self._store.renew_lease(self._clock.now_us(), self._lease_us):
            return False
        self._renewed = begun
        return True

    def _keep(self, on_lost: Callable[[str], None]) -> None:
        every_s = self._lease_us / 1e6 / RENEWALS
        while not self._stopped.wait(every_s):
            try:
                if not self.renew():
                    on_lost("Another daemon took the lease of this database.")
                    return
            except StoreUnavailable as error:
                log.warning("cannot renew the lease: %s", error)
            except RmError as error:
                on_lost(str(error))
                return
            except Exception:
                log.exception("the lease could not be renewed: this is a defect of rm")
