"""What a task of a job does with its GPUs, by NVIDIA's driver alone: libcuda and libnvidia-ml.

It prints one line of JSON: the variables that it finds, the UUIDs of the GPUs that CUDA shows it, and which
of them is its own by LOCAL_RANK. Where CUDA refuses, `error` says by which number of cuda.h. It needs Python
and nothing else.
"""

import argparse
import ctypes
import json
import os
import time

SEEN = ("CUDA_VISIBLE_DEVICES", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "SLURM_PROCID", "SLURM_LOCALID",
        "SLURM_GPUS_ON_NODE", "SLURM_JOB_GPUS", "SLURM_STEP_GPUS", "RM_GPUS")  # fmt: skip
THREADS, BLOCKS, ROUNDS = 256, 2048, 20_000  # some milliseconds of all that a large GPU has
# `busy` multiplies and adds, `wild` writes where no memory is
PTX = b"""
.version 7.0
.target sm_75
.address_size 64
.visible .entry busy(.param .u32 rounds, .param .u64 out)
{
    .reg .pred more;
    .reg .u32 left;
    .reg .f32 a, b, c, d;
    .reg .u64 to;
    ld.param.u32 left, [rounds];
    ld.param.u64 to, [out];
    cvta.to.global.u64 to, to;
    mov.f32 a, 0f3F800000;
    mov.f32 b, 0f3F000000;
    mov.f32 c, 0f3F7FFFFF;
    mov.f32 d, 0f3F400000;
AGAIN:
    fma.rn.f32 a, a, c, b;
    fma.rn.f32 d, d, c, b;
    fma.rn.f32 a, a, c, b;
    fma.rn.f32 d, d, c, b;
    sub.u32 left, left, 1;
    setp.ne.u32 more, left, 0;
    @more bra AGAIN;
    add.f32 a, a, d;
    st.global.f32 [to], a;
    ret;
}
.visible .entry wild()
{
    .reg .u64 to;
    .reg .u32 one;
    mov.u64 to, 4096;
    mov.u32 one, 1;
    st.global.u32 [to], one;
    ret;
}
"""


class Refused(Exception):
    """By CUDA, with an error's number."""


class Cuda:
    """The driver's own interface, on one GPU."""

    def __init__(self):
        self._lib = ctypes.CDLL("libcuda.so.1")
        self.call("cuInit", 0)

    def call(self, name, *arguments):
        code = getattr(self._lib, name)(*arguments)
        if code:
            raise Refused(code)

    def uuids(self):
        count = ctypes.c_int()
        self.call("cuDeviceGetCount", ctypes.byref(count))
        found = []
        for index in range(count.value):
            device, uuid = ctypes.c_int(), (ctypes.c_ubyte * 16)()
            self.call("cuDeviceGet", ctypes.byref(device), index)
            self.call("cuDeviceGetUuid_v2", uuid, device)
            text = bytes(uuid).hex()
            found.append(f"GPU-{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}")
        return found

    def take(self, index):
        """As torch.cuda.set_device does."""
        device, context = ctypes.c_int(), ctypes.c_void_p()
        self.call("cuDeviceGet", ctypes.byref(device), index)
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
        self.call("cuCtxSetCurrent", context)

    def memory(self, size_bytes):
        address = ctypes.c_uint64()
        self.call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(size_bytes))
        self.call("cuMemsetD8_v2", address, ctypes.c_ubyte(1), ctypes.c_size_t(size_bytes))
        return address

    def function(self, name):
        module, found = ctypes.c_void_p(), ctypes.c_void_p()
        self.call("cuModuleLoadData", ctypes.byref(module), PTX)
        self.call("cuModuleGetFunction", ctypes.byref(found), module, name)
        return found

    def run(self, function, blocks, *values):
        pointers = [ctypes.cast(ctypes.byref(value), ctypes.c_void_p) for value in values]
        parameters = (ctypes.c_void_p * max(1, len(values)))(*pointers)
        shape = (blocks, 1, 1, THREADS if blocks > 1 else 1, 1, 1)
        self.call("cuLaunchKernel", function, *shape, 0, None, parameters, None)
        self.call("cuCtxSynchronize")


def energy_mj(uuid):
    """Millijoules that the GPU has drawn since its driver was loaded, by its own counter."""
    library, device, drawn = ctypes.CDLL("libnvidia-ml.so.1"), ctypes.c_void_p(), ctypes.c_ulonglong()
    for name, arguments in (
        ("nvmlInit_v2", ()),
        ("nvmlDeviceGetHandleByUUID", (uuid.encode(), ctypes.byref(device))),
        ("nvmlDeviceGetTotalEnergyConsumption", (device, ctypes.byref(drawn))),
    ):
        if code := getattr(library, name)(*arguments):
            raise OSError(code, name)
    return drawn.value


def options():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--take", action="store_true", help="use the GPU that LOCAL_RANK says")
    parser.add_argument("--mib", type=int, default=64, help="of its memory")
    parser.add_argument("--busy", type=float, default=0.0, help="compute for so many seconds")
    parser.add_argument("--wait", default="", help="then wait until this file is there")
    parser.add_argument("--wild", action="store_true", help="write where no memory is")
    return parser.parse_args()


def main():
    chosen = options()
    told = {name: os.environ[name] for name in SEEN if name in os.environ}
    try:
        cuda = Cuda()
        told["gpus"] = cuda.uuids()
        if chosen.take:
            own = int(os.environ["LOCAL_RANK"])
            cuda.take(own)
            told["own"] = told["gpus"][own]
            out = cuda.memory(chosen.mib << 20)
        if chosen.busy:
            began, before_mj, function, rounds = (
                time.monotonic(),
                energy_mj(told["own"]),
                cuda.function(b"busy"),
                0,
            )
            while time.monotonic() < began + chosen.busy:
                cuda.run(function, BLOCKS, ctypes.c_uint32(ROUNDS), out)
                rounds += 1
            told["busy_s"], told["rounds"] = time.monotonic() - began, rounds
            told["energy_mj"] = energy_mj(told["own"]) - before_mj
        if chosen.wild:
            cuda.run(cuda.function(b"wild"), 1)
    except (OSError, Refused) as error:
        told["error"] = str(error)
    print(json.dumps(told), flush=True)
    while chosen.wait and not os.path.exists(chosen.wait):
        time.sleep(0.05)


if __name__ == "__main__":
    main()
