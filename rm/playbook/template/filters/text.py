"""Filters from text, and to it: true words, JSON, YAML, regular expressions, paths, encodings, sizes."""

from __future__ import annotations

import base64
import hashlib
import json
import ntpath
import posixpath
import re
import shlex
import uuid
from collections.abc import Callable, ItemsView, KeysView, ValuesView
from datetime import UTC, datetime
from typing import Any

import yaml
from jinja2 import Undefined, UndefinedError

from rm.compiled_later import compiled_later
from rm.playbook.model.bounded_yaml import load_all_plain, load_plain

TRUE = ("yes", "on", "true", "1", "y", "t", "1.0")
FALSE = ("no", "off", "false", "0", "n", "f", "0.0", "")
_NAMESPACE = uuid.UUID("361E6D51-FAEC-444A-9079-341386DA8E2E")  # Ansible's, so that both give the same


def to_bool(value: Any) -> bool | None:
    """Ansible's `bool`: yes/on/true/1 in any case are true, everything else false."""
    if value is None or isinstance(value, bool):
        return value
    return str(value).strip().lower() in TRUE if isinstance(value, str) else value == 1


def _bool(value: Any) -> bool:
    """The filter: fewer words than a module takes, and everything else is false."""
    refuse_undefined(value)
    return value in (1, True) or (isinstance(value, str) and value.lower() in ("yes", "on", "true", "1"))


def refuse_undefined(value: Any) -> None:
    if isinstance(value, Undefined):
        value._fail_with_undefined_error()


def _json(value: Any, **options: Any) -> str:
    refuse_undefined(value)
    known = {k: v for k, v in options.items() if k in ("sort_keys", "indent", "ensure_ascii", "separators")}
    return json.dumps(value, default=str, **known)


def _nice_json(value: Any, indent: int = 4, sort_keys: bool = True, **options: Any) -> str:
    refuse_undefined(value)
    ascii_only = options.get("ensure_ascii", True)
    return json.dumps(
        value,
        indent=indent,
        sort_keys=sort_keys,
        default=str,
        separators=(",", ": "),
        ensure_ascii=ascii_only,
    )


class _Dumper(yaml.SafeDumper):
    """As Ansible writes YAML: lists are not indented, aliases never used."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _yaml(
    value: Any, indent: int = 2, sort_keys: bool = True, default_flow_style: Any = None, **options: Any
) -> str:
    refuse_undefined(value)
    known = {
        k: v for k, v in options.items() if k in ("width", "explicit_start", "explicit_end", "line_break")
    }
    known.setdefault("allow_unicode", True)
    plain = json.loads(json.dumps(value, default=str))
    return str(
        yaml.dump(
            plain, Dumper=_Dumper, indent=indent, sort_keys=sort_keys, default_flow_style=default_flow_style,
            **known,
        )
    )  # fmt: skip


def _nice_yaml(value: Any, indent: int = 4, default_flow_style: Any = False, **options: Any) -> str:
    return _yaml(value, indent, default_flow_style=default_flow_style, **options)


def _flags(ignorecase: bool, multiline: bool) -> int:
    return (re.IGNORECASE if ignorecase else 0) | (re.MULTILINE if multiline else 0)


def _regex_replace(
    value: Any = "",
    pattern: str = "",
    replacement: str = "",
    ignorecase: bool = False,
    multiline: bool = False,
    count: int = 0,
    mandatory_count: int = 0,
) -> str:
    refuse_undefined(value)
    flags = _flags(ignorecase, multiline)
    text, made = re.subn(pattern, replacement, str(value), count=count, flags=flags)
    if mandatory_count and made != mandatory_count:
        raise ValueError(f"regex_replace made {made} replacements, not {mandatory_count}")
    return text


def _regex_search(
    value: Any, pattern: str, *groups: str, ignorecase: bool = False, multiline: bool = False
) -> Any:
    refuse_undefined(value)
    match = re.search(pattern, str(value), _flags(ignorecase, multiline))
    if match is None:
        return None
    if not groups:
        return match.group()
    return [match.group(int(g[1:]) if g[1:].isdigit() else g[3:-1]) for g in groups]


def _regex_findall(value: Any, pattern: str, multiline: bool = False, ignorecase: bool = False) -> list[Any]:
    return re.findall(pattern, str(value), _flags(ignorecase, multiline))


def _regex_escape(value: Any, re_type: str = "python") -> str:
    if re_type == "python":
        return re.escape(str(value))
    return re.sub(r"([].[^$*\\])", r"\\\1", str(value))


def _mandatory(value: Any, msg: str = "") -> Any:
    if isinstance(value, Undefined):
        name = getattr(value, "_undefined_name", None)
        raise UndefinedError(msg or f"the mandatory variable {f'{name!r} ' if name else ''}is not defined")
    return value


def _hash(value: Any, hashtype: str = "sha1") -> str:
    return hashlib.new(hashtype, str(value).encode()).hexdigest()


def _moment(value: Any, form: str = "%Y-%m-%d %H:%M:%S") -> datetime:
    return datetime.strptime(str(value), form)


def _strftime(form: str, second: Any = None, utc: bool = False) -> str:
    if second is None:
        raise ValueError("give the moment: '%Y' | strftime(ansible_date_time.epoch)")
    moment = datetime.fromtimestamp(float(second), UTC)
    return (moment if utc else moment.astimezone()).strftime(form)


# RFC 3986, appendix B, with the authority taken apart
def _dedent(value: Any) -> str:
    import textwrap

    return textwrap.dedent(str(value))


_URL = compiled_later(r"(?:([^:/?#]+):)?(?://([^/?#]*))?([^?#]*)(?:\?([^#]*))?(?:#(.*))?", re.DOTALL)
_AUTHORITY = compiled_later(r"(?:([^:@]*)(?::([^@]*))?@)?(\[[^\]]*\]|[^:]*)(?::(\d+))?\Z")


def _urldecode(value: Any) -> str:
    def text_of(match: re.Match[str]) -> str:
        return bytes.fromhex(match[0].replace("%", "")).decode(errors="replace")

    return re.sub(r"(?:%[0-9A-Fa-f]{2})+", text_of, str(value).replace("+", " "))


def _urlsplit(value: Any, query: str = "") -> Any:
    match = _URL.fullmatch(str(value))
    assert match is not None  # every text matches
    scheme, netloc, path, asked, fragment = match.groups(default="")
    parts = _AUTHORITY.match(netloc)
    user, password, host, port = parts.groups() if parts else (None, None, netloc, None)
    found = {
        "fragment": fragment, "hostname": host.strip("[]").lower() or None, "netloc": netloc,
        "password": password, "path": path, "port": int(port) if port else None, "query": asked,
        "scheme": scheme.lower(), "username": user,
    }  # fmt: skip
    return found[query] if query else found


_UNITS = {"": 0, "K": 1, "M": 2, "G": 3, "T": 4, "P": 5, "E": 6, "Z": 7, "Y": 8}
_UNIT_NAMES = {
    "": "", "K": "kilo", "M": "mega", "G": "giga", "T": "tera", "P": "peta", "E": "exa", "Z": "zeta",
    "Y": "yotta",
}  # fmt: skip


def _human_to_bytes(value: Any, default_unit: str | None = None, isbits: bool = False) -> int:
    match = re.match(r"([0-9]*\.?[0-9]+)(?:\s*([A-Za-z]+))?\s*\Z", str(value))
    if match is None:
        raise ValueError(f"'{value}' is not a size")
    unit = match[2] or default_unit or "B"
    letter = unit[0].upper().replace("B", "")
    if letter not in _UNITS:
        raise ValueError(f"'{value}' has an unknown unit")
    base, name = ("b", "bit") if isbits else ("B", "byte")
    if len(unit) > 1 and unit.lower() != _UNIT_NAMES[letter] + name and unit != letter + base:
        raise ValueError(f"'{value}' has the unit '{unit}', not {letter}{base}")
    return round(float(match[1]) * pow(1024.0, _UNITS[letter]))


def _type_name(value: Any) -> str:
    """A type as Ansible names it, for which there are fewer."""
    kinds = ((str, "str"), (dict, "dict"), ((list, KeysView, ValuesView, ItemsView), "list"))
    return next((name for kind, name in kinds if isinstance(value, kind)), type(value).__name__)


def _human_readable(size: Any, isbits: bool = False, unit: str | None = None) -> str:
    base, value = "bits" if isbits else "Bytes", float(size)
    for letter, power in sorted(_UNITS.items(), key=lambda pair: -pair[1]):
        limit = 1024**power
        if (unit is None and value >= limit) or (unit is not None and unit.upper()[:1] == letter):
            suffix = letter + base[0] if letter else base
            if letter and isbits:
                suffix = letter + "b"
            return f"{value / limit:.2f} {suffix}"
    return f"{value:.2f} {base}"


_STYLES = {
    "plain": {"decoration": "# "},
    "erlang": {"decoration": "% "},
    "c": {"decoration": "// "},
    "cblock": {"beginning": "/*", "decoration": " * ", "end": " */"},
    "xml": {"beginning": "<!--", "decoration": " - ", "end": "-->"},
}


def _comment(text: str, style: str = "plain", **options: Any) -> str:
    """The prefix is left out where it is empty; the postfix has its line in any case."""
    if style not in _STYLES:
        raise ValueError(f"'{style}' is no style of comments; known: {', '.join(_STYLES)}")
    around = options.get("decoration", _STYLES[style]["decoration"]).rstrip()
    usual = {"newline": "\n", "beginning": "", "end": "", "prefix": around, "postfix": around}
    given = {**usual, "prefix_count": 1, "postfix_count": 1, **_STYLES[style], **options}
    line, mark, prefix = given["newline"], given["decoration"], given["prefix"]
    before = line if prefix == line else f"{prefix}{line}" if prefix else ""
    lines = mark + text.replace(line, line + mark)
    return "".join((
        given["beginning"] and given["beginning"] + line,
        before * int(given["prefix_count"]),
        lines.replace(mark + line, mark.rstrip() + line),  # no space at the end of an empty line
        (line + given["postfix"]) * given["postfix_count"],
        given["end"] and line + given["end"],
    ))  # fmt: skip


TEXT: dict[str, Callable[..., Any]] = {
    "bool": _bool,
    "to_json": _json,
    "to_nice_json": _nice_json,
    "from_json": lambda value, **_: json.loads(value),
    "to_yaml": _yaml,
    "to_nice_yaml": _nice_yaml,
    "from_yaml": lambda value: load_plain(value) if isinstance(value, str) else value,
    "from_yaml_all": lambda value: load_all_plain(value) if isinstance(value, str) else value,
    "regex_replace": _regex_replace,
    "regex_search": _regex_search,
    "regex_findall": _regex_findall,
    "regex_escape": _regex_escape,
    "mandatory": _mandatory,
    "basename": lambda value: posixpath.basename(str(value)),
    "dirname": lambda value: posixpath.dirname(str(value)),
    "expanduser": lambda value: posixpath.expanduser(str(value)),
    "normpath": lambda value: posixpath.normpath(str(value)),
    "relpath": lambda value, start=".": posixpath.relpath(str(value), start),
    "path_join": lambda value: posixpath.join(*([value] if isinstance(value, str) else value)),
    "splitext": lambda value: list(posixpath.splitext(str(value))),
    "commonpath": lambda value: posixpath.commonpath(value),
    "win_basename": lambda value: ntpath.basename(str(value)),
    "win_dirname": lambda value: ntpath.dirname(str(value)),
    "win_splitdrive": lambda value: list(ntpath.splitdrive(str(value))),
    "urldecode": _urldecode,
    "b64encode": lambda value, encoding="utf-8", **_: base64.b64encode(str(value).encode(encoding)).decode(),
    "b64decode": lambda value, encoding="utf-8", **_: base64.b64decode(value).decode(encoding),
    "quote": lambda value: shlex.quote("" if value is None else str(value)),
    "hash": _hash,
    "checksum": _hash,
    "sha1": lambda value: _hash(value, "sha1"),
    "md5": lambda value: _hash(value, "md5"),
    "to_uuid": lambda value, namespace=_NAMESPACE: str(uuid.uuid5(uuid.UUID(str(namespace)), str(value))),
    "to_datetime": _moment,
    "strftime": _strftime,
    "split": lambda value, *by: str(value).split(*by),
    "splitlines": lambda value: str(value).splitlines(),
    "urlsplit": _urlsplit,
    "human_readable": _human_readable,
    "human_to_bytes": _human_to_bytes,
    "comment": _comment,
    "type_debug": _type_name,
    "dedent": _dedent,
}
