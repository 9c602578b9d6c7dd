"""How a command line ends: each failure as its sentence on standard error and its exit code.

Exit codes: docs/cli.md. No traceback reaches the user: an RmError is its sentence, and any other
exception is reported as a defect of rm (RM_DEBUG=1 shows where).
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable

from rm.cli.output import note
from rm.errors import RmError

INTERRUPTED, BROKEN_PIPE, DEFECT = 130, 141, 70


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
        # the reader of our output has gone: say nothing, also not when Python closes stdout
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return BROKEN_PIPE
    except Exception as error:
        if os.environ.get("RM_DEBUG"):
            raise
        note(f"This is a defect of rm: {type(error).__name__}: {error}. RM_DEBUG=1 shows where.")
        return DEFECT
