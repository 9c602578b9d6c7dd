"""Contents too long for one request: they come in parts before it, and are kept until it takes them.

A part says where it begins. So after a lost connection the sender asks how much is there and goes on.
"""

import contextlib
import hashlib
import os
import time

from rm_steps_base import StepFailed
from rm_steps_private import private_folder

KEEP_S = 86_400


def folder():
    return private_folder("parts")


def _place(name):
    if len(name) != 64 or set(name) - set("0123456789abcdef"):
        raise StepFailed("'%s' is not the name of a part." % name)
    return os.path.join(folder(), name)


def do_blob(run, args):
    """Take a part; {"size"} says how much of the whole is there now."""
    path = _place(args["name"])
    _sweep()
    with open(path, "ab") as file:
        size = file.tell()
        if args["offset"] == size and args.get("data"):
            file.write(args["data"].encode())
            size = file.tell()
    return {"changed": False, "size": size}


def with_parts(args):
    """A step's arguments with every "blob:NAME" replaced by the text that came before it in parts."""
    texts = {}  # two files may have the same content

    def whole(value):
        if isinstance(value, dict):
            return {key: whole(one) for key, one in value.items()}
        if not isinstance(value, str) or not value.startswith("blob:"):
            return value
        if value not in texts:
            texts[value] = _taken(value[5:])
        return texts[value]

    return whole(args)


def _taken(name):
    """The whole text by its SHA-256; it is removed."""
    path = _place(name)
    try:
        with open(path, "rb") as file:
            data = file.read()
    except FileNotFoundError:
        raise StepFailed("A part of this step has not arrived; run the playbook again.") from None
    os.unlink(path)
    with contextlib.suppress(OSError):  # others may still be there
        os.rmdir(os.path.dirname(path))
    if hashlib.sha256(data).hexdigest() != name:
        raise StepFailed("A part of this step arrived damaged; run the playbook again.")
    return data.decode()


def _sweep():
    for name in os.listdir(folder()):
        with contextlib.suppress(OSError):
            path = os.path.join(folder(), name)
            if os.stat(path).st_mtime < time.time() - KEEP_S:
                os.unlink(path)
