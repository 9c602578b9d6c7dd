"""Jobs that a fake service has before a test of something else begins."""

from __future__ import annotations

from contextlib import closing

from rm.client.connection import Connection
from rm.client.submission import submit
from rm.submission import directives
from rm.submission.batch import Source, Submitter, batch_job
from rm.submission.remarks import Remarks
from rm.submission.typed import submit_line
from tests.fake_service import Daemon


def submitted(daemon: Daemon, *words: str) -> int:
    """The id of the job of `rmx submit WORD... --wrap=true`. By the functions that it calls, and without
    click, which takes most of its time."""
    given, rest = directives.leading_options(words, "a flag")
    assert not rest
    remarks = Remarks()
    text = "#!/bin/sh\n# made by --wrap\ntrue\n"
    flags = {option.key: value for option, value in given}
    source = Source(submit_line("rmx submit", [*words, "--wrap=true"]))
    spec, _ = batch_job(text, "wrap", (), {}, flags, Submitter.here(), remarks, source)
    remarks.refuse()
    with closing(Connection(daemon.socket)) as connection:
        return submit(connection, spec)
