"""Run native Tor on the loopback interface: an authority, a guard, a middle, an exit, a client.

The programs, the kernel and the clock are real. All hosts share one address.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from onionlab.errors import UserError
from onionlab.live.live_tor import LiveTor

ADDRESS = "127.0.0.1"
GUARD = "guard"
RELAYS = ("authority", GUARD, "middle", "exit")
BOOTSTRAP_TIMEOUT_S = 180.0
STOP_TIMEOUT_S = 15.0
CIRCUIT_READY = "Bootstrapped 100%"
CLOCK_TICKS_PER_S = os.sysconf("SC_CLK_TCK")

COMMON = """\
TestingTorNetwork 1
DataDirectory {folder}
Log notice file {folder}/log
RunAsDaemon 0
AssumeReachable 1
NumCPUs 1
ContactInfo private
Address 127.0.0.1
PathsNeededToBuildCircuits 0.67
DoSCircuitCreationEnabled 0
DoSConnectionEnabled 0
TestingV3AuthInitialVotingInterval 20 seconds
TestingV3AuthInitialVoteDelay 4 seconds
TestingV3AuthInitialDistDelay 4 seconds
V3AuthVotingInterval 20 seconds
V3AuthVoteDelay 4 seconds
V3AuthDistDelay 4 seconds
"""
RELAY = """\
Nickname {name}
ORPort 127.0.0.1:{or_port} IPv4Only
SocksPort 0
"""
AUTHORITY = """\
AuthoritativeDirectory 1
V3AuthoritativeDirectory 1
DirPort 127.0.0.1:{dir_port}
ExitPolicy reject *:*
AuthDirTestReachability 0
AuthDirMaxServersPerAddr 0
TestingDirAuthVoteGuard {guard}
TestingDirAuthVoteGuardIsStrict 1
TestingDirAuthVoteExit {exit}
TestingDirAuthVoteExitIsStrict 1
ConsensusParams cc_alg=0
"""
EXIT = """\
ExitRelay 1
ExitPolicyRejectPrivate 0
ExitPolicy accept *:*
ServerDNSDetectHijacking 0
ServerDNSAllowBrokenConfig 1
"""
NO_EXIT = "ExitPolicy reject *:*\n"
CLIENT = """\
ClientOnly 1
ORPort 0
SocksPort 127.0.0.1:{socks_port} IsolateSOCKSAuth
ClientRejectInternalAddresses 0
ClientDNSRejectInternalAddresses 0
EntryNodes {guard}
ExitNodes {exit}
MaxCircuitDirtiness 1 hour
"""


@dataclass(frozen=True)
class LiveNetwork:
    """A running network. processes: keyed by host name; socks_port: the client's."""

    processes: Mapping[str, subprocess.Popen[bytes]]
    folder: Path
    socks_port: int

    def cpu_s(self, name: str) -> float:
        """Return the user and system time that a Tor process has used so far."""
        stat = Path(f"/proc/{self.processes[name].pid}/stat").read_text()
        user, system = stat.rpartition(")")[2].split()[11:13]
        return (int(user) + int(system)) / CLOCK_TICKS_PER_S


@contextlib.contextmanager
def running(
    programs: LiveTor,
    folder: Path,
    *,
    scheduler: str,
    guard_lines: Sequence[str],
    say: Callable[[str], None],
) -> Iterator[LiveNetwork]:
    """Start the network in ``folder``, which must not exist, and stop it when the block ends.

    Args:
        programs: the build of Tor to run.
        folder: the directory for all files of the network.
        scheduler: torrc `Schedulers` of every Tor process.
        guard_lines: torrc lines for the guard only.
        say: receives progress messages.

    Raises:
        UserError: a Tor process ended, or the client built no circuit in time. The message quotes
          the last lines of its log.
    """
    ports = _free_ports(2 * len(RELAYS) + 1)
    or_port = dict(zip(RELAYS, ports, strict=False))
    dir_port, socks_port = ports[-2], ports[-1]
    folder.mkdir(parents=True)
    for name in (*RELAYS, "client"):
        (folder / name).mkdir(mode=0o700)
    authority = _make_authority(programs, folder / "authority", or_port["authority"], dir_port)
    fingerprints = {
        name: _fingerprint(programs, folder / name, or_port[name])
        for name in RELAYS
        if name != "authority"
    }
    known = {"guard": fingerprints[GUARD], "exit": fingerprints["exit"]}
    for name in (*RELAYS, "client"):
        text = COMMON.format(folder=folder / name) + authority + f"Schedulers {scheduler}\n"
        if name == "client":
            text += CLIENT.format(socks_port=socks_port, **known)
        else:
            text += RELAY.format(name=name, or_port=or_port[name])
            if name == "authority":
                text += AUTHORITY.format(dir_port=dir_port, **known)
            else:
                text += EXIT if name == "exit" else NO_EXIT
        if name == GUARD:
            text += "".join(f"{line}\n" for line in guard_lines)
        (folder / name / "torrc").write_text(text)
    processes: dict[str, subprocess.Popen[bytes]] = {}
    try:
        for name in (*RELAYS, "client"):
            processes[name] = subprocess.Popen(
                [programs.tor, "-f", folder / name / "torrc"],
                cwd=folder / name,
                stdin=subprocess.DEVNULL,
                stdout=(folder / name / "stdout").open("wb"),
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        say("waiting for the private network's first circuit (about half a minute)")
        _wait_for_circuit(processes, folder)
        yield LiveNetwork(processes, folder, socks_port)
    finally:
        for process in processes.values():
            if process.poll() is None:
                # The first signal makes a relay wait for 30 seconds; the second ends it at once.
                process.send_signal(signal.SIGINT)
                process.send_signal(signal.SIGTERM)
        deadline = time.monotonic() + STOP_TIMEOUT_S
        for process in processes.values():
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(max(0.1, deadline - time.monotonic()))
            if process.poll() is None:
                process.kill()
                process.wait()


def _free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind((ADDRESS, 0))
        return [int(one.getsockname()[1]) for one in sockets]


def _run(command: Sequence[str | Path], given: bytes = b"") -> str:
    result = subprocess.run(command, input=given, capture_output=True, check=False)
    if result.returncode != 0:
        said = (result.stdout + result.stderr).decode(errors="replace").strip()
        raise UserError(f"{Path(command[0]).name} failed: {said[-500:]}")
    return result.stdout.decode(errors="replace")


def _make_authority(programs: LiveTor, folder: Path, or_port: int, dir_port: int) -> str:
    """Generate an authority's keys. Return the DirAuthority line that all other hosts need."""
    keys = folder / "keys"
    keys.mkdir(mode=0o700)
    _run(
        [
            programs.gencert, "--create-identity-key", "--passphrase-fd", "0", "-m", "1",
            "-a", f"{ADDRESS}:{dir_port}",
            "-i", keys / "authority_identity_key",
            "-s", keys / "authority_signing_key",
            "-c", keys / "authority_certificate",
        ],
        b"no secret\n",
    )  # fmt: skip
    certificate = (keys / "authority_certificate").read_text()
    v3_identity = next(
        line.split()[1] for line in certificate.splitlines() if line.startswith("fingerprint ")
    )
    fingerprint = _fingerprint(programs, folder, or_port)
    return (
        f"DirAuthority authority orport={or_port} no-v2 v3ident={v3_identity} "
        f"{ADDRESS}:{dir_port} {fingerprint}\n"
    )


def _fingerprint(programs: LiveTor, folder: Path, or_port: int) -> str:
    """Make a relay generate its identity key. Return its fingerprint."""
    _run(
        [
            programs.tor, "--list-fingerprint", "--ignore-missing-torrc",
            "-f", folder / "none", "--defaults-torrc", folder / "none",
            "--DataDirectory", folder, "--ORPort", str(or_port), "--SocksPort", "0",
            "--Nickname", folder.name, "--ContactInfo", "private", "--Log", "err stderr",
            "--ExitPolicy", "reject *:*", "--Address", ADDRESS, "--TestingTorNetwork", "1",
            "--DirAuthority", f"none orport=1 v3ident={'A' * 40} {ADDRESS}:1 {'B' * 40}",
        ]
    )  # fmt: skip
    return (folder / "fingerprint").read_text().split()[1]


def _wait_for_circuit(processes: Mapping[str, subprocess.Popen[bytes]], folder: Path) -> None:
    deadline = time.monotonic() + BOOTSTRAP_TIMEOUT_S
    log = folder / "client" / "log"
    while time.monotonic() < deadline:
        for name, process in processes.items():
            if process.poll() is not None:
                raise UserError(f"the Tor process `{name}` ended: {_last_words(folder / name)}")
        if log.exists() and CIRCUIT_READY in log.read_text(errors="replace"):
            return
        time.sleep(0.5)
    raise UserError(f"the client built no circuit: {_last_words(folder / 'client')}")


def _last_words(folder: Path) -> str:
    for name in ("log", "stdout"):
        path = folder / name
        if path.exists() and path.stat().st_size:
            return " | ".join(path.read_text(errors="replace").splitlines()[-4:])
    return "no output"
