"""What kind of program a module is, from its text; Ansible's kinds, told apart as Ansible does."""

from __future__ import annotations

import re

from rm.compiled_later import compiled_later
from rm.playbook.model.problems import BadArgument
from rm.quick_dataclass import dataclass

COMMON = b"#<<INCLUDE_ANSIBLE_MODULE_COMMON>>"
JSON_ARGS = b"<<INCLUDE_ANSIBLE_MODULE_JSON_ARGS>>"
_POWERSHELL = compiled_later(
    rb"# POWERSHELL_COMMON|#\s*Requires\s+-(?:Module|Version)|#AnsibleRequires\s+-", re.I
)
_NEW = compiled_later(
    rb"^[ \t]*(?:from[ \t]+ansible(?:\.module_utils|_collections\.\S+)[\w.]*[ \t]+import|"
    rb"import[ \t]+ansible(?:\.module_utils|_collections\.\S+)|"
    rb"from[ \t]+\.+[\w.]*module_utils[\w.]*[ \t]+import)",
    re.MULTILINE,
)


@dataclass(frozen=True, slots=True)
class Style:
    """`kind`: python (needs ansible.module_utils), json_args (the arguments stand in its text), want_json,
    key_value or binary (the arguments are in a file). `interpreter`: the words of its first line."""

    kind: str
    interpreter: tuple[str, ...] = ()


def style_of(text: bytes, name: str) -> Style:
    """Raises BadArgument for what runs on no Linux host, and for a script that does not say what runs it."""
    if b"\0" in text[:8192]:
        return Style("binary")
    if COMMON in text or _NEW.search(text):
        return Style("python")
    if _POWERSHELL.search(text):
        raise BadArgument(f"'{name}' is a module for Windows")
    kind = "json_args" if JSON_ARGS in text else "want_json" if b"WANT_JSON" in text else "key_value"
    first = text.partition(b"\n")[0]
    if not first.startswith(b"#!"):
        raise BadArgument(f"the module '{name}' does not say in its first line, after '#!', what runs it")
    words = first[2:].decode(errors="replace").split()
    return Style(kind, tuple(words))
