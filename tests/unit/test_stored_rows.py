"""What the store writes of a job: nothing that is empty, and all that says something."""

from __future__ import annotations

import json
from dataclasses import fields, replace
from types import SimpleNamespace
from typing import Any

import pytest

from rm.adapters.store import records
from rm.core.model.job import Job, JobSpec, JobState

PLAIN = Job(7, JobSpec("train", "ann", "#!/bin/sh\n"), 12)


def stored(job: Job) -> tuple[dict[str, Any], dict[str, Any]]:
    """The texts of the job and of its specification."""
    return json.loads(records.job_row(job)["body"]), json.loads(records.spec_row(job)["body"])


def read(job: Job) -> Job:
    return records.job((job.id, records.job_row(job)["body"], records.spec_row(job)["body"]))


def test_what_is_empty_is_not_written() -> None:
    body, spec = stored(PLAIN)
    assert body == {"id": 7, "submitted_us": 12, "state": "PENDING"}
    assert read(PLAIN) == PLAIN
    empty = {f.name for f in fields(JobSpec) if f.default in (None, False, 0, "", ())}
    assert spec.keys() == {f.name for f in fields(JobSpec)} - empty


@pytest.mark.parametrize("empty", [None, 0, False, "", ()])
def test_an_empty_value_that_is_not_the_default_is_written(empty: Any) -> None:
    """0 is no limit of time, and an unlimited one is None."""
    for field in fields(JobSpec):
        if field.name in ("name", "user", "script") or field.default is empty:
            continue
        job = SimpleNamespace(id=7, spec=replace(PLAIN.spec, **{field.name: empty}))
        written = json.loads(records.spec_row(job)["body"])  # type: ignore[arg-type]
        assert written[field.name] == (list(empty) if empty == () else empty), field.name


def test_a_default_that_says_something_is_written_as_it_may_be_another_one_day() -> None:
    _, spec = stored(PLAIN)
    assert (spec["ntasks"], spec["requeue"], spec["launch"]) == (1, True, "tasks")


def test_what_a_job_has_is_read_back() -> None:
    job = replace(PLAIN, state=JobState.CANCELLED, attempt=3, exit_code=0, ended_us=90, started_us=0)
    body, _ = stored(job)
    assert (body["exit_code"], body["started_us"], body["attempt"]) == (0, 0, 3)
    assert read(job) == job
