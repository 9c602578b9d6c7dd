"""`validate_argument_spec`: variables are what a specification says; roles that have one begin with it."""

from __future__ import annotations

from typing import Any

from jinja2.utils import missing

from rm.playbook.model.argument_spec import errors_of
from rm.playbook.model.problems import BadArgument
from rm.playbook.module import Arg, CompileContext

ARGS = {
    "argument_spec": Arg("dict", required=True),
    "provided_arguments": Arg("dict"),
    "validate_args_context": Arg("dict"),
}
EXECUTOR = "note"


def compile(args: dict[str, Any], context: CompileContext) -> dict[str, Any]:
    spec = args["argument_spec"]
    seen = {name: context.scope.lookup(str(name)) for name in spec}
    values = {name: value for name, value in seen.items() if value is not missing}
    try:
        found = errors_of(spec, {**values, **(args["provided_arguments"] or {})})
    except Exception as problem:  # both may come from a host, and be of any shape
        said = f"{type(problem).__name__}: {problem}"
        raise BadArgument(f"the specification has another form than one of Ansible's ({said})") from None
    about = args["validate_args_context"] or {}
    if not found:
        result = {"msg": "The arg spec validation passed", "validate_args_context": about}
        return {"failed": False, "result": result}
    said = "\n".join(["Validation of arguments failed:", *found])
    result = {
        "msg": said, "argument_errors": found, "argument_spec_data": spec, "validate_args_context": about,
    }  # fmt: skip
    return {"failed": True, "result": result}
