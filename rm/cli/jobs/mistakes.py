"""What is wrong with a command line that submits a job: all complaints about it and its script at once."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from rm.errors import UsageError
from rm.submission import directives, place
from rm.submission.batch import Submitter, batch_job
from rm.submission.options import Option
from rm.submission.remarks import Remarks
from rm.submission.script import read_script


def refuse(
    words: Sequence[str], more: Mapping[str, Option], complaint: UsageError, *, abbreviated: bool = False
) -> None:
    """Raise UsageError with every complaint about these words, among them the `complaint` that was found
    first. `more`: the command's options that are not the job's; `abbreviated`: as for
    `leading_options`."""
    remarks = Remarks()
    given, rest = directives.leading_options(words, "a flag", more, remarks, abbreviated=abbreviated)
    if not remarks.errors:
        remarks.errors.append(complaint)
    flags = {option.key: value for option, value in given if option.key not in more}
    others = {option.key: value for option, value in given if option.key in more}
    script = others.get("file") or (rest[0] if rest else words[-1])  # which counted as an option's value
    text, options = "", {}
    if "wrap" not in others and place.here.is_file(script):
        with remarks.gathering():
            text = read_script(script)
            options = directives.parse(text, script, remarks)
    by = Submitter(os.environ, "/", "")
    batch_job(text, "", (), options, flags, by, remarks)
    remarks.refuse()
