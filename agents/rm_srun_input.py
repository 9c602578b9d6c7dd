"""What the tasks of a step read: srun's own standard input, for all or for one, a file, or a file each."""

import os
import select

from rm_step_frames import ALL, END_OF_INPUT, FRAME_BYTES, INPUT, INPUT_BYTES, frame


def sources_of(mode, ranks, name_of):
    """{descriptor: the rank that reads it, or ALL}, as --input says. `name_of(pattern, rank)` is a path.

    Raises:
        OSError: a file cannot be read; `filename` names it.
    """
    if mode == "none":
        return {}
    if mode in ("", "all"):
        return {0: ALL}
    if mode.isdecimal() and int(mode) in ranks:
        return {0: int(mode)}
    names = {rank: name_of(mode, rank) for rank in ranks}
    if len(set(names.values())) == 1:
        return {os.open(names[min(ranks)], os.O_RDONLY): ALL}
    return {os.open(name, os.O_RDONLY): rank for rank, name in names.items()}


class Input:
    """`part_of` says on which part of the step each rank runs."""

    def __init__(self, part_of, sources):
        self.part_of, self.sources = part_of, sources
        self.parts = list(dict.fromkeys(part_of.values()))
        self.untaken = dict.fromkeys(part_of, 0)  # bytes that its task has not taken

    def begin(self):
        """Tell who has no input."""
        if not self.sources:
            self._end(ALL)
        elif ALL not in self.sources.values():
            for rank in self.part_of.keys() - self.sources.values():
                self._end(rank)

    def _end(self, rank):
        for part in self.parts if rank == ALL else [self.part_of[rank]]:
            part.send(frame(END_OF_INPUT, rank))

    def taken(self, rank, count):
        self.untaken[rank] = max(0, self.untaken[rank] - count)

    def has_room(self, rank):
        """May what this rank is to read be sent? With ALL: those that run all have room."""
        ranks = self.untaken if rank == ALL else [rank]
        return all(self.untaken[one] < INPUT_BYTES for one in ranks if one in self.part_of[one].left)

    def hears(self):
        """May anything be passed on that is typed?"""
        return not self.sources or any(self.has_room(rank) for rank in self.sources.values())

    def watch(self, poll):
        for fd, rank in self.sources.items():
            reads = rank == ALL or rank in self.part_of[rank].left
            if reads and self.has_room(rank):
                poll.register(fd, select.POLLIN)

    def read(self, fd):
        rank = self.sources[fd]
        try:
            data = os.read(fd, FRAME_BYTES // 2)
        except OSError:
            data = b""
        if data:
            self._send(rank, data)
            return
        del self.sources[fd]
        if fd:
            os.close(fd)
        self._end(rank)

    def type(self, rank, data):
        """What one types who attends the step beside srun, to the tasks whose input has not ended."""
        of = self.sources.values()
        if ALL in of:
            if rank == ALL or rank in self.part_of:
                self._send(rank, data)
            return
        for one in set(of):
            if rank in (ALL, one):
                self._send(one, data)

    def _send(self, rank, data):
        if rank == ALL:
            for one in self.untaken:
                self.untaken[one] += len(data)
        else:
            self.untaken[rank] += len(data)
        for part in self.parts if rank == ALL else [self.part_of[rank]]:
            part.send(frame(INPUT, rank, data))
