"""The epilog of an attempt runs once: by its supervisor, or by an agent that finds the attempt without one.

    epilog.due      in the attempt's folder: what is to be run, on the disk before the prolog begins
    epilog.begun    the same file, renamed by who runs it, on the disk before the epilog begins
    epilog.over     the same again: it has ended
    epilog.said     how it failed, where it did

After a crash between mark and program the epilog has not run, and nobody runs it again: what it does (frees
a directory that the next job has by now, say) may do harm the second time. How it ended is then told as
unknown. Renaming needs no room on the disk.
"""

import contextlib
import os

from rm_files import read_json, sync_directory, write_json

DUE, BEGUN, OVER, SAID = "epilog.due", "epilog.begun", "epilog.over", "epilog.said"


def write_due(folder, path, environ, within_us):
    """Durable when this returns; raises OSError."""
    write_json(folder.at(DUE), {"path": path, "environ": environ, "within_us": within_us}, sync=True)
    sync_directory(folder.path)
    sync_directory(os.path.dirname(folder.path))


def is_due(folder):
    return os.path.exists(folder.at(DUE))


def take(folder):
    """Is it the caller's to run, now? Never again, when this has returned True. Raises OSError when that
    cannot be written down."""
    try:
        os.rename(folder.at(DUE), folder.at(BEGUN))
    except FileNotFoundError:
        return not os.path.isdir(folder.path)  # it was deleted under its supervisor, which knows what to run
    sync_directory(folder.path)
    return True


def taken(folder):
    """What `write_due` was given, as {"path", "environ", "within_us"}; None when it is not there."""
    return read_json(folder.at(BEGUN))


def end(folder, failure):
    """It has ended; `failure` says what is wrong with that, "" = nothing."""
    with contextlib.suppress(OSError):  # then its end is unknown to who asks next
        if failure:
            write_json(folder.at(SAID), failure)
        os.rename(folder.at(BEGUN), folder.at(OVER))


def outcome(folder):
    """How it failed, as a sentence; "" when it did not, or has not begun."""
    begun = read_json(folder.at(BEGUN))
    if begun is None:
        return read_json(folder.at(SAID)) or ""
    return (
        "How the epilog %s on %s ended is unknown: who ran it was killed, or the host was restarted. "
        "It does not run again." % (begun["path"], os.uname().nodename)
    )
