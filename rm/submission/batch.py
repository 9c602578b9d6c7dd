"""A batch script and options to the specification of a job: the way that every client takes."""

from __future__ import annotations

from rm.errors import UsageError
from rm.quick_tuple import NamedTuple
from rm.submission import directives, place, specification
from rm.submission.host_files import with_files
from rm.submission.options import SBATCH
from rm.submission.remarks import Remarks
from rm.submission.typed import script_path

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from datetime import datetime
    from typing import Any


def local_time() -> datetime:
    from datetime import datetime  # few jobs need it

    return datetime.now()


class Submitter(NamedTuple):
    """From where a job is submitted, and its clock. Variables with this `prefix` are options."""

    environment: Mapping[str, str]
    cwd: str
    host: str
    umask: int = 0o022
    now: Callable[[], datetime] = local_time
    prefix: str = SBATCH

    @classmethod
    def here(cls, prefix: str = SBATCH) -> Submitter:
        """Where the client runs; UsageError where its directory has been removed."""
        try:
            directory = place.here.directory()
        except FileNotFoundError:
            raise UsageError(
                "The current directory no longer exists.", "Change to another one, or use --chdir."
            ) from None
        here = place.here
        return cls(here.environment(), directory, here.host(), here.umask(), prefix=prefix)


class Source(NamedTuple):
    """Where a job comes from: `line` is what was typed, `file` the script's, "" where it has none."""

    line: str = ""
    file: str = ""


UNTOLD = Source()


def batch_job(
    text: str,
    name: str,
    arguments: Sequence[str],
    options: Mapping[str, Any],
    flags: Mapping[str, Any],
    by: Submitter,
    remarks: Remarks,
    source: Source = UNTOLD,
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The specification (JobSpec's fields as JSON), and all options, of which some are for the client.

    Args:
        text: the script.
        name: the job's, where no option names it.
        options: those of the script's directives, by their keys.
        flags: those that are stronger than the environment's SBATCH_…, which beat the script's; None is not
            given.
        remarks: gathers complaints and warnings; the answer is good if there is no complaint.
        source: what was typed, and the file that was named.
    """
    values = directives.merge(options, directives.of_environment(by.environment, remarks, by.prefix))
    values = directives.merge(values, directives.of_flags(flags, remarks))
    values = with_files(values)
    spec = specification.build(values, by.environment, by.cwd, by.now, remarks)
    spec = {"name": name, **spec, "script": text, "script_args": list(arguments)}
    spec["env"].append(["SLURM_SUBMIT_DIR", by.cwd])  # where it was submitted, wherever it runs
    spec["env"].append(["SLURM_UMASK", f"0{by.umask:03o}"])  # as Slurm's sbatch tells it
    spec["submit_host"] = by.host
    if source.line:
        spec["submit_line"] = source.line
    if source.file:
        spec["script_path"] = script_path(source.file, by.cwd)
    return spec, values
