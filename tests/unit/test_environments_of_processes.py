"""What root reads of processes whose users say what their environment is."""

from __future__ import annotations

import os
import subprocess
import sys
import tracemalloc
from collections.abc import Iterator

import pytest

from tests.agent_process import AGENTS

sys.path.insert(0, str(AGENTS))
import rm_cgroup
from rm_cgroup import ENVIRONMENT_BYTES, environment_of, marks
from rm_step_entered import _environment
from rm_used_now import environment

MARK, VALUE = "RM_TEST_OF_ENVIRONMENTS", "here"
# of an ordinary user: all that is mapped here passes for the environment. Source: prctl(2), PR_SET_MM_MAP
CLAIMS = """
import ctypes, mmap, signal, struct, sys
claimed = mmap.mmap(-1, 1 << 27, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x4000)
claimed.write(sys.argv[1].encode() + b"\\0")
at = ctypes.addressof(ctypes.c_char.from_buffer(claimed))
words = open("/proc/self/stat").read().rpartition(")")[2].split()
places = (23, 24, 25, 42, 43, 44, 45, 46)
code, end, stack, data, data_end, brk, arg, arg_end = (int(words[i]) for i in places)
libc = ctypes.CDLL(None, use_errno=True)
libc.sbrk.restype = ctypes.c_void_p
plan = struct.pack("11QQIi", code, end, data, data_end, brk, libc.sbrk(ctypes.c_long(0)), stack, arg, arg_end,
                   at, at + (1 << 27), 0, 0, -1)
ok = libc.prctl(35, 14, plan, ctypes.c_ulong(len(plan)), 0) == 0
print("claims" if ok else "refused", flush=True)
signal.pause()
"""


@pytest.fixture
def claims() -> Iterator[int]:
    words = [sys.executable, "-S", "-E", "-c", CLAIMS, f"{MARK}={VALUE}"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            if process.stdout.readline() != "claims\n":
                pytest.skip("this kernel lets nobody say what his environment is")
            yield process.pid
        finally:
            process.kill()


def test_who_says_that_all_his_memory_is_his_environment_fills_none_of_roots(claims: int) -> None:
    tracemalloc.start()
    try:
        assert (claims, VALUE) in list(marks(MARK))
        assert environment(claims)[MARK] == VALUE
        assert _environment(claims, ENVIRONMENT_BYTES)[MARK] == VALUE
        assert len(environment_of(claims)) == ENVIRONMENT_BYTES
        assert tracemalloc.get_traced_memory()[1] < 16 * ENVIRONMENT_BYTES
    finally:
        tracemalloc.stop()


def test_long_environments_of_others_hide_nobodys_mark(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of what came after eleven of 6 MiB only the beginning was looked at."""
    begin = b"LONG=" + bytes(rm_cgroup.LEAST_BYTES).replace(b"\0", b"x")
    lengths = {1: rm_cgroup.LOOK_BYTES, 2: rm_cgroup.LOOK_BYTES, os.getpid(): 0}
    texts = {
        pid: b"=" * length or begin + b"\0" + f"{MARK}={VALUE}".encode() for pid, length in lengths.items()
    }
    monkeypatch.setattr(rm_cgroup, "_processes", lambda: list(texts))
    monkeypatch.setattr(rm_cgroup, "_owner", lambda pid: 1000 if pid < 3 else 1001, raising=False)
    monkeypatch.setattr(rm_cgroup, "environment_of", lambda pid, most: texts[pid][:most])
    monkeypatch.setattr(rm_cgroup, "ENVIRONMENT_BYTES", rm_cgroup.LOOK_BYTES)
    assert rm_cgroup.marked(MARK, VALUE) == [os.getpid()]


def test_of_users_with_many_ids_no_more_is_read_than_of_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """As with subordinate ids: each of them had room of its own."""
    monkeypatch.setattr(rm_cgroup, "ALL_BYTES", 10 * rm_cgroup.LEAST_BYTES)
    monkeypatch.setattr(rm_cgroup, "ENVIRONMENT_BYTES", 4 * rm_cgroup.LEAST_BYTES)
    monkeypatch.setattr(rm_cgroup, "_processes", lambda: list(range(1, 7)))
    monkeypatch.setattr(rm_cgroup, "_owner", lambda pid: pid)
    mark, asked = f"{MARK}={VALUE}\0".encode(), []

    def shown(pid: int, most: int) -> bytes:
        asked.append(most)
        return mark.ljust(most, b"x")

    monkeypatch.setattr(rm_cgroup, "environment_of", shown)
    assert rm_cgroup.marked(MARK, VALUE) == list(range(1, 7))
    assert max(asked) == asked[0] == 4 * rm_cgroup.LEAST_BYTES
    assert asked[3:] == 3 * [rm_cgroup.LEAST_BYTES]
