"""How a command line ends: each failure as its sentence on standard error and its exit code.

Exit codes: docs/cli.md. No traceback reaches the user: an RmError is its sentence, and any other
exception is reported as a defect of rm (RM_DEBUG=1 shows where).
"""

from __future__ import annotations

import errno
import os
import sys

from rm.cli.output import note
from rm.errors import RmError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

INTERRUPTED, BROKEN_PIPE, DEFECT = 130, 141, 70
LEFT_TO_PYTHON = {"threading", "atexit"}  # modules
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)


def ended(command: Callable[[], int]) -> int:
    """The command's exit code, or its failure's."""
    try:
        code = command()
        sys.stdout.flush()
        return code
    except RmError as error:
        note(str(error))
        return error.exit_code
    except KeyboardInterrupt:
        note("Interrupted.")
        return INTERRUPTED
    except BrokenPipeError:
        _drop_output()  # its reader has gone: say nothing
        return BROKEN_PIPE
    except Exception as error:
        if isinstance(error, OSError) and error.errno in FULL:
            _drop_output()
            note(f"The output cannot be written: {error.strerror}.")
            return RmError.exit_code
        if os.environ.get("RM_DEBUG"):
            raise
        note(f"This is a defect of rm: {type(error).__name__}: {error}. RM_DEBUG=1 shows where.")
        return DEFECT


def leave(code: int) -> None:
    """End the process now with what it has printed. Python's own end takes a tenth of such a command's
    time: it frees each object. Returns where something is left to do then: threads to wait for, functions
    registered with `atexit`, output that cannot be written."""
    if sys.modules.keys() & LEFT_TO_PYTHON:
        return
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except (OSError, ValueError):
        return
    os._exit(code)


def _drop_output() -> None:
    """What is left of it, so that Python does not complain when it closes standard output."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
