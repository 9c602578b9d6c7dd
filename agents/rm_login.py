"""All that the daemon's key opens on a host where its login is an ordinary account: the agent, and no shell.

    restrict,command="/usr/bin/python3 -I -S /opt/rm/agents/rm_login.py" ssh-ed25519 …     (authorized_keys)

sshd runs this instead of what was asked for. Asked for the agent, or for what attends a session of a job
beside it, it starts that as root by sudo, whose rules allow the account exactly these two command
lines. Asked for `true`, by which a new key is proven, it does nothing. `--jobs-only` is passed on to the
agent. playbooks/login.yml sets this up; docs/control-machine.md says what a stolen key is good for.
"""

import os
import re
import sys

AGENT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "rm_agent.py")
ASKED = re.compile(r"(?:sudo -n )?\S+ -S -E (\S+) (--serve|--attend)\Z")
REFUSAL = (
    "rm: this key starts rm's agent and nothing else. Playbooks over SSH need a login of their own: "
    "-e ansible_user=NAME --private-key FILE.\n"
)


def command(asked, options):
    """What to run for the command line `asked`; [] for nothing, None for a refusal."""
    if asked == "true":
        return []
    found = ASKED.match(asked)
    if found is None or found.group(1) != AGENT:
        return None
    return ["sudo", "-n", sys.executable, "-S", "-E", AGENT, found.group(2), *options]


def main(options):
    words = command(os.environ.get("SSH_ORIGINAL_COMMAND", ""), options)
    if words is None:
        sys.stderr.write(REFUSAL)
        return 1
    if not words:
        return 0
    try:
        os.execvp(words[0], words)
    except OSError as error:
        sys.stderr.write("rm: sudo cannot be run on this host: %s\n" % os.strerror(error.errno))
        return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
