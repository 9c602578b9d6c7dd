"""A directory of this machine on the hosts of a lab as well, as a shared file system is on the hosts of a
cluster: they have file systems of their own."""

from __future__ import annotations

import ctypes
import os
import subprocess
from pathlib import Path

from rm.lab import Lab

OPEN_TREE, AT_FDCWD, CLONE = 428, -100, 1
ATTACH = """
import ctypes, os, sys
os.makedirs(sys.argv[2], exist_ok=True)
call = ctypes.CDLL(None, use_errno=True).syscall
if call(429, int(sys.argv[1]), b"", -100, sys.argv[2].encode(), 4):
    raise OSError(ctypes.get_errno(), "move_mount")
"""


def share(lab: Lab, host: str, directory: Path) -> None:
    """Mount `directory` on the host, at the same path.

    Raises:
        OSError: this needs root, and Linux 5.2.
    """
    call = ctypes.CDLL(None, use_errno=True).syscall
    tree = call(OPEN_TREE, AT_FDCWD, str(directory).encode(), CLONE)
    if tree < 0:
        raise OSError(ctypes.get_errno(), "open_tree")
    try:
        attach = lab.exec_command(host, ["/usr/bin/python3", "-c", ATTACH, str(tree), str(directory)])
        done = subprocess.run(attach, pass_fds=(tree,), capture_output=True, text=True)
    finally:
        os.close(tree)
    if done.returncode:
        raise OSError(done.stderr)
