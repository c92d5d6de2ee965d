"""Run native Tor on the loopback interface: an authority, three relays and a client.

Unlike in a simulation, the kernel and the clock are the machine's own, and all hosts share one
address.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from onionlab.errors import UserError
from onionlab.rundir.keys import make_authority_keys, make_relay_keys

LOG = logging.getLogger(__name__)
ADDRESS = "127.0.0.1"
GUARD = "guard"
RELAYS = ("authority", GUARD, "middle", "exit")
SEED = 1
"""Seed of the keys. Anybody can compute the keys, but only programs on this machine can connect."""
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
DirAuthority authority orport={authority_or_port} no-v2 v3ident={v3_identity} \
127.0.0.1:{dir_port} {authority}
Schedulers {scheduler}
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
    """A running network: the Tor process of each host, and the SOCKS port of the client."""

    processes: Mapping[str, subprocess.Popen[bytes]]
    socks_port: int

    def cpu_s(self, name: str) -> float:
        """Return the user and system time that a host's Tor process has used so far."""
        stat = Path(f"/proc/{self.processes[name].pid}/stat").read_text()
        user, system = stat.rpartition(")")[2].split()[11:13]
        return (int(user) + int(system)) / CLOCK_TICKS_PER_S


@contextlib.contextmanager
def running(
    tor: Path, folder: Path, *, scheduler: str, guard_lines: Sequence[str]
) -> Iterator[LiveNetwork]:
    """Start the network in ``folder``, which must not exist, and stop it when the block ends.

    scheduler: torrc `Schedulers` of every Tor process. guard_lines: torrc lines for the guard only.
    Raises UserError if a Tor process ended, or the client built no circuit in time. The message
    quotes the last lines of the log of the process that ended, or of the client's log.
    """
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(len(RELAYS) + 2)]
        for one in sockets:
            one.bind((ADDRESS, 0))
        socks_port, dir_port, *or_ports = (int(one.getsockname()[1]) for one in sockets)
    today = datetime.now(UTC)
    published, expires = (f"{today + timedelta(days=days):%Y-%m-%d %H:%M:%S}" for days in (-1, 100))
    keys = {name: make_relay_keys(SEED, name) for name in RELAYS}
    keys["authority"] = make_authority_keys(SEED, "authority", published=published, expires=expires)
    values = {
        "scheduler": scheduler,
        "socks_port": socks_port,
        "dir_port": dir_port,
        "authority_or_port": or_ports[0],
        "v3_identity": keys["authority"].v3_identity,
        **{name: one.fingerprint for name, one in keys.items()},
    }
    kinds = {"authority": AUTHORITY, GUARD: NO_EXIT, "middle": NO_EXIT, "exit": EXIT}
    torrc = {
        name: COMMON + RELAY.format(name=name, or_port=or_port) + kinds[name]
        for name, or_port in zip(RELAYS, or_ports, strict=True)
    }
    torrc["client"] = COMMON + CLIENT
    for name, text in torrc.items():
        (folder / name / "keys").mkdir(mode=0o700, parents=True)
        (folder / name).chmod(0o700)
        own = "".join(f"{line}\n" for line in guard_lines) if name == GUARD else ""
        text = text.format(folder=folder / name, **values) + own
        (folder / name / "torrc").write_text(text)
        for file, content in keys[name].files.items() if name in keys else ():
            (folder / name / "keys" / file).write_bytes(content)
    processes: dict[str, subprocess.Popen[bytes]] = {}
    try:
        for name in torrc:
            processes[name] = subprocess.Popen(
                [tor, "-f", folder / name / "torrc"],
                cwd=folder / name,
                stdin=subprocess.DEVNULL,
                stdout=(folder / name / "stdout").open("wb"),
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        LOG.info("waiting for the private network's first circuit (about half a minute)")
        _wait_for_circuit(processes, folder)
        yield LiveNetwork(processes, socks_port)
    finally:
        for process in processes.values():
            if process.poll() is None:
                # After SIGINT alone, a relay would wait for 30 seconds. A SIGTERM after the SIGINT
                # ends it immediately.
                process.send_signal(signal.SIGINT)
                process.send_signal(signal.SIGTERM)
        deadline = time.monotonic() + STOP_TIMEOUT_S
        for process in processes.values():
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(max(0.1, deadline - time.monotonic()))
            if process.poll() is None:
                process.kill()
                process.wait()


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
