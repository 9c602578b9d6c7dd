"""PMI-1, as srun answers it to ranks of MPI."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.agent_process import agents
from tests.unit.test_srun import run

sys.path.insert(0, str(Path(__file__).parents[2] / "agents"))
import rm_pmi


@pytest.mark.parametrize(
    ("hosts", "text"),
    [
        ([0, 0, 1, 1, 2, 2], "(vector,(0,3,2))"),
        ([0, 0, 0, 1, 1], "(vector,(0,1,3),(1,1,2))"),
        ([0, 1, 2, 0, 1], "(vector,(0,3,1),(0,2,1))"),
        ([0], "(vector,(0,1,1))"),
    ],
)
def test_launchers_tell_ranks_where_all_are(hosts: list[int], text: str) -> None:
    assert rm_pmi.mapping(hosts) == text


def test_what_one_rank_puts_the_others_get_after_the_barrier() -> None:
    pmi = rm_pmi.Pmi([0, 1])
    assert pmi.hear(0, b"cmd=init pmi_version=1 pmi_subver") == []
    ((_, answer),) = pmi.hear(0, b"sion=1\n")
    assert answer == b"cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0\n"
    ((_, answer),) = pmi.hear(1, b"cmd=get kvsname=step key=a\n")
    assert b"rc=-1" in answer
    answers = pmi.hear(0, b"cmd=put kvsname=step key=a value=x=1#y\ncmd=barrier_in\n")
    assert answers == [(0, b"cmd=put_result rc=0 msg=success\n")]
    assert pmi.hear(1, b"cmd=barrier_in\n") == [(rank, b"cmd=barrier_out rc=0\n") for rank in (0, 1)]
    assert pmi.hear(1, b"cmd=get kvsname=step key=a\n") == [
        (1, b"cmd=get_result rc=0 msg=success value=x=1#y\n")
    ]
    assert pmi.hear(1, b"cmd=abort exitcode=7\n") == []
    assert pmi.aborted == 7


@pytest.mark.parametrize("said", [b"cmd=unheard_of\n", b"\xff\xfe\n", b"x" * (1 << 15)])
def test_what_is_no_pmi_is_wrong_in_a_sentence(said: bytes) -> None:
    with pytest.raises(rm_pmi.Wrong, match="PMI"):
        rm_pmi.Pmi([0]).hear(0, said)


@pytest.mark.parametrize(
    ("said", "code"), [("7", 7), ("256", 1), ("-1", 1), ("\xb2", 1), ("9" * 5000, 1), ("", 1)]
)
def test_whatever_code_a_rank_aborts_with_is_one_of_a_process(said: str, code: int) -> None:
    pmi = rm_pmi.Pmi([0])
    assert pmi.hear(0, f"cmd=abort exitcode={said}\n".encode("latin-1")) == []
    assert pmi.aborted == code


RANK = r"""
import os, socket
sock = socket.socket(fileno=int(os.environ["PMI_FD"]))
lines = sock.makefile("rw")
def ask(line):
    lines.write(line + chr(10)); lines.flush()
    return lines.readline().strip().rpartition("=")[2]
rank, size = int(os.environ["PMI_RANK"]), int(os.environ["PMI_SIZE"])
ask(f"cmd=put kvsname=step key={rank} value=of-{rank}")
ask("cmd=barrier_in")
print(rank, [ask(f"cmd=get kvsname=step key={other}") for other in range(size)], flush=True)
ask("cmd=barrier_in")
rank == 1 and ask("cmd=abort exitcode=5")
lines.readline()
"""


def test_ranks_of_a_step_meet_and_one_ends_it_with_its_code() -> None:
    script = f"srun -Q --mpi=pmi2 python3 -c '{RANK}' 2>/dev/null; echo code $?\nsrun --mpi=pmix true"
    with agents() as start:
        _, lines = run(start(), script)
    assert sorted(lines) == [
        *(f"{rank} ['of-0', 'of-1', 'of-2']" for rank in range(3)),
        "code 5",
        "srun: error: --mpi=pmix is not supported: pmi2, or start MPI programs by mpirun.",
    ]
