"""`srun --pty` inside a job, on one host: by the host agent alone."""

from __future__ import annotations

import shlex

from tests.agent_process import agents
from tests.unit.test_srun import run

# runs words at a terminal: prints what they say, answers, and prints how they ended
CONVERSATION = """
import fcntl, os, pty, struct, sys, termios

def resize(fd, rows, columns):
    fcntl.ioctl(fd, termios.TIOCSWINSZ, struct.pack("4H", rows, columns, 0, 0))

answers, words = eval(sys.argv[1]), sys.argv[2:]
pid, far = pty.fork()
if pid == 0:
    resize(0, 30, 90)
    before = termios.tcgetattr(0)
    code = os.spawnvp(os.P_WAIT, words[0], words)
    os.write(1, b"ended %d %s" % (code, b"as it was" if termios.tcgetattr(0) == before else b"changed"))
    os._exit(0)
said = b""
while True:
    try:
        data = os.read(far, 4096)
    except OSError:
        break
    if not data:
        break
    said += data
    sys.stdout.write(data.decode().replace("\\r\\n", "\\n"))
    sys.stdout.flush()
    while answers and answers[0][0] in said:
        asked, keys, size = answers.pop(0)
        said = said.split(asked, 1)[1]
        if size:
            resize(far, *size)
        os.write(far, keys)
"""


def talk(answers: list[tuple[bytes, bytes, tuple[int, int] | None]], *words: str) -> str:
    # the user of jobs may not be let to the interpreter of these tests
    return shlex.join(["python3", "-c", CONVERSATION, repr(answers), *words])


def test_task_0_has_a_terminal_with_the_size_of_ours() -> None:
    command = "tty -s && stty size; echo ready; read x; stty size; echo got $x; exit 5"
    script = talk([(b"ready", b"words\r", (50, 100))], "srun", "--pty", "-n1", "sh", "-c", command)
    with agents() as start:
        code, lines = run(start(), script)
        assert lines[:2] == ["30 90", "ready"]
        assert "words" in lines  # it echoes
        assert lines[-4:-1] == ["50 100", "got words", "srun: error: h1: task 0: Exited with exit code 5"]
        assert (code, lines[-1]) == (0, "ended 5 as it was")


def test_keys_go_to_the_far_side_and_other_tasks_are_not_heard() -> None:
    command = "[ $SLURM_PROCID = 0 ] || { cat; echo unheard; exit 0; }; echo ready; exec sleep 1000"
    script = talk([(b"ready", b"\x03", None)], "srun", "--pty", "sh", "-c", command)
    with agents() as start:
        _, lines = run(start(), script)
        assert "unheard" not in lines
        assert lines[-2:] == ["^Csrun: error: h1: task 0: Interrupt", "ended 130 as it was"]


def test_what_runs_in_the_background_does_not_keep_the_terminal() -> None:
    script = talk([], "srun", "--pty", "-n1", "sh", "-c", "trap '' HUP; sleep 1000 & yes | head -c 100000")
    with agents() as start:
        _, lines = run(start(), script)
        assert sum(line == "y" for line in lines) == 50_000
        assert lines[-1] == "ended 0 as it was"


def test_without_a_terminal_it_is_said_and_passed_over() -> None:
    with agents() as start:
        _, lines = run(start(), "srun --pty -n1 sh -c 'tty -s; echo $?'; srun --pty -o x true; echo $?")
        assert lines[1:] == [
            "srun: error: Not using a pseudo-terminal, disregarding --pty option",
            "1",
            "srun: error: --error/--input/--output are incompatible with --pty",
            "1",
        ]
        assert lines[0].startswith("srun: error: ioctl(TIOCGWINSZ): ")


def test_where_its_output_is_no_terminal_it_is_passed_over_too() -> None:
    script = talk([], "sh", "-c", "srun --pty -n1 sh -c 'tty -s; echo $?' | cat")
    with agents() as start:
        _, lines = run(start(), script)
        assert "srun: error: Not using a pseudo-terminal, disregarding --pty option" in lines
        assert lines[-2:] == ["1", "ended 0 as it was"]
