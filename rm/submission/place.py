"""Where a client runs: its environment, directory and files. For a program of a job they are those of that
program, on its host."""

from __future__ import annotations

import os

from rm.errors import UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


class Place:
    """This process, on this machine. `stays`: it may wait as long as it likes."""

    stays = True

    def environment(self) -> Mapping[str, str]:
        return os.environ

    def directory(self) -> str:
        """FileNotFoundError where it has been removed."""
        return os.getcwd()

    def umask(self) -> int:
        """By which its files are made."""
        try:
            with open("/proc/self/status") as status:
                return next(int(line[6:], 8) for line in status if line.startswith("Umask:"))
        except (OSError, StopIteration):  # no Linux, or one before 4.7: another thread's file may get 077
            now = os.umask(0o077)
            os.umask(now)
            return now

    def host(self) -> str:
        return os.uname().nodename

    def user(self) -> str:
        """The name of whoever runs it."""
        from getpass import getuser  # few commands need it

        return getuser()

    def is_root(self) -> bool:
        return os.geteuid() == 0

    def read(self, file: str, most_bytes: int) -> bytes:
        """What the file begins with, or OSError."""
        with open(file, "rb") as handle:
            return handle.read(most_bytes)

    def is_file(self, file: str) -> bool:
        """One that can be read."""
        return os.path.isfile(file) and os.access(file, os.R_OK)

    def write(self, file: str, text: str) -> None:
        """The file has this text, or OSError."""
        with open(file, "w") as handle:
            handle.write(text)

    def pause(self, seconds: float, words: Sequence[str] = ()) -> None:
        """Before the command looks again; where it may not stay, it begins again then, with these words if
        there are some."""
        from time import sleep

        sleep(seconds)


FILE_MAX_BYTES = 1 << 20


def text_of(file: str, what: str) -> str:
    """Of a file that an option names; `what` it is begins the sentence of a UsageError."""
    try:
        text = here.read(file, FILE_MAX_BYTES + 1).decode()
    except OSError as error:
        raise UsageError(f"{what} {file} cannot be read: {error.strerror}.") from None
    except UnicodeDecodeError:
        raise UsageError(f"{what} {file} is not UTF-8 text.") from None
    if len(text) > FILE_MAX_BYTES:
        raise UsageError(f"{what} {file} is larger than {FILE_MAX_BYTES >> 20} MiB.")
    return text


here = Place()  # one for each process: `rm.cli.slurm.inside` puts another here, before anything is read
