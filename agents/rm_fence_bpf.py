"""Programs that the kernel asks before a process of a control group opens a device (cgroup v2), without a
compiler.

The kernel calls the program with what is opened (struct bpf_cgroup_dev_ctx: kind and access, major, minor)
and refuses with EPERM when it answers 0.
"""

import os
import struct

import rm_bpf as bpf

ATTACH_CGROUP_DEVICE, ALLOW_MULTI = 6, 2
CHARACTER_DEVICE = 2
KIND, MAJOR, MINOR = 2, 3, 4  # registers


def assembled(fenced, allowed):
    """The program: of the major numbers `fenced` only the `allowed` devices may be opened.

    `allowed` holds (major, minor), the minor None for all of a major. Everything else is let through.
    """
    code = bpf.Assembly()
    add = code.add
    add(bpf.LOAD_WORD, KIND, 1, 0)
    add(bpf.MASK, KIND, value=0xFFFF)
    add(bpf.LOAD_WORD, MAJOR, 1, 4)
    add(bpf.LOAD_WORD, MINOR, 1, 8)
    add(bpf.IF_NOT, KIND, offset="yes", value=CHARACTER_DEVICE)
    for major, minor in sorted(
        allowed, key=lambda device: (device[0], device[1] is not None, device[1] or 0)
    ):
        if minor is None:
            add(bpf.IF_EQUAL, MAJOR, offset="yes", value=major)
        else:
            add(bpf.IF_NOT, MAJOR, offset=1, value=major)
            add(bpf.IF_EQUAL, MINOR, offset="yes", value=minor)
    for major in sorted(fenced):
        add(bpf.IF_EQUAL, MAJOR, offset="no", value=major)
    for answer, place in ((1, "yes"), (0, "no")) if fenced else ((1, "yes"),):  # the kernel refuses what
        code.place(place)  # nothing leads to
        add(bpf.MOVE, 0, value=answer)
        add(bpf.EXIT)
    return code.bytes()


def load(code):
    """The program's file descriptor; OSError when the kernel takes none."""
    return bpf.load(code, bpf.TYPE_CGROUP_DEVICE, b"rm_devices", ATTACH_CGROUP_DEVICE)


def attach(program, group, alone=False):
    """Bind the processes of a control group, given by its folder, to the program; until it is removed.
    `alone`: in the place of an earlier one, else beside it."""
    home = os.open(group, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    flags = 0 if alone else ALLOW_MULTI
    try:
        bpf.call(bpf.PROG_ATTACH, struct.pack("=IIII", home, program, ATTACH_CGROUP_DEVICE, flags))
    finally:
        os.close(home)
