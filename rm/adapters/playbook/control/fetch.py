"""`fetch`: a host's file in parts, verified, into place here by a rename."""

from __future__ import annotations

import base64
import hashlib
import os
import shutil
from typing import Any

from rm.adapters.playbook.control import ControlFailed, Hands
from rm.written_aside import written_aside

PART_BYTES = 512 << 10  # other messages may wait behind a part


def carry_out(hands: Hands, step: dict[str, Any]) -> dict[str, Any]:
    args = step["args"]
    source = args["src"]
    dest = _destination(args, hands.host.name)
    answer = _part(hands, step, source, 0)
    planned = hands.request["planned"].get("paths")
    if step.get("check") and isinstance(planned, dict) and planned.get(source) == "file":
        return {"changed": True, "dest": dest, "file": source, "msg": "what would be there by now"}
    if answer.get("failed"):
        missing = answer.get("absent")
        if missing and (not args["fail_on_missing"] or step.get("check")):
            said = "the remote file does not exist, not transferring, ignored"
            return {"changed": False, "file": source, "msg": said}
        return {"failed": True, "msg": answer["msg"], "file": source}
    result = {"dest": dest, "file": source, "checksum": answer["checksum"]}
    result["remote_checksum"] = answer["checksum"]
    if os.path.isdir(dest):
        raise ControlFailed(f"{dest} is a directory; a 'dest' that is one must end with '/'.")
    if os.path.exists(dest) and _digest(dest) == answer["checksum"]:
        return {**result, "changed": False}
    if step.get("check"):
        return {**result, "changed": True}
    _refuse_too_large(answer["size"], os.path.dirname(dest))
    try:
        os.makedirs(os.path.dirname(dest), exist_ok=True)
        with written_aside(dest) as file:
            digest, done, size = hashlib.sha1(usedforsecurity=False), 0, answer["size"]
            while True:
                data = _bytes(answer)[: size - done]
                file.write(data)
                digest.update(data)
                done += len(data)
                if done >= size or not data:
                    break
                answer = _part(hands, step, source, done)
                if answer.get("failed"):
                    raise ControlFailed(answer["msg"])
            if args["validate_checksum"] and digest.hexdigest() != result["checksum"]:
                raise ControlFailed(f"{source} changed while it was fetched.")
    except OSError as problem:
        raise ControlFailed(f"{dest} cannot be written: {problem.strerror}.") from None
    return {**result, "changed": True}


def _part(hands: Hands, step: dict[str, Any], source: str, offset: int) -> dict[str, Any]:
    asked = {"path": source, "offset": offset, "length": PART_BYTES}
    return hands.ask("read_part", asked, user=step.get("user", ""))


def _bytes(answer: dict[str, Any]) -> bytes:
    try:
        return base64.b64decode(answer["data"], validate=True)
    except ValueError:
        raise ControlFailed("The host answers a part of the file that is not base64.") from None


def _refuse_too_large(size_bytes: int, directory: str) -> None:
    """The host alone says how long the file is, and it must not fill this machine's disk."""
    while not os.path.isdir(directory):
        directory = os.path.dirname(directory)
    free_bytes = shutil.disk_usage(directory).free
    if size_bytes > free_bytes:
        said = f"The file has {size_bytes} bytes, and {directory} has {free_bytes} bytes left."
        raise ControlFailed(f"{said} Make room, or fetch into another directory.")


def _destination(args: dict[str, Any], host: str) -> str:
    """A name below `dest` for any name from the host (`src` may be what it said)."""
    dest: str = os.path.normpath(os.path.join(args["directory"], os.path.expanduser(args["dest"])))
    source: str = os.path.normpath("/" + args["src"]).lstrip("/")
    if not args["flat"]:
        name = os.path.normpath("/" + host.replace("/", "_")).lstrip("/")
        return os.path.join(dest, name, source)
    if args["dest"].endswith("/"):
        return os.path.join(dest, os.path.basename(source))
    return dest


def _digest(path: str) -> str:
    with open(path, "rb") as file:
        found: str = hashlib.file_digest(file, "sha1").hexdigest()
    return found
