"""Filters, tests and lookups of `filter_plugins/`, `test_plugins/` and `lookup_plugins/`, and filters and
tests of collections, run in a process of their own."""

from __future__ import annotations

import glob
import json
import os
import threading
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rm.adapters.playbook.installed import NOT_FROM_HERE, packages, python_with_ansible
from rm.adapters.playbook.plugin_program import unwired, wired
from rm.playbook.model.problems import BadArgument
from rm.playbook.own.place import Installed
from rm.playbook.own.plugin_names import names_in, refusal_of
from rm.quick_dataclass import dataclass

if TYPE_CHECKING:  # few playbooks bring plug-ins along
    import subprocess

KINDS = ("filter", "test", "lookup")
PROGRAM = Path(__file__).with_name("plugin_program.py")
BEGIN = NOT_FROM_HERE + "exec(compile(sys.argv.pop(1),'plugins','exec'))"


@dataclass(frozen=True, slots=True)
class Origin:
    """A file of plug-ins; of a collection's the Python module, what stands before its names, and the
    directory that `ansible_collections` is in."""

    path: str
    module: str = ""
    prefix: str = ""
    top: str = ""

    def wire(self) -> dict[str, str]:
        return {"file": self.path, "module": self.module, "top": self.top}


class Plugins:
    """The plug-ins of one run: names, and the files that have them. The process begins with the first call:
    until then names are read from the files' texts."""

    def __init__(self, installed: Installed, configured: Sequence[tuple[str, str]] = ()) -> None:
        """`configured`: the (kind, directory) of those that ansible.cfg names."""
        self._installed, self._configured = installed, configured
        self._weak: set[tuple[str, str]] = set()  # those of ansible.cfg: one nearer to a playbook counts
        self._files: dict[tuple[str, str], Origin] = {}
        self._perhaps: dict[tuple[str, str], list[Origin]] = {}  # files that make their names up
        self._learnt: set[str] = set()
        self._asking = threading.Lock()
        self._process: subprocess.Popen[str] | None = None
        self._stopped = False

    def names(self) -> Collection[tuple[str, str]]:
        """The (kind, name) of each that is known by now, or may be there."""
        return {*self._files, *self._perhaps}

    def learn(self, place: str) -> list[tuple[str, str]]:
        """The (kind, name) of each plug-in of a role's or a playbook's directory. The first of a name stays.
        Raises BadArgument where a file of plug-ins cannot be read."""
        if place in self._learnt:
            return []
        self._learnt.add(place)
        found = []
        for kind in KINDS:
            found += self._learn_folder(kind, os.path.join(place, f"{kind}_plugins"))
        configured, self._configured = self._configured, ()
        for kind, folder in configured:
            before = self.names()
            new = self._learn_folder(kind, folder)
            self._weak |= {*new} - {*before}
            found += new
        return found

    def _learn_folder(self, kind: str, folder: str) -> list[tuple[str, str]]:
        found = []
        for path in sorted(glob.glob(f"{glob.escape(folder)}/*.py")):
            if not os.path.basename(path).startswith("_"):
                found += self._add(kind, Origin(os.path.abspath(path)))
        return found

    def find(self, kind: str, name: str, directory: str) -> bool:
        """Is there, or may there be, a plug-in of a collection of this full name? It is known from now on.
        One of a file that cannot be read is an error where it is used."""
        if (kind, name) in self._files or (kind, name) in self._perhaps:
            return True
        space, collection, short = name.split(".", 2)
        if kind == "lookup":
            return self._find_lookup(name, space, collection, short, directory)
        inner = ("ansible_collections", space, collection, "plugins", kind)
        unread: list[Origin] = []
        for top in (os.path.abspath(f"{directory}/collections"), *self._installed.collections):
            folder = os.path.join(top, *inner)
            paths = sorted(glob.glob(f"{glob.escape(folder)}/*.py"))
            paths.sort(key=lambda path: os.path.basename(path) != f"{short}.py")
            for path in paths:
                module = ".".join((*inner, os.path.basename(path).removesuffix(".py")))
                origin = Origin(path, module, f"{space}.{collection}.", top)
                try:
                    self._add(kind, origin)
                except BadArgument:  # another file of the collection may have it
                    unread.append(origin)
                if (kind, name) in self._files:
                    return True
            if (kind, name) in self._perhaps:
                return True
        if unread:
            self._perhaps[kind, name] = unread
        return bool(unread)

    def _find_lookup(self, name: str, space: str, collection: str, short: str, directory: str) -> bool:
        inner = ("ansible_collections", space, collection, "plugins", "lookup", short)
        for top in (os.path.abspath(f"{directory}/collections"), *self._installed.collections):
            path = os.path.join(top, *inner) + ".py"
            if os.path.isfile(path):
                self._files["lookup", name] = Origin(path, ".".join(inner), top=top)
                return True
        return False

    def _add(self, kind: str, origin: Origin) -> list[tuple[str, str]]:
        """A file's plug-ins become known, by its text alone."""
        if kind == "lookup":
            name = os.path.basename(origin.path).removesuffix(".py")
            self._make_way((kind, name))
            self._files.setdefault((kind, name), origin)
            return [(kind, name)]
        try:
            found = names_in(Path(origin.path).read_bytes(), kind)
        except (OSError, SyntaxError, ValueError, RecursionError, MemoryError) as problem:
            raise BadArgument(f"{origin.path}: {type(problem).__name__}: {problem}".rstrip(".")) from None
        keys = [(kind, origin.prefix + name) for name in sorted(found.names)]
        for key in keys:
            self._make_way(key)
            if found.sure and key not in self._perhaps:
                self._files.setdefault(key, origin)
            elif key not in self._files and origin not in self._perhaps.setdefault(key, []):
                self._perhaps[key].append(origin)
        return keys

    def _make_way(self, key: tuple[str, str]) -> None:
        if key in self._weak:
            self._weak.discard(key)
            self._files.pop(key, None)
            self._perhaps.pop(key, None)

    def has(self, kind: str, name: str) -> bool:
        """Is there one of this name? Files that make their names up are run to know. Raises BadArgument where
        none has it, and one of them cannot be run."""
        failed: BadArgument | None = None
        for origin in self._perhaps.pop((kind, name), ()):
            if (kind, name) in self._files:
                break
            try:
                names = self._ask({"op": "names", "kind": kind, **origin.wire()})["names"]
            except BadArgument as problem:
                failed = failed or problem
                continue
            if name in [origin.prefix + str(one) for one in names]:
                self._files[kind, name] = origin
        if failed is not None and (kind, name) not in self._files:
            raise failed
        return (kind, name) in self._files

    def call(self, kind: str, name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Raises BadArgument, with the file, where it raises or what it takes or gives is no plain value."""
        origin = self._files[kind, name]
        if kind == "lookup":
            _refuse(origin)
        request = {"op": "call", "kind": kind, **origin.wire(), "name": name.removeprefix(origin.prefix)}
        return self._ask({**request, "args": list(args), "kwargs": dict(kwargs)})["value"]

    def _ask(self, request: dict[str, Any]) -> dict[str, Any]:
        try:
            line = json.dumps(wired(request))
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
            except (OSError, ValueError):  # ValueError: it was stopped, and its pipes are closed
                text = ""
            except BaseException:  # interrupted: its answer would be taken for the next one's
                self.close()
                raise
            if not text:
                self.close()
                raise BadArgument(f"{request['file']}: the process that runs plug-ins ended")
        found: dict[str, Any] = json.loads(text, object_hook=unwired)
        if "error" in found:
            raise BadArgument(f"{request['file']}: {found['error']}".rstrip("."))
        return found

    def _running(self) -> subprocess.Popen[str]:
        if self._stopped:
            raise BadArgument("the run was stopped while a plug-in ran")
        if self._process is None:
            import subprocess

            core = [os.path.dirname(self._installed.core)] if self._installed.core else packages()[:1]
            argv = [python_with_ansible(), "-c", BEGIN, PROGRAM.read_text(encoding="utf-8")]
            self._process = subprocess.Popen(
                [*argv, *core, *self._installed.collections], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                text=True,
            )  # fmt: skip
            if self._stopped:  # meanwhile
                self.close()
                raise BadArgument("the run was stopped while a plug-in ran")
        return self._process

    def stop(self) -> None:
        """Nothing runs any more: a plug-in that somebody waits for is broken off."""
        self._stopped = True
        self.close()

    def close(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.kill()  # first: who reads its answer keeps the stream from being closed
            process.wait()
            for stream in (process.stdin, process.stdout):
                if stream is not None:
                    with suppress(OSError):
                        stream.close()


def _refuse(origin: Origin) -> None:
    """Raises BadArgument for a lookup that asks for what rm does not hand out."""
    try:
        why = refusal_of(Path(origin.path).read_bytes())
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError) as problem:
        why = f"{type(problem).__name__}: {problem}".rstrip(".")
    if why:
        raise BadArgument(f"{origin.path}: {why}")
