"""What a playbook or a role brings along, where it is read: its modules, filters and tests become known."""

from __future__ import annotations

from collections.abc import Sequence

from rm.playbook.model.keywords import INCLUDES, LATER, short
from rm.playbook.model.located import Map
from rm.playbook.model.problems import BadArgument, NeverRuns
from rm.playbook.module import Files
from rm.playbook.modules import registry
from rm.playbook.own.own_module import OwnModule, own_module
from rm.playbook.own.plugins import learn_place
from rm.playbook.read.reader import Reader
from rm.playbook.read.task_keys import TASK_KEYS


class CannotRun(Exception):
    """A module that is there and that rm does not run; `why` is a sentence."""

    def __init__(self, module: str, why: str) -> None:
        super().__init__(why)
        self.module, self.why = module, why


def learn(reader: Reader, files: Files, place: str, line: int) -> None:
    """The filters and tests of a directory's plug-ins become known. Raises UsageError."""
    try:
        learn_place(files, place)
    except BadArgument as problem:
        raise reader.fail(line, f"{problem}.") from None


def own_name(
    reader: Reader, written: str, line: int, files: Files, directory: str, roles: list[str],
    collections: Sequence[str] = (),
) -> str:  # fmt: skip
    """The registry's name of the module that is called `written` here. Raises UsageError."""
    try:
        return own_module(files, directory, roles, written, collections) or short(written)
    except BadArgument as problem:
        raise reader.fail(line, f"{problem}.") from None


def defaults_name(written: str) -> str:
    """What `module_defaults` of a module of the registry are kept under, whichever of its names is used."""
    module = registry().get(written)
    return module.found.path if isinstance(module, OwnModule) else written.rpartition(".")[2]


def with_own_module(
    reader: Reader, body: Map, files: Files, directory: str, roles: list[str], collections: Sequence[str] = ()
) -> Map:
    """The task with a module that is not rm's under the registry's name of it. Raises UsageError, or
    CannotRun for one that runs nowhere."""
    for key in body:
        if key in TASK_KEYS or key in LATER or short(str(key)) in INCLUDES:
            continue
        try:
            name = own_module(files, directory, roles, str(key), collections)
        except NeverRuns as problem:
            raise CannotRun(str(key), f"{problem}.") from None
        except BadArgument as problem:
            raise reader.fail(body.line_of(key), f"{problem}.") from None
        if name:
            found = Map({(name if one == key else one): value for one, value in body.items()})
            found.line, found.lines = body.line, {**body.lines, name: body.line_of(key)}
            return found
    return body
