"""Small BPF programs and their maps: put together, loaded, filled in.

A program is a list of instructions (Documentation/bpf/standardization/instruction-set.rst in the
kernel's source); `Assembler` knows the few that the network's two programs use, and labels.
"""

from __future__ import annotations

import ctypes
import os
import struct

_SYSCALL_BPF = 321
_MAP_CREATE, _MAP_UPDATE, _PROG_LOAD = 0, 2, 5
_MAP_TYPE_HASH, _MAP_TYPE_ARRAY = 1, 2
_PROG_TYPE_SCHED_CLS = 3
_PSEUDO_MAP_FD = 1
_VERIFIER_LOG_BYTES = 1 << 16
# Some of the kernel's functions may only be called by programs under a licence that goes with its.
_LICENSE = b"Dual BSD/GPL"

MAP_LOOKUP, KTIME_GET_NS, PRANDOM_U32 = 1, 5, 7
CLONE_REDIRECT, REDIRECT, SKB_SET_TSTAMP = 13, 23, 192
"""Numbers of the kernel's functions (BPF_FUNC_...)."""

_libc = ctypes.CDLL(None, use_errno=True)


class Assembler:
    """Collects instructions; registers are numbered 0 to 10."""

    def __init__(self) -> None:
        self._code: list[tuple[int, int, int, int, int]] = []
        self._labels: dict[str, int] = {}
        self._jumps: list[tuple[int, str]] = []

    def bytes(self) -> bytes:
        """Return the program."""
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
        """Mark this place for jumps."""
        self._labels[name] = len(self._code)

    def set_value(self, target: int, value: int) -> None:
        """Target = value."""
        self._add(0xB7, target, value=value)

    def set_register(self, target: int, source: int) -> None:
        """Target = source."""
        self._add(0xBF, target, source)

    def add_value(self, target: int, value: int) -> None:
        """Target += value."""
        self._add(0x07, target, value=value)

    def add_register(self, target: int, source: int) -> None:
        """Target += source."""
        self._add(0x0F, target, source)

    def subtract_register(self, target: int, source: int) -> None:
        """Target -= source."""
        self._add(0x1F, target, source)

    def multiply_value(self, target: int, value: int) -> None:
        """Target *= value."""
        self._add(0x27, target, value=value)

    def and_value(self, target: int, value: int) -> None:
        """Target &= value."""
        self._add(0x57, target, value=value)

    def shift_right(self, target: int, bits: int) -> None:
        """Target >>= bits."""
        self._add(0x77, target, value=bits)

    def from_big_endian16(self, target: int) -> None:
        """Convert 16 bits from network order."""
        self._add(0xDC, target, value=16)

    def load8(self, target: int, source: int, offset: int) -> None:
        """Target = byte at source + offset."""
        self._add(0x71, target, source, offset)

    def load16(self, target: int, source: int, offset: int) -> None:
        """Target = 16 bits at source + offset."""
        self._add(0x69, target, source, offset)

    def load32(self, target: int, source: int, offset: int) -> None:
        """Target = 32 bits at source + offset."""
        self._add(0x61, target, source, offset)

    def load64(self, target: int, source: int, offset: int) -> None:
        """Target = 64 bits at source + offset."""
        self._add(0x79, target, source, offset)

    def store32(self, target: int, offset: int, source: int) -> None:
        """32 bits at target + offset = source."""
        self._add(0x63, target, source, offset)

    def load_map(self, target: int, map_descriptor: int) -> None:
        """Target = the map."""
        self._add(0x18, target, _PSEUDO_MAP_FD, value=map_descriptor)
        self._add(0)

    def call(self, function: int) -> None:
        """Call a function of the kernel: arguments in 1 to 5, result in 0."""
        self._add(0x85, value=function)

    def leave(self) -> None:
        """Return register 0."""
        self._add(0x95)

    def jump_equal(self, register: int, value: int, label: str) -> None:
        """Jump where the register holds the value."""
        self._jumps.append((len(self._code), label))
        self._add(0x15, register, value=value)

    def jump_not_equal(self, register: int, value: int, label: str) -> None:
        """Jump where the register holds another value."""
        self._jumps.append((len(self._code), label))
        self._add(0x55, register, value=value)

    def jump_greater(self, register: int, other: int, label: str) -> None:
        """Jump where the register is greater than another one."""
        self._jumps.append((len(self._code), label))
        self._add(0x2D, register, other)

    def jump_greater_value(self, register: int, value: int, label: str) -> None:
        """Jump where the register is greater than the value (both unsigned)."""
        self._jumps.append((len(self._code), label))
        self._add(0x25, register, value=value)

    def jump(self, label: str) -> None:
        """Jump."""
        self._jumps.append((len(self._code), label))
        self._add(0x05)


class Map:
    """A map in the kernel. Raises OSError where the kernel refuses it."""

    def __init__(self, kind: int, key_bytes: int, value_bytes: int, entries: int) -> None:
        self.descriptor = _bpf(
            _MAP_CREATE, struct.pack("=IIIII", kind, key_bytes, value_bytes, entries, 0)
        )

    def __setitem__(self, key: bytes, value: bytes) -> None:
        key_buffer = ctypes.create_string_buffer(key, len(key))
        value_buffer = ctypes.create_string_buffer(value, len(value))
        _bpf(
            _MAP_UPDATE,
            struct.pack(
                "=IxxxxQQQ",
                self.descriptor,
                ctypes.addressof(key_buffer),
                ctypes.addressof(value_buffer),
                0,
            ),
        )


def hash_map(key_bytes: int, value_bytes: int, entries: int) -> Map:
    """Make a map from keys of any bytes."""
    return Map(_MAP_TYPE_HASH, key_bytes, value_bytes, entries)


def array_map(value_bytes: int, entries: int) -> Map:
    """Make a map from numbers (32 bits) below `entries`."""
    return Map(_MAP_TYPE_ARRAY, 4, value_bytes, entries)


def load_filter(code: bytes) -> int:
    """Load a program that filters packets; return its descriptor.

    Raises OSError with the verifier's reasons where the kernel refuses it.
    """
    instructions = ctypes.create_string_buffer(code, len(code))
    license_buffer = ctypes.create_string_buffer(_LICENSE)

    def attributes(log_level: int, log_address: int) -> bytes:
        return struct.pack(
            "=IIQQIIQII",
            _PROG_TYPE_SCHED_CLS,
            len(code) // 8,
            ctypes.addressof(instructions),
            ctypes.addressof(license_buffer),
            log_level,
            _VERIFIER_LOG_BYTES if log_level else 0,
            log_address,
            0,
            0,
        )

    try:
        return _bpf(_PROG_LOAD, attributes(0, 0))
    except OSError:
        log = ctypes.create_string_buffer(_VERIFIER_LOG_BYTES)
        try:
            return _bpf(_PROG_LOAD, attributes(1, ctypes.addressof(log)))
        except OSError as error:
            reasons = log.value.decode(errors="replace")
            raise OSError(error.errno, f"{error.strerror}\n{reasons}") from None


def _bpf(command: int, attributes: bytes) -> int:
    buffer = ctypes.create_string_buffer(attributes, len(attributes))
    result = int(_libc.syscall(_SYSCALL_BPF, command, buffer, len(attributes)))
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, f"bpf command {command}: {os.strerror(code)}")
    return result
