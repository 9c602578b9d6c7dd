"""BPF's programs and maps by the system call itself: no compiler, no library, nothing to be installed.

The instructions: Documentation/bpf/standardization in the kernel's sources. `Assembly` resolves names of
places, as an assembler does.
"""

import ctypes
import errno
import os
import resource
import struct

SYSCALL = {"x86_64": 321, "aarch64": 280}.get(os.uname().machine)
MAP_CREATE, PROG_LOAD, PROG_ATTACH = 0, 5, 8
TYPE_TRAFFIC, TYPE_CGROUP_DEVICE = 3, 15
MAP_ARRAY = 2
MAP_FD = 1  # in the source register of `WIDE`: the value is a map's file descriptor
LOOKUP, KTIME = 1, 5  # functions of the kernel that programs may call
FRAME = 10  # the register that points behind the stack

# operations: "_OF" takes the second value from a register
LOAD_WORD, LOAD, STORE_WORD, STORE, STORE_WORD_VALUE = 0x61, 0x79, 0x63, 0x7B, 0x62
WIDE, PACKET_BYTE, PACKET_HALF, PACKET_BYTE_AT = 0x18, 0x30, 0x28, 0x50
MOVE, COPY, MASK, SHIFT_LEFT, SHIFT_RIGHT = 0xB7, 0xBF, 0x57, 0x67, 0x77
ADD, ADD_OF, SUBTRACT_OF, SUBTRACT_WORD, MULTIPLY = 0x07, 0x0F, 0x1F, 0x14, 0x27
GO, CALL, EXIT = 0x05, 0x85, 0x95
IF_EQUAL, IF_NOT, IF_MORE, IF_AT_LEAST, IF_SIGNED_MORE = 0x15, 0x55, 0x25, 0x35, 0x65
IF_EQUAL_OF, IF_NOT_OF, IF_MORE_OF, IF_AT_LEAST_OF, IF_AT_MOST_OF = 0x1D, 0x5D, 0x2D, 0x3D, 0xBD

_syscall = ctypes.CDLL(None, use_errno=True).syscall
_syscall.restype = ctypes.c_long


def instruction(operation, to=0, source=0, offset=0, value=0):
    return struct.pack("=BBhi", operation, to | source << 4, offset, value)


class Assembly:
    """Instructions one after the other; a jump may name a place that comes later."""

    def __init__(self):
        self._code, self._places = [], {}

    def add(self, operation, to=0, source=0, offset=0, value=0):
        """`offset` is the name of a place, for jumps."""
        self._code.append((operation, to, source, offset, value))

    def wide(self, to, value, source=0):
        """A number of 64 bits, or with `MAP_FD` a map: takes two instructions."""
        low = value & 0xFFFFFFFF
        self._code.append((WIDE, to, source, 0, low - (low >> 31 << 32)))
        self._code.append((0, 0, 0, 0, value >> 32))

    def place(self, name):
        """The next instruction is the place of this name."""
        self._places[name] = len(self._code)

    def bytes(self):
        code = []
        for at, (operation, to, source, offset, value) in enumerate(self._code):
            away = self._places[offset] - at - 1 if isinstance(offset, str) else offset
            code.append(instruction(operation, to, source, away, value))
        return b"".join(code)


def load(code, kind, name, attach_type=0):
    """The program's file descriptor; OSError when the kernel takes none."""
    held = ctypes.create_string_buffer(code, len(code))
    licence = ctypes.create_string_buffer(b"Dual MIT/GPL")
    attributes = struct.pack(
        "=IIQQIIQII16sII", kind, len(code) // 8, ctypes.addressof(held), ctypes.addressof(licence),
        0, 0, 0, 0, 0, name, 0, attach_type,
    )  # fmt: skip
    return _unlocked(PROG_LOAD, attributes)


def takes(kind):
    """Does the kernel take programs of this kind from this process? Tried with the shortest one."""
    code = Assembly()
    code.add(MOVE, 0, value=-1)
    code.add(EXIT)
    try:
        os.close(load(code.bytes(), kind, b"rm_tried"))
    except OSError:
        return False
    return True


def make_array(name, value_bytes):
    """An array map with one value, all zero; its file descriptor."""
    return make_map(MAP_ARRAY, name, 4, value_bytes, 1)


def make_map(kind, name, key_bytes, value_bytes, most):
    """A map with room for `most` values; its file descriptor."""
    attributes = struct.pack("=IIIIIII16s", kind, key_bytes, value_bytes, most, 0, 0, 0, name)
    return _unlocked(MAP_CREATE, attributes)


def _unlocked(command, attributes):
    try:
        return call(command, attributes)
    except PermissionError as refused:
        # before Linux 5.11 programs and maps count against the memory that may be locked
        before = resource.getrlimit(resource.RLIMIT_MEMLOCK)
        try:
            resource.setrlimit(resource.RLIMIT_MEMLOCK, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        except ValueError:  # nor may this process raise its limit
            raise refused from None
        try:
            return call(command, attributes)
        finally:
            resource.setrlimit(resource.RLIMIT_MEMLOCK, before)


def call(command, attributes):
    """The system call; its result. `attributes` are those of union bpf_attr."""
    if SYSCALL is None:
        raise OSError(errno.ENOSYS, "the number of bpf(2) is not known on %s" % os.uname().machine)
    buffer = ctypes.create_string_buffer(attributes, len(attributes))
    result = _syscall(SYSCALL, command, buffer, ctypes.c_uint(len(attributes)))
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, "bpf: " + os.strerror(number))
    return result
