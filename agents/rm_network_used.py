"""Bytes of the network by interface, of all processes of a control group (version 2).

The kernel runs a program with each packet of IP that a socket of the group sends or gets
(BPF_PROG_TYPE_CGROUP_SKB, Linux 4.10), which adds its length to a map by the interface. The count has the
headers of IP, and not those of the link. What bypasses the kernel, as RDMA does, is not seen.
"""

import ctypes
import os
import socket
import struct

import rm_bpf as bpf

TYPE_CGROUP_SKB = 8
INGRESS, EGRESS = 0, 1  # of attachments, and the second half of a key
ALLOW_MULTI = 2
MAP_HASH, LOOKUP_ELEMENT, NEXT_KEY = 1, 1, 4
UPDATE, IF_ABSENT = 2, 1  # a function of the kernel that programs may call, and its flag
LENGTH, INTERFACE = 0, 40  # of struct __sk_buff
ADD_TO_MEMORY = 0xDB
INTERFACES = 128
KEY, VALUE = struct.Struct("=II"), struct.Struct("=Q")
CONTEXT, FOUND = 6, 0  # registers
ARGUMENT = 1
KEY_AT, ZERO_AT = -8, -16  # on the stack


def assembled(direction, table):
    """The program; `table` is the map's file descriptor."""
    code = bpf.Assembly()
    add = code.add
    add(bpf.COPY, CONTEXT, ARGUMENT)
    add(bpf.LOAD_WORD, ARGUMENT, CONTEXT, INTERFACE)
    add(bpf.STORE_WORD, bpf.FRAME, ARGUMENT, KEY_AT)
    add(bpf.STORE_WORD_VALUE, bpf.FRAME, 0, KEY_AT + 4, direction)
    _look_up(code, table)
    add(bpf.IF_NOT, FOUND, offset="count")
    add(bpf.MOVE, ARGUMENT)
    add(bpf.STORE, bpf.FRAME, ARGUMENT, ZERO_AT)
    code.wide(ARGUMENT, table, bpf.MAP_FD)
    for register, at in ((2, KEY_AT), (3, ZERO_AT)):
        add(bpf.COPY, register, bpf.FRAME)
        add(bpf.ADD, register, value=at)
    add(bpf.MOVE, 4, value=IF_ABSENT)
    add(bpf.CALL, value=UPDATE)
    _look_up(code, table)
    add(bpf.IF_EQUAL, FOUND, offset="pass")  # there are too many interfaces
    code.place("count")
    add(bpf.LOAD_WORD, ARGUMENT, CONTEXT, LENGTH)
    add(ADD_TO_MEMORY, FOUND, ARGUMENT)
    code.place("pass")
    add(bpf.MOVE, 0, value=1)
    add(bpf.EXIT)
    return code.bytes()


def _look_up(code, table):
    code.wide(ARGUMENT, table, bpf.MAP_FD)
    code.add(bpf.COPY, 2, bpf.FRAME)
    code.add(bpf.ADD, 2, value=KEY_AT)
    code.add(bpf.CALL, value=bpf.LOOKUP)


class Traffic:
    """Of one control group, which is given by its folder. OSError: the kernel does not count so."""

    def __init__(self, path):
        self._table = bpf.make_map(MAP_HASH, b"rm_network", KEY.size, VALUE.size, 2 * INTERFACES)
        try:
            home = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                for direction in (INGRESS, EGRESS):
                    self._attach(home, direction)
            finally:
                os.close(home)
        except OSError:
            self.close()
            raise

    def _attach(self, home, direction):
        program = bpf.load(assembled(direction, self._table), TYPE_CGROUP_SKB, b"rm_network")
        try:
            bpf.call(bpf.PROG_ATTACH, struct.pack("=IIII", home, program, direction, ALLOW_MULTI))
        finally:
            os.close(program)

    def now(self):
        """index of an interface -> (received, sent), bytes so far; others may have its name later."""
        found, key = {}, None
        while len(found) <= 2 * INTERFACES:
            key = self._next(key)
            if key is None:
                break
            index, direction = KEY.unpack(key)
            found.setdefault(index, [0, 0])[direction] = self._value(key)
        return {index: tuple(both) for index, both in found.items()}

    def _next(self, key):
        """The key after this one; the first one after None; None at the end."""
        before = ctypes.create_string_buffer(key or bytes(KEY.size), KEY.size)
        after = ctypes.create_string_buffer(KEY.size)
        where = ctypes.addressof(before) if key is not None else 0
        try:
            bpf.call(NEXT_KEY, struct.pack("=IIQQQ", self._table, 0, where, ctypes.addressof(after), 0))
        except OSError:
            return None
        return after.raw

    def _value(self, key):
        held, value = ctypes.create_string_buffer(key, KEY.size), ctypes.create_string_buffer(VALUE.size)
        where = ctypes.addressof(held), ctypes.addressof(value)
        try:
            bpf.call(LOOKUP_ELEMENT, struct.pack("=IIQQQ", self._table, 0, *where, 0))
        except OSError:
            return 0
        return VALUE.unpack(value.raw)[0]

    def close(self):
        if self._table >= 0:
            os.close(self._table)
            self._table = -1


def counted(path):
    """Of a new group; None where it cannot be counted."""
    try:
        return Traffic(path) if path else None
    except OSError:
        return None


def _name_of(index):
    try:
        return socket.if_indextoname(index)
    except OSError:
        return "if%d" % index  # it is gone


def since(now, before):
    """[[interface, received, sent]] of what has passed in between, the busiest first."""
    sums = {}
    for index, both in now.items():
        first = before.get(index, (0, 0))
        passed = [max(0, number - earlier) for number, earlier in zip(both, first)]  # noqa: B905
        if any(passed):
            line = sums.setdefault(_name_of(index), [0, 0])
            line[:] = line[0] + passed[0], line[1] + passed[1]
    return sorted(([name, *both] for name, both in sums.items()), key=lambda line: -line[1] - line[2])
