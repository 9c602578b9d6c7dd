"""What is wrong with arguments, by a specification of them as `meta/argument_specs.yml` of a role has it.

The rules, and the words where they are short, are those of ansible-core's argument specifications.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rm.python_text import literal

DIGITS_MAX = 4300  # of a whole number, as Python reads one
_TRUE = ("y", "yes", "on", "1", "true", "t")
_FALSE = ("n", "no", "off", "0", "false", "f")
_UNITS = {"": 0, "b": 0, **{unit: power for power, unit in enumerate("kmgtpezy", 1)}}
KINDS = ("str", "int", "float", "bool", "list", "dict", "path", "raw", "jsonarg", "json", "bytes", "bits")

# what Python raises of a value that it cannot make another one of: also of infinity, and of too deep text
_IMPOSSIBLE = (ArithmeticError, LookupError, MemoryError, RecursionError, SyntaxError, TypeError, ValueError)


class Unfit(Exception):
    """A value is not of its type; the message says why."""


def errors_of(spec: Mapping[str, Any], given: Mapping[str, Any]) -> list[str]:
    """Every mistake, as a sentence without a full stop. `spec` maps the names of options to what they are."""
    unknown: list[str] = []
    return [*_errors(spec, given, "", unknown), *unknown]


def _errors(
    spec: Mapping[str, Any], given: Mapping[str, Any], within: str, unknown: list[str]
) -> Iterator[str]:
    """Of one mapping, whose path is `within` ("": the whole)."""
    values = _renamed(spec, given)
    known = {alias for name, one in spec.items() for alias in (name, *_list(_of(one).get("aliases")))}
    others = sorted(f"{within}.{name}" if within else str(name) for name in given if name not in known)
    if others:
        names = ", ".join(sorted(map(str, spec)))
        aliases = ", ".join(sorted(str(name) for name in known if name not in spec))
        names += f" ({aliases})" if aliases else ""
        unknown.append(f"{', '.join(others)}. Supported parameters include: {names}.")
    missing = [str(name) for name, one in spec.items()
               if _of(one).get("required") and name not in values]  # fmt: skip
    if missing:
        yield f"missing required arguments: {', '.join(sorted(missing))}{_in(within)}"
    typed: dict[str, Any] = {}
    for name, one in spec.items():
        default, choices = _of(one).get("default"), _list(_of(one).get("choices"))
        value = values.get(name, default)
        if value is None and not (name in values and (_of(one).get("required") or default is not None)):
            if name in values and choices and None not in choices:
                yield from _not_chosen(name, choices, None, within)
            continue
        try:
            typed[name] = _converted(name, _of(one), value, within)
        except Unfit as problem:
            yield str(problem)
    for name, one in spec.items():
        if name in typed and _of(one).get("choices"):
            yield from _not_chosen(name, list(_of(one)["choices"]), typed[name], within)
    for name, value in typed.items():
        yield from _below(name, _of(spec[name]), value, within, unknown)


def _of(one: Any) -> Mapping[str, Any]:
    return one if isinstance(one, Mapping) else {}


def _list(value: Any) -> list[Any]:
    return list(value) if isinstance(value, (list, tuple)) else []


def _in(within: str) -> str:
    return f" found in {within.replace('.', ' -> ')}" if within else ""


def _renamed(spec: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """The values by their options' first names."""
    values = dict(given)
    for name, one in spec.items():
        for alias in _list(_of(one).get("aliases")):
            if alias in values:
                values[name] = values[alias]
    return values


def _converted(name: str, one: Mapping[str, Any], value: Any, within: str) -> Any:
    kind = str(one.get("type", "str"))
    try:
        found = convert(kind, value)
    except Unfit as problem:
        said = f"argument '{name}' is of type {_kind(value)}{_in(within)}"
        raise Unfit(f"{said} and we were unable to convert to {kind}: {problem}") from None
    elements = one.get("elements")
    if kind != "list" or not elements:
        return found
    made = []
    for item in found:
        try:
            made.append(convert(str(elements), item))
        except Unfit as problem:
            said = f"Elements value for option '{name}'{_in(within)} is of type {_kind(item)}"
            raise Unfit(f"{said} and we were unable to convert to {elements}: {problem}") from None
    return made


def _kind(value: Any) -> str:
    return next((word for kind, word in ((str, "str"), (dict, "dict"), (list, "list"), (bool, "bool"))
                 if isinstance(value, kind)), type(value).__name__)  # fmt: skip


def convert(kind: str, value: Any) -> Any:
    """A value as one of KINDS. Raises Unfit."""
    said = f"{value!r} cannot be converted to {'an' if kind == 'int' else 'a'} {kind}"
    try:
        return _as(kind, value, said)
    except _IMPOSSIBLE:
        raise Unfit(said) from None


def _as(kind: str, value: Any, said: str) -> Any:
    """The same; also raises _IMPOSSIBLE."""
    if kind in ("raw", "path") or (kind == "str" and not isinstance(value, bool)):
        return value if kind == "raw" else str(value)
    if kind == "str":
        return str(value)
    if kind == "bool":
        word = str(value).strip().lower()
        if isinstance(value, bool) or word in ("1.0", "0.0", *_TRUE, *_FALSE):
            return value if isinstance(value, bool) else word in ("1.0", *_TRUE)
        raise Unfit(f"The value {value!r} is not a valid boolean.")
    if kind in ("int", "float"):
        if isinstance(value, bool) and kind == "float":
            return float(value)
        return _number(kind, value)
    if kind == "list":
        if isinstance(value, (list, tuple)):
            return list(value)
        if isinstance(value, str):
            return [word.strip() for word in value.split(",")]
        if isinstance(value, (int, float)):
            return [str(value)]
        raise Unfit(said)
    if kind == "dict":
        return _dict(value)
    if kind in ("json", "jsonarg"):
        return value if isinstance(value, str) else json.dumps(value, default=str)
    if kind in ("bytes", "bits"):
        return _sized(value)
    raise Unfit(f"there is no type {kind}: {', '.join(KINDS)} are known")


def _number(kind: str, value: Any) -> int | float:
    if not isinstance(value, (str, int, float)):
        raise TypeError
    if kind == "float":
        return float(value)
    from decimal import Decimal, DecimalException  # slow to load

    try:
        exact = Decimal(value)
    except DecimalException:
        raise ValueError from None
    if not exact.is_finite() or exact.adjusted() > DIGITS_MAX or exact != int(exact):
        raise ValueError
    return int(exact)


def _dict(value: Any) -> dict[Any, Any]:
    if isinstance(value, Mapping):
        return dict(value)
    if not isinstance(value, str):
        raise Unfit(f"{value!r} cannot be converted to a dict")
    if value.startswith("{"):
        for read in (json.loads, literal):
            try:
                found = read(value)
            except _IMPOSSIBLE:
                continue
            if isinstance(found, dict):
                return found
        raise Unfit("unable to evaluate string as dictionary")
    if "=" in value:
        try:
            words = shlex.split(value.replace(",", " "))
        except ValueError as problem:
            raise Unfit(str(problem)) from None
        return {key: text for key, _, text in (word.partition("=") for word in words)}
    raise Unfit("dictionary requested, could not parse JSON or key=value")


def _sized(value: Any) -> int:
    text = str(value).strip().lower()
    number = text.rstrip("bkmgtpezy ")
    unit = text[len(number) :].strip()[:1]
    return int(float(number) * 1024 ** _UNITS[unit])


def _not_chosen(name: str, choices: Sequence[Any], value: Any, within: str) -> Iterator[str]:
    shown = ", ".join(map(str, choices))
    if isinstance(value, list):
        wrong = [item for item in value if item not in choices]
        if wrong:
            words = ", ".join(map(str, wrong))
            yield f"value of {name} must be one or more of: {shown}. Got no match for: {words}{_in(within)}"
    elif value not in choices and str(value) not in map(str, choices):
        yield f"value of {name} must be one of: {shown}, got: {value}{_in(within)}"


def _below(name: str, one: Mapping[str, Any], value: Any, within: str, unknown: list[str]) -> Iterator[str]:
    """The mistakes in the mapping, or the mappings, that an option with options of its own holds."""
    options = one.get("options")
    if not isinstance(options, Mapping):
        return
    where = f"{within}.{name}" if within else name
    for part in value if isinstance(value, list) else [value]:
        try:
            part = _dict(part)
        except Unfit as problem:
            yield f"value of '{where}' must be of type dict or list of dicts: {problem}"
            continue
        yield from _errors(options, part, where, unknown)
        yield from _together(one, part, where)


def _together(one: Mapping[str, Any], part: Mapping[str, Any], where: str) -> Iterator[str]:
    def there(names: Any) -> list[str]:
        return [str(name) for name in ([names] if isinstance(names, str) else _list(names)) if name in part]

    for names in _list(one.get("mutually_exclusive")):
        if len(there(names)) > 1:
            yield f"parameters are mutually exclusive: {'|'.join(map(str, names))}{_in(where)}"
    for names in _list(one.get("required_together")):
        if 0 < len(there(names)) < len(names):
            yield f"parameters are required together: {', '.join(map(str, names))}{_in(where)}"
    for names in _list(one.get("required_one_of")):
        if not there(names):
            yield f"one of the following is required: {', '.join(map(str, names))}{_in(where)}"
    for rule in _list(one.get("required_if")):
        key, wanted, names = rule[0], rule[1], _list(rule[2])
        some = len(rule) > 3 and rule[3] is True
        missing = [str(name) for name in names if part.get(name) is None]
        if key in part and part[key] == wanted and (len(missing) == len(names) if some else missing):
            how = "any" if some else "all"
            said = f"{key} is {wanted} but {how} of the following are missing: {', '.join(missing)}"
            yield f"{said}{_in(where)}"
    for key, names in _of(one.get("required_by")).items():
        missing = [
            str(n) for n in ([names] if isinstance(names, str) else _list(names)) if part.get(n) is None
        ]
        if part.get(key) is not None and missing:
            yield f"missing parameter(s) required by '{key}': {', '.join(missing)}{_in(where)}"
