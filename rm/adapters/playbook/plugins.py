"""Filters and tests of `filter_plugins/`, `test_plugins/` and collections, run in a process of their own."""

from __future__ import annotations

import glob
import json
import os
import subprocess
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from rm.adapters.playbook.installed import packages, python_with_ansible
from rm.playbook.model.problems import BadArgument
from rm.playbook.own.place import Installed

KINDS = ("filter", "test")
PROGRAM = Path(__file__).with_name("plugin_program.py")
# nothing is imported from the current directory: that is left out before the first import of a file
BEGIN = "import sys;sys.path=[p for p in sys.path if p];exec(compile(sys.argv.pop(1),'plugins','exec'))"


class Plugins:
    """The plug-ins of one run: names, and the files that have them. The process begins with the first."""

    def __init__(self, installed: Installed) -> None:
        self._installed = installed
        self._files: dict[tuple[str, str], tuple[str, str]] = {}  # (kind, name) -> file, Python module
        self._learnt: set[str] = set()
        self._asking = threading.Lock()
        self._process: subprocess.Popen[str] | None = None

    def learn(self, place: str) -> list[tuple[str, str]]:
        """The (kind, name) of each plug-in of a role's or a playbook's directory. The first of a name stays.
        Raises BadArgument where a file of plug-ins cannot be read."""
        if place in self._learnt:
            return []
        self._learnt.add(place)
        found = []
        for kind in KINDS:
            for path in sorted(glob.glob(f"{glob.escape(place)}/{kind}_plugins/*.py")):
                if not os.path.basename(path).startswith("_"):
                    found += self._add(kind, path, "", "")
        return found

    def find(self, kind: str, name: str, directory: str) -> bool:
        """Is there a plug-in of a collection of this full name? Then it is known from now on."""
        if (kind, name) in self._files:
            return True
        space, collection, short = name.split(".", 2)
        inner = ("ansible_collections", space, collection, "plugins", kind)
        for top in (f"{directory}/collections", *self._installed.collections):
            folder = os.path.join(top, *inner)
            paths = sorted(glob.glob(f"{glob.escape(folder)}/*.py"))
            paths.sort(key=lambda path: os.path.basename(path) != f"{short}.py")
            for path in paths:
                module = ".".join((*inner, os.path.basename(path).removesuffix(".py")))
                with suppress(BadArgument):  # another file of the collection may have it
                    self._add(kind, path, module, f"{space}.{collection}.")
                if (kind, name) in self._files:
                    return True
        return False

    def _add(self, kind: str, path: str, module: str, prefix: str) -> list[tuple[str, str]]:
        names = self._ask({"op": "names", "kind": kind, "file": path, "module": module})["names"]
        keys = [(kind, prefix + str(name)) for name in names]
        for key in keys:
            self._files.setdefault(key, (path, module))
        return keys

    def has(self, kind: str, name: str) -> bool:
        return (kind, name) in self._files

    def call(self, kind: str, name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Raises BadArgument, with the file, where it raises or what it takes or gives is no plain value."""
        path, module = self._files[kind, name]
        short = name.rpartition(".")[2] if module else name
        request = {"op": "call", "kind": kind, "file": path, "module": module, "name": short}
        return self._ask({**request, "args": list(args), "kwargs": dict(kwargs)})["value"]

    def _ask(self, request: dict[str, Any]) -> dict[str, Any]:
        try:
            line = json.dumps(request)
        except (TypeError, ValueError):
            raise BadArgument(f"{request['file']}: it is given something that is no plain value") from None
        with self._asking:
            process = self._running()
            assert process.stdin is not None
            assert process.stdout is not None
            try:
                process.stdin.write(line + "\n")
                process.stdin.flush()
                text = process.stdout.readline()
            except OSError:
                text = ""
            if not text:
                self.close()
                raise BadArgument(f"{request['file']}: the process that runs plug-ins ended")
        found: dict[str, Any] = json.loads(text)
        if "error" in found:
            raise BadArgument(f"{request['file']}: {found['error']}".rstrip("."))
        return found

    def _running(self) -> subprocess.Popen[str]:
        if self._process is None:
            core = [os.path.dirname(self._installed.core)] if self._installed.core else packages()[:1]
            argv = [python_with_ansible(), "-c", BEGIN, PROGRAM.read_text(encoding="utf-8")]
            self._process = subprocess.Popen(
                [*argv, *core, *self._installed.collections], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                text=True,
            )  # fmt: skip
        return self._process

    def close(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            for stream in (process.stdin, process.stdout):
                if stream is not None:
                    with suppress(OSError):
                        stream.close()
            process.kill()
            process.wait()
