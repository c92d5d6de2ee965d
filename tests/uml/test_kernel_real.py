"""The real kernel is repeatable, and its clocks, registers and timers are exact.

The first test builds the kernel if the checkout has none.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from onionlab.engines.processes import children_cpu_s
from onionlab.engines.uml.bootcheck import (
    IN_PROCESSES,
    MAGIC_POWER_OFF,
    MARK,
    BootReport,
    check_boot,
)
from onionlab.engines.uml.kernel import BuiltKernel
from onionlab.engines.uml.kernel_tree import load_patches

REPOSITORY = Path(__file__).resolve().parents[2]
PROGRAMS = Path(__file__).parent / "programs"

pytestmark = pytest.mark.uml

PRELUDE = """\
import ctypes, hashlib, json, os, select, socket, subprocess, sys, time
libc = ctypes.CDLL(None)
libc.mount(b"proc", b"/proc", b"proc", 0, None)
os.environ["PATH"] = "/usr/sbin:/usr/bin:/sbin:/bin"
out = {}
def command(*words):
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout
def loopback_up():
    import fcntl, struct
    with socket.socket() as s:
        fcntl.ioctl(s, 0x8914, struct.pack("16sh", b"lo", 1))  # SIOCSIFFLAGS, IFF_UP
"""

CODA = f"""
print({MARK!r} + json.dumps(out, sort_keys=True), flush=True)
libc.reboot({MAGIC_POWER_OFF})
"""

# This program reads all sources of random numbers, in several processes that sleep in between.
RANDOMNESS = """
loopback_up()
out["getrandom"] = os.getrandom(40).hex()
out["boot_id"] = open("/proc/sys/kernel/random/boot_id").read()
out["auxiliary vector"] = hashlib.sha256(open("/proc/self/auxv", "rb").read()).hexdigest()
pipes = []
for i in range(6):
    end, other = os.pipe()
    if os.fork() == 0:
        time.sleep(0.01 * (i % 3))
        os.write(other, os.getrandom(16))
        os._exit(0)
    pipes.append(end)
out["children"] = [os.read(end, 16).hex() for end in pipes]
sniffer = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
server = socket.create_server(("127.0.0.1", 0))
out["server port"] = server.getsockname()[1]
clients = [socket.create_connection(server.getsockname()) for _ in range(4)]
out["client ports"] = [client.getsockname()[1] for client in clients]
out["packets"] = [sniffer.recv(2000)[14:].hex() for _ in range(12)]
out["python"] = command(sys.executable, "-SEc", "print(hash('a'), id(object()))")
out["maps"] = command("cat", "/proc/self/maps")
out["openssl"] = command("openssl", "rand", "-hex", "32")
out["key"] = command("openssl", "genpkey", "-algorithm", "ed25519")
"""

# In this program, several hosts (UTS namespaces) read random numbers in turn. ``order`` names the
# hosts in the order of these turns.
HOSTS = """
CLONE_NEWUTS = 0x04000000
out["drawn"] = {{}}
outside = os.open("/proc/self/ns/uts", os.O_RDONLY)
places = {{}}
for name in {order!r}:
    if name not in places:
        libc.setns(outside, CLONE_NEWUTS)
        assert libc.unshare(CLONE_NEWUTS) == 0
        libc.sethostname(name.encode(), len(name))
        places[name] = os.open("/proc/self/ns/uts", os.O_RDONLY)
    assert libc.setns(places[name], CLONE_NEWUTS) == 0
    with open("/dev/urandom", "rb", buffering=0) as device:
        answer = [os.getrandom(8).hex(), device.read(100).hex(), os.getrandom(40).hex()]
    out["drawn"].setdefault(name, []).append(answer)
"""

# The guest adds simulated time for many failing calls, except in its first 50 ms (onionlab.start).
# This program measures the time of such calls in these 50 ms and, after a sleep, again.
STEPS = """
def fail_often():
    started = time.monotonic_ns()
    for _ in range(20_000):
        os.path.exists("/nowhere")
    return time.monotonic_ns() - started
at_once = fail_often()
time.sleep(0.1)
out["elapsed_ns"] = [at_once, fail_often()]
"""

CROWD = """
time.sleep(0.1)
started = time.monotonic_ns()
children = []
for _ in range(20):
    child = os.fork()
    if child == 0:
        for _ in range(3000):
            os.path.exists("/nowhere")
            time.monotonic()
        os._exit(0)
    children.append(child)
for child in children:
    os.waitpid(child, 0)
out["elapsed_ns"] = time.monotonic_ns() - started
"""

TIMERS = """
time.sleep(1)
def elapsed_ns(action):
    started = time.monotonic_ns()
    action()
    return time.monotonic_ns() - started
poller = select.epoll()
out["epoll"] = [elapsed_ns(lambda: poller.poll(ms / 1000)) for ms in (1, 7, 250)]
out["sleep"] = [elapsed_ns(lambda: time.sleep(us / 1e6)) for us in (50, 333, 10_000)]
loopback_up()
one, two = socket.socketpair()
def to_and_fro():
    one.send(b"x"); two.recv(1); two.send(b"x"); one.recv(1)
out["socket"] = [elapsed_ns(to_and_fro)]
"""


def boot(kernel: BuiltKernel, log: Path, guest: str, *arguments: str) -> BootReport:
    return check_boot(kernel.path, log, guest=PRELUDE + guest + CODA, arguments=arguments)


def report(kernel: BuiltKernel, folder: Path, guest: str, *arguments: str) -> dict[str, Any]:
    return boot(kernel, folder / "boot.log", guest, *arguments).report


def compiled(name: str, folder: Path) -> Path:
    program = folder / name
    source = PROGRAMS / f"{name}.c"
    subprocess.run(["gcc", "-O2", "-pthread", "-o", program, source], check=True)
    return program


def test_a_kernel_boots_in_a_checkout_whose_path_has_a_space(
    uml_kernel: BuiltKernel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    python = tmp_path / "a checkout" / "python"
    python.parent.mkdir()
    python.symlink_to(Path(sys.executable).resolve())
    monkeypatch.setattr(sys, "executable", str(python))
    assert check_boot(uml_kernel.path, tmp_path / "log").report["slept"] >= 1000


def test_all_patches_are_in(uml_kernel: BuiltKernel) -> None:
    patches = load_patches(REPOSITORY / "configs/uml/patches")
    # Optional patches only save time. Before Linux 6.12, none of them is expected to apply.
    recent = tuple(int(part) for part in uml_kernel.version.split(".")) >= (6, 12)
    assert uml_kernel.patches == tuple(one.name for one in patches if one.required or recent)


def test_the_same_seed_has_the_same_outcome(uml_kernel: BuiltKernel, tmp_path: Path) -> None:
    first = report(uml_kernel, tmp_path, RANDOMNESS, "onionlab.seed=00ff10")
    second = report(uml_kernel, tmp_path, RANDOMNESS, "onionlab.seed=00ff10")
    other = report(uml_kernel, tmp_path, RANDOMNESS, "onionlab.seed=00ff11")
    assert first == second
    assert [name for name in first if first[name] == other[name]] == []


def test_random_numbers_of_a_host_do_not_depend_on_others(
    uml_kernel: BuiltKernel, tmp_path: Path
) -> None:
    def drawn(order: str, seed: str = "00ff10") -> dict[str, list[list[str]]]:
        guest = HOSTS.format(order=[f"relay{one}" for one in order])
        answer = report(uml_kernel, tmp_path, guest, f"onionlab.seed={seed}")["drawn"]
        assert isinstance(answer, dict)
        return answer

    first = drawn("ababa")
    answers = [number for rounds in first.values() for one in rounds for number in one]
    assert len(set(answers)) == len(answers) == 15
    other = drawn("bbbbccca")
    assert other["relaya"] == first["relaya"][:1]
    assert other["relayb"][:2] == first["relayb"]
    assert drawn("a", "00ff11")["relaya"] != first["relaya"][:1]


@pytest.mark.parametrize("seed", ["0", "xy", "00" * 33])
def test_a_malformed_seed_stops_the_boot(
    uml_kernel: BuiltKernel, tmp_path: Path, seed: str
) -> None:
    with pytest.raises(Exception, match="does not boot") as caught:
        report(uml_kernel, tmp_path, RANDOMNESS, f"onionlab.seed={seed}")
    assert "onionlab.seed takes up to 64 hexadecimal digits" in str(caught.value)


MODES = pytest.mark.parametrize("mode", [(), (IN_PROCESSES,)], ids=["ptrace", "in-processes"])


@MODES
def test_clocks(uml_kernel: BuiltKernel, tmp_path: Path, mode: tuple[str, ...]) -> None:
    program = compiled("clocks", tmp_path)
    result = report(uml_kernel, tmp_path, f"out['said'] = command({str(program)!r})", *mode)["said"]
    numbers = [int(number) for number in re.findall(r"\d+", result)]
    compared, different, wrong, *busy_waits = numbers
    assert compared > 50_000
    # Readings by vDSO and by system call differ if the guest adds simulated time between them. This
    # happens about once in ten thousand steps (readings and failing calls).
    assert different < compared / 5000
    assert wrong == 0
    # On average, the guest adds 256 ns for each reading of a clock, and 1 us for each failing call.
    assert busy_waits[0] == pytest.approx(200_000_000 / 256, rel=0.07)
    assert busy_waits[1] == pytest.approx(200_000_000 / 1256, rel=0.07)


def test_the_start_of_a_guest_takes_no_time(uml_kernel: BuiltKernel, tmp_path: Path) -> None:
    """While a guest starts, its programs may look for any number of missing files.

    If these failing calls took simulated time, the scheduler would later decide differently.
    """
    at_once, later = report(uml_kernel, tmp_path, STEPS, "onionlab.start=50000000")["elapsed_ns"]
    assert (at_once, later > 0) == (0, True)
    charged, later = report(uml_kernel, tmp_path, STEPS)["elapsed_ns"]
    assert (charged > 0, later > 0) == (True, True)


@MODES
def test_many_simultaneous_programs_take_no_time(
    uml_kernel: BuiltKernel, tmp_path: Path, mode: tuple[str, ...]
) -> None:
    """The guest adds simulated time only if a single program takes 10,000 steps at one instant.

    A step is a failing system call or a reading of a clock. Here 20 programs take 6,000 steps each.
    If the steps of all programs were added up, the clocks would depend on how many files all
    programs look for.
    """
    assert report(uml_kernel, tmp_path, CROWD, *mode)["elapsed_ns"] == 0


@pytest.mark.slow
def test_reading_a_clock_needs_no_system_call(uml_kernel: BuiltKernel, tmp_path: Path) -> None:
    if "0003-clocks-without-system-calls" not in uml_kernel.patches:
        pytest.skip("this kernel is without the patch")

    # A system call takes several microseconds of the host's CPU, which a guest does not see. This
    # time depends on the machine, so real system calls are measured for comparison.
    def cpu_s(call: str, times: int) -> float:
        before_s = children_cpu_s()
        boot(uml_kernel, tmp_path / "boot.log", f"[{call}() for _ in range({times})]")
        return children_cpu_s() - before_s

    start = cpu_s("time.monotonic", 1000)
    reads = cpu_s("time.monotonic", 200_000) - start
    calls = cpu_s("os.getppid", 200_000) - start
    assert reads < calls / 3


@MODES
def test_registers(uml_kernel: BuiltKernel, tmp_path: Path, mode: tuple[str, ...]) -> None:
    program = compiled("registers", tmp_path)
    result = report(uml_kernel, tmp_path, f"out['said'] = command({str(program)!r})", *mode)["said"]
    rounds, signals, wrong = (int(number) for number in re.findall(r"\d+", result))
    assert rounds > 10_000
    assert signals > 500
    assert wrong == 0


def test_timers_are_exact(uml_kernel: BuiltKernel, tmp_path: Path) -> None:
    result = report(uml_kernel, tmp_path, TIMERS)
    # To wake several processes at once, Linux lets ordinary processes sleep up to 50 us too long,
    # and in epoll and similar calls up to 0.1% of the time.
    assert result["epoll"] == pytest.approx([1e6, 7e6, 250e6], abs=60e3, rel=1.1e-3)
    assert result["sleep"] == pytest.approx([50e3, 333e3, 10e6], abs=60e3)
    assert all(
        value >= wanted for value, wanted in zip(result["epoll"], [1e6, 7e6, 250e6], strict=True)
    )
    # Sending and receiving on a socket takes no simulated time.
    assert result["socket"] == [0]
