"""A task of a step, as its part (rm_step_part.py) has it: its process and its streams."""

import rm_sockets


class Task:
    def __init__(self, rank):
        self.rank = rank
        self.pid = 0
        self.status = None
        self.told = False  # srun has got its end
        self.stdin = -1
        self.terminal = False  # its standard streams are one, of which stdin is our end
        self.pmi = -1  # the socket on which it speaks PMI, if it does
        self.input = bytearray()  # not yet taken by the task
        self.input_ends = False
        self.streams = {}  # descriptor -> OUTPUT, ERRORS or PMI
        self.owed = {}  # descriptor -> bytes that stood in it when they were counted, and are not read yet
        self.left_until = 0.0  # what it left behind is waited for until then

    def count_owed(self):
        """What stands in its streams now is to be read, whatever comes behind it."""
        self.owed = {fd: rm_sockets.waiting_bytes(fd) for fd in self.streams}

    def owes(self):
        return any(self.owed.get(fd, 0) > 0 for fd in self.streams)
