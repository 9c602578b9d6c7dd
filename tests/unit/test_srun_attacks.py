"""srun hears the parts of its step on other hosts of the job: none speaks for another one, or ends it."""

from __future__ import annotations

import signal
import socket
import struct

import pytest

from tests.steps_request import rm_steps  # noqa: F401  the agents' modules are found from here on

import rm_pmi  # type: ignore[import-not-found]  # isort: skip
import rm_srun  # type: ignore[import-not-found]  # isort: skip
from rm_step_attached import Audience  # type: ignore[import-not-found]  # isort: skip
from rm_step_frames import ENDED, ERRORS, OUTPUT, PMI, TAKEN, frame  # type: ignore[import-not-found]  # isort: skip

WORDS = b"what rank 0 said\n"


@pytest.mark.parametrize(
    "lie",
    [
        frame(OUTPUT, 0, b"forged\n"),
        frame(ERRORS, 77, b"forged\n"),
        frame(ENDED, 0, b"0 0"),
        frame(PMI, 0, b"cmd=abort exitcode=3\n"),
        frame(TAKEN, 55, b"1"),
        frame(TAKEN, 1, b"-9"),
        frame(TAKEN, 1, b"9" * 5000),
        frame(TAKEN, 1, b"0" * 33),
        frame(ENDED, 1, b"0 " + b"0" * 31),
        frame(ENDED, 1, b"x y"),
        frame(ENDED, 1, b"%d 0" % 10**30),
        frame(ENDED, 1, b"0 999"),
        frame(ENDED, 1, b"-7 -9"),
        struct.pack("!cII", OUTPUT, 1, 1 << 31),
    ],
)
def test_a_host_of_a_step_that_lies_is_lost_and_the_others_words_stay(
    lie: bytes, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    monkeypatch.chdir("/")
    (near, honest), (beside, liar) = socket.socketpair(), socket.socketpair()
    with near, honest, beside, liar:
        for sock in (near, beside):
            sock.setblocking(False)
        liar.sendall(lie)
        parts = [rm_srun.Part(near, "h1", [0]), rm_srun.Part(beside, "h2", [1])]
        values = {"input": "none", "mpi": "pmi2"}
        step = rm_srun.Step(values, {"step": 0}, parts, {"SLURM_JOB_ID": "42"})
        step.audience = Audience(None, step.told_to_others, [], step.told_by_others)
        honest.sendall(frame(OUTPUT, 0, WORDS) + frame(ENDED, 0, b"0 0"))
        assert step.run() == 1
        assert liar.recv(1 << 16)  # it hears of the signals, and then of the end
    out, err = capfd.readouterr()
    assert out == WORDS.decode()
    assert err == (
        "srun: error: h2: it says what no part of a step says\n"
        "srun: error: h2: its part of step 42.0 is lost\n"
    )


@pytest.mark.parametrize(
    "more", [frame(ENDED, 1, b"1 0"), frame(PMI, 1, b"cmd=init\n"), frame(TAKEN, 1, b"1")]
)
def test_a_task_ends_once_and_asks_for_nothing_afterwards(more: bytes) -> None:
    """Each further end was told, and made the step's exit code."""
    near, far = socket.socketpair()
    with near, far:
        near.setblocking(False)
        part = rm_srun.Part(near, "h2", [1, 2])
        far.sendall(frame(ENDED, 1, b"0 0") + more)
        heard = part.heard()
        assert next(heard) == (ENDED, 1, (0, 0))
        part.left.discard(1)
        with pytest.raises(rm_srun.Nonsense):
            next(heard)


def test_what_a_task_leaves_behind_is_heard_until_the_last_one_ends() -> None:
    near, far = socket.socketpair()
    with near, far:
        near.setblocking(False)
        part = rm_srun.Part(near, "h2", [1, 2])
        left = frame(OUTPUT, 1, b"left\n") + frame(ERRORS, 1, b"left\n")
        far.sendall(frame(ENDED, 1, b"0 0") + left + frame(ENDED, 2, b"0 0") + frame(OUTPUT, 1, b"more\n"))
        heard, kinds = part.heard(), []
        for _ in range(4):
            kind, rank, _said = next(heard)
            kinds.append((kind, rank))
            if kind == ENDED:
                part.left.discard(rank)
        assert kinds == [(ENDED, 1), (OUTPUT, 1), (ERRORS, 1), (ENDED, 2)]
        with pytest.raises(rm_srun.Nonsense):
            next(heard)


def test_a_host_that_asks_and_takes_no_answer_is_not_heard() -> None:
    near, far = socket.socketpair()
    with near, far:
        near.setblocking(False)
        part = rm_srun.Part(near, "h2", [1])
        assert part.hears()
        while part.hears():
            part.send(bytes(65536))
        assert len(part.outbox) < 1 << 20


def test_a_host_is_heard_while_each_of_its_tasks_is_answered() -> None:
    """srun and the part each waited until the other one took what it had to say."""
    near, far = socket.socketpair()
    with near, far:
        near.setblocking(False)
        part = rm_srun.Part(near, "h2", range(300))
        for rank in range(300):
            part.send(frame(PMI, rank, b"cmd=get_result rc=0 msg=success value=" + b"v" * 4096 + b"\n"))
        assert part.hears()


def test_what_ranks_tell_each_other_has_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rm_pmi, "VALUES_BYTES", 1000)
    pmi = rm_pmi.Pmi([0])
    put = b"cmd=put kvsname=step key=%d value=" + b"v" * 300 + b"\n"
    said = [answer for n in range(4) for _, answer in pmi.hear(0, put % n)]
    assert [b"success" in answer for answer in said] == [True, True, True, False]
