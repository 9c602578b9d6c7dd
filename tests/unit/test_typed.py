"""A type that two threads decode into for the first time at once, in a process of its own: it survives."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

# `gate` runs where msgspec asks for the type of a field: amid learning Outer. There the first thread stays
# until the second either waits for it, or has gone on into a type that is half learnt.
PROGRAM = """
import sys, threading, time
from msgspec import Struct
from rm import typed

inside, there = threading.Event(), threading.Event()
second = threading.Thread(target=lambda: (there.set(), print(ask())))

def waits():
    frame = sys._current_frames().get(second.ident)
    return frame is not None and frame.f_code is typed.decoder_of.__code__

def gate():
    inside.set()
    there.wait()
    while second.is_alive() and not waits():
        time.sleep(0.001)
    return int

class Inner(Struct):
    x: "gate()"

class Outer(Struct):
    inner: Inner

ASK
first = threading.Thread(target=ask)
first.start()
inside.wait()
second.start()
for thread in (first, second):
    thread.join()
"""
DECODE = 'ask = lambda: typed.decoder_of(Outer).decode(b\'{"inner": {"x": 7}}\').inner.x'
CONVERT = "ask = lambda: typed.convert({'inner': {'x': 7}}, Outer).inner.x"


@pytest.mark.parametrize("ask", [DECODE, CONVERT], ids=["decode", "convert"])
def test_two_threads_that_learn_a_type_at_once_do_not_end_the_process(ask: str) -> None:
    done = subprocess.run(
        [sys.executable, "-X", "faulthandler", "-c", PROGRAM.replace("ASK", ask)],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "7\n"), done.stderr
