"""Assemble and load small BPF programs, and fill their maps.

A program is a list of instructions (Documentation/bpf/standardization/instruction-set.rst in the
kernel's source). `Assembler` supports labels and the few instructions that the network uses.
"""

from __future__ import annotations

import ctypes
import os
import struct

# The comment above each group of constants names the C header that defines their names and values.

# asm/unistd_64.h
_NR_BPF = 321

# linux/bpf.h
_BPF_MAP_CREATE, _BPF_MAP_UPDATE_ELEM, _BPF_PROG_LOAD = 0, 2, 5
BPF_MAP_TYPE_HASH, BPF_MAP_TYPE_ARRAY = 1, 2
_BPF_PROG_TYPE_SCHED_CLS = 3
_BPF_PSEUDO_MAP_FD = 1
_BPF_ANY = 0
_BPF_ALU64, BPF_DW = 0x07, 0x18
BPF_MOV, _BPF_END, _BPF_TO_BE = 0xB0, 0xD0, 0x08
BPF_JNE, BPF_JLE, _BPF_CALL, _BPF_EXIT = 0x50, 0xB0, 0x80, 0x90
_BPF_FUNC_MAP_LOOKUP_ELEM, BPF_FUNC_KTIME_GET_NS, BPF_FUNC_GET_PRANDOM_U32 = 1, 5, 7
BPF_FUNC_CLONE_REDIRECT, BPF_FUNC_REDIRECT, BPF_FUNC_SKB_SET_TSTAMP = 13, 23, 192
BPF_SKB_TSTAMP_DELIVERY_MONO = 1

# linux/bpf_common.h
_BPF_LD, _BPF_LDX, _BPF_STX, _BPF_ALU, _BPF_JMP = 0x00, 0x01, 0x03, 0x04, 0x05
BPF_W, BPF_H, BPF_B = 0x00, 0x08, 0x10
_BPF_IMM, _BPF_MEM = 0x00, 0x60
BPF_ADD, BPF_SUB, BPF_MUL, BPF_AND, BPF_RSH = 0x00, 0x10, 0x20, 0x50, 0x70
BPF_JEQ, BPF_JGT = 0x10, 0x20
_BPF_K, _BPF_X = 0x00, 0x08

_INSTRUCTION_BYTES = 8
_VERIFIER_LOG_BYTES = 1 << 16
# A BPF program may call some functions of the kernel only if it declares a licence that is
# compatible with the kernel's.
_LICENSE = b"Dual BSD/GPL"

_libc = ctypes.CDLL(None, use_errno=True)


class Assembler:
    """An assembler that collects instructions. Registers are numbered 0 to 10."""

    def __init__(self) -> None:
        self._code: list[tuple[int, int, int, int, int]] = []
        self._labels: dict[str, int] = {}
        self._jumps: dict[int, str] = {}

    def bytes(self) -> bytes:
        """Return the assembled program."""
        return b"".join(
            struct.pack(
                "=BBhi",
                code,
                source << 4 | target,
                self._labels[self._jumps[at]] - at - 1 if at in self._jumps else offset,
                value,
            )
            for at, (code, target, source, offset, value) in enumerate(self._code)
        )

    def _add(
        self, code: int, target: int = 0, source: int = 0, offset: int = 0, value: int = 0
    ) -> None:
        self._code.append((code, target, source, offset, value))

    def label(self, name: str) -> None:
        """Define a label for jumps at this position."""
        self._labels[name] = len(self._code)

    def value(self, operation: int, target: int, value: int) -> None:
        """Change the register `target` by a 64-bit operation, such as BPF_ADD, with a constant."""
        self._add(_BPF_ALU64 | operation | _BPF_K, target, value=value)

    def register(self, operation: int, target: int, source: int) -> None:
        """Change the register `target` by a 64-bit operation with the register `source`."""
        self._add(_BPF_ALU64 | operation | _BPF_X, target, source)

    def from_big_endian16(self, target: int) -> None:
        """Convert a register's lower 16 bits from network byte order, and clear the other bits."""
        self._add(_BPF_ALU | _BPF_END | _BPF_TO_BE, target, value=16)

    def load(self, size: int, target: int, source: int, offset: int) -> None:
        """Load `target` from memory at source + offset. size: BPF_B, BPF_H, BPF_W or BPF_DW."""
        self._add(_BPF_LDX | _BPF_MEM | size, target, source, offset)

    def store32(self, target: int, offset: int, source: int) -> None:
        """Store 32 bits of the register `source` to memory at target + offset."""
        self._add(_BPF_STX | _BPF_MEM | BPF_W, target, source, offset)

    def value64(self, target: int, value: int) -> None:
        """Set a register to a 64-bit value."""
        self._double(target, 0, _signed32(value & 0xFFFFFFFF), _signed32(value >> 32))

    def look_up(self, in_map: Map, key_offset: int, label: str) -> None:
        """Set register 0 to the address of a key's value. Jump to `label` if the map lacks the key.

        key_offset: the key's offset from register 10, the end of the stack; it is negative.
        """
        self._double(1, _BPF_PSEUDO_MAP_FD, in_map.descriptor, 0)
        self.register(BPF_MOV, 2, 10)
        self.value(BPF_ADD, 2, key_offset)
        self.call(_BPF_FUNC_MAP_LOOKUP_ELEM)
        self.jump_value(BPF_JEQ, 0, 0, label)

    def _double(self, target: int, source: int, low: int, high: int) -> None:
        """Add the instruction of double size that sets a register to a 64-bit value.

        low, high: the value's lower and upper 32 bits.
        """
        self._add(_BPF_LD | _BPF_IMM | BPF_DW, target, source, value=low)
        self._add(0, value=high)

    def call(self, function: int) -> None:
        """Call a kernel function with arguments in registers 1 to 5. Register 0 gets the result."""
        self._add(_BPF_JMP | _BPF_CALL, value=function)

    def leave(self, value: int | None = None) -> None:
        """Make the BPF program return `value`, or the content of register 0 if `value` is None."""
        if value is not None:
            self.value(BPF_MOV, 0, value)
        self._add(_BPF_JMP | _BPF_EXIT)

    def jump_value(self, comparison: int, register: int, value: int, label: str) -> None:
        """Jump to `label` if a comparison, such as BPF_JEQ, of a register with a value is true."""
        self._jumps[len(self._code)] = label
        self._add(_BPF_JMP | comparison | _BPF_K, register, value=value)

    def jump_register(self, comparison: int, register: int, other: int, label: str) -> None:
        """Jump to `label` if an unsigned comparison of two registers, such as BPF_JGT, is true."""
        self._jumps[len(self._code)] = label
        self._add(_BPF_JMP | comparison | _BPF_X, register, other)


def _signed32(value: int) -> int:
    """Return the signed number with the same 32 bits, because fields of instructions are signed."""
    return value - (1 << 32) if value >= 1 << 31 else value


class Map:
    """A BPF map in the kernel, with keys of four bytes. Raises OSError if the kernel rejects it.

    kind: BPF_MAP_TYPE_HASH or BPF_MAP_TYPE_ARRAY. The keys of an array are numbers below `entries`.
    entries: the maximum number of entries.
    """

    def __init__(self, kind: int, *, value_bytes: int, entries: int) -> None:
        key_bytes = 4
        self.descriptor = _bpf(
            _BPF_MAP_CREATE, struct.pack("=IIIII", kind, key_bytes, value_bytes, entries, 0)
        )

    def __setitem__(self, key: bytes, value: bytes) -> None:
        key_buffer = ctypes.create_string_buffer(key, len(key))
        value_buffer = ctypes.create_string_buffer(value, len(value))
        addresses = ctypes.addressof(key_buffer), ctypes.addressof(value_buffer)
        _bpf(_BPF_MAP_UPDATE_ELEM, struct.pack("=IxxxxQQQ", self.descriptor, *addresses, _BPF_ANY))


def load_filter(code: bytes) -> int:
    """Load an assembled program that filters packets. Return its file descriptor.

    Raises OSError with the verifier's reasons if the kernel rejects the program.
    """
    instructions = ctypes.create_string_buffer(code, len(code))
    license_buffer = ctypes.create_string_buffer(_LICENSE)

    def load(log: ctypes.Array[ctypes.c_char] | None) -> int:
        return _bpf(
            _BPF_PROG_LOAD,
            struct.pack(
                "=IIQQIIQII",
                _BPF_PROG_TYPE_SCHED_CLS,
                len(code) // _INSTRUCTION_BYTES,
                ctypes.addressof(instructions),
                ctypes.addressof(license_buffer),
                1 if log else 0,
                len(log) if log else 0,
                ctypes.addressof(log) if log else 0,
                0,
                0,
            ),
        )

    try:
        return load(None)
    except OSError:
        log = ctypes.create_string_buffer(_VERIFIER_LOG_BYTES)
        try:
            return load(log)
        except OSError as error:
            reasons = log.value.decode(errors="replace")
            raise OSError(error.errno, f"{error.strerror}\n{reasons}") from None


def _bpf(command: int, attributes: bytes) -> int:
    buffer = ctypes.create_string_buffer(attributes, len(attributes))
    result = int(_libc.syscall(_NR_BPF, command, buffer, len(attributes)))
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, f"bpf command {command}: {os.strerror(code)}")
    return result
