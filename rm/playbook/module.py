"""What a module is: the shape of its arguments and a pure function from them to a step's arguments.

A module is one file in `rm/playbook/modules/`, found by its file name. It defines

- `ARGS`: argument name -> `Arg`;
- `compile(args, context)`: checked and typed arguments -> the executor's arguments, a JSON object;
- optionally `FREE_FORM`: the argument that a bare string fills (`command: uptime`);
- optionally `EXECUTOR`: the executor's operation, when it is not the file's name;
- optionally `COMMAND = True`: arbitrary commands, which check mode can only say "might run" of;
- optionally `EXPRESSIONS`: arguments that are bare Jinja2 expressions, evaluated by the module itself;
- optionally `ANY_ARGUMENT = True`: arguments beyond ARGS are welcome (`set_fact`);
- optionally `NAMES = True`: the names of its arguments may be templates (`set_fact`);
- optionally `CONTROL = True`: the step is carried out by the control machine, which may ask the host for
  parts of it (`rm/adapters/playbook/control/`: `fetch`, `reboot`, `rm_drain`, …);
- optionally `RUN_ONCE = True`: one step for all hosts of the play, as with `run_once` (`add_host`, `pause`);
- optionally `FACTS`: "*" (any, of modules that are not rm's), or the names of the facts that its result
  brings, so later tasks are compiled after it has run; `{database}` in a name stands for that argument of the
  step. Facts of other names are refused.

`rm/playbook/modules/__init__.py` has its other names, and the collection of one that is not of
`ansible.builtin`.

The executor's half is in `agents/rm_steps*.py`, one function per operation.
"""

from __future__ import annotations

import base64
import posixpath
import re
import zlib
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import lru_cache
from types import ModuleType
from typing import Any, Protocol

from rm.compiled_later import compiled_later
from rm.playbook.model.problems import BadArgument
from rm.playbook.template.filters import FALSE, TRUE, to_bool
from rm.playbook.template.template import Scope
from rm.quick_dataclass import dataclass


class Files(Protocol):
    """The control side's files, read on behalf of pure code."""

    def read(self, path: str, decrypt: bool = True) -> bytes:
        """What a vault encrypted is opened, if `decrypt`. Raises BadArgument when the file cannot be read."""
        ...

    def glob(self, pattern: str) -> list[str]:
        """The files that match, sorted."""
        ...

    def exists(self, path: str) -> bool: ...

    def tree(self, path: str, follow: bool) -> tuple[list[str], list[str], dict[str, str]]:
        """Of a directory the files and directories below it, by their paths from there, and, unless links
        are to be followed, the links with what they point to. Nothing where it is no directory."""
        ...

    def mode(self, path: str) -> int:
        """The permission bits of a file that exists."""
        ...

    def about(self, path: str) -> tuple[str, str, datetime]:
        """The whole path of a file that exists, its owner, and when its content last changed."""
        ...


@dataclass(frozen=True, slots=True)
class Arg:
    """`kind`: str, bool, int, float, list (of strings), mode (octal or symbolic), dict, raw (anything)."""

    kind: str = "str"
    required: bool = False
    choices: tuple[str, ...] = ()
    aliases: tuple[str, ...] = ()
    default: Any = None
    null: bool = False  # null is a value: it does not stand for the default


@dataclass(frozen=True, slots=True)
class CompileContext:
    """What a module may know while compiling, besides its arguments."""

    scope: Scope
    files: Files
    directory: str  # the playbook's
    search: tuple[str, ...] = ()  # where local files are looked for: the role's places, then the playbook's
    task: Any = None  # the schema.Task
    become: bool = False  # where neither a keyword nor a variable decides
    become_user: str = ""

    def source(self, name: str, kind: str) -> str:
        """The path of a local file, looked for in `<kind>/` of each place, then in the place itself."""
        if posixpath.isabs(name):
            return name
        places = self.search or (self.directory,)
        for place in places:
            for path in (posixpath.join(place, kind, name), posixpath.join(place, name)):
                if self.files.exists(path):
                    return path
        return posixpath.join(places[-1], name)


# the argument whose templates give all others: [module_defaults, the template of `args`, the module's own]
WHOLE = "*"


def argument_names(module: ModuleType) -> set[str]:
    """What may be written, with all other names of an argument."""
    known = {name: arg for name, arg in module.ARGS.items() if not name.startswith("_")}
    return {alias for name, arg in known.items() for alias in (name, *arg.aliases)}


def typed(module: ModuleType, given: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments by their first names, converted; raises BadArgument."""
    specs: Mapping[str, Arg] = module.ARGS
    by_name, defaults, required = _named(module)
    found = dict(defaults)
    for written, value in given.items():
        if written not in by_name and getattr(module, "ANY_ARGUMENT", False):
            found[written] = value
            continue
        name = by_name[written]
        found[name] = _convert(name, specs[name], value) if value is not None else _of_null(specs[name])
    for name in required:
        if found[name] is None:
            raise BadArgument(f"the argument '{name}' is missing")
    return found


@lru_cache(maxsize=256)
def _named(module: ModuleType) -> tuple[Mapping[str, str], Mapping[str, Any], Sequence[str]]:
    """First names by all names; what is not given is; what must be given."""
    specs: Mapping[str, Arg] = module.ARGS
    by_name = {alias: name for name, arg in specs.items() for alias in (name, *arg.aliases)}
    required = [name for name, arg in specs.items() if arg.required]
    return by_name, {name: arg.default for name, arg in specs.items()}, required


def _of_null(arg: Arg) -> Any:
    return None if arg.null else arg.default


def _convert(name: str, arg: Arg, value: Any) -> Any:
    if arg.kind == "bool":
        text = str(value).strip().lower()
        if text not in TRUE and text not in FALSE:
            raise BadArgument(f"'{name}' must be true or false, not {value!r}")
        return to_bool(value)
    if arg.kind in ("int", "float"):
        try:
            return int(str(value)) if arg.kind == "int" else float(str(value))
        except ValueError:
            raise BadArgument(f"'{name}' must be a number, not {value!r}") from None
    if arg.kind == "mode":
        return mode_of(name, value)
    if arg.kind == "list":
        if isinstance(value, str):
            words = [word.strip() for word in value.split(",") if word.strip()]
        else:
            words = [str(item) for item in value] if isinstance(value, (list, tuple)) else [str(value)]
        for word in words:
            if arg.choices and word not in arg.choices:
                raise BadArgument(f"'{name}' must be of {', '.join(arg.choices)}, not '{word}'")
        return words
    if arg.kind == "raw":
        return value
    if arg.kind == "dict":
        if not isinstance(value, Mapping):
            raise BadArgument(f"'{name}' must be a mapping, not {value!r}")
        return {str(key): one for key, one in value.items()}
    if isinstance(value, (dict, list)):
        raise BadArgument(f"'{name}' must be text, not a {'mapping' if isinstance(value, dict) else 'list'}")
    text = str(value)
    if arg.choices and text not in arg.choices:
        what = "it" if name == "_raw" else f"'{name}'"
        raise BadArgument(f"{what} must be one of {', '.join(arg.choices)}, not '{text}'")
    return text


_SYMBOLIC = compiled_later(r"[ugoa]*([-+=]([rwxXst]*|[ugo]))+(,[ugoa]*([-+=]([rwxXst]*|[ugo]))+)*")


def mode_of(name: str, value: Any) -> int | str:
    """Permission bits, or symbolic text such as "u=rwX,go-w" for the host to work out.

    YAML reads 0644 as octal but 644 as decimal: only the former can be meant.
    """
    if isinstance(value, int) and not isinstance(value, bool):
        if 0 <= value <= 0o7777 and value not in (644, 755, 600, 700, 640, 750, 664, 775):
            return value
    elif isinstance(value, str) and re.fullmatch(r"(0o)?[0-7]{1,5}", value):
        return int(value, 8)
    elif isinstance(value, str) and _SYMBOLIC.fullmatch(value):
        return value
    raise BadArgument(f"'{name}' must be quoted octal such as '0644', or as 'u=rw,go=r', not {value!r}")


def packed(data: bytes) -> str:
    """File content for a step: zlib in base64, so that JSON lines stay short."""
    return base64.b64encode(zlib.compress(data, 6)).decode()


# how the modules of PostgreSQL get in
POSTGRESQL_LOGIN = {
    "login_user": Arg(default="postgres", aliases=("login",)),
    "login_password": Arg(default=""),
    "login_host": Arg(default="", aliases=("host",)),
    "login_unix_socket": Arg(default="", aliases=("unix_socket",)),
    "login_port": Arg("int", default=5432, aliases=("port",)),
    "ssl_mode": Arg(
        choices=("allow", "disable", "prefer", "require", "verify-ca", "verify-full"), default="prefer"
    ),
    "ca_cert": Arg(aliases=("ssl_rootcert",)),
    "ssl_cert": Arg(),
    "ssl_key": Arg(),
}
# how the modules of MySQL get in
MYSQL_LOGIN = {
    "login_user": Arg(),
    "login_password": Arg(),
    "login_host": Arg(default="localhost"),
    "login_port": Arg("int", default=3306),
    "login_unix_socket": Arg(),
    "config_file": Arg(default="~/.my.cnf"),
    "connect_timeout": Arg("int", default=30),
    "client_cert": Arg(aliases=("ssl_cert",)),
    "client_key": Arg(aliases=("ssl_key",)),
    "ca_cert": Arg(aliases=("ssl_ca",)),
    "check_hostname": Arg("bool"),
}
# `unsafe_writes` is taken for Ansible's sake and never needed: a file is written aside and renamed
OWNERSHIP = {
    "mode": Arg("mode"),
    "owner": Arg(),
    "group": Arg(),
    "unsafe_writes": Arg("bool"),
    "attributes": Arg(aliases=("attr",)),  # of chattr(1)
    **{name: Arg() for name in ("seuser", "serole", "setype", "selevel")},
}
