"""`rmx shell-init`: the hook by which `rm VERB --key=value` reaches rmx and all else the real rm.

`rm` is coreutils' remove, so the hook must fail safe: it takes over only when the first word is
exactly one of our verbs and nothing of that name lies in the current directory; it is never
exported to child shells; and rmx refuses, when called through it, every form that the real rm
would act upon where the hook is missing (rm.cli.main.refuse_what_rm_would_delete).
"""

from __future__ import annotations

import os
import shlex
import shutil
import sys

import click

from rm.errors import NotFound, UsageError

_POSIX_BODY = """\
  case "${{1-}}" in
    {verbs})
      if [ ! -e "$1" ] && [ ! -L "$1" ]; then
        {call} --as-rm "$@"
        return $?
      fi ;;
  esac
  command rm "$@"
"""
_BASH = "function rm {{\n" + _POSIX_BODY + "}}\nexport -nf rm\n"
_ZSH = "function rm {{\n" + _POSIX_BODY + "}}\n"
_FISH = """\
function rm --description 'rm, and rmx for its verbs'
    if test (count $argv) -gt 0; and contains -- $argv[1] {verbs}
        if not test -e $argv[1]; and not test -L $argv[1]
            {call} --as-rm $argv
            return $status
        end
    end
    command rm $argv
end
"""
_SHIM = """\
#!/bin/sh
# rm, and rmx for its verbs: put this file, named rm, into a directory early in PATH.
case "${{1-}}" in
  {verbs})
    if [ ! -e "$1" ] && [ ! -L "$1" ]; then
      exec {call} --as-rm "$@"
    fi ;;
esac
exec {real} "$@"
"""


def hook(shell: str, call: str) -> str:
    """The shell code; `call` is the path of rmx."""
    from rm.cli.main import JOB_VERBS

    quoted = shlex.quote(call)
    if shell == "fish":
        return _FISH.format(verbs=" ".join(JOB_VERBS), call=quoted)
    return {"bash": _BASH, "zsh": _ZSH}[shell].format(verbs="|".join(JOB_VERBS), call=quoted)


def shim(call: str, real: str) -> str:
    from rm.cli.main import JOB_VERBS

    return _SHIM.format(verbs="|".join(JOB_VERBS), call=shlex.quote(call), real=shlex.quote(real))


def _rmx() -> str:
    """The absolute path of the rmx that runs: the hook works with any later PATH."""
    mine = os.path.abspath(sys.argv[0])
    if os.path.basename(mine) == "rmx" and os.access(mine, os.X_OK):
        return mine
    return shutil.which("rmx") or "rmx"


def _real_rm() -> str:
    """coreutils' rm: the system's own place first, so that a shim never calls itself."""
    for path in ("/usr/bin/rm", "/bin/rm", "/run/current-system/sw/bin/rm"):
        if os.access(path, os.X_OK):
            return path
    raise NotFound(
        "The real rm was not found in /usr/bin and /bin.", "Without it the shim cannot pass calls on."
    )


@click.command("shell-init")
@click.argument("shell", required=False, metavar="[bash|zsh|fish]")
@click.option("--shim", "as_shim", is_flag=True, help="A PATH shim in POSIX sh instead, for use in scripts.")
def shell_init(shell: str | None, as_shim: bool) -> None:
    """Print the hook that makes `rm submit --file=SCRIPT` work. Use it so:

    \b
      eval "$(rmx shell-init bash)"         in ~/.bashrc
      eval "$(rmx shell-init zsh)"          in ~/.zshrc
      rmx shell-init fish | source          in ~/.config/fish/config.fish
      rmx shell-init --shim > ~/bin/rm      and chmod +x ~/bin/rm
    """
    if as_shim:
        click.echo(shim(_rmx(), _real_rm()), nl=False)
        return
    shell = shell or os.path.basename(os.environ.get("SHELL", ""))
    if shell not in ("bash", "zsh", "fish"):
        raise UsageError(f"There is no hook for the shell '{shell}'.", "Name one: bash, zsh or fish.")
    click.echo(hook(shell, _rmx()), nl=False)
