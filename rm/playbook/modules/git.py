"""`git`: a directory of the host is a checkout of one version of a repository."""

from __future__ import annotations

from typing import Any

from rm.playbook.model.problems import BadArgument
from rm.playbook.module import Arg, CompileContext

ARGS = {
    "repo": Arg(required=True, aliases=("name",)),
    "dest": Arg(),
    "version": Arg(default="HEAD"),
    "remote": Arg(default="origin"),
    "refspec": Arg(),
    "reference": Arg(),
    "force": Arg("bool", default=False),
    "depth": Arg("int"),
    "clone": Arg("bool", default=True),
    "update": Arg("bool", default=True),
    "bare": Arg("bool", default=False),
    "recursive": Arg("bool", default=True),
    "single_branch": Arg("bool", default=False),
    "track_submodules": Arg("bool", default=False),
    "separate_git_dir": Arg(),
    "verify_commit": Arg("bool", default=False),
    "accept_hostkey": Arg("bool", default=False),
    "accept_newhostkey": Arg("bool", default=False),
    "key_file": Arg(),
    "ssh_opts": Arg(),
    "executable": Arg(),
    "umask": Arg("raw"),
    "archive": Arg(),
}


def compile(args: dict[str, Any], context: CompileContext) -> dict[str, Any]:
    if args["dest"] is None and args["clone"]:
        raise BadArgument("the argument 'dest' is missing")
    if args["accept_hostkey"] and args["accept_newhostkey"]:
        raise BadArgument("give only one of 'accept_hostkey' and 'accept_newhostkey'")
    if args["bare"] and args["separate_git_dir"]:
        raise BadArgument("a bare repository has no separate directory")
    if args["archive"] or args["umask"] is not None:
        raise BadArgument("'archive' and 'umask' are not supported")
    if args["repo"].startswith("-") or (args["version"] or "").startswith("-"):
        raise BadArgument("neither 'repo' nor 'version' may begin with '-'")
    return args
