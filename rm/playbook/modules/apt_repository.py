"""`apt_repository`: a line of apt's sources is there, or is not; the lists are fetched when it comes."""

from __future__ import annotations

import re
from typing import Any

from rm.playbook.model.problems import BadArgument
from rm.playbook.module import Arg, CompileContext

ARGS = {
    "repo": Arg(required=True),
    "state": Arg(choices=("absent", "present"), default="present"),
    "mode": Arg("mode"),
    "update_cache": Arg("bool", default=True, aliases=("update-cache",)),
    "update_cache_retries": Arg("int", default=5),
    "update_cache_retry_max_delay": Arg("int", default=12),
    "filename": Arg(),
    "install_python_apt": Arg("bool", default=True),  # rm needs no python3-apt
    "validate_certs": Arg("bool", default=True),
    "codename": Arg(),
}


def compile(args: dict[str, Any], context: CompileContext) -> dict[str, Any]:
    repo = args["repo"].strip()
    if not re.match(r"(ppa:\w|(deb|deb-src)\s)", repo):
        raise BadArgument(f"'{repo}' is neither a line of apt's sources ('deb …') nor a 'ppa:OWNER/NAME'")
    return {**args, "repo": repo}
