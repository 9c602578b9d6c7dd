"""Directories for what steps leave for later ones: no other user may look in, or be there first."""

import contextlib
import os

from rm_steps_base import StepFailed


def private_folder(what):
    """The directory for `what` of the present user, made where it is missing. Root's is where only root
    can make it; of other users' ones another user can at worst be the first, which is then said."""
    path = "/var/cache/rm-%s" % what if os.getuid() == 0 else "/var/tmp/rm-%s-%d" % (what, os.getuid())
    with contextlib.suppress(FileExistsError):
        os.makedirs(path, 0o700)
    seen = os.lstat(path)
    if seen.st_uid != os.getuid() or seen.st_mode & 0o7777077 != 0o40000:
        raise StepFailed("%s exists and is not a private directory of ours." % path)
    return path
