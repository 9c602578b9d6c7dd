"""Writers, one after another, that commit as fast as they can and say each version that was acknowledged;
meant to be killed. Each is a fork of this program, which loads for all of them what they need: it begins when
a line is read, says its number first, and its end is said last."""

import os
import sys

from rm.adapters.store.opening import open_store
from rm.core.model.job import Job, JobSpec
from rm.core.store import Batch, Entry, StoredAction


def write(url: str) -> None:
    store = open_store(url)
    store.acquire_lease("writer", now_us=0, ttl_us=1)
    loaded = store.load()
    version, job_id, action_id = loaded.version, loaded.next_job_id, loaded.next_action_id
    while True:
        jobs = tuple(Job(job_id + i, JobSpec("j", "alice", "#!/bin/sh\n" + "x" * 2000), 1) for i in range(3))
        batch = Batch(
            events=(Entry(1, "submit", {"version": version + 1}),),
            jobs=jobs,
            actions=(StoredAction(action_id, "launch", job_id),),
        )
        version = store.commit(batch, version)
        job_id, action_id = job_id + 3, action_id + 1
        print(version, flush=True)


while sys.stdin.readline():
    if not (writer := os.fork()):
        print(os.getpid(), flush=True)
        write(sys.argv[1])
    print("ended by", os.WTERMSIG(os.waitpid(writer, 0)[1]), flush=True)
