"""Where this machine has ansible-core and collections, found without importing anything of them."""

from __future__ import annotations

import glob
import importlib.util
import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from rm.playbook.own.place import Installed

USUAL = ("~/.ansible/collections", "/usr/share/ansible/collections")
SYSTEM = (
    "/usr/lib/python3/dist-packages",
    "/usr/lib/python3*/site-packages",
    "/usr/local/lib/python3*/dist-packages",
)
# what begins a program of `-c`: nothing is imported from the current directory,
# where anybody may have put it. Of a Python before 3.11 no option says so without leaving out more
NOT_FROM_HERE = "import sys;sys.path=[p for p in sys.path if p];"


def _beside(program: str) -> list[str]:
    """Where the Python that runs a program keeps packages."""
    found = shutil.which(program)
    if not found:
        return []
    real = Path(found).resolve()
    tops = [real.parent.parent, Path(found).absolute().parent.parent]
    return [path for top in tops for path in sorted(glob.glob(f"{top}/lib/python3*/site-packages"))]


def packages() -> list[str]:
    """The directories of Python packages in which Ansible may be, rm's own first."""
    spec = importlib.util.find_spec("ansible")
    own = [os.path.dirname(os.path.dirname(spec.origin))] if spec and spec.origin else []
    system = [path for pattern in SYSTEM for path in sorted(glob.glob(pattern))]
    return list(dict.fromkeys([*own, *_beside("ansible-playbook"), *_beside("ansible"), *system]))


def installed(collections: Sequence[str] = ()) -> Installed:
    """What there is of Ansible. `collections` (of ansible.cfg), or else ANSIBLE_COLLECTIONS_PATH, takes the
    place of the usual directories."""
    found = [path for path in packages() if os.path.isdir(f"{path}/ansible/module_utils")]
    said = os.environ.get("ANSIBLE_COLLECTIONS_PATH")
    tops = [os.path.expanduser(one) for one in (collections or (said.split(":") if said else USUAL)) if one]
    tops = [os.path.dirname(one) if os.path.basename(one) == "ansible_collections" else one for one in tops]
    tops += [one for one in (found or packages()) if os.path.isdir(f"{one}/ansible_collections")]
    return Installed(f"{found[0]}/ansible" if found else "", tuple(dict.fromkeys(tops)))


def with_folders(directories: Sequence[str]) -> tuple[str, ...]:
    """Those that are there, and what lies one level below, as Ansible looks for plug-ins."""
    found = []
    for top in directories:
        below = [path for path in sorted(glob.glob(f"{glob.escape(top)}/*")) if os.path.isdir(path)]
        found += [top, *(one for one in below if os.path.basename(one) != "__pycache__")]
    return tuple(one for one in found if os.path.isdir(one))


def python_with_ansible() -> str:
    """The Python that has ansible-core, which plug-ins import; rm's own where it has it, or nobody has."""
    for path in packages():
        if not os.path.isdir(f"{path}/ansible"):
            continue
        if importlib.util.find_spec("ansible") is not None:
            return sys.executable
        top = Path(path).parents[2]
        for name in ("python3", "python"):
            if (top / "bin" / name).exists():
                return str(top / "bin" / name)
    return sys.executable
