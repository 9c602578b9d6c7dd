"""scontrol inside a job of rm: what scripts ask it there, the names of hosts.

scontrol show hostnames [LIST]      one name a line; without a list the job's hosts
scontrol show hostlist NAMES        the short form of names with commas between
"""

import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

from rm_step_plan import expanded, folded_hosts


def main(words):
    verb = words[:2]
    if len(words) > 3 or verb not in (["show", "hostnames"], ["show", "hostname"], ["show", "hostlist"]):
        sys.stderr.write("scontrol: inside a job rm knows 'show hostnames' and 'show hostlist' alone.\n")
        return 1
    text = words[2] if len(words) > 2 else os.environ.get("SLURM_JOB_NODELIST", "")
    try:
        names = expanded(text)
    except ValueError as error:
        sys.stderr.write("scontrol: %s.\n" % error)
        return 1
    sys.stdout.write("\n".join(names if verb[1] != "hostlist" else [folded_hosts(names)]) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
