"""The text of --container-mounts and --container-image: what of a host a job sees in its container.

Source: the options of Pyxis, NVIDIA's plugin for Slurm: SRC:DST[:FLAGS],… with FLAGS joined by +, and an
image [REGISTRY#]IMAGE[:TAG] or a path.
"""

from __future__ import annotations

import re

from rm.errors import UsageError

MOUNTS_MAX = 64
MOUNTS_CHARACTERS = 128 << 10
IMAGE_BYTES = 4_095
_FLAGS = ("ro", "rw", "bind", "rbind", "private", "rprivate", "slave", "rslave")
_IMAGE = re.compile(r"(/[^\0\n]*|(docker://)?(?!docker://)[A-Za-z0-9$][\w.\-/:@#$]*)\Z", re.ASCII)

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}\Z", re.ASCII)


def image(text: str) -> str:
    """The image, when it is one.

    Raises:
        UsageError: it is neither a name nor an absolute path.
    """
    if not _IMAGE.match(text) or len(text.encode()) > IMAGE_BYTES:
        raise UsageError(
            f"'{text[:80]}' is no image.",
            "Write [REGISTRY#]IMAGE[:TAG], or the path of an image that the hosts have.",
        )
    return text


def name(text: str) -> str:
    """The name of a container, when it is one; "" is none.

    Raises:
        UsageError: it is no word, or has one of Pyxis' flags.
    """
    if text and not _NAME.match(text):
        raise UsageError(
            f"'{text[:80]}' is no name of a container.",
            "Write a word of letters, digits and ._-, without a flag such as :exec.",
        )
    return text


def mounts(text: str) -> tuple[tuple[str, str, str], ...]:
    """(path on the host, path in the container, flags) of each.

    Raises:
        UsageError: what is wrong with the first bad one.
    """
    if len(text) > MOUNTS_CHARACTERS:
        raise UsageError(f"The list of mounts has {len(text)} characters, and may have {MOUNTS_CHARACTERS}.")
    found = tuple(_mount(one) for one in text.split(",") if one) if text else ()
    if len(found) > MOUNTS_MAX:
        raise UsageError(f"{len(found)} mounts are too many.", f"At most {MOUNTS_MAX} can be made.")
    return found


def _mount(text: str) -> tuple[str, str, str]:
    hint = "Write SRC:DST, or SRC:DST:ro; both are absolute paths, without line breaks."
    source, *rest = text.split(":")
    target, flags = (*rest, "", "")[:2]
    target = target or source
    absolute = source.startswith("/") and target.startswith("/")
    if len(rest) > 2 or not absolute or not (source + target).isprintable():
        raise UsageError(f"'{text[:160]}' is no mount.", hint)
    for flag in flags.split("+") if flags else ():
        if flag not in _FLAGS:
            raise UsageError(f"The flag '{flag[:40]}' of the mount '{text[:160]}' is not supported.",
                             f"Flags are {', '.join(_FLAGS)}, joined by +.")  # fmt: skip
    return source, target, flags
