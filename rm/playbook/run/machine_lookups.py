"""Lookups and filters that need chance, a cipher, the network or a kept file: `url`, `vault`, `random`, ….

All that is not a function of text comes through `Control`.
"""

from __future__ import annotations

import posixpath
import shlex
import string
from collections.abc import Mapping
from typing import Any

from rm.playbook.model.hashes import HASHES, SHORT
from rm.playbook.model.located import VAULTED
from rm.playbook.model.problems import BadArgument
from rm.playbook.run.sought import Control, Sought
from rm.playbook.template.filters import to_bool
from rm.playbook.template.filters.data import flatten

URL_OPTIONS: dict[str, Any] = {
    "validate_certs": True, "split_lines": True, "use_proxy": True, "username": None, "password": None,
    "headers": {}, "force": False, "timeout": 10, "http_agent": "ansible-httpget",
    "force_basic_auth": False, "follow_redirects": "urllib2", "ca_path": None, "unredirected_headers": None,
    "use_gssapi": False, "unix_socket": None, "ciphers": None, "use_netrc": True,
}  # fmt: skip
_URL_REFUSED = ("use_gssapi", "unix_socket", "ciphers")
PASSWORD_OPTIONS: dict[str, Any] = {
    "length": 20, "encrypt": None, "chars": ["ascii_letters", "digits", ".,:-_"], "ident": None, "seed": None,
}  # fmt: skip
_SALT = string.ascii_letters + string.digits + "./"


def _control(call: Sought) -> Control:
    if call.control is None:
        raise BadArgument("it is not possible here")
    return call.control


# -- url ----------------------------------------------------------------------------------------


def url(call: Sought) -> list[Any]:
    """What web servers have: their lines, or with `split_lines: false` each whole text."""
    for name in call.options:
        if name not in URL_OPTIONS:
            raise BadArgument(f"it has no option '{name}'")
    options: dict[str, Any] = {**URL_OPTIONS, **call.options}
    for name in _URL_REFUSED:
        if options[name]:
            raise BadArgument(f"the option '{name}' is not supported")
    found: list[Any] = []
    for address in (str(one) for one in flatten(call.terms)):
        text = _control(call).fetch(address, options).decode(errors="replace")
        found += text.splitlines() if to_bool(options["split_lines"]) else [text]
    return found


def looked(call: Sought) -> list[Any]:
    """What a test or a filter of a path says: its kind, the path, and for "same_file" another."""
    kind, path, *other = call.terms
    return [_control(call).looks(kind, path, other[0] if other else "")]


def filetree(call: Sought) -> list[Any]:
    """What lies below directories of this machine, each with its place and its properties; of two with the
    same path the first."""
    found: dict[str, Any] = {}
    for term in (str(one) for one in call.terms):
        top = posixpath.join(
            posixpath.abspath(call.path(term, "files")), *([""] if term.endswith("/") else [])
        )
        for one in _control(call).looks("tree", top, ""):
            found.setdefault(one["path"], one)
    return list(found.values())


# -- chance -------------------------------------------------------------------------------------


def drawn(call: Sought) -> list[Any]:
    """The filter `random`: a number below one, or an item of a list."""
    end, start, step, seed = call.terms
    chance = _control(call).chance(seed)
    if isinstance(end, int):
        try:
            return [chance.randrange(start or 0, end, step or 1)]
        except ValueError as problem:
            raise BadArgument(str(problem)) from None
    if not hasattr(end, "__iter__"):
        raise BadArgument("random can only be used on sequences and integers")
    if start or step:
        raise BadArgument("start and step can only be used with integer values")
    if not end:
        raise BadArgument("random finds nothing in an empty list")
    return [chance.choice(list(end) if not isinstance(end, str) else end)]


def chosen(call: Sought) -> list[Any]:
    """The lookup `random_choice`: one of its terms."""
    return [_control(call).chance(None).choice(call.terms)] if call.terms else []


def shuffled(call: Sought) -> list[Any]:
    """The filter `shuffle`."""
    values, seed = call.terms
    if not hasattr(values, "__iter__"):
        return [values]
    found = list(values)
    _control(call).chance(seed or None).shuffle(found)
    return [found]


# -- passwords ----------------------------------------------------------------------------------


def hashed(call: Sought) -> list[Any]:
    """The filter `password_hash`."""
    secret, kind, salt, salt_size, rounds, ident = call.terms
    return [_hash(_control(call), str(secret), str(kind), salt, salt_size, rounds, ident)]


def sealed(call: Sought) -> list[Any]:
    """The filter `vault`."""
    plain, password, salt, label = _texts(call, "data", "secret", "salt", "vault_id")
    if salt == "":
        raise BadArgument("the salt is empty")
    if set(label or "") & set("; \t\r\n"):
        raise BadArgument(f"{label!r} is no name of a vault id")
    return [_control(call).seal(plain, password, salt, label or "")]


def unsealed(call: Sought) -> list[Any]:
    """The filter `unvault`: a text that is not encrypted is given as it is."""
    text, password = _texts(call, "sealed", "secret")
    return [_control(call).unseal(text, password) if text.startswith(VAULTED) else text]


def _texts(call: Sought, *names: str) -> list[Any]:
    """The terms, which are called so; only a salt and a vault id may be missing. No message has what they
    hold, which may be secret."""
    for name, value in zip(names, call.terms, strict=True):
        if not isinstance(value, str) and (value is not None or name in ("data", "sealed", "secret")):
            raise BadArgument(f"'{name}' must be a text, not of the type {type(value).__name__}")
    return list(call.terms)


def _hash(
    control: Control, secret: str, kind: str, salt: Any = None, salt_size: Any = None, rounds: Any = None,
    ident: Any = None,
) -> str:  # fmt: skip
    name = SHORT.get(kind, kind)
    if name not in HASHES:
        raise BadArgument(f"'{kind}' is no way to hash a password; known: {', '.join(SHORT)}")
    mark, size, usual = HASHES[name]
    salt = str(salt) if salt else _drawn_text(control, int(salt_size or size), _SALT, None)
    if set(salt) - set(_SALT) or len(salt) > size or (name == "bcrypt" and len(salt) != size):
        wanted = f"{size}" if name == "bcrypt" else f"up to {size}"
        raise BadArgument(f"the salt must be {wanted} of the characters a-z, A-Z, 0-9, '.' and '/'")
    number = int(rounds or usual or 0)
    if name == "bcrypt":
        if not 4 <= number <= 31 or (ident or mark) not in ("2", "2a", "2b", "2y"):
            raise BadArgument("bcrypt needs 4 to 31 rounds, and an ident of 2, 2a, 2b or 2y")
        return control.crypt(secret, f"${ident or mark}${number:02}${salt}")
    if usual is None:
        return control.crypt(secret, f"${mark}${salt}")
    if not 1000 <= number <= 999_999_999:
        raise BadArgument(f"{number} rounds are not between 1000 and 999999999")
    how_often = "" if number == 5000 else f"rounds={number}$"
    return control.crypt(secret, f"${mark}${how_often}{salt}")


def _drawn_text(control: Control, length: int, characters: str, seed: Any) -> str:
    chance = control.chance(seed)
    return "".join(chance.choice(characters) for _ in range(length))


def password(call: Sought) -> list[Any]:
    """Passwords that files of this machine keep; one that is not there yet is drawn."""
    return [_kept(call, str(term)) for term in flatten(call.terms)]


def _kept(call: Sought, term: str) -> str:
    control = _control(call)
    name, options = _term(term, call.options)
    path = name if posixpath.isabs(name) or not call.search else posixpath.join(call.search[-1], name)
    characters = _characters(options["chars"])
    try:
        length = int(options["length"])
    except (TypeError, ValueError):
        raise BadArgument(f"'length' must be a number, not {options['length']!r}") from None
    encrypt = options["encrypt"]
    seen: dict[str, Any] = {}
    if encrypt and encrypt not in HASHES:
        raise BadArgument(f"'{encrypt}' is no way to hash a password; known: {', '.join(HASHES)}")

    def content(old: str | None) -> str:
        word, salt, ident = _parts(old) if old is not None else (None, None, None)
        if word is None:
            word = _drawn_text(control, length, characters, options["seed"])
        if encrypt and not salt:
            salt = _drawn_text(control, HASHES[encrypt][1], _SALT, None)
        if ident and options["ident"] and ident != options["ident"]:
            raise BadArgument(f"the ident {options['ident']} is not the stored one, {ident}")
        ident = ident or options["ident"] or ("2b" if encrypt == "bcrypt" else None)
        seen.update(word=word, salt=salt, ident=ident)
        if not encrypt and not salt:
            return word
        return f"{word} salt={salt}" + (f" ident={ident}" if ident else "")

    control.keep(path, content)
    if not encrypt:
        return str(seen["word"])
    return _hash(control, str(seen["word"]), encrypt, seen["salt"], None, None, seen["ident"])


def _term(term: str, options: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """`path key=value …`: the path and all options."""
    name, given = term, dict(options)
    if " " in term:
        words = shlex.split(term)
        at = next((i for i, word in enumerate(words) if "=" in word), len(words))
        name = " ".join(words[:at])
        if any("=" not in word for word in words[at:]):
            raise BadArgument(f"'{term}': a word without '=' follows the options")
        given |= {key: value for key, _, value in (word.partition("=") for word in words[at:])}
    for key in given:
        if key not in PASSWORD_OPTIONS:
            raise BadArgument(f"it has no option '{key}'")
    return name, {**PASSWORD_OPTIONS, **given}


def _characters(given: Any) -> str:
    if isinstance(given, str):
        comma = [","] if ",," in given else []
        given = comma + [one for one in given.replace(",,", ",").split(",") if one]
    found = "".join(str(getattr(string, str(one), one)) for one in given)
    found = found.replace('"', "").replace("'", "")
    if not found:
        raise BadArgument("'chars' names no characters")
    return found


def _parts(content: str) -> tuple[str, str | None, str | None]:
    """(password, salt, ident) of what a file keeps."""
    word, mark, rest = content.rpartition(" salt=")
    if not mark:
        return content, None, None
    salt, mark, ident = rest.rpartition(" ident=")
    return (word, salt, ident) if mark else (word, rest, None)
