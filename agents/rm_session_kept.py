"""The output of a session that who attends it has not taken yet."""

import collections

PIECE_BYTES = 4 << 10  # shorter pieces of output are kept together: each takes memory of its own


class Kept:
    """Output that was not acknowledged. Pure."""

    def __init__(self):
        self.pieces = collections.deque()  # (kind, offset, data)
        self.written = self.acked = 0

    def size(self):
        return self.written - self.acked

    def add(self, kind, data):
        self.written += len(data)
        if self.pieces:
            last, offset, before = self.pieces[-1]
            if last == kind and len(before) + len(data) <= PIECE_BYTES:
                self.pieces[-1] = (kind, offset, before + data)
                return
        self.pieces.append((kind, self.written - len(data), data))

    def take(self, offset):
        """All before `offset` has arrived."""
        self.acked = max(self.acked, min(offset, self.written))
        while self.pieces and self.pieces[0][1] + len(self.pieces[0][2]) <= self.acked:
            self.pieces.popleft()

    def drop_oldest(self, most_bytes):
        while self.size() > most_bytes:
            _, offset, data = self.pieces.popleft()
            self.acked = offset + len(data)

    def after(self, offset):
        for kind, start, data in self.pieces:
            if start + len(data) > offset:
                skip = max(0, offset - start)
                yield kind, start + skip, data[skip:]
