"""What this machine takes for a switch of processes, a system call and AES.

Run as a program of its own (`python -I probe.py CPU`), it prints one JSON object. It
forks, which a process with threads had better not do; so the harness starts it and does not
import it. All times are CPU time of the process and its child, not
time by the clock: a busy neighbour changes them little.
"""

from __future__ import annotations

import json
import os
import resource
import statistics
import sys
from collections.abc import Callable

from Crypto.Cipher import AES

REPETITIONS = 5
SWITCH_ROUNDS = 6_000
CALLS = 150_000
BLOCK_BYTES = 16 * 1024
BLOCKS = 1_500


def cpu_s() -> float:
    """CPU time of this process and of its children that have ended, in seconds."""
    return sum(
        usage.ru_utime + usage.ru_stime
        for usage in map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    )


def switch_s() -> float:
    """CPU time of one switch of processes: two on one CPU that hand a byte to and fro.

    With it go a write and a read of a pipe, as with the switches of a simulated system call.
    """
    (down_read, down_write), (up_read, up_write) = os.pipe(), os.pipe()
    begin_s = cpu_s()
    child = os.fork()
    if child == 0:
        # Each side keeps its own ends alone: the other one's death closes the pipes then.
        os.close(down_write)
        os.close(up_read)
        while os.read(down_read, 1):
            os.write(up_write, b"x")
        os._exit(0)
    os.close(down_read)
    os.close(up_write)
    for _ in range(SWITCH_ROUNDS):
        os.write(down_write, b"x")
        if not os.read(up_read, 1):
            raise EOFError("the other process has ended")
    os.close(down_write)
    os.close(up_read)
    os.waitpid(child, 0)
    return (cpu_s() - begin_s) / (2 * SWITCH_ROUNDS)


def call_s() -> float:
    """CPU time of one system call that does nothing, and of Python's loop around it."""
    begin_s = cpu_s()
    for _ in range(CALLS):
        os.getppid()
    return (cpu_s() - begin_s) / CALLS


def aes_s_per_byte() -> float:
    """CPU time of AES-128 in counter mode, as Tor encrypts a cell for each hop, in s a byte."""
    cipher = AES.new(bytes(16), AES.MODE_CTR, nonce=bytes(8))
    data = bytes(BLOCK_BYTES)
    begin_s = cpu_s()
    for _ in range(BLOCKS):
        cipher.encrypt(data)
    return (cpu_s() - begin_s) / (BLOCKS * BLOCK_BYTES)


def median(measure: Callable[[], float]) -> float:
    """Of some repetitions, so that one that was disturbed does not count."""
    return statistics.median(measure() for _ in range(REPETITIONS))


def main() -> None:
    """Print what the CPU named in the first argument takes."""
    os.sched_setaffinity(0, {int(sys.argv[1])})
    found = {
        "switch_us": median(switch_s) * 1e6,
        "call_us": median(call_s) * 1e6,
        "aes_ns_per_byte": median(aes_s_per_byte) * 1e9,
    }
    print(json.dumps({name: round(value, 4) for name, value in found.items()}))


if __name__ == "__main__":
    main()
