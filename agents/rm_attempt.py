"""One attempt on this host: what is known of it, and in which slice it is."""

import os
import signal

from rm_files import read_json
from rm_news import now_us
from rm_slot import end_of

LIVE = ("launching", "prepared", "running")
NOT_LIVE = ("exited", "lost")


class Attempt:
    """What is known of one attempt. `ranks`: rank -> its line in the answer to `tasks`."""

    def __init__(self, folder):
        self.folder = folder
        self.ranks = {}
        self.meta = {}
        self.waiting = []  # replies owed once it is launched
        self.discarding = []  # replies owed once it has ended
        self.log_bytes = {}  # rank -> what it printed of its log, where that is known at its end
        self.log_sizes = {}  # rank -> what of it was written then
        self.offsets = {}  # rank -> bytes of its reports already read
        self.reported = set()  # ranks that have written some
        self.vanished = 0  # looks since its folder was gone before its launch was reported
        self.orphan = False  # its folder was deleted under it: it is lost, however it ends
        self.troubled = False  # a step of ours failed for it, and that was said
        self.cores = ()  # that nobody else has; those of one that was found again are in `meta`
        self.ordered, self.lends = 0, False  # by the newest order to stand still, or to go on
        self.gpus_used = None  # as rm_gpu_used.py has found
        self.gpus_last = None  # (microseconds since the epoch, GPUs) of the last look
        self.slice, self.place = None, 0  # the folder of the slice that it is in, and where among its members

    def alive(self, slices=None):
        """Does its supervisor live? `slices` keeps what was found of each slice, for others of it."""
        if self.slice is None:
            return self.folder.alive()
        found = None if slices is None else slices.get(self.slice.path)
        if found is None:
            found = self.slice.alive()
            if slices is not None:
                slices[self.slice.path] = found
        return found or self.folder.alive()

    def left_folder(self):
        """Of one that has ended: has it a folder of its own, and not one that its slice took on?"""
        return self.slice is None or os.path.isdir(self.folder.path)

    def tell(self, message):
        """One line to its supervisor; False when there is none."""
        if self.slice is None:
            return self.folder.tell(message)
        return self.slice.tell(dict(message, job=self.folder.job, attempt=self.folder.attempt))

    def waits(self):
        """Has it not begun, in its slice?"""
        prepared = self.slice is not None and self.ranks[0]["state"] == "prepared"
        return prepared and not os.path.isdir(self.folder.path)

    def exit(self, rank):
        """The record of a rank's end; None when there is none."""
        found = self.folder.exit(rank)
        return end_of(self.slice, self.place) if found is None and self.slice is not None else found

    def live(self):
        return any(rank["state"] in LIVE for rank in self.ranks.values())

    def outcome(self):
        """The answer to its launch."""
        tasks = [{k: t[k] for k in ("rank", "state", "pid", "started_us")} for t in self.ranks.values()]
        words = {key: self.meta.get(key, "") for key in ("cgroup", "chdir", "note")}
        words["cores"] = list(self.cores or self.meta.get("cores", ()))
        return dict(words, tasks=tasks, master_port=self.meta.get("master_port", 0))

    def is_done_with_folder(self):
        """Has it ended in a folder that is not the next one's of its slice?"""
        return (
            bool(self.ranks)
            and not self.live()
            and (self.slice is None or self.ranks[0]["state"] == "lost" or self.folder.exit(0) is not None)
        )

    def settled(self):
        return all(rank["state"] != "launching" for rank in self.ranks.values())


def members_of(spool):
    """(job, attempt) -> the folder of its slice, and its place there. A slice whose members were never
    written down is taken away."""
    found = {}
    for folder in spool.scan_slices():
        members = read_json(folder.at("members.json"))
        if members is None and not folder.alive():
            folder.remove()
            continue
        for place, (job, attempt) in enumerate(members or ()):
            found[job, attempt] = folder, place
    return found


def given_back():
    """The end of one of a slice that nobody will begin any more."""
    return {"started_us": None, "ended_us": now_us(), "code": 0, "signal": int(signal.SIGTERM), "oom": False,
            "why": "unstarted"}  # fmt: skip


def untold(folder, rank):
    return {"job": folder.job, "attempt": folder.attempt, "rank": rank, "state": "launching", "pid": 0,
            "started_us": None, "ended_us": None, "ran_us": None, "code": None, "signal": None, "oom": False,
            "why": "", "epilog": "", "used": None, "whole": None}  # fmt: skip
