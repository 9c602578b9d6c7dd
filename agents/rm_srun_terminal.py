"""The terminal of `srun --pty`: each key goes to task 0, whose terminal has the size of this one."""

import contextlib
import fcntl
import os
import struct
import termios
import tty

from rm_srun_options import Wrong
from rm_step_frames import SIZE

_raw = False


def line_end():
    """Of what srun itself says: a raw terminal does not return to the first column by itself."""
    return "\r\n" if _raw else "\n"


class Terminal:
    """Standard input and output. OSError: one of them is not a terminal."""

    def __init__(self):
        self.size()
        fcntl.ioctl(1, termios.TIOCGWINSZ, bytes(8))  # of which Slurm's asks for the size
        self._before = None

    def size(self):
        """As it goes to the task's host."""
        return SIZE.pack(*struct.unpack("4H", fcntl.ioctl(0, termios.TIOCGWINSZ, bytes(8)))[:2])

    def __enter__(self):
        global _raw
        self._before = termios.tcgetattr(0)
        tty.setraw(0, termios.TCSADRAIN)
        _raw = True
        return self

    def __exit__(self, *_):
        global _raw
        _raw = False
        with contextlib.suppress(termios.error):  # it was closed
            termios.tcsetattr(0, termios.TCSADRAIN, self._before)


def near(values, say):
    """The one that task 0 is to have: None without --pty, and where standard input or output is none."""
    if "pty" not in values:
        return None
    if values["pty"]:
        raise Wrong("--pty=%s is not supported: leave the descriptor out." % values["pty"])
    if {"input", "output", "error"} & values.keys():
        raise Wrong("--error/--input/--output are incompatible with --pty")
    if "label" in values:
        raise Wrong("--label is not supported with --pty: only task 0 is heard.")
    try:
        return Terminal()
    except OSError as error:
        say("error: ioctl(TIOCGWINSZ): %s" % os.strerror(error.errno))
        say("error: Not using a pseudo-terminal, disregarding --pty option")
        return None
