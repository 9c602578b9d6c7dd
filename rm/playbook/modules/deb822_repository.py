"""`deb822_repository`: a file of apt's sources in the form of deb822, with its key."""

from __future__ import annotations

from typing import Any

from rm.playbook.module import Arg, CompileContext, mode_of

_SWITCHES = (
    "allow_downgrade_to_insecure", "allow_insecure", "allow_weak", "by_hash", "check_date",
    "check_valid_until", "enabled", "pdiffs", "trusted",
)  # fmt: skip
_LISTS = ("architectures", "components", "languages", "suites", "targets", "uris")
ARGS = {
    "name": Arg(required=True),
    **{name: Arg("bool") for name in _SWITCHES},
    **{name: Arg("list") for name in _LISTS},
    "types": Arg("list", choices=("deb", "deb-src"), default=["deb"]),
    "date_max_future": Arg("int"),
    "inrelease_path": Arg(),
    "signed_by": Arg(),
    "mode": Arg("raw", default="0644"),
    "state": Arg(choices=("absent", "present"), default="present"),
    "install_python_debian": Arg("bool", default=False),  # rm needs no python3-debian
}


def compile(args: dict[str, Any], context: CompileContext) -> dict[str, Any]:
    ours = ("mode", "state", "install_python_debian")
    fields = {name: value for name, value in args.items() if name not in ours and value is not None}
    texts = {}
    for name, value in fields.items():
        if isinstance(value, bool):
            texts[name] = "yes" if value else "no"
        else:
            texts[name] = " ".join(value) if isinstance(value, list) else str(value)
    return {"fields": texts, "mode": mode_of("mode", args["mode"]), "state": args["state"]}
