"""srun inside a job, on one host: by the host agent alone."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from typing import Any

import pytest

from tests.agent_process import AGENTS, Agent, agents, launch_request, until
from tests.unit.test_agent_lease import gone

HOST = {"host": "h1", "address": "10.0.0.1", "tasks": 3, "cpus": 4, "gpus": 2}


def batch(lines: str, **more: Any) -> dict[str, Any]:
    """The launch of a script that runs once."""
    tasks = [
        {"rank": r, "gpus": ["0", "1"], "env": {"RM_HOST": "h1", "SLURM_JOB_GPUS": "4,7"}} for r in range(3)
    ]
    return {
        **launch_request("", 1, 3),
        "script": None,
        "batch": "#!/bin/bash\nexec 2>&1\n" + lines,
        "allocation": [HOST],
        "place": 0,
        "tasks": tasks,
        "env": {"SLURM_JOB_ID": "1", "SLURM_JOB_NODELIST": "h1"},
        **more,
    }


def run(agent: Agent, lines: str, **more: Any) -> tuple[int, list[str]]:
    """The script's exit code, and what it printed."""
    answer = agent.ask("launch", **batch(lines, **more))
    assert answer["ok"], answer
    end = agent.event("exit", job=1, rank=0)
    return end["code"], agent.log().splitlines()


def test_a_step_runs_as_many_tasks_as_the_job_has() -> None:
    with agents() as start:
        code, lines = run(
            start(), "srun -l sh -c 'echo $SLURM_PROCID of $SLURM_NTASKS on $SLURM_STEP_NODELIST'"
        )
        assert (code, sorted(lines)) == (0, [f"{r}: {r} of 3 on h1" for r in range(3)])


def test_a_step_tells_how_it_was_asked_for_and_where_its_srun_runs() -> None:
    said = "'echo $SLURM_DISTRIBUTION ${SLURM_DIST_PLANESIZE:-none} $SLURM_LAUNCH_NODE_IPADDR'"
    with agents() as start:
        code, lines = run(start(), f"srun -n1 -m cyclic sh -c {said}; srun -n1 -m plane=2 sh -c {said}")
    assert (code, lines) == (0, ["cyclic none 10.0.0.1", "plane 2 10.0.0.1"])


def test_kinds_of_mpi_are_listed_and_unknown_ones_refused() -> None:
    with agents() as start:
        code, lines = run(start(), "srun --mpi=list; echo $?; srun --mpi=pmix true; echo $?")
        assert code == 0
        assert lines[:4] == ["MPI plugin types are...", "\tnone", "\tpmi2", "0"]
        assert "--mpi=pmix is not supported" in lines[4]
        assert lines[5] == "1"


def test_a_step_is_on_no_other_cluster_than_its_jobs() -> None:
    with agents() as start:
        code, lines = run(
            start(),
            "export SLURM_CLUSTER_NAME=lab; srun -n1 -M Lab echo own; srun -M lab,other true; echo $?",
        )
        assert code == 0
        assert lines[0] == "own"
        assert "No cluster 'other' known by database. This job's cluster is 'lab'." in lines[1]
        assert lines[2] == "1"


def test_the_largest_exit_code_comes_back_and_each_failure_is_named() -> None:
    with agents() as start:
        code, lines = run(
            start(), "srun sh -c 'exit $SLURM_PROCID'; echo code $?; srun -n1 sh -c 'kill $$'; echo $?"
        )
        assert code == 0
        assert set(lines) == {
            "srun: error: h1: task 1: Exited with exit code 1",
            "srun: error: h1: task 2: Exited with exit code 2",
            "code 2",
            "srun: error: h1: task 0: Terminated",
            "143",
        }


def test_input_goes_to_all_tasks_or_to_one_or_comes_from_a_file() -> None:
    script = """
D=$(mktemp -d)
echo to all | srun -l cat
echo to one | srun -l -i 2 cat
srun -l -n1 -i none cat
echo from > $D/in; srun -l -n1 -i $D/in cat
yes | srun -n1 head -c 2000000 | wc -c
rm -r $D
"""
    with agents() as start:
        code, lines = run(start(), script)
        assert (code, sorted(lines)) == (
            0,
            ["0: from", "0: to all", "1: to all", "2000000", "2: to all", "2: to one"],
        )


def test_each_task_reads_a_file_of_its_own_where_the_name_says_so() -> None:
    script = """
cd $(mktemp -d)
for n in 0 1 2; do yes $n | head -c 1000000 > in.$n; done
srun -l -i in.%t sh -c '[ $SLURM_PROCID != 0 ] || exec head -n 1; tail -c 2; cat | wc -c'
srun -l -n2 -i in.%n sh -c 'head -n 1'
rm in.1
srun -n2 -i in.%t cat; echo code $?
rm -r $PWD
"""
    with agents() as start:
        code, lines = run(start(), script)
    assert code == 0
    assert sorted(lines[:-2]) == sorted(["0: 0", "1: 1", "1: 0", "2: 2", "2: 0", "0: 0", "1: 0"])
    assert lines[-2].endswith("/in.1 cannot be read: No such file or directory.")
    assert lines[-1] == "code 1"


def test_numbers_of_tasks_and_hosts_are_at_least_one() -> None:
    options = ("--ntasks=0", "--nodes=0", "--ntasks-per-node=0", "--cpus-per-task=0")
    with agents() as start:
        _, lines = run(start(), "\n".join(f"srun {option} echo ran" for option in options))
    assert [line.partition(" is ")[0] for line in lines] == [f"srun: error: {x[:-2]}" for x in options]


def test_output_goes_to_files_of_tasks() -> None:
    script = """
D=$(mktemp -d)
srun -o $D/%j.%s.%t sh -c 'echo out $SLURM_PROCID; echo err >&2'
head $D/*
srun -n2 -o $D/all -e $D/err sh -c 'echo out; echo err >&2'; sort $D/all $D/err
srun -n1 -o none echo nothing
srun -n1 -o /nowhere/x echo nothing; echo code $?
rm -r $D
"""
    with agents() as start:
        _, lines = run(start(), script)
        assert [line for line in lines if not line.startswith("==>") and line] == [
            *("out 0", "err", "out 1", "err", "out 2", "err"),
            *("err", "err", "out", "out"),
            "srun: error: The file /nowhere/x cannot be written: No such file or directory.",
            "code 1",
        ]


def test_tasks_that_share_an_output_keep_their_lines_whole() -> None:
    # the first pieces of all lines are on their way before the rest of any is written
    lines = """cd $(mktemp -d); cat >step <<'END'
printf '%s' "$SLURM_PROCID"; echo >>at; until [ $(grep -c '' at) = 3 ]; do sleep 0.01; done
echo rest
END
srun sh step; rm at; srun --unbuffered sh step; srun -n3 sh -c 'echo whole; printf part'"""
    with agents() as start:
        code, said = run(start(), lines)
    assert code == 0
    assert sorted(said[:3]) == ["0rest", "1rest", "2rest"]
    assert sorted("".join(said[3:6])) == sorted("012" + 3 * "rest")
    assert sorted("".join(said[6:])) == sorted(3 * "wholepart")


def test_a_step_waits_for_another_one_that_holds_the_host() -> None:
    script = """
D=$(mktemp -d)
mkfifo $D/go $D/runs
srun -n1 sh -c "echo > $D/runs; cat $D/go" &
read x < $D/runs
srun -n1 -Q --immediate true; echo busy $?
SLURM_EXIT_IMMEDIATE=77 SLURM_EXIT_ERROR=9 SLURM_IMMEDIATE=1 srun -n1 -Q true; echo at once $?
srun -n1 --overlap echo overlaps
srun -n1 sh -c 'echo waited' & second=$!
echo goes > $D/go
wait
rm -r $D
"""
    with agents() as start:
        _, lines = run(start(), script)
        told = [line for line in lines if not line.startswith("srun: ")]
        assert told == ["busy 1", "at once 77", "overlaps", "goes", "waited"]


def test_a_file_for_each_task_takes_more_descriptors_than_the_script_may_have() -> None:
    script = """
D=$(mktemp -d)
ulimit -Sn 20
for n in $(seq 0 15); do echo in $n > $D/in.$n; done
srun -n16 -O -i $D/in.%t -o $D/out.%t sh -c 'echo $(cat) of $(ulimit -Sn)'
cat $D/out.*
rm -r $D
"""
    with agents() as start:
        code, lines = run(start(), script)
    assert (code, sorted(lines)) == (0, sorted(f"in {rank} of 20" for rank in range(16)))


def test_a_step_wider_than_the_job_gets_a_sentence() -> None:
    with agents() as start:
        code, lines = run(start(), "SLURM_EXIT_IMMEDIATE=77 SLURM_EXIT_ERROR=9 srun -I -N2 true")
        assert (code, lines) == (
            9,
            ["srun: error: Unable to create step: It asks for 2 hosts, and the job has 1 that it may use."],
        )


def test_a_bad_exit_ends_the_step_if_asked() -> None:
    with agents() as start:
        script = "srun -K sh -c '[ $SLURM_PROCID != 1 ] || exit 7; exec sleep 1000'; echo $?"
        _, lines = run(start(), script)
        assert "srun: Terminating StepId=1.0" in lines
        assert lines[-1] == "143"


def test_whether_a_bad_exit_ends_the_step_is_said_plainly() -> None:
    with agents() as start:
        code, lines = run(start(), "srun -n1 --kill-on-bad-exit=0 true && srun --kill-on-bad-exit=maybe true")
    assert (code, lines) == (1, ["srun: error: --kill-on-bad-exit is 'maybe': write 0 or 1."])


def test_what_tasks_leave_behind_keeps_no_step() -> None:
    lines = """export D=$(mktemp -d)
srun -n1 sh -c 'sleep 1000 & echo $! > $D/0; head -c 60000 /dev/zero; exit 3' | wc -c
echo codes ${PIPESTATUS[*]}
srun -n2 -K sh -c '[ $SLURM_PROCID = 0 ] && exec sleep 1000; sleep 1000 & echo $! > $D/1; exit 5'
for left in $(cat $D/*); do while kill -0 $left 2>&-; do sleep 0.02; done; echo ended; done
rm -r $D"""
    with agents() as start:
        code, said = run(start(), lines)
    assert (code, said) == (
        0,
        [
            "srun: error: h1: task 0: Exited with exit code 3",
            "60000",
            "codes 3 0",
            "srun: error: h1: task 1: Exited with exit code 5",
            "srun: Terminating StepId=1.1",
            "srun: error: h1: task 0: Terminated",
            "ended",
            "ended",
        ],
    )


LEFT = """D=$(mktemp -d)
cat > $D/task <<'END'
if [ $SLURM_PROCID = 1 ]; then read x < $1/said; exit; fi
(read x < $1/go; echo left >&2; echo left
head -c 300000 /dev/zero; echo; printf unfinished; echo > $1/said) &
exit 3
END
mkfifo $D/go $D/said
srun -n2 sh $D/task $D > $D/out 2> $D/err &
until grep -qs 'task 0: Exited' $D/err; do sleep 0.02; done
echo > $D/go
wait $!
echo code $?
tr -d '\\0' < $D/out; echo
tr -cd '\\0' < $D/out | wc -c
cat $D/err
rm -r $D"""


def test_what_tasks_leave_behind_is_heard_as_long_as_others_run() -> None:
    with agents() as start:
        code, said = run(start(), LEFT)
    told = ["code 3", "left", "", "unfinished", "300000"]
    assert (code, said) == (0, [*told, "srun: error: h1: task 0: Exited with exit code 3", "left"])


@pytest.mark.parametrize("tasks", [1, 2])
def test_what_goes_on_behind_the_last_end_of_a_step_does_not_fail_it(tasks: int) -> None:
    """Its output fills what a slow reader has not taken yet."""
    flood = f"srun -n{tasks} sh -c 'yes {'a' * 50} & sleep 0.2'"
    slow = "while dd bs=64k count=1 2>/dev/null | wc -c | grep -vq '^0$'; do sleep 0.002; done"
    with agents() as start:
        code, lines = run(start(), f"{flood} > >({slow}); echo code $?; {flood} > >({slow}); echo code $?")
    assert (code, lines) == (0, ["code 0", "code 0"])


def test_the_first_end_ends_the_step_after_a_while_if_asked() -> None:
    with agents() as start:
        code, lines = run(
            start(), "srun -W 1 -n 3 sh -c '[ \"$SLURM_PROCID\" = 1 ] && exit 0; exec sleep 60'"
        )
        assert code == 143
        assert "srun: First task exited 1s ago" in lines


def test_tasks_have_the_limits_that_the_script_has_set() -> None:
    """As `ulimit -s unlimited; srun program` wants them; none above the hard limit."""
    with agents() as start:
        code, lines = run(start(), """ulimit -S -n 300; ulimit -S -c 0
            ulimit -S -s 4096; srun -n 1 bash -c 'ulimit -n; ulimit -c; ulimit -s'
            srun --propagate=STACK -n 1 bash -c 'ulimit -n'; srun --propagate=NONE -n 1 bash -c 'ulimit -s'
            srun --propagate=SPEED -n 1 true""")  # fmt: skip
        assert code == 1
        assert lines[:3] == ["300", "0", "4096"]
        assert (lines[3] == "300", lines[4] == "4096") == (False, False)
        assert lines[5].startswith("srun: error: --propagate=SPEED: SPEED is none of ALL, NONE, AS,")


def test_a_bad_exit_ends_also_tasks_that_are_being_started() -> None:
    with agents() as start:
        script = "srun -O -n24 -K sh -c '[ $SLURM_PROCID != 0 ] || exit 7; exec sleep 1000'"
        _, lines = run(start(), script)
        assert not [line for line in lines if "Killed" in line]  # after half a minute, SIGTERM being lost


def test_signals_are_passed_on() -> None:
    script = """
D=$(mktemp -d)
mkfifo $D/runs
srun -n1 sh -c "trap 'echo heard; exit 5' USR1; echo > $D/runs; while :; do sleep 0.02; done" & pid=$!
read x < $D/runs
kill -USR1 $pid
wait $pid
echo $?
rm -r $D
"""
    with agents() as start:
        _, lines = run(start(), script)
        assert "heard" in lines  # a shell may also say of the `sleep` that the signal ended it
        assert lines[-1] == "5"


def test_a_step_ends_with_its_script_and_with_its_srun() -> None:
    script = """
D=$(mktemp -d)
mkfifo $D/runs
srun -n1 --overlap sh -c "echo \\$\\$ > $D/runs; exec sleep 1000" & pid=$!
read first < $D/runs
kill -9 $pid
while kill -0 $first 2>&-; do sleep 0.02; done
srun -n1 --overlap sh -c "echo \\$\\$ > $D/runs; exec sleep 1000" &
read second < $D/runs
echo $second
"""
    with agents() as start:
        agent = start()
        code, lines = run(agent, script)
        assert code == 0
        assert gone(int(lines[-1]))


def test_several_programs_make_one_step() -> None:
    script = """
D=$(mktemp -d)
printf '0 echo first %%t\\n1-2 echo other %%o\\n' > $D/programs
srun --multi-prog $D/programs
srun --multi-prog $D/none
srun -n2 --multi-prog $D/programs; echo $?
printf '0-1 echo a\\n1 echo b\\n* true\\n' > $D/programs
srun --multi-prog $D/programs; echo $?
rm -r $D
"""
    with agents() as start:
        _, lines = run(start(), script)
        assert sorted(lines[:3]) == ["first 0", "other 0", "other 1"]
        assert "cannot be read: No such file or directory." in lines[3]
        assert "Line 2 of the file of programs names task 2, and the step has 2" in lines[4]
        assert "Line 2 of the file of programs names task 1 once more." in lines[6]
        assert (lines[5], lines[7]) == ("1", "1")


def test_a_program_that_is_not_there_ends_its_task_with_2() -> None:
    with agents() as start:
        _, lines = run(start(), "srun -n1 no-such-program; echo $?")
        assert lines[-1] == "2"
        assert "no-such-program: No such file or directory" in lines[0]


def test_tasks_find_their_place_their_gpus_and_the_scripts_environment() -> None:
    script = """
export MINE=yes
cd /usr
told='$PWD $RANK of $WORLD_SIZE $LOCAL_RANK $CUDA_VISIBLE_DEVICES $SLURM_STEP_ID'
srun -l --gpus-per-task=1 -n2 sh -c "echo \\$MINE $told"
srun -l -n2 --export=NONE -D /tmp sh -c "echo [\\$MINE] $told"
"""
    with agents() as start:
        _, lines = run(start(), script)
        assert sorted(lines) == sorted(
            [
                "0: yes /usr 0 of 2 0 0 0",
                "1: yes /usr 1 of 2 0 1 0",
                "0: [] /tmp 0 of 2 0 0,1 1",
                "1: [] /tmp 1 of 2 1 0,1 1",
            ]
        )


def test_a_step_is_told_the_gpus_that_it_has() -> None:
    told = "echo $SLURM_STEP_GPUS of $SLURM_JOB_GPUS, $SLURM_GPUS_ON_NODE"
    script = f"srun -n1 --gpus=1 sh -c '{told}'; srun -n1 sh -c '{told}'; srun -n1 --gres=none sh -c '{told}'"
    with agents() as start:
        _, lines = run(start(), script)
        assert lines == ["4 of 4,7, 1", "4,7 of 4,7, 2", "of 4,7,"]


def test_what_a_process_is_found_by_comes_first_in_its_environment() -> None:
    """A user may export more than is looked at."""
    with agents() as start:
        code, lines = run(
            start(), "cut -z -d = -f 1 /proc/$$/environ; srun -n1 cut -z -d = -f 1 /proc/self/environ"
        )
    script = lines[0].split("\0")
    task = script[script.index("RM_SCHEDULE", 1) :]
    assert code == 0
    assert script[:2] == task[:2] == ["RM_SCHEDULE", "SLURM_JOB_ID"]
    assert "SLURM_STEP_ID" in task[:4]


def test_a_step_has_a_control_group_below_the_jobs() -> None:
    with agents() as start:
        _, lines = run(start(), "cat /proc/self/cgroup; echo --; srun -n1 cat /proc/self/cgroup")
        if any("job_1_1" in line for line in lines):  # where there are control groups
            assert any(line.endswith("job_1_1/step_0") for line in lines[lines.index("--") :])


def test_outside_of_such_a_job_srun_says_what_to_do() -> None:
    done = subprocess.run(
        [sys.executable, str(AGENTS / "rm_srun.py"), "true"],
        capture_output=True,
        text=True,
        env={},
        check=False,
    )
    assert done.returncode == 1
    assert "submit it with --launch=batch" in done.stderr


def test_other_users_are_not_heard() -> None:
    if os.getuid() != 0:
        pytest.skip("needs root: the other user is another one than the job's")
    with agents() as start:
        agent = start()
        request = {**launch_request("", 1, 1), "script": None, "batch": "#!/bin/sh\nsleep 1000\n"}
        agent.ask("launch", **request, allocation=[HOST], place=0)
        path = str(agent.state / "jobs/1.1/steps")
        program = f"import socket,os; os.setuid(1); socket.socket(socket.AF_UNIX).connect({path!r})"
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
        assert "PermissionError" in done.stderr


def test_nonsense_at_the_socket_ends_nothing() -> None:
    with agents() as start:
        agent = start()
        script = """python3 -S - "$RM_STEPS" <<'END'
import socket, sys
for text in (b"{}\\n", b"[]\\n", b"nonsense\\n", b'{"op":"carry","step":9,"place":0}\\n',
             b'{"op":"create"}\\n', b'{"op":"create","step":{"ntasks":-1}}\\n', b"x" * 2000000,
             b'{"op":"agent"}\\n{"op":"piece"}\\n'):
    with socket.socket(socket.AF_UNIX) as s:
        s.connect(sys.argv[1])
        try:
            s.sendall(text)
            s.shutdown(socket.SHUT_WR)
            s.recv(1000)
        except OSError:
            pass
END
srun -n1 echo still there"""
        assert run(agent, script) == (0, ["still there"])


def test_the_names_of_hosts_are_shown() -> None:
    script = (
        "scontrol show hostnames 'gpu[01-02],x'; scontrol show hostlist a1,a2\n"
        "unset RM_STEPS; scontrol show job 2; echo $?"
    )
    with agents() as start:
        _, lines = run(start(), script)
        assert lines[:4] == ["gpu01", "gpu02", "x", "a[1-2]"]
        assert lines[-1] == "1"


NO_DAEMON = "scontrol: error: This is not a job whose script runs once: submit it with --launch=batch."
# rm's commands and a few others: this machine may have those of Slurm
WITHOUT_SLURM = r"""few=$(mktemp -d)
for tool in cat chmod env grep mkdir mktemp python3 rm sed sh tr; do ln -s $(command -v $tool) $few; done
PATH=${PATH%%:*}:$few
trap 'rm -r $few' EXIT
"""


def test_a_job_requeues_itself_and_asks_another_scontrol_for_the_rest() -> None:
    script = r"""there=$(mktemp -d)
unset RM_STEPS  # there is no daemon
export RM_REPORTS=$there/reports SLURM_JOB_ID=3 SLURM_ARRAY_JOB_ID=2 SLURM_ARRAY_TASK_ID=1
scontrol requeue 2_1 && scontrol requeue 3 && cat $RM_REPORTS
scontrol requeue 9 2>&1
printf '#!/bin/sh\necho "other: $*"\n' > $there/scontrol && chmod 755 $there/scontrol
PATH=$PATH:$there scontrol show job 'a b'
mkdir $there/of-another-host && printf '#!/no/python\n' > $there/of-another-host/scontrol
chmod 755 $there/of-another-host/scontrol
PATH=$PATH:$there/of-another-host scontrol show job 1 2>&1 | sed "s,$there,DIR,"
rm -r $there"""
    with agents() as start:
        _, lines = run(start(), WITHOUT_SLURM + script)
    assert [line for line in lines if line] == [
        '["requeue"]',
        '["requeue"]',
        NO_DAEMON,
        "other: show job a b",
        "scontrol: DIR/of-another-host/scontrol cannot be started here: No such file or directory.",
        NO_DAEMON,
    ]


def test_a_job_shows_itself_where_no_other_scontrol_is() -> None:
    told = {
        "SLURM_JOB_ID": "3", "SLURM_ARRAY_JOB_ID": "2", "SLURM_ARRAY_TASK_ID": "1", "TZ": "UTC",
        "SLURM_JOB_NAME": "my job", "SLURM_JOB_USER": "ann",
        "SLURM_JOB_NODELIST": "h[2-3],h1", "SLURM_JOB_NUM_NODES": "3", "SLURM_NTASKS": "6",
        "SLURM_CPUS_PER_TASK": "2", "SLURM_JOB_CPUS_PER_NODE": "4(x2),2", "SLURM_SUBMIT_HOST": "login",
        "SLURM_JOB_START_TIME": "86400", "SLURM_JOB_END_TIME": "176399",
    }  # fmt: skip
    script = r"""unset RM_STEPS
scontrol show job 3; scontrol -o show job ${SLURM_ARRAY_JOB_ID}_1 | tr ' ' '\n' | grep -c =
unset SLURM_JOB_END_TIME; scontrol show jobid -dd 3 -o | grep -o 'TimeLimit=[^ ]*'
scontrol show job 4 > /dev/null 2>&1; echo $?
SLURM_JOB_START_TIME=x scontrol show job 3 2>&1 | sed 's/:.*//'"""
    with agents() as start:
        code, lines = run(start(), WITHOUT_SLURM + script, env=told)
    run_time = next(line for line in lines if "RunTime=" in line)
    assert code == 0
    assert run_time.endswith(" TimeLimit=1-00:59:59")
    owner = lines[1]  # of the agent's account, whoever runs this
    assert re.fullmatch(r" +UserId=ann\(\d+\) GroupId=\S+\(\d+\)", owner)
    assert [line for line in lines if line not in (run_time, owner)] == [
        "JobId=3 ArrayJobId=2 ArrayTaskId=1 JobName=my job",
        "   Account=(null)",
        "   JobState=RUNNING Reason=None Dependency=(null)",
        "   Restarts=0 BatchFlag=1 ExitCode=0:0",
        "   StartTime=1970-01-02T00:00:00 EndTime=1970-01-03T00:59:59",
        "   Partition=(null) AllocNode:Sid=login:0",
        "   NodeList=h[2-3],h1",
        "   BatchHost=h2",
        "   NumNodes=3 NumCPUs=10 NumTasks=6 CPUs/Task=2",
        "",
        "25",
        "TimeLimit=UNLIMITED",
        "1",
        "scontrol",
    ]


RECEIVERS = """
trap 'echo script' USR1
sh -c 'trap "echo child; exit" USR1; echo ready; while :; do sleep 0.02; done' &
srun -n1 sh -c 'trap "echo step" USR1; echo ready; until [ -e $RM_REPORTS.go ]; do sleep 0.02; done' &
until [ "$(jobs -r)" = "" ]; do wait; done
"""
RECEIVERS_SAY = ("script", "child", "step", "ready")


def test_a_signal_reaches_the_steps_once_and_the_script_only_if_it_is_asked_for() -> None:
    with agents() as start:
        agent = start()
        assert agent.ask("launch", **batch(RECEIVERS))["ok"]

        def heard(*expected: str) -> None:
            words = [*expected, "ready", "ready"]
            # a shell may also say that a signal ended its sleep
            until(
                lambda: sorted(w for w in agent.log().split() if w in RECEIVERS_SAY) == sorted(words),
                str(expected),
            )

        heard()
        agent.call("signal", job=1, attempt=1, signal=10, to="script")
        heard("script")
        agent.call("signal", job=1, attempt=1, signal=10)
        heard("script", "step", "child")
        agent.call("signal", job=1, attempt=1, signal=10, to="all")
        heard("script", "step", "child", "script", "step")
        assert agent.ask("signal", job=1, attempt=1, signal=10, to="others")["code"] == "bad-request"
        agent.call("signal", job=1, attempt=1, signal=9)
        assert agent.event("exit", job=1, rank=0)["signal"] == 9
