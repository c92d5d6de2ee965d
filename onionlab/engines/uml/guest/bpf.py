"""Assemble and load small BPF programs, and fill their maps.

A program is a list of instructions (Documentation/bpf/standardization/instruction-set.rst in the
kernel's source). `Assembler` supports labels and the few instructions that the network uses.
"""

from __future__ import annotations

import ctypes
import os
import struct

# Names and values come from the header that is named above them.

# asm/unistd_64.h
_NR_BPF = 321

# linux/bpf.h
_BPF_MAP_CREATE, _BPF_MAP_UPDATE_ELEM, _BPF_PROG_LOAD = 0, 2, 5
_BPF_MAP_TYPE_HASH, _BPF_MAP_TYPE_ARRAY = 1, 2
_BPF_PROG_TYPE_SCHED_CLS = 3
_BPF_PSEUDO_MAP_FD = 1
_BPF_ANY = 0
_BPF_ALU64, _BPF_DW = 0x07, 0x18
_BPF_MOV, _BPF_END, _BPF_TO_BE = 0xB0, 0xD0, 0x08
_BPF_JNE, _BPF_JLE, _BPF_CALL, _BPF_EXIT = 0x50, 0xB0, 0x80, 0x90
BPF_FUNC_MAP_LOOKUP_ELEM, BPF_FUNC_KTIME_GET_NS, BPF_FUNC_GET_PRANDOM_U32 = 1, 5, 7
BPF_FUNC_CLONE_REDIRECT, BPF_FUNC_REDIRECT, BPF_FUNC_SKB_SET_TSTAMP = 13, 23, 192
BPF_SKB_TSTAMP_DELIVERY_MONO = 1

# linux/bpf_common.h
_BPF_LD, _BPF_LDX, _BPF_STX, _BPF_ALU, _BPF_JMP = 0x00, 0x01, 0x03, 0x04, 0x05
_BPF_W, _BPF_H, _BPF_B = 0x00, 0x08, 0x10
_BPF_IMM, _BPF_MEM = 0x00, 0x60
_BPF_ADD, _BPF_SUB, _BPF_MUL, _BPF_AND, _BPF_RSH = 0x00, 0x10, 0x20, 0x50, 0x70
_BPF_JA, _BPF_JEQ, _BPF_JGT = 0x00, 0x10, 0x20
_BPF_K, _BPF_X = 0x00, 0x08

_INSTRUCTION_BYTES = 8
_VERIFIER_LOG_BYTES = 1 << 16
# Some functions of the kernel require programs with a licence compatible to the kernel's.
_LICENSE = b"Dual BSD/GPL"

_libc = ctypes.CDLL(None, use_errno=True)


class Assembler:
    """An assembler that collects instructions. Registers are numbered 0 to 10."""

    def __init__(self) -> None:
        self._code: list[tuple[int, int, int, int, int]] = []
        self._labels: dict[str, int] = {}
        self._jumps: list[tuple[int, str]] = []

    def bytes(self) -> bytes:
        """Return the assembled program."""
        jumps = dict(self._jumps)
        return b"".join(
            struct.pack(
                "=BBhi",
                code,
                source << 4 | target,
                self._labels[jumps[at]] - at - 1 if at in jumps else offset,
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

    def set_value(self, target: int, value: int) -> None:
        """Target = value."""
        self._add(_BPF_ALU64 | _BPF_MOV | _BPF_K, target, value=value)

    def set_register(self, target: int, source: int) -> None:
        """Target = source."""
        self._add(_BPF_ALU64 | _BPF_MOV | _BPF_X, target, source)

    def add_value(self, target: int, value: int) -> None:
        """Target += value."""
        self._add(_BPF_ALU64 | _BPF_ADD | _BPF_K, target, value=value)

    def add_register(self, target: int, source: int) -> None:
        """Target += source."""
        self._add(_BPF_ALU64 | _BPF_ADD | _BPF_X, target, source)

    def subtract_register(self, target: int, source: int) -> None:
        """Target -= source."""
        self._add(_BPF_ALU64 | _BPF_SUB | _BPF_X, target, source)

    def multiply_value(self, target: int, value: int) -> None:
        """Target *= value."""
        self._add(_BPF_ALU64 | _BPF_MUL | _BPF_K, target, value=value)

    def and_value(self, target: int, value: int) -> None:
        """Target &= value."""
        self._add(_BPF_ALU64 | _BPF_AND | _BPF_K, target, value=value)

    def shift_right(self, target: int, bits: int) -> None:
        """Target >>= bits."""
        self._add(_BPF_ALU64 | _BPF_RSH | _BPF_K, target, value=bits)

    def from_big_endian16(self, target: int) -> None:
        """Convert 16 bits from network order."""
        self._add(_BPF_ALU | _BPF_END | _BPF_TO_BE, target, value=16)

    def load8(self, target: int, source: int, offset: int) -> None:
        """Target = byte at source + offset."""
        self._add(_BPF_LDX | _BPF_MEM | _BPF_B, target, source, offset)

    def load16(self, target: int, source: int, offset: int) -> None:
        """Target = 16 bits at source + offset."""
        self._add(_BPF_LDX | _BPF_MEM | _BPF_H, target, source, offset)

    def load32(self, target: int, source: int, offset: int) -> None:
        """Target = 32 bits at source + offset."""
        self._add(_BPF_LDX | _BPF_MEM | _BPF_W, target, source, offset)

    def load64(self, target: int, source: int, offset: int) -> None:
        """Target = 64 bits at source + offset."""
        self._add(_BPF_LDX | _BPF_MEM | _BPF_DW, target, source, offset)

    def store32(self, target: int, offset: int, source: int) -> None:
        """32 bits at target + offset = source."""
        self._add(_BPF_STX | _BPF_MEM | _BPF_W, target, source, offset)

    def set_value64(self, target: int, value: int) -> None:
        """Target = a 64-bit value."""
        self._add(_BPF_LD | _BPF_IMM | _BPF_DW, target, value=_signed32(value & 0xFFFFFFFF))
        # The second half of this double-size instruction: the upper half of the value.
        self._add(0, value=_signed32(value >> 32))

    def load_map(self, target: int, map_descriptor: int) -> None:
        """Target = the map."""
        self._add(_BPF_LD | _BPF_IMM | _BPF_DW, target, _BPF_PSEUDO_MAP_FD, value=map_descriptor)
        # The second half of this double-size instruction: the upper half of the value.
        self._add(0)

    def call(self, function: int) -> None:
        """Call a function of the kernel, with arguments in registers 1 to 5 and the result in 0."""
        self._add(_BPF_JMP | _BPF_CALL, value=function)

    def leave(self) -> None:
        """Return register 0."""
        self._add(_BPF_JMP | _BPF_EXIT)

    def jump_equal(self, register: int, value: int, label: str) -> None:
        """Jump if the register equals the value."""
        self._jumps.append((len(self._code), label))
        self._add(_BPF_JMP | _BPF_JEQ | _BPF_K, register, value=value)

    def jump_not_equal(self, register: int, value: int, label: str) -> None:
        """Jump if the register does not equal the value."""
        self._jumps.append((len(self._code), label))
        self._add(_BPF_JMP | _BPF_JNE | _BPF_K, register, value=value)

    def jump_greater(self, register: int, other: int, label: str) -> None:
        """Jump if the register is greater than another one."""
        self._jumps.append((len(self._code), label))
        self._add(_BPF_JMP | _BPF_JGT | _BPF_X, register, other)

    def jump_greater_value(self, register: int, value: int, label: str) -> None:
        """Jump if the register is greater than the value (both unsigned)."""
        self._jumps.append((len(self._code), label))
        self._add(_BPF_JMP | _BPF_JGT | _BPF_K, register, value=value)

    def jump_not_greater(self, register: int, other: int, label: str) -> None:
        """Jump if the register is at most another one (both unsigned)."""
        self._jumps.append((len(self._code), label))
        self._add(_BPF_JMP | _BPF_JLE | _BPF_X, register, other)

    def jump(self, label: str) -> None:
        """Jump unconditionally."""
        self._jumps.append((len(self._code), label))
        self._add(_BPF_JMP | _BPF_JA)


def _signed32(value: int) -> int:
    """Return 32 bits as a signed number, as required by an instruction's field."""
    return value - (1 << 32) if value >= 1 << 31 else value


class Map:
    """A map in the kernel. Raises OSError if the kernel rejects it."""

    def __init__(self, kind: int, key_bytes: int, value_bytes: int, entries: int) -> None:
        self.descriptor = _bpf(
            _BPF_MAP_CREATE, struct.pack("=IIIII", kind, key_bytes, value_bytes, entries, 0)
        )

    def __setitem__(self, key: bytes, value: bytes) -> None:
        key_buffer = ctypes.create_string_buffer(key, len(key))
        value_buffer = ctypes.create_string_buffer(value, len(value))
        _bpf(
            _BPF_MAP_UPDATE_ELEM,
            struct.pack(
                "=IxxxxQQQ",
                self.descriptor,
                ctypes.addressof(key_buffer),
                ctypes.addressof(value_buffer),
                _BPF_ANY,
            ),
        )


def hash_map(key_bytes: int, value_bytes: int, entries: int) -> Map:
    """Create a map with keys of arbitrary bytes."""
    return Map(_BPF_MAP_TYPE_HASH, key_bytes, value_bytes, entries)


def array_map(value_bytes: int, entries: int) -> Map:
    """Create a map with 32-bit numbers below `entries` as keys."""
    return Map(_BPF_MAP_TYPE_ARRAY, 4, value_bytes, entries)


def load_filter(code: bytes) -> int:
    """Load a program that filters packets. Return its descriptor.

    Raises OSError with the verifier's reasons if the kernel rejects it.
    """
    instructions = ctypes.create_string_buffer(code, len(code))
    license_buffer = ctypes.create_string_buffer(_LICENSE)

    def attributes(log_level: int, log_address: int) -> bytes:
        return struct.pack(
            "=IIQQIIQII",
            _BPF_PROG_TYPE_SCHED_CLS,
            len(code) // _INSTRUCTION_BYTES,
            ctypes.addressof(instructions),
            ctypes.addressof(license_buffer),
            log_level,
            _VERIFIER_LOG_BYTES if log_level else 0,
            log_address,
            0,
            0,
        )

    try:
        return _bpf(_BPF_PROG_LOAD, attributes(0, 0))
    except OSError:
        log = ctypes.create_string_buffer(_VERIFIER_LOG_BYTES)
        try:
            return _bpf(_BPF_PROG_LOAD, attributes(1, ctypes.addressof(log)))
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
