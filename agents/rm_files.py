"""Files of an agent's state: replaced at once, or not at all, so that no reader sees a part of one."""

import contextlib
import json
import os


def write_json(path, value, sync=False):
    """Replace `path` atomically."""
    write_bytes(path, json.dumps(value, separators=(",", ":")).encode(), 0o600, sync)


def sync_directory(path):
    """What was made, renamed or removed in it is durable when this returns."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def write_bytes(path, data, mode, sync=False):
    """Replace `path` atomically."""
    aside = path + ".new"
    fd = begin(aside, data, mode)
    try:
        if sync:
            os.fsync(fd)
    finally:
        os.close(fd)
    os.rename(aside, path)


def write_in_room(path, data, room_bytes, mode, sync=False):
    """Replace `path` atomically by `data` and blanks, `room_bytes` together. From the first call on two
    versions have their bytes on the disk, of which one is written anew: a full disk takes the later ones as
    well. With `room_bytes` 0 none are reserved."""
    if not room_bytes:
        write_bytes(path, data, mode, sync)
        return
    data, aside, old = data.ljust(room_bytes), path + ".new", path + ".old"
    if not os.path.exists(path):
        write_bytes(path, data, mode)
        os.close(begin(aside, data, mode))
    fd = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, mode)
    try:
        _write(fd, data)
        os.ftruncate(fd, len(data))
        if sync:
            os.fsync(fd)
    finally:
        os.close(fd)
    with contextlib.suppress(FileNotFoundError):
        os.unlink(old)
    os.link(path, old, follow_symlinks=False)
    os.rename(aside, path)
    os.rename(old, aside)


def begin(path, data, mode):
    """A descriptor of the file, which holds `data` now."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, mode)
    try:
        os.fchmod(fd, mode)
        _write(fd, data)
    except BaseException:
        os.close(fd)
        raise
    return fd


def _write(fd, data):
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


def read_json(path):
    """The object in `path`; None when it is missing or was cut short."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)  # a file object would cost twice as much
        try:
            return json.loads(os.read(fd, os.fstat(fd).st_size))
        finally:
            os.close(fd)
    except (OSError, ValueError, RecursionError):
        return None
