"""Which device files a job with certain GPUs may open, from what the kernel tells; and the program for it."""

from __future__ import annotations

import os
import struct
import sys
from pathlib import Path

import pytest

from tests import recorded_gpu
from tests.agent_process import AGENTS
from tests.bpf import Machine
from tests.stand_in_gpus import CAPS, DRM, KFD, NVIDIA, UVM, amd, nvidia

sys.path.insert(0, str(AGENTS))
from rm_fence_bpf import assembled
from rm_fence_devices import Devices, is_in, version

sys.path.remove(str(AGENTS))

MODESET, CTL = 254, 255


def test_a_host_without_gpus_has_nothing_to_close(tmp_path: Path) -> None:
    found = Devices(str(tmp_path))
    assert (found.majors, found.open_to([])) == (set(), (set(), []))


def test_a_job_opens_its_own_gpus_by_uuid_or_index_and_what_all_share(tmp_path: Path) -> None:
    nvidia(tmp_path, [3, 0, 2, 1], mig=2)  # minor numbers need not follow the bus
    found = Devices(str(tmp_path))
    assert found.majors == {NVIDIA, UVM, CAPS, DRM}
    assert found.open_to([]) == (set(), [])
    allowed, unknown = found.open_to(["GPU-1", "2", "GPU-gone"])
    assert unknown == ["GPU-gone"]
    shared = {(NVIDIA, CTL), (NVIDIA, MODESET), (UVM, None)}
    first = {(NVIDIA, 0), (CAPS, 0), (CAPS, 1), (DRM, 1), (DRM, 129)}
    second = {(NVIDIA, 2), (CAPS, 200), (CAPS, 201), (DRM, 2), (DRM, 130)}
    assert allowed == shared | first | second
    assert is_in((UVM, 1), allowed)
    assert not is_in((NVIDIA, 3), allowed)


def test_without_nvidia_the_gpus_are_those_of_amd(tmp_path: Path) -> None:
    amd(tmp_path, 2)
    found = Devices(str(tmp_path))
    assert found.open_to(["1"])[0] == {(KFD, None), (DRM, 1), (DRM, 129)}
    assert found.open_to(["2"])[1] == ["2"]  # the console is not a GPU


def test_what_a_real_driver_says(tmp_path: Path) -> None:
    files = {"devices": recorded_gpu.DEVICES}
    files |= {f"driver/nvidia/{name}": text for name, text in recorded_gpu.FILES.items()}
    for name, text in files.items():
        (tmp_path / "proc" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "proc" / name).write_text(text)
    found = Devices(str(tmp_path))
    uvm, switch, link, caps, imex = range(238, 243)
    assert found.majors == {NVIDIA, uvm, switch, link, caps, imex}
    (gpu,) = found.gpus
    assert (gpu.uuid, gpu.bus, gpu.own) == (recorded_gpu.UUID, recorded_gpu.BUS, {(NVIDIA, 0)})
    shared = {(NVIDIA, CTL), (NVIDIA, MODESET), (uvm, None), (link, None), (imex, None)}
    assert found.open_to(["0"]) == found.open_to([gpu.uuid]) == (shared | {(NVIDIA, 0)}, [])
    assert found.open_to([]) == (set(), [])


def test_a_driver_that_comes_or_goes_is_seen(tmp_path: Path) -> None:
    before = version(str(tmp_path))
    nvidia(tmp_path, [0])
    assert version(str(tmp_path)) != before


def test_broken_words_of_the_driver_open_nothing(tmp_path: Path) -> None:
    nvidia(tmp_path, [0, 1])
    for text in ("", "Device Minor: many\n", "\0" * 100):
        for file in tmp_path.glob("proc/driver/nvidia/gpus/*/information"):
            file.write_text(text)
        found = Devices(str(tmp_path))
        assert found.open_to(["0"]) == ({(NVIDIA, CTL), (NVIDIA, MODESET), (UVM, None)}, ["0"])


def run(program: bytes, kind: int, major: int, minor: int) -> int:
    """The answer of a program of ours."""
    return Machine(bytearray(struct.pack("=III", kind | 6 << 16, major, minor))).run(program)


@pytest.mark.parametrize(
    ("device", "answer"),
    [
        ((2, NVIDIA, 0), 1), ((2, NVIDIA, 1), 0), ((2, NVIDIA, 255), 1), ((2, UVM, 0), 1), ((2, UVM, 77), 1),
        ((2, DRM, 0), 0), ((2, DRM, 255), 0), ((2, CAPS, 0), 0),
        ((2, 1, 3), 1), ((2, 231, 192), 1),  # /dev/null, InfiniBand
        ((1, NVIDIA, 1), 1), ((1, DRM, 0), 1),  # block devices of the same numbers are others
    ],
)  # fmt: skip
def test_the_program_lets_through_what_it_should(device: tuple[int, int, int], answer: int) -> None:
    allowed = {(NVIDIA, 0), (NVIDIA, 255), (UVM, None)}
    assert run(assembled({NVIDIA, UVM, DRM, CAPS}, allowed), *device) == answer
    assert run(assembled(set(), set()), *device) == 1


def test_the_program_is_short_enough_for_a_host_with_many_gpus() -> None:
    allowed = {(NVIDIA, minor) for minor in range(256)} | {(DRM, minor) for minor in range(256)}
    program = assembled({NVIDIA, UVM, DRM, CAPS}, allowed)
    assert len(program) // 8 < 4096  # what every kernel takes
    assert run(program, 2, NVIDIA, 255) == 1
    assert run(program, 2, CAPS, 0) == 0


@pytest.mark.skipif(os.getuid() != 0, reason="needs root")
def test_this_kernel_takes_the_program() -> None:
    sys.path.insert(0, str(AGENTS))
    try:
        import rm_fence_bpf
    finally:
        sys.path.remove(str(AGENTS))
    try:
        program = rm_fence_bpf.load(assembled({NVIDIA, UVM}, {(NVIDIA, 0), (UVM, None)}))
    except OSError as error:
        pytest.skip(f"not here: {error}")
    os.close(program)
