"""Which hosts are being tested, over all meshes: a host takes part in one test that fills its link, or in
several that do not; and a leaf's uplinks carry as many tests at once as do not slow each other down."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager


class Bookings:
    """Both hosts of a test are taken together or not at all, so that nobody waits for ever. While a test
    waits to have a host alone, no further test begins to share that host. A test takes uplinks before hosts,
    so that it keeps nobody from its hosts while it waits for uplinks."""

    def __init__(self) -> None:
        self._alone: set[str] = set()
        self._sharing: Counter[str] = Counter()
        self._wanted: Counter[str] = Counter()
        self._crossing: Counter[str] = Counter()  # tests that leave a leaf
        self._freed = threading.Condition()

    @contextmanager
    def both(
        self, a: str, b: str, shared: bool = False, leaves: Mapping[str, int] | None = None
    ) -> Iterator[None]:
        """`shared`: others that share may test the hosts meanwhile. `leaves`: of each leaf that the test
        leaves, how many such tests may leave it at once."""
        hosts, most = (a, b), dict(leaves or {})
        with self._freed:
            if shared:
                self._freed.wait_for(lambda: not any(h in self._alone or self._wanted[h] for h in hosts))
                self._sharing.update(hosts)
            else:
                self._freed.wait_for(lambda: all(self._crossing[leaf] < n for leaf, n in most.items()))
                self._crossing.update(most.keys())
                self._wanted.update(hosts)
                self._freed.wait_for(lambda: not any(h in self._alone or self._sharing[h] for h in hosts))
                self._wanted.subtract(hosts)
                self._alone.update(hosts)
        try:
            yield
        finally:
            with self._freed:
                if shared:
                    self._sharing.subtract(hosts)
                else:
                    self._alone.difference_update(hosts)
                    self._crossing.subtract(most.keys())
                self._freed.notify_all()
