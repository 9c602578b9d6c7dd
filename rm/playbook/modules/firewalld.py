"""`firewalld`: one thing of a zone of firewalld, or the zone itself, is there, or is not."""

from __future__ import annotations

from typing import Any

from rm.playbook.model.problems import BadArgument
from rm.playbook.module import Arg, CompileContext

_ONE_OF = (
    "icmp_block", "icmp_block_inversion", "service", "protocol", "port", "port_forward", "rich_rule",
    "interface", "forward", "masquerade", "source", "target",
)  # fmt: skip
_SWITCHES = ("icmp_block_inversion", "forward", "masquerade")
ARGS = {
    "state": Arg(required=True, choices=("absent", "disabled", "enabled", "present")),
    "zone": Arg(),
    **{name: Arg("bool" if name in _SWITCHES else "str") for name in _ONE_OF},
    "port_forward": Arg("raw"),
    "target": Arg(choices=("default", "ACCEPT", "DROP", "%%REJECT%%")),
    "permanent": Arg("bool"),
    "immediate": Arg("bool", default=False),
    "timeout": Arg("int", default=0),
    "offline": Arg("bool", default=False),
}


def compile(args: dict[str, Any], context: CompileContext) -> dict[str, Any]:
    given = [name for name in _ONE_OF if args[name] is not None]
    if len(given) > 1:
        raise BadArgument(f"give only one of {', '.join(given)}")
    for name, needs in (("interface", "zone"), ("target", "zone"), ("source", "permanent")):
        if args[name] is not None and args[needs] is None:
            raise BadArgument(f"'{name}' needs '{needs}'")
    permanent = bool(args["permanent"])
    if args["offline"] and not permanent:
        raise BadArgument("'offline' needs 'permanent: true'")
    whole = args["target"] is not None or not given
    if not whole and args["state"] in ("absent", "present"):
        raise BadArgument(
            "the states absent and present are for zones and targets: write disabled or enabled"
        )
    if whole and not permanent:
        raise BadArgument("zones and targets need 'permanent: true'")
    if not given and (args["zone"] is None or args["state"] in ("enabled", "disabled")):
        raise BadArgument(f"give one of {', '.join(_ONE_OF)}, or 'zone' with the state present or absent")
    value: Any = args[given[0]] if given else args["zone"]
    if given == ["port"] and not (value.count("/") == 1 and value.partition("/")[2]):
        raise BadArgument(f"the port '{value}' has no protocol: write {value.rstrip('/')}/tcp")
    if given == ["port_forward"]:
        value = _forward(value)
    rest = {name: args[name] for name in ("state", "zone", "immediate", "timeout", "offline")}
    return {**rest, "permanent": permanent, "what": given[0] if given else "zone", "value": value}


def _forward(value: Any) -> dict[str, str]:
    one = value[0] if isinstance(value, list) and len(value) == 1 else value
    if not isinstance(one, dict) or not {"port", "proto", "toport"} <= one.keys():
        raise BadArgument("'port_forward' is one mapping with 'port', 'proto' and 'toport'")
    if extra := one.keys() - {"port", "proto", "toport", "toaddr"}:
        raise BadArgument(f"'port_forward' has no '{min(extra)}'")
    return {name: str(one.get(name) or "") for name in ("port", "proto", "toport", "toaddr")}
