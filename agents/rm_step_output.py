"""Where srun writes what the tasks of its step say: to its own streams, or to files."""

import os

from rm_sockets import write
from rm_srun_options import Wrong
from rm_step_frames import FRAME_BYTES


class Output:
    """Where one stream of the tasks goes: ours, a file for all, or one for each."""

    def __init__(self, fd, mode, label, width, name_of, flags, unbuffered):
        self.fd, self.mode, self.label, self.width = fd, mode, label, width
        self.name_of, self.flags = name_of, flags
        self.unbuffered, self.whole = unbuffered, label
        self.files = {}  # name -> descriptor
        self.rest = {}  # rank -> the beginning of a line

    def open(self, ranks):
        """Every file, before any task runs. Tasks that share one do not write into each other's lines, as in
        Slurm; one that has it for itself is heard at once."""
        own = len({self._file(rank) for rank in ranks}) == len(ranks) if self._named() else len(ranks) == 1
        self.whole = self.label or not (own or self.unbuffered or self.mode.isdecimal())

    def _named(self):
        return self.mode not in ("", "all", "none") and not self.mode.isdecimal()

    def _file(self, rank):
        name = self.name_of(self.mode, rank)
        if name not in self.files:
            try:
                self.files[name] = os.open(name, self.flags, 0o666)
            except OSError as error:
                raise Wrong("The file %s cannot be written: %s." % (name, os.strerror(error.errno))) from None
        return self.files[name]

    def take(self, rank, data):
        if self.mode == "none" or (self.mode.isdecimal() and int(self.mode) != rank):
            return
        fd = self._file(rank) if self._named() else self.fd
        if self.whole:
            *lines, rest = (self.rest.pop(rank, b"") + data).split(b"\n")
            data = b"".join(self._shown(rank, line) + b"\n" for line in lines)
            if len(rest) > FRAME_BYTES:
                data, rest = data + self._shown(rank, rest) + (b"\n" if self.label else b""), b""
            if rest:
                self.rest[rank] = rest
        write(fd, data)

    def _shown(self, rank, line):
        return b"%*d: %s" % (self.width, rank, line) if self.label else line

    def end(self, rank):
        rest = self.rest.pop(rank, b"")
        if rest:
            fd = self._file(rank) if self._named() else self.fd
            write(fd, self._shown(rank, rest) + (b"\n" if self.label else b""))

    def end_all(self):
        """Nobody says anything any more. What a task left behind may have said the beginning of a line after
        the task's end."""
        for rank in sorted(self.rest):
            self.end(rank)
