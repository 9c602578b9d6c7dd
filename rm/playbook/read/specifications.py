"""What a role says of its own arguments, in `meta/argument_specs.yml` or `meta/main.yml`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from rm.playbook.model.argument_spec import KINDS
from rm.playbook.model.located import Map
from rm.playbook.model.schema import Task
from rm.playbook.module import Files
from rm.playbook.read.reader import Reader
from rm.playbook.read.roles import load_mapping, role_files
from rm.playbook.template.filters import FALSE, TRUE
from rm.playbook.template.template import has_template


def validates(reader: Reader, given: Mapping[str, Any], line: int) -> bool:
    """Does an include or import of a role with these arguments check the role's? A template, which is not
    known yet, does. Raises UsageError."""
    said = given.get("rolespec_validate", True)
    if has_template(said):
        return True
    word = str(said).strip().lower()
    if word not in (*TRUE, *FALSE):
        raise reader.fail(line, f"'rolespec_validate' must be true or false, not '{said}'.")
    return word in TRUE


def validation(
    outer: Reader, files: Files, around: Task, entry: str, play: tuple[str, int]
) -> tuple[Task, ...]:
    """The task that checks the arguments of a role, whose tasks get what `around` holds, at one of its entry
    points; none where the role says nothing of them. Its place is the play's, as in Ansible. Raises
    UsageError."""
    role = around.role
    assert role is not None
    for kind in ("argument_specs", "main"):
        for path in role_files(files, role.path, "meta", kind):
            reader = outer.of(path)
            found = load_mapping(reader, files, path, 1).get("argument_specs")
            if found is None:
                continue
            if not isinstance(found, Map):
                raise reader.fail(1, "'argument_specs' must be a mapping of entry points.")
            point = found.get(entry)
            options = point.get("options") if isinstance(point, Map) else None
            if not isinstance(point, Map) or not options:
                return ()
            _check(reader, options, point.line_of("options"))
            about = str(point.get("short_description") or "")
            name = f"Validating arguments against arg spec '{entry}'" + (f" - {about}" if about else "")
            args = {
                "argument_spec": options,
                "validate_args_context": {
                    "type": "role", "name": role.name, "argument_spec_name": entry, "path": role.path,
                },
            }  # fmt: skip
            made = replace(
                around, name=name, module="validate_argument_spec", args=args, line=play[1], file=play[0]
            )
            return (replace(made, tags=(*around.tags, "always"), notify=()),)
    return ()


def _check(reader: Reader, options: object, line: int) -> None:
    """Raises UsageError for a type that nobody knows."""
    if not isinstance(options, Map):
        raise reader.fail(line, "'options' must be a mapping of the arguments.")
    for name, one in options.items():
        if not isinstance(one, Mapping):
            raise reader.fail(options.line_of(name), f"the argument '{name}' must be a mapping.")
        for word in ("type", "elements"):
            if one.get(word) is not None and one[word] not in KINDS:
                known = f"Known: {', '.join(KINDS)}."
                raise reader.fail(options.line_of(name), f"'{one[word]}' is not a type of '{name}'.", known)
        if one.get("options") is not None:
            _check(reader, one["options"], options.line_of(name))
