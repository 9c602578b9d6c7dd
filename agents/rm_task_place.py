"""Where a supervisor's attempt is on this host: its control group, log, records, orders and news.

`Alone` is the place of an attempt that shares it with no other; rm_slice.py has the place of one in a slice.
"""

import json
import os
import time

import rm_network_used
from rm_capture import Capture
from rm_files import write_in_room
from rm_news import line_of, say
from rm_spawn import Texts


def make_group(attempt):
    attempt.group.create(attempt.fence.limits)
    attempt.fence.bind(attempt.group)
    attempt.group.traffic = rm_network_used.counted(attempt.group.path)


def remove_group(attempt):
    """Sessions that came in over SSH as a part of the job (rm_ssh_gate.py) end with it."""
    for _ in range(100):
        if attempt.group.remove():
            return
        attempt.group.kill()
        time.sleep(0.01)


def made_capture(attempt, rank):
    """Of what a task prints."""
    most, reserve = attempt.request["log_bytes"], attempt.request["log_reserve_bytes"]
    return Capture(attempt.folder, rank.rank, attempt.user, most, reserve)


class Alone:
    """`inbox`: the descriptor on which the agent's orders come."""

    def __init__(self, attempt, control, events_path):
        self._attempt, self.inbox, self._events_path = attempt, control, events_path
        self.texts = Texts()

    def make_group(self):
        make_group(self._attempt)

    def remove_group(self):
        remove_group(self._attempt)

    def capture(self, rank):
        return made_capture(self._attempt, rank)

    def obey(self, follow):
        """Call `follow` with each order that has come."""
        for line in os.read(self.inbox, 65536).splitlines():
            follow(json.loads(line))

    def leave(self):
        """In a process of its own: close what is the supervisor's."""
        os.close(self.inbox)

    def look(self):
        """What is to be done from time to time: nothing."""

    def due(self):
        """When to look again, in monotonic seconds; None: there is no need."""

    def start_due(self):
        """When it is to be known that a task has started, in monotonic seconds; None: at once."""

    def write_meta(self, sync=False):
        at = self._attempt
        data = json.dumps(at.meta, separators=(",", ":")).encode()
        write_in_room(at.folder.at("meta.json"), data, at.room_bytes, 0o600, sync)

    def write_tasks(self):
        self._attempt.meta["tasks"] = self._attempt.tasks_written()
        self.write_meta()

    def write_exit(self, record):
        self._attempt.folder.write_exit(record["rank"], record, True)

    def say(self, *events):
        """Told at once: each telling wakes the agent, and the daemon behind it."""
        folder = self._attempt.folder
        say(self._events_path, b"".join(line_of(event, folder.job, folder.attempt) for event in events))

    def fail(self, code, sentence):
        """Nothing of it could be begun, and nothing is left."""
        self.say({"event": "failed", "code": code, "error": sentence})
