"""`ini_file`: an option, or a whole section, of an INI file is there, or is not."""

from __future__ import annotations

from typing import Any

from rm.playbook.model.problems import BadArgument
from rm.playbook.module import OWNERSHIP, Arg, CompileContext

ARGS = {
    "path": Arg(required=True, aliases=("dest",)),
    "section": Arg(),
    "section_has_values": Arg("raw"),
    "option": Arg(),
    "value": Arg(),
    "values": Arg("list"),
    "backup": Arg("bool", default=False),
    "state": Arg(choices=("absent", "present"), default="present"),
    "exclusive": Arg("bool", default=True),
    "no_extra_spaces": Arg("bool", default=False),
    "ignore_spaces": Arg("bool", default=False),
    "allow_no_value": Arg("bool", default=False),
    "modify_inactive_option": Arg("bool", default=True),
    "create": Arg("bool", default=True),
    "follow": Arg("bool", default=False),
    **OWNERSHIP,
}


def compile(args: dict[str, Any], context: CompileContext) -> dict[str, Any]:
    if args["value"] is not None and args["values"] is not None:
        raise BadArgument("give only one of 'value' and 'values'")
    values = args["values"] or [] if args["value"] is None else [args["value"]]
    if args["state"] == "present" and not args["allow_no_value"] and args["value"] is None and not values:
        raise BadArgument("state 'present' needs 'value' or 'values', unless 'allow_no_value' is true")
    if args["state"] == "absent" and not args["section"] and not args["option"]:
        raise BadArgument("state 'absent' needs 'section' or 'option'")
    conditions = [_condition(one) for one in args["section_has_values"] or ()]
    return {**args, "values": list(dict.fromkeys(values)), "section_has_values": conditions}


def _condition(given: Any) -> dict[str, Any]:
    if not isinstance(given, dict) or "option" not in given or given.keys() - {"option", "value", "values"}:
        raise BadArgument("'section_has_values' is a list of mappings with 'option' and 'value' or 'values'")
    value, values = given.get("value"), given.get("values") or []
    if value is not None and values:
        raise BadArgument("give only one of 'value' and 'values' in 'section_has_values'")
    values = [value] if value is not None else values if isinstance(values, list) else [values]
    return {"option": str(given["option"]), "values": [str(one) for one in values]}
