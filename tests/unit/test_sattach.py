"""`sattach` inside a job, on one host: by the host agent alone."""

from __future__ import annotations

import json
import select
import signal
import socket
import sys
import threading
from collections.abc import Callable

import pytest

from tests.agent_process import AGENTS, agents
from tests.unit.test_srun import run

sys.path.insert(0, str(AGENTS))
try:
    import rm_sattach
    import rm_srun
    from rm_step_frames import REQUEST, SIGNAL, frame
finally:
    sys.path.remove(str(AGENTS))
from tests.unit.test_srun_terminal import talk

BEGIN = "export D=$(mktemp -d)\ntrap 'rm -r $D' EXIT\n"
# a task says that it runs, until it is told to go on: so who attends it knows that it does
TICK = "while [ ! -e $D/go ]; do echo tick; sleep 0.05; done"


def test_the_tasks_are_heard_beside_their_srun_and_the_code_comes_back() -> None:
    script = (
        BEGIN
        + f"""
srun -n2 sh -c '{TICK}; echo task $SLURM_PROCID; exit $SLURM_PROCID' > $D/own &
until grep -qs tick $D/own; do sleep 0.02; done
sattach -l 1.0 > $D/out 2> $D/err < /dev/null & pid=$!
sattach --layout 1.0 < /dev/null
until grep -qs tick $D/out; do sleep 0.02; done
touch $D/go
wait $pid; echo code $?
wait
sort $D/out $D/err $D/own | grep -v tick
"""
    )
    with agents() as start:
        _, lines = run(start(), script)
        assert lines[:4] == [
            "Job step layout:",
            "\t2 tasks, 1 nodes (h1)",
            "",
            "\tNode 0 (h1), 2 task(s): 0 1 ",
        ]
        assert [line for line in lines[4:] if not line.startswith("srun: ")] == [
            "code 1", "0: task 0", "1: task 1", "sattach: error: task 1 exited with exit code 1",
            "task 0", "task 1",
        ]  # fmt: skip


def test_what_is_typed_goes_to_one_task() -> None:
    script = (
        BEGIN
        + """
mkfifo $D/input
exec 9<> $D/input
srun -n2 sh -c 'read x; echo $SLURM_PROCID heard $x; touch $D/$SLURM_PROCID' < $D/input 9>&- &
until echo words | sattach --input-filter=1 --output-filter=1 1.0 > $D/out 2> $D/err
do sleep 0.02; done 9>&- &
until [ -e $D/1 ]; do sleep 0.02; done
exec 9>&-
wait
cat $D/out
"""
    )
    with agents() as start:
        _, lines = run(start(), script)
        assert sorted(line for line in lines if "heard" in line) == [
            "0 heard",
            "1 heard words",
            "1 heard words",
        ]


def test_a_terminal_is_attended_by_another_one() -> None:
    first = talk([], "srun", "--pty", "-n1", "sh", "-c", TICK + "; read x; echo got $x; exit 3")
    second = talk([(b"tick", b"words\r", None)], "sattach", "--pty", "1.0")
    script = (
        BEGIN
        + f"""
{first} > $D/first &
until grep -qs tick $D/first; do sleep 0.02; done
{second} > $D/second &
until grep -qs words $D/second; do sleep 0.02; done
touch $D/go
wait
grep -hv tick $D/first $D/second
"""
    )
    with agents() as start:
        _, lines = run(start(), script)
        assert "sattach: error: task 0 exited with exit code 3" in lines
        assert lines.count("ended 3 as it was") == 2
        assert lines.count("got words") == 2


def test_who_takes_nothing_holds_no_task_up_and_hears_what_it_lacks() -> None:
    script = (
        BEGIN
        + """
mkfifo $D/runs $D/go $D/attached
srun -n1 sh -c "until [ -e $D/seen ]; do echo begun; sleep 0.02; done
    yes | head -c 5000000; echo > $D/runs; read x < $D/go" > $D/own &
until [ -s $D/own ]; do sleep 0.02; done
sattach 1.0 < /dev/null 2> $D/err | { read x; touch $D/seen; read x < $D/attached; cat; } > $D/out & pid=$!
read x < $D/runs
until [ $(stat -c %s $D/own) -gt 5000000 ]; do sleep 0.02; done
echo > $D/attached
echo > $D/go
wait $pid
cat $D/err
[ $(stat -c %s $D/out) -lt 5000000 ] && echo less
"""
    )
    with agents() as start:
        _, lines = run(start(), script)
        assert "bytes are not shown: they came faster than they were taken" in lines[0]
        assert lines[-1] == "less"


def test_what_cannot_be_attached_gets_a_sentence() -> None:
    script = """
for words in 1.7 2.0 1.batch '' '--input-filter=x 1.0' '--nonsense 1.0'; do sattach $words; echo $?; done
"""
    with agents() as start:
        _, lines = run(start(), script)
        assert lines[0::2] == [
            "sattach: error: No srun runs step 7.",
            "sattach: error: '2.0' is no step of this job: name one as in 1.0.",
            "sattach: error: '1.batch' is no step of this job: name one as in 1.0.",
            "sattach: error: Name one step, as in 42.0.",
            "sattach: error: --input-filter is 'x': write the number of a task.",
            "sattach: error: option --nonsense not recognized; this sattach is rm's.",
        ]
        assert set(lines[1::2]) == {"1"}


def test_a_signal_reaches_the_tasks_of_one_step_alone() -> None:
    script = (
        BEGIN
        + f"""
srun --overlap -n1 sh -c 'trap "echo got it; exit 7" USR1; {TICK}' > $D/0 & zero=$!
until grep -qs tick $D/0; do sleep 0.02; done
srun --overlap -n1 sh -c 'trap "echo got it; exit 7" USR1; {TICK}' > $D/1 & one=$!
until grep -qs tick $D/1; do sleep 0.02; done
sattach --signal=10 1.1 < /dev/null; echo sent $?
wait $one; echo one $?
sattach --signal=10 1.1 < /dev/null 2> $D/err; echo again $?
sattach --signal=99 1.0 < /dev/null 2>> $D/err; echo wrong $?
sattach --signal=0 1.0 < /dev/null; echo ended $?
wait $zero; echo zero $?
grep -h 'got it' $D/0 && echo other
cat $D/err
"""
    )
    with agents() as start:
        _, lines = run(start(), script)
        of_programs = ("srun: ", "User defined", "Terminated")  # srun, and what a shell says of its sleep
        assert [line for line in lines if not line.startswith(of_programs)] == [
            "sent 0", "one 7", "again 1", "wrong 1", "ended 0", "zero 143",
            "sattach: error: No srun runs step 1.",
            "sattach: error: --signal is '99': write the number of a signal; 0 ends the step.",
        ]  # fmt: skip
        assert any("Job step 1.0 CANCELLED" in line for line in lines)


def test_who_ends_a_step_again_does_not_put_off_its_sigkill(
    capsys: pytest.CaptureFixture[str],
) -> None:
    near, far = socket.socketpair()
    with near, far:
        near.setblocking(False)
        part = rm_srun.Part(near, "h1", [0])
        step = rm_srun.Step({"input": "none"}, {"step": 0}, [part], {"SLURM_JOB_ID": "42"})
        step.told_by_others(0)
        kill_at = step.kill_at
        step.told_by_others(0)
        step.told_by_others(signal.SIGUSR1)
        assert step.kill_at == kill_at
    assert capsys.readouterr().err == "srun: Job step 42.0 CANCELLED\n"


HELLO = frame(REQUEST, 0, json.dumps({"name": "42.0", "hosts": {"0": "h1"}, "left": [0], "code": 0}).encode())


def ends(srun: socket.socket) -> None:
    srun.sendall(HELLO)
    srun.close()


def ends_with_the_signal_unread(srun: socket.socket) -> None:
    srun.sendall(HELLO)
    select.select([srun], [], [])
    srun.close()


@pytest.mark.parametrize("srun", [ends, ends_with_the_signal_unread])
def test_a_step_that_ends_as_it_gets_a_signal_has_ended(srun: Callable[[socket.socket], None]) -> None:
    near, far = socket.socketpair()
    beside = threading.Thread(target=srun, args=[far])
    with near:
        beside.start()
        with pytest.raises(rm_sattach.Wrong, match="Step 0 has ended"):
            rm_sattach.Attached({"signal": "10"}, 0, near).run()
        beside.join()


@pytest.mark.parametrize("said", [b"", HELLO, HELLO + frame(SIGNAL, 12)])
def test_a_signal_waits_for_its_srun_for_some_time_alone(
    said: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rm_sattach, "ANSWER_S", 0.01)
    near, far = socket.socketpair()
    with near, far:
        far.sendall(said)
        with pytest.raises(rm_sattach.Wrong, match="The srun of step 0 does not answer"):
            rm_sattach.Attached({"signal": "10"}, 0, near).run()
