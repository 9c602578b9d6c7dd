"""scontrol inside a job of rm. What scripts ask it most it does here:

scontrol show hostnames [LIST]      one name a line; without a list the job's hosts
scontrol show hostlist NAMES        the short form of names with commas between
scontrol requeue ID                 of the job itself

The rest the daemon does (rm_client.py). Where it does not answer, the rest is for another scontrol in PATH,
and `scontrol show job ID` of the job itself says what it was when it started; with -o in one line.
"""

import grp
import os
import signal
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

from rm_client import NoAnswer, another, end_by_signals, run
from rm_iteration import requeue
from rm_step_plan import expanded, folded_hosts

ONE_LINE, DETAILS = ("-o", "--oneliner"), ("-d", "-dd", "--details")
JOBS = (["show", "job"], ["show", "jobs"], ["show", "jobid"])
REQUEUES = {"requeue", "requeuehold"}
LISTS = (["show", "hostnames"], ["show", "hostname"], ["show", "hostlist"])


def main(words):
    end_by_signals()
    if not REQUEUES.isdisjoint(words):
        # the requeue may end its own job before this program has ended: callers would see a failure
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if words[:2] in LISTS and len(words) <= 3:
        return show(words[1], words[2] if len(words) > 2 else os.environ.get("SLURM_JOB_NODELIST", ""))
    if words[:1] == ["requeue"] and len(words) == 2 and words[1] in own_ids() and requeue():
        return 0
    try:
        return run("scontrol", words)
    except NoAnswer as error:
        why = error
    options = [word for word in words if word in ONE_LINE or word in DETAILS]
    asked = [word for word in words if word not in options]
    own = len(asked) == 3 and asked[:2] in JOBS and asked[2] in own_ids()
    another("scontrol", words)
    if not own:
        sys.stderr.write("scontrol: error: %s\n" % why)
        return 1
    try:
        lines = told(os.environ)
    except (ValueError, OverflowError, OSError) as error:  # a time that no calendar has
        sys.stderr.write("scontrol: the job's environment was changed: %s.\n" % error)
        return 1
    in_one_line = any(word in ONE_LINE for word in options)
    sys.stdout.write(" ".join(lines) + "\n" if in_one_line else "\n   ".join(lines) + "\n\n")
    return 0


def told(environ):
    """The lines that Slurm's prints of a job, as far as its environment has what they say."""

    def get(name, usual="(null)"):
        return environ.get("SLURM_" + name) or usual

    start_s, end_s = int(get("JOB_START_TIME", "0")), int(get("JOB_END_TIME", "0"))
    array, task = get("ARRAY_JOB_ID", ""), get("ARRAY_TASK_ID", "")
    element = " ArrayJobId=%s ArrayTaskId=%s" % (array, task) if array and task else ""
    user, hosts = get("JOB_USER"), expanded(get("JOB_NODELIST", ""))
    return [
        "JobId=%s%s JobName=%s" % (get("JOB_ID"), element, get("JOB_NAME")),
        "UserId=%s(%s) GroupId=%s(%s)" % (user, get("JOB_UID"), group(get("JOB_GID")), get("JOB_GID")),
        "Account=%s" % get("JOB_ACCOUNT"),
        "JobState=RUNNING Reason=None Dependency=%s" % get("JOB_DEPENDENCY"),
        "Restarts=%s BatchFlag=1 ExitCode=0:0" % get("RESTART_COUNT", "0"),
        "RunTime=%s TimeLimit=%s"
        % (clock(int(time.time()) - start_s), clock(end_s - start_s) if end_s else "UNLIMITED"),
        "StartTime=%s EndTime=%s" % (moment(start_s), moment(end_s) if end_s else "Unknown"),
        "Partition=%s AllocNode:Sid=%s:0" % (get("JOB_PARTITION"), get("SUBMIT_HOST", "N/A")),
        "NodeList=%s" % get("JOB_NODELIST"),
        "BatchHost=%s" % (hosts[0] if hosts else "(null)"),
        "NumNodes=%s NumCPUs=%d NumTasks=%s CPUs/Task=%s"
        % (get("JOB_NUM_NODES"), summed(get("JOB_CPUS_PER_NODE", "0")), get("NTASKS"), get("CPUS_PER_TASK")),
    ]


def group(number):
    try:
        return grp.getgrgid(int(number)).gr_name
    except (KeyError, ValueError, OverflowError):
        return "(null)"


def clock(seconds):
    days, rest = divmod(max(0, seconds), 86400)
    text = "%02d:%02d:%02d" % (rest // 3600, rest // 60 % 60, rest % 60)
    return "%d-%s" % (days, text) if days else text


def moment(second):
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(second))


def summed(text):
    """Of a number for each host in Slurm's short form, `4(x2),2`."""
    total = 0
    for part in text.split(","):
        number, _, times = part.rstrip(")").partition("(x")
        total += int(number) * int(times or 1)
    return total


def show(what, text):
    try:
        names = expanded(text)
    except ValueError as error:
        sys.stderr.write("scontrol: %s.\n" % error)
        return 1
    sys.stdout.write("\n".join(names if what != "hostlist" else [folded_hosts(names)]) + "\n")
    return 0


def own_ids():
    """An element of an array has two."""
    array, task = os.environ.get("SLURM_ARRAY_JOB_ID"), os.environ.get("SLURM_ARRAY_TASK_ID")
    return {os.environ.get("SLURM_JOB_ID"), "%s_%s" % (array, task) if array and task else None} - {None}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
