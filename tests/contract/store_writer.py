"""Commits as fast as it can and says each version that was acknowledged; meant to be killed."""

import sys

from rm.adapters.store.opening import open_store
from rm.core.model.job import Job, JobSpec
from rm.core.store import Batch, Entry, StoredAction

store = open_store(sys.argv[1])
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
