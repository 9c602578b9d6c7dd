"""A stream of bytes in each direction, over a way that may lose, repeat and reorder messages, or be away.

Each end keeps what the other has not consumed, at most a window of it, and sends it again when nothing is
acknowledged for a while: so a stream outlives the agents and the daemon that carry it, and an end that reads
slowly slows down the one that writes. Pure: messages and times come in and go out.
"""

import base64

WINDOW_BYTES = 256 << 10
CHUNK_BYTES = 32 << 10
AGAIN_S = 2.0  # without an acknowledgement of what was sent


class Link:
    def __init__(self):
        self.out = bytearray()  # written here, not consumed there; begins at `acked`
        self.acked = self.sent = 0
        self.sent_at = 0.0
        self.closed = self.end_acked = False  # nothing more is written here; and that has arrived
        self.inbox = bytearray()  # received, not consumed here
        self.consumed = 0
        self.ended = False  # the other end has written all, and it was received
        self.answer = False  # the other end is to hear what was consumed
        self.gone = False  # the other end does not exist any more
        self.used = None  # what the step uses at this end, which each message tells
        self.used_is_new = False

    # the writer and the reader here

    def room(self):
        return 0 if self.closed else WINDOW_BYTES - len(self.out)

    def write(self, data):
        self.out += data

    def close(self):
        self.closed = True

    def consume(self, count):
        del self.inbox[:count]
        if count:
            self.consumed += count
            self.answer = True

    def over(self):
        """Has everything arrived, both ways?"""
        return self.gone or (self.closed and self.end_acked and self.ended and not self.inbox)

    def tell_used(self, used):
        """It goes with all that is sent from now on: what is written later never comes before it."""
        self.used, self.used_is_new = used, True

    # the way

    def due(self, now):
        """Is there something to send now?"""
        if self.gone:
            return False
        return (
            self.answer
            or self.used_is_new
            or self._unsent()
            or (self._waits() and now >= self.sent_at + AGAIN_S)
        )

    def _waits(self):
        return bool(self.out) or (self.closed and not self.end_acked)

    def _unsent(self):
        end = self.acked + len(self.out)
        return self.sent < end or (self.closed and not self.end_acked and self.sent <= end)

    def message(self, now):
        """What to send now: {"offset", "data", "ack", "end"}, and "used" where that is known."""
        if not self._unsent() and self._waits() and now >= self.sent_at + AGAIN_S:
            self.sent = self.acked
        start = self.sent - self.acked
        data = bytes(self.out[start : start + CHUNK_BYTES])
        offset = self.sent
        self.sent += len(data)
        end = self.closed and not self.end_acked and self.sent == self.acked + len(self.out)
        if end:
            self.sent += 1
        if data or end:
            self.sent_at = now
        self.answer = False
        ack = self.consumed + (1 if self.ended and not self.inbox else 0)
        self.used_is_new = False
        told = {"offset": offset, "data": base64.b64encode(data).decode(), "ack": ack, "end": end}
        return told if self.used is None else dict(told, used=self.used)

    def take(self, message):
        """A message of the other end."""
        if message.get("gone"):
            self.gone = True
            return
        ack = message["ack"] - self.acked
        if 0 < ack <= len(self.out) + 1 and not self.end_acked:
            if ack == len(self.out) + 1:
                if not self.closed:
                    return
                self.end_acked = True
                ack -= 1
            del self.out[:ack]
            self.acked += ack
            self.sent = max(self.sent, self.acked)
        data = base64.b64decode(message["data"])
        received = self.consumed + len(self.inbox)
        if not data and not message["end"]:
            return
        skip = received - message["offset"]
        self.answer = True
        if skip < 0 or self.ended:
            return  # something before it is missing: it comes again
        self.inbox += data[skip:][: WINDOW_BYTES - len(self.inbox)]
        if message["end"] and message["offset"] + len(data) == self.consumed + len(self.inbox):
            self.ended = True
