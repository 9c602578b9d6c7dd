"""The client that runs for a program of a job, with the daemon's account: whatever that program says, it
reads no file of the daemon's machine and asks nobody but its door."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from rm.adapters import client_process
from rm.adapters.client_process import run_client
from rm.cli import program_files
from rm.cli.slurm.inside import PROGRAMS
from rm.cli.slurm.program import ABSENT
from rm.protocol import clients as wire
from rm.protocol.clients import ANSWER, ENDED, ERRORS, IS_FILE, OUTPUT, READ, REQUEST, WRITE, frame
from tests.fake_service import serving
from tests.fakes import PATIENCE_S

sys.path.insert(0, str(Path(__file__).parents[2] / "agents"))
import rm_client
import rm_step_frames
import rm_stream_hub

AGENTS = Path(rm_client.__file__).parent
Answers = Callable[[bytes, int, bytes], bytes | None]


def asked(*words: str, env: dict[str, str] | None = None, **other: Any) -> bytes:
    request = {"program": words[0], "words": words[1:], "env": env or {}, "cwd": "/there", **other}
    return frame(REQUEST, 0, json.dumps(request).encode())


def talk(
    first: bytes, answers: Answers = lambda *_: None, door: str = "/nowhere/door"
) -> list[tuple[bytes, int, bytes]]:
    """What the client says to a program that says `first`, and then `answers`; None: it has gone."""
    heard: list[tuple[bytes, int, bytes]] = []

    async def main() -> None:
        says: asyncio.Queue[bytes] = asyncio.Queue()
        says.put_nowait(first)
        inbox = bytearray()

        async def write(data: bytes) -> None:
            inbox.extend(data)
            for kind, number, said in rm_step_frames.frames(inbox):
                heard.append((kind, number, said))
                if kind in (READ, IS_FILE, WRITE, wire.HEAR):
                    says.put_nowait(answers(kind, number, said) or b"")

        async with asyncio.timeout(PATIENCE_S):
            await run_client((door, "h1", "ann"), says.get, write)

    asyncio.run(main())
    return heard


def text(heard: list[tuple[bytes, int, bytes]], kind: bytes = ERRORS) -> str:
    return b"".join(said for found, _, said in heard if found == kind).decode()


def test_both_ends_know_the_same_commands() -> None:
    assert {*rm_stream_hub.CLIENTS, "scontrol"} == {
        *PROGRAMS,
        *ABSENT,
        "salloc",
    }  # which is refused with a sentence


@pytest.mark.parametrize("words", [("rm_client.py", "salloc", "true"), ("rm_srun.py", "--jobid=43", "true")])
def test_no_slurms_command_takes_the_place_of_rms(tmp_path: Path, words: tuple[str, ...]) -> None:
    """A host may still have Slurm's, for which 43 is another job."""
    for name in ("salloc", "srun"):
        for folder, text in (("slurms", ""), ("rms", f"# {program_files.MARK}\n")):
            path = tmp_path / folder / name
            path.parent.mkdir(exist_ok=True)
            path.write_text(f"#!/bin/sh\n{text}echo {folder} $0 $*\n")
            path.chmod(0o755)

    def said(*folders: str) -> str:
        env = {"PATH": os.pathsep.join(str(tmp_path / folder) for folder in folders), "SLURM_JOB_ID": "1"}
        argv = [sys.executable, str(AGENTS / words[0]), *words[1:]]
        return subprocess.run(argv, capture_output=True, text=True, env=env, check=False).stdout

    assert said("slurms") == ""
    assert said("slurms", "rms").startswith("rms ")


def test_both_ends_speak_alike() -> None:
    for name in (
        "REQUEST",
        "ANSWER",
        "OUTPUT",
        "ERRORS",
        "ENDED",
        "AGAIN",
        "READ",
        "HEAR",
        "IS_FILE",
        "WRITE",
    ):
        assert getattr(rm_client, name) == getattr(wire, name)
    assert (rm_step_frames.HEAD.format, rm_step_frames.REQUEST_BYTES) == (wire.HEAD.format, wire.FRAME_BYTES)


def test_a_file_is_the_programs_and_never_the_daemons(tmp_path: Path) -> None:
    secret = tmp_path / "secret.sh"
    secret.write_text("#!/bin/sh\necho hunter2\n")
    heard = talk(asked("sbatch", str(secret)), lambda *_: frame(ANSWER, 2))
    assert heard[0][0] == READ
    assert heard[0][2] == str(secret).encode()
    assert f"The script {secret} cannot be read: No such file or directory." in text(heard)
    assert heard[-1][:2] == (ENDED, 1)
    assert "hunter2" not in str(heard)


def test_what_is_submitted_is_what_the_program_has(tmp_path: Path) -> None:
    script = b"#!/bin/sh\n#SBATCH -J read-there\ntrue\n"
    env = {
        "FLAVOUR": "mint",
        "RM_DAEMON": "https://elsewhere",
        "RM_DAEMON__SOCKET": "/elsewhere",
        "A": "\udce9",
    }
    with serving(tmp_path / "rm.sock") as daemon:
        heard = talk(asked("sbatch", "x.sh", env=env), lambda *_: frame(ANSWER, 0, script), daemon.socket)
        (job,) = daemon.service.table.values()
    assert "Submitted batch job" in text(heard, OUTPUT), heard
    assert (job.spec.name, job.spec.script, job.spec.submit_host) == ("read-there", script.decode(), "h1")
    assert job.spec.chdir == "/there"
    assert dict(job.spec.env)["FLAVOUR"] == "mint"
    assert dict(job.spec.env)["RM_DAEMON__SOCKET"] == "/elsewhere"  # and not the door


@pytest.mark.parametrize(
    "first",
    [
        asked("rmx", "status"),
        asked("../inside"),
        asked("squeue", words=7),
        asked("squeue", env=[]),
        frame(REQUEST, 0, b"not json"),
        frame(REQUEST, 0, b"[" * 100_000),
        frame(REQUEST, 0, b"{}"),
        frame(b"?", 0, b""),
        wire.HEAD.pack(REQUEST, 0, (1 << 32) - 1),
        b"",
    ],
)
def test_a_request_that_is_none_ends_it(first: bytes) -> None:
    heard = talk(first)
    assert not heard or heard[-1][:2] == (ENDED, 1)
    assert all(kind in (ERRORS, ENDED) for kind, _, _ in heard)


def test_a_program_that_answers_anything_ends_it() -> None:
    for answer in (
        b"",
        b"x" * 100,
        frame(OUTPUT, 0, b"?"),
        frame(ANSWER, 0, b"\xff\xfe"),
        frame(ANSWER, 99999),
    ):
        heard = talk(asked("sbatch", "x.sh"), lambda *_, answer=answer: answer)  # type: ignore[misc]
        assert not heard[1:] or heard[-1][:2] == (ENDED, 1)


@pytest.mark.parametrize(
    "zone", ["/etc/shadow", ":/etc/shadow", "../../../etc/shadow", "", "Europe/Berlin", "\0"]
)
def test_a_zone_is_a_name(zone: str, tmp_path: Path) -> None:
    with serving(tmp_path / "rm.sock") as daemon:
        heard = talk(
            asked("squeue", "-h", env={"TZ": zone, "LD_PRELOAD": "/x", "": "y", "a=b": "c"}),
            door=daemon.socket,
        )
    assert heard == [(ENDED, 0, b"")]


@pytest.mark.parametrize("words", [("squeue",), ("sinfo",), ("sacct",), ("sbatch", "--test-only", "x.sh")])
def test_no_library_of_the_client_hears_of_the_programs_environment(
    words: tuple[str, ...], tmp_path: Path
) -> None:
    """Of OPENSSL_CONF a library in C loads programs, and reads any file below TZDIR."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    env = {"OPENSSL_CONF": str(pipe), "TZDIR": str(tmp_path), "TZ": "pipe", "LOCPATH": str(tmp_path)}
    reads = os.open(pipe, os.O_RDWR | os.O_NONBLOCK)  # so that whoever opens it does not wait
    os.write(reads, b"\n" * 64)
    with serving(tmp_path / "rm.sock") as daemon:
        heard = talk(asked(*words, env=env), lambda *_: frame(ANSWER, 0, b"#!/bin/sh\ntrue\n"), daemon.socket)
    assert heard[-1][:2] == (ENDED, 0), text(heard)
    assert os.read(reads, 99) == b"\n" * 64
    os.close(reads)


def test_a_client_that_is_cancelled_while_it_starts_leaves_no_process(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    begins, goes_on, made = threading.Event(), threading.Event(), []
    started = client_process._started

    def slowly(who: Sequence[str], its: socket.socket) -> subprocess.Popen[bytes]:
        begins.set()
        assert goes_on.wait(PATIENCE_S)
        made.append(started(who, its))
        return made[0]

    monkeypatch.setattr(client_process, "_started", slowly)

    async def nothing(*_: bytes) -> bytes:
        return b""

    async def main() -> None:
        task = asyncio.ensure_future(run_client(("/nowhere/door", "h1", "ann"), nothing, nothing))  # type: ignore[arg-type]
        assert await asyncio.to_thread(begins.wait, PATIENCE_S)
        task.cancel()
        asyncio.get_running_loop().call_later(0, goes_on.set)
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    assert [process.returncode for process in made] == [-9]


def test_a_list_again_after_more_seconds_than_a_frame_can_say_is_later_all_the_same(tmp_path: Path) -> None:
    with serving(tmp_path / "rm.sock") as daemon:
        heard = talk(asked("squeue", "-h", f"--iterate={10**12}"), door=daemon.socket)
    assert heard[-1][:2] == (wire.AGAIN, (1 << 32) - 1)


FENCED = """
import os, socket, subprocess, sys, tempfile, pathlib
from rm.cli.slurm.fence import fence
file = pathlib.Path({file!r})
fence("/the/door")
import tomllib, csv  # Python's own files
tries = dict(
    read=lambda: file.read_text(),
    write=lambda: file.write_text("x"),
    raw=lambda: os.open(file, os.O_RDONLY),
    passwd=lambda: open("/etc/passwd").read(),
    remove=lambda: file.unlink(),
    rename=lambda: file.rename({file!r} + "2"),
    program=lambda: subprocess.run(["true"]),
    shell=lambda: os.system("true"),
    become=lambda: os.execv("/bin/true", ["true"]),
    fork=lambda: os.fork(),
    connect=lambda: socket.socket(socket.AF_UNIX).connect({socket!r}),
    link=lambda: os.symlink({file!r}, {file!r} + "3"),
    native=lambda: __import__("ctypes").CDLL(None),
)
for name, does in tries.items():
    try:
        does()
    except PermissionError:
        continue
    print(name)
"""


def test_the_process_does_nothing_outside_even_if_it_is_asked_to(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("there")
    with serving(tmp_path / "rm.sock") as daemon:
        code = FENCED.format(file=str(file), socket=daemon.socket)
        done = subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, text=True, check=False)
    assert (done.stdout, done.returncode) == ("", 0), done.stderr
    assert file.read_text() == "there"


def test_a_standard_input_that_cannot_be_read_is_a_sentence() -> None:
    heard = talk(asked("sbatch"), lambda *_: frame(ANSWER, errno.EISDIR))
    assert text(heard) == "sbatch: error: The script on standard input cannot be read: Is a directory.\n"
    assert heard[-1][:2] == (ENDED, 1)


def test_all_output_arrives_where_standard_output_does_not_wait() -> None:
    reads, writes = os.pipe()
    os.set_blocking(writes, False)
    code = "import rm_client; rm_client.write(1, b'x' * 500_000)"
    process = subprocess.Popen([sys.executable, "-c", code], stdout=writes, cwd=AGENTS)
    os.close(writes)
    with os.fdopen(reads, "rb") as file:
        assert len(file.read()) == 500_000
    assert process.wait() == 0
