"""Programs that the kernel asks before a process of a control group opens a device (cgroup v2), without a
compiler.

The kernel calls the program with what is opened (struct bpf_cgroup_dev_ctx: kind and access, major, minor)
and refuses with EPERM when it answers 0. The instructions: Documentation/bpf/standardization in its sources.
"""

import ctypes
import errno
import os
import resource
import struct

SYSCALL = {"x86_64": 321, "aarch64": 280}.get(os.uname().machine)
PROG_LOAD, PROG_ATTACH = 5, 8
TYPE_CGROUP_DEVICE, ATTACH_CGROUP_DEVICE, ALLOW_MULTI = 15, 6, 2
CHARACTER_DEVICE = 2
KIND, MAJOR, MINOR = 2, 3, 4  # registers
LOAD_WORD, MASK, MOVE, EXIT, IF_EQUAL, IF_NOT = 0x61, 0x57, 0xB7, 0x95, 0x15, 0x55
_syscall = ctypes.CDLL(None, use_errno=True).syscall
_syscall.restype = ctypes.c_long


def assembled(fenced, allowed):
    """The program: of the major numbers `fenced` only the `allowed` devices may be opened.

    `allowed` holds (major, minor), the minor None for all of a major. Everything else is let through.
    """
    tests = [(IF_NOT, KIND, CHARACTER_DEVICE, "yes")]
    for major, minor in sorted(
        allowed, key=lambda device: (device[0], device[1] is not None, device[1] or 0)
    ):
        if minor is None:
            tests.append((IF_EQUAL, MAJOR, major, "yes"))
        else:
            tests += [(IF_NOT, MAJOR, major, 1), (IF_EQUAL, MINOR, minor, "yes")]
    tests += [(IF_EQUAL, MAJOR, major, "no") for major in sorted(fenced)]
    places = {"yes": len(tests), "no": len(tests) + 2}
    code = [
        _instruction(LOAD_WORD, KIND, 1, 0), _instruction(MASK, KIND, value=0xFFFF),
        _instruction(LOAD_WORD, MAJOR, 1, 4), _instruction(LOAD_WORD, MINOR, 1, 8),
    ]  # fmt: skip
    for at, (operation, register, value, target) in enumerate(tests):
        offset = target if isinstance(target, int) else places[target] - at - 1
        code.append(_instruction(operation, register, 0, offset, value))
    for answer in (1, 0) if fenced else (1,):  # the kernel refuses what nothing leads to
        code += [_instruction(MOVE, 0, value=answer), _instruction(EXIT)]
    return b"".join(code)


def _instruction(operation, to=0, source=0, offset=0, value=0):
    return struct.pack("=BBhi", operation, to | source << 4, offset, value)


def load(code):
    """The program's file descriptor; OSError when the kernel takes none."""
    held = ctypes.create_string_buffer(code, len(code))
    licence = ctypes.create_string_buffer(b"Dual MIT/GPL")
    attributes = struct.pack(
        "=IIQQIIQII16sII", TYPE_CGROUP_DEVICE, len(code) // 8, ctypes.addressof(held),
        ctypes.addressof(licence), 0, 0, 0, 0, 0, b"rm_devices", 0, ATTACH_CGROUP_DEVICE,
    )  # fmt: skip
    try:
        return _bpf(PROG_LOAD, attributes)
    except PermissionError:
        # before Linux 5.11 programs count against the memory that may be locked
        before = resource.getrlimit(resource.RLIMIT_MEMLOCK)
        resource.setrlimit(resource.RLIMIT_MEMLOCK, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        try:
            return _bpf(PROG_LOAD, attributes)
        finally:
            resource.setrlimit(resource.RLIMIT_MEMLOCK, before)


def attach(program, group, alone=False):
    """Bind the processes of a control group, given by its folder, to the program; until it is removed.
    `alone`: in the place of an earlier one, else beside it."""
    home = os.open(group, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    flags = 0 if alone else ALLOW_MULTI
    try:
        _bpf(PROG_ATTACH, struct.pack("=IIII", home, program, ATTACH_CGROUP_DEVICE, flags))
    finally:
        os.close(home)


def _bpf(command, attributes):
    if SYSCALL is None:
        raise OSError(errno.ENOSYS, "programs for devices are not known on %s" % os.uname().machine)
    buffer = ctypes.create_string_buffer(attributes, len(attributes))
    result = _syscall(SYSCALL, command, buffer, ctypes.c_uint(len(attributes)))
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, "bpf: " + os.strerror(number))
    return result
