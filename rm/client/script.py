"""Batch scripts for the Python client: what `rmx submit SCRIPT` reads, as a request."""

from __future__ import annotations

import os
import warnings

import msgspec

from rm.api.job_requests import JobRequest
from rm.errors import UsageError
from rm.submission import batch, directives
from rm.submission.remarks import Remarks
from rm.submission.script import read_script
from rm.typed import convert

FOR_COMMANDS = {
    "wait": "Client.wait(job)", "test_only": "Client.plan(job)", "parsable": "Client.submit(job)",
    "clusters": "a client of that cluster's daemon: `Client.status().settings.cluster_name` names its own",
}  # fmt: skip


def batch_job(script: str | os.PathLike[str], *arguments: object, **options: object) -> JobRequest:
    """The job of a batch script, as `rmx submit` reads it: with its `#SBATCH` and `#RM` lines, the SBATCH_…
    variables of the environment, this process's environment (`export`) and working directory.

    Args:
        script: its file.
        arguments: for the script.
        options: long options of `rmx submit` with `_` for `-`: `gpus_per_task=1`, `time="1:00:00"`,
            `requeue=False`. They are stronger than the script's lines.

    Raises:
        UsageError: with all that is wrong; what is only ignored is a UserWarning.
    """
    file = os.fspath(script)
    remarks = Remarks()
    flags = directives.of_keywords(options, remarks)
    text = read_script(file)
    by = batch.Submitter.here()
    spec, values = batch.batch_job(
        text, os.path.basename(file), [str(word) for word in arguments],
        directives.parse(text, file, remarks), flags, by, remarks,
    )  # fmt: skip
    for key, instead in FOR_COMMANDS.items():
        if values.get(key):
            with remarks.gathering():
                raise UsageError(f"--{key.replace('_', '-')} is for `rmx submit`.", f"Use {instead}.")
    remarks.refuse()
    for warning in remarks.warnings:
        warnings.warn(warning, stacklevel=2)
    try:
        return convert(spec, JobRequest)
    except msgspec.ValidationError as error:
        raise UsageError(f"The job of {file} cannot be submitted: {error}.") from None
