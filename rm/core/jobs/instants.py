"""Instants at which the clock alone changes something of a job, with the first of them at hand."""

from __future__ import annotations

from heapq import heapify, heappop, heappush

LEFT_OVER = 64  # entries of the heap that may be left over before it is made again


class Instants(dict[int, int]):
    """By job: microseconds since the epoch. Set one by `[]`, and take it out by `pop`. To find the first ones
    does not go through all, as a user may have 100,000 jobs of one deadline."""

    __slots__ = ("_heap",)

    def __init__(self) -> None:
        super().__init__()
        self._heap: list[tuple[int, int]] = []  # (instant, job); what is not so in `self` is left over

    def __setitem__(self, job: int, at_us: int) -> None:
        if self.get(job) == at_us:
            return
        super().__setitem__(job, at_us)
        heappush(self._heap, (at_us, job))
        if len(self._heap) > 2 * len(self) + LEFT_OVER:
            self._heap = [(at_us, job) for job, at_us in self.items()]
            heapify(self._heap)

    def copy(self) -> Instants:
        new = Instants()
        new.update(self)
        new._heap = self._heap.copy()
        return new

    def first_us(self) -> int | None:
        """None: there is none."""
        heap = self._heap
        while heap and self.get(heap[0][1]) != heap[0][0]:
            heappop(heap)
        return heap[0][0] if heap else None

    def before(self, at_us: int, most: int) -> list[int]:
        """The jobs of those before this instant, the earliest first, `most` of them at most."""
        found: list[int] = []
        while len(found) < most and (first_us := self.first_us()) is not None and first_us < at_us:
            found.append(heappop(self._heap)[1])
        for job in found:
            heappush(self._heap, (self[job], job))
        return list(dict.fromkeys(found))

    def take_before(self, at_us: int) -> list[int]:
        """Take all jobs out whose instant is before this one, the earliest first."""
        found: list[int] = []
        while (first_us := self.first_us()) is not None and first_us < at_us:
            job = heappop(self._heap)[1]
            del self[job]
            found.append(job)
        return found
