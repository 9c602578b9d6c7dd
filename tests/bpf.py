"""An interpreter of the kernel's instructions that programs of ours use, for tests of what they decide."""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass, field

STACK, MAP, CONTEXT = 1 << 40, 2 << 40, 3 << 40
ALL = (1 << 64) - 1


def signed(value: int, bits: int = 64) -> int:
    return value - (1 << bits) if value >> (bits - 1) else value


@dataclass
class Machine:
    """`context` is what the program is asked about, `array` its map's value, `packet` what it may read."""

    context: bytearray
    array: bytearray = field(default_factory=bytearray)
    packet: bytes = b""
    now_ns: Callable[[], int] = lambda: 0

    def run(self, program: bytes) -> int:
        registers = [0] * 11
        registers[1], registers[10] = CONTEXT, STACK + 512
        self._stack = bytearray(512)
        at = 0
        while True:
            code, both, offset, value = struct.unpack_from("=BBhi", program, 8 * at)
            to, source = both & 15, both >> 4
            at += 1
            kind, operand = code & 7, registers[source] if code & 8 else value & ALL
            if code == 0x95:
                return registers[0]
            if code == 0x85:
                registers[0] = self.now_ns() if value == 5 else MAP
            elif code == 0x18:
                registers[to] = MAP if source else value & 0xFFFFFFFF
                at += 1
            elif kind == 0:  # of the packet, in the network's order
                where, size = value + (registers[source] if code & 0x40 else 0), 2 if code & 0x18 == 8 else 1
                if where + size > len(self.packet):
                    return 0
                registers[0] = int.from_bytes(self.packet[where : where + size], "big")
            elif kind == 1:
                registers[to] = self._number(registers[source] + offset, code)
            elif kind in (2, 3):
                self._number(registers[to] + offset, code, operand if kind == 2 else registers[source])
            elif kind == 5:
                at += offset if code == 5 or _holds(code, registers[to], operand) else 0
            else:
                registers[to] = _computed(code, registers[to], operand)

    def _number(self, address: int, code: int, value: int | None = None) -> int:
        """Read, or write `value`."""
        size = 8 if code & 0x18 == 0x18 else 4
        memory = {1: self._stack, 2: self.array, 3: self.context}[address >> 40]
        where = address & 0xFFFFFFFF
        assert 0 <= where <= len(memory) - size
        if value is not None:
            memory[where : where + size] = (value & ((1 << 8 * size) - 1)).to_bytes(size, "little")
        return int.from_bytes(memory[where : where + size], "little")


def _holds(code: int, left: int, right: int) -> bool:
    tests = {0x10: left == right, 0x20: left > right, 0x30: left >= right, 0x50: left != right}
    tests |= {0xB0: left <= right, 0x60: signed(left) > signed(right)}
    return tests[code & 0xF0]


def _computed(code: int, left: int, right: int) -> int:
    bits = 64 if code & 7 == 7 else 32
    results = {
        0x00: left + right, 0x10: left - right, 0x20: left * right, 0x50: left & right, 0xB0: right,
        0x60: left << (right & 63), 0x70: left >> (right & 63),
    }  # fmt: skip
    return results[code & 0xF0] & ((1 << bits) - 1)
