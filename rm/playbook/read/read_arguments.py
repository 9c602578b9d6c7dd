"""The arguments of one task's module, checked against what the module knows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import ModuleType
from typing import Any

from rm.hints import did_you_mean
from rm.playbook.model.keywords import PREFIXES
from rm.playbook.model.located import Map
from rm.playbook.model.problems import BadArgument
from rm.playbook.module import WHOLE, argument_names, typed
from rm.playbook.modules import registry
from rm.playbook.read.reader import Reader
from rm.playbook.read.words import assigned, key_values, refuse_unbalanced, words_of
from rm.playbook.template.template import has_template

_EACH = "Write each argument, with a template as its value."
# what Ansible takes for an argument within the text of a command
_BESIDE = frozenset(
    ("creates", "removes", "chdir", "executable", "stdin", "stdin_add_newline", "strip_empty_ends")
)


def free_form(text: str, module: ModuleType, free: str) -> Map:
    """`command: creates=/x make all`: the module's own arguments, the rest is the free text. Raises
    ValueError."""
    given = Map()
    own = {n for n, arg in module.ARGS.items() if n != free for n in (n, *arg.aliases)}
    own &= _BESIDE if getattr(module, "COMMAND", False) else own
    rest = ""
    refuse_unbalanced(text)
    try:
        words = list(words_of(text))
    except ValueError:
        if any(f"{name}=" in text for name in own):
            raise
        words = [(text, "")]  # closed as Ansible counts: the shell is to understand it
    for word, space in words:
        pair = assigned(word) if "=" in word else None
        if pair is not None and pair[0] in own:
            given[pair[0]] = pair[1]
            rest = rest if space else rest.rstrip()
        else:
            rest += word + space
    rest = rest if given else text
    if rest or not given:
        given[free] = rest
    return given


def arguments(
    reader: Reader, name: str, module: ModuleType, body: Map, written: str, defaults: Mapping[str, Any]
) -> Mapping[str, Any]:
    """The checked arguments of `body[written]`; `name` is the module's, `defaults` its module_defaults."""
    value, line, usual = body[written], body.line_of(written), Map(defaults)
    free = getattr(module, "FREE_FORM", "")
    given, whole = Map(), []
    if value is None:
        pass
    elif isinstance(value, Map):
        given = value
    elif free and isinstance(value, (str, int)):
        given = _read(reader, name, line, lambda: free_form(str(value), module, free))
    elif isinstance(value, str) and "=" in value:
        given = _read(reader, name, line, lambda: Map(key_values(value)))
    elif has_template(value):
        whole = [_whole(reader, name, value, line)]
    else:
        raise reader.fail(line, f"the arguments of '{name}' must be a mapping, not {value!r}.")
    extra = body.get("args")
    if isinstance(extra, str) and has_template(extra):
        whole, extra = [_whole(reader, name, extra, body.line_of("args")), *whole], Map()
    else:
        if isinstance(extra, str):
            raise reader.fail(body.line_of("args"), "'args' must be a mapping.")
        extra = reader.mapping(body, "args")
    names = argument_names(module)
    for source in (given, extra, usual):
        if WHOLE in source:  # only a template stands for it
            raise reader.fail(getattr(source, "lines", {}).get(WHOLE, line), f"'{name}' has no argument '*'.")
    if whole:
        known = None if getattr(module, "ANY_ARGUMENT", False) else (*names, free)
        return _around(reader, name, {**extra, **given}, [dict(usual), *whole], known, line)
    for source in (given, extra, usual):
        for key in source:
            if key not in names and key != free and not getattr(module, "ANY_ARGUMENT", False):
                at = getattr(source, "lines", {}).get(key, line)
                reader.complain(at, f"'{name}' has no argument '{key}'.", did_you_mean(str(key), names))
    merged = {**usual, **extra, **given}
    for n, arg in module.ARGS.items():
        if arg.required and not any(a in merged for a in (n, *arg.aliases)):
            reader.complain(line, f"'{name}' needs the argument '{n.lstrip('_')}'.")
    expressions = getattr(module, "EXPRESSIONS", ())
    for key, item in merged.items():
        source = given if key in given else extra if key in extra else usual
        if key in expressions and not (isinstance(item, str) and item.strip().startswith("{{")):
            reader.conditions(source, key)
        else:
            reader.templates(item, getattr(source, "lines", {}).get(key, line))
    known_all = all(key in names or key == free for key in merged) or getattr(module, "ANY_ARGUMENT", False)
    as_written = getattr(module, "AS_WRITTEN", False) or not any(map(has_template, merged.values()))
    if known_all and as_written:
        try:
            typed(module, merged)
        except BadArgument as problem:
            reader.complain(line, f"{name}: {problem}.")
    return merged


def _whole(reader: Reader, name: str, template: str, line: int) -> str:
    if name in ("set_fact", "add_host"):  # a host's answer would say which variables are set
        raise reader.fail(line, f"a template for all arguments of '{name}' is not supported.", _EACH)
    reader.templates(template, line)
    return template


def _around(
    reader: Reader,
    name: str,
    given: Mapping[str, Any],
    whole: list[Any],
    names: Sequence[str] | None,
    line: int,
) -> Mapping[str, Any]:
    """Arguments beside a template that gives the others: only the host's turn shows what is missing."""
    for key, value in given.items():
        if names is not None and key not in names:
            reader.complain(line, f"'{name}' has no argument '{key}'.", did_you_mean(str(key), names))
        reader.templates(value, line)
    return {**given, WHOLE: whole}


def _read(reader: Reader, name: str, line: int, read: Callable[[], Map]) -> Map:
    try:
        return read()
    except ValueError as problem:
        raise reader.fail(line, f"the arguments of '{name}' cannot be read: {problem}.") from None


def module_names() -> str:
    return ", ".join(name for name in registry().shipped() if not name.startswith(PREFIXES))
