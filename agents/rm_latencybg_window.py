"""Counts the packets of a stream in windows without a gap, at its two ends. Pure; docs/monitoring.md.

A stream is a packet for each slot of `interval_us`, and a window is `count` slots, both counted from 0 in one
life of the stream. A slot that the sender missed, since it had to wait for a processor, is not sent
later, so that slots tell the time: the receiver knows when a window is over also where nothing arrives. How
many packets of a window were sent only the sender knows, and how many arrived only the receiver.

Each packet carries what the other host needs to compare the clocks: when the sender's newest packet of the
opposite stream was sent and when it arrived here. So the clocks' difference is taken from the fastest
exchange of a window, whose halves are then equal by assumption, as in rm_probe.py.
"""

from rm_delays import histogram, jitter, spread

LATE_S = 3.0  # a packet that takes longer is lost
LAG_S = 0.3  # that the receiver may look late at what has arrived
AHEAD_S = 60.0  # that packets may have been under way for less time than those before
SILENT = 100  # windows without a packet, before the first one that has any, of which is told
TOLD = 1_000  # windows at one look, at most: packets of a stranger may claim any slots
DRIFT = 1e-4  # of two clocks against each other, at most
LARGEST = 1 << 53  # that the daemon takes: instants in microseconds, lives (rm/protocol/latencybg.py)
APART_US = 1 << 51  # that two clocks may differ: 71 years, as one that begins in 1970 does
DUPLICATES = 1_000_000  # of a window, so far they are counted


def possible(life, sent_us, at_us, echo):
    """Can a sender of ours have said this? What is told of it then is what the daemon takes."""
    back_sent_us, back_at_us = echo
    return (
        0 < life <= LARGEST
        and 0 <= sent_us <= LARGEST
        and 0 <= back_sent_us <= LARGEST
        and 0 <= back_at_us <= LARGEST
        and abs(at_us - sent_us) <= APART_US
        and abs(back_at_us - back_sent_us) <= APART_US
    )


class Departures:
    """The sending end. Instants `_s` are by a clock that is never set, `_us` by the host's."""

    def __init__(self, count, interval_us, begin_s):
        self.count, self.interval_us, self.begin_s = count, interval_us, begin_s
        self.next = 0  # the slot to be sent next
        self.window, self.sent, self.begun_us = 0, 0, 0  # that it is in, and what was sent of it

    def due_s(self):
        return self.begin_s + self.next * self.interval_us / 1e6

    def depart(self, now_s, now_us):
        """(the slot to be sent now, or None; the windows that are over: (number, begun_us, sent))."""
        slot = int((now_s - self.begin_s) * 1e6 / self.interval_us + 1e-6)
        if slot < self.next:
            return None, []
        over, current = [], slot // self.count
        if not self.begun_us:
            self.begun_us = now_us - int((now_s - self.begin_s) * 1e6)
        while self.window < current:
            over.append((self.window, self.begun_us, self.sent))
            self.window, self.sent = self.window + 1, 0
            self.begun_us += self.count * self.interval_us
            if self.window == current:  # the host's clock may have been set, or run differently
                since_s = now_s - self.begin_s - current * self.count * self.interval_us / 1e6
                self.begun_us = now_us - int(since_s * 1e6)
        self.next = slot + 1
        self.sent += 1
        return slot, over


class _Window:
    """What has arrived of one window; `best` is (bound of its error, difference of the clocks)."""

    def __init__(self, count):
        self.seen = bytearray(count)
        self.delays = []
        self.duplicates = self.reordered = 0
        self.best = None


class Arrivals:
    """The receiving end, which listens since `since_s`."""

    def __init__(self, count, interval_us, since_s):
        self.count, self.interval_us, self.since_s = count, interval_us, since_s
        self.life = 0  # of the sender; 0: nothing has arrived yet
        self.newest, self.newest_s = 0, 0.0  # the largest slot that has arrived, and when
        self.open, self.first = {}, 0  # number -> _Window; the first one that was not told
        self.echo = 0, 0  # of the newest packet: when it was sent, and when it arrived

    def forget(self, now_s):
        """This host stood still: what was missed meanwhile may have been lost here."""
        self.since_s, self.life, self.open = now_s, 0, {}

    def arrived(self, life, slot, sent_us, at_us, echo, now_s):
        """A packet; `echo`: when one of this host's was sent, and when it arrived there (0: none has)."""
        if life != self.life:
            # a larger one is a younger one, unless the sender's clock was set back
            if life < self.life and now_s - self.newest_s < LATE_S:
                return
            self._begin(life, slot, now_s)
        elif slot - self.newest > (now_s - self.newest_s + AHEAD_S) * 1e6 / self.interval_us:
            return  # slots tell the time: no sender of ours is so far ahead
        if slot > self.newest or not self.newest_s:
            self.newest, self.newest_s = slot, now_s
            self.echo, late = (sent_us, at_us), False
        else:
            late = slot != self.newest
        number = slot // self.count
        if number < self.first:
            return
        window = self.open.get(number)
        if window is None:
            window = self.open[number] = _Window(self.count)
        place = slot % self.count
        if window.seen[place]:
            window.duplicates += 1
            return
        window.seen[place] = 1
        window.reordered += late
        raw = at_us - sent_us
        window.delays.append(raw)
        if echo[0]:
            back = echo[1] - echo[0]
            bound = max(1, (raw + back) // 2) + int(max(0, sent_us - echo[1]) * DRIFT)
            if raw + back >= 0 and (window.best is None or bound < window.best[0]):
                window.best = bound, (raw - back) // 2

    def _begin(self, life, slot, now_s):
        """The first packet of a life: windows that began before this host listened are not known."""
        length_s = self.count * self.interval_us / 1e6
        number = slot // self.count
        begun_s = now_s - LAG_S - (slot % self.count) * self.interval_us / 1e6
        if begun_s < self.since_s:
            known = number + 1
        else:
            known = number - min(number, SILENT, int((begun_s - self.since_s) / length_s))
        self.life, self.newest, self.newest_s = life, slot, 0.0
        self.open, self.first = {}, known

    def due_s(self):
        """When the next window is over and told; None: nothing has arrived yet."""
        if not self.life:
            return None
        left = (self.first + 1) * self.count - self.newest
        return self.newest_s + left * self.interval_us / 1e6 + LATE_S

    def over(self, now_s):
        """The windows that are over: (number, _Window); those beyond TOLD the next time."""
        told = []
        while self.life and len(told) < TOLD and self.due_s() <= now_s:
            told.append((self.first, self.open.pop(self.first, None) or _Window(self.count)))
            self.first += 1
        return told


def found(window, histograms):
    """What is told of a window at its receiving end. Delays are without the clocks' difference where that is
    known: then `clock_error_us` bounds what is left of it."""
    delays, offset_us = window.delays, 0
    duplicates = min(window.duplicates, DUPLICATES)
    told = {"received": len(delays), "duplicates": duplicates, "reordered": window.reordered}
    if not delays:
        return told
    if window.best is not None:
        told["clock_error_us"], offset_us = window.best
        delays = [delay - offset_us for delay in delays]
    told.update(offset_us=offset_us, delay_us=spread(delays), jitter_us=jitter(delays))
    if histograms:
        told["histogram"] = histogram(delays)
    return told
