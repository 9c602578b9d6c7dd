"""Large blocks of memory do not stay with the process, whichever thread had them."""

from __future__ import annotations

import subprocess
import sys

# each thread makes what a long answer is made of, twice: glibc learns from the first time
PROGRAM = """
import threading
from rm.adapters.large_blocks import give_back_large_blocks

def resident_mib():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4 // 1024

def work():
    for _ in range(2):
        pieces = [bytearray(b"x" * (6 << 20)) for _ in range(4)]
        above = bytearray(b"y" * 200_000)
        kept.append(above)
        del pieces

give_back_large_blocks()
kept = []
before = resident_mib()
for _ in range(3):
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
print(resident_mib() - before)
"""


def test_large_blocks_are_given_back() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    assert int(done.stdout) < 12
