"""A directory like that of `tornettools generate`, whose programs can run."""

from __future__ import annotations

from pathlib import Path

from harness.markov_models import MODELS

from onionlab.rundir.seeded_keys import draw_seeded_keys

from .tiny import HOSTS, RELAYS, SERVICE, TinyTornet, graphml

BOOTSTRAP_S = 60
STOP_S = 180
TOR_START_S = 30
"""Time at which clients and the onion service start, in simulated seconds. In tornettools' own
networks it is 240 s."""

# A circuit needs three of the six relays, and a rendezvous circuit needs a fourth one.
ALL_RELAYS = RELAYS | dict.fromkeys(("fay", "gil", "hal"), "relay")
GUARDS = ("bob", "eve", "fay")
EXITS = ("gil", "hal")

# These are tornettools' options, except that the first consensus is voted earlier.
COMMON = """\
TestingEnableCellStatsEvent 0
ServerDNSAllowBrokenConfig 1
ServerDNSDetectHijacking 0
AssumeReachable 1
NumCPUs 1
Log notice stdout
SafeLogging 0
LogTimeGranularity 1
HeartbeatPeriod 1
DisableDebuggerAttachment 0
PathBiasUseThreshold 10000
PathBiasCircThreshold 10000
DoSCircuitCreationEnabled 0
DoSConnectionEnabled 0
DoSRefuseSingleHopClientRendezvous 0
ControlPort 9051
ContactInfo test
TestingV3AuthInitialVotingInterval 20 seconds
TestingV3AuthInitialVoteDelay 4 seconds
TestingV3AuthInitialDistDelay 4 seconds
V3AuthVotingInterval 5 minutes
V3AuthVoteDelay 20 seconds
V3AuthDistDelay 20 seconds
"""
CLIENT = "ClientOnly 1\nORPort 0\nSocksPort 9050\nUseEntryGuards 0\n"
START = {"loglevel": "info", "socksproxy": "localhost:9050"}


class RunnableTornet(TinyTornet):
    """A network with one authority, six relays, a server, an onion service and some clients."""

    def __init__(self, seed: int = 1) -> None:
        super().__init__(seed, ALL_RELAYS)
        self.seed = seed
        self.config["general"] |= {"bootstrap_end_time": BOOTSTRAP_S, "stop_time": STOP_S}
        (serving, _) = self.host("hidden")["processes"]
        serving["environment"] = {"TGENIP": "127.0.0.1"}
        for host in self.config["hosts"].values():
            for one in host["processes"]:
                of_clients = {240: TOR_START_S, 300: BOOTSTRAP_S}
                one["start_time"] = of_clients.get(one["start_time"], one["start_time"])
        self.files["conf/common.torrc"] += COMMON.encode()
        self._write_torrcs()
        self._write_traffic()

    def _write_torrcs(self) -> None:
        def listed(names: tuple[str, ...]) -> str:
            return ",".join(self.fingerprints[name] for name in names)

        self.files |= {
            "conf/relay.torrc": b"ORPort 9001 IPv4Only\nDirPort 8080\nSocksPort 0\n",
            "conf/exit.torrc": b'ExitPolicy "accept *:*"\n',
            "conf/other.torrc": b'ExitPolicy "reject *:*"\n',
            "conf/authority.torrc": (
                'ExitPolicy "reject *:*"\nAuthoritativeDirectory 1\nV3AuthoritativeDirectory 1\n'
                "V3BandwidthsFile ../bw/v3bw\n"
                f"TestingDirAuthVoteGuard {listed(GUARDS)}\nTestingDirAuthVoteGuardIsStrict 1\n"
                f"TestingDirAuthVoteExit {listed(EXITS)}\nTestingDirAuthVoteExitIsStrict 1\n"
            ).encode(),
            "conf/client.torrc": CLIENT.encode(),
            "conf/onion.torrc": (
                f"{CLIENT}HiddenServiceDir hs\nHiddenServicePort 8080 127.0.0.1:80\n"
            ).encode(),
        }
        for name, kind in ALL_RELAYS.items():
            if kind == "relay":
                own = "BandwidthRate 22710724\nBandwidthBurst 32 MBytes\n"
                self._torrc(name, "relay", "exit" if name in EXITS else "other", own=own)

    def _write_traffic(self) -> None:
        self.files |= {f"conf/{kind}.graphml": text.encode() for kind, text in MODELS.items()}
        for name, peer in (("perf", "web:80"), ("perf-hs", f"{SERVICE}:8080")):
            stream = {"sendsize": "1000 bytes", "stallout": "0 seconds", "timeout": "15 seconds"}
            self.files[f"conf/{name}.graphml"] = graphml(
                {
                    "start": START | {"peers": peer},
                    "pause": {"time": "5 seconds"},
                    "stream_50k": stream | {"recvsize": "50 KiB"},
                    "stream_1m": stream | {"recvsize": "1 MiB"},
                },
                [
                    ("start", "pause"),
                    ("pause", "pause"),
                    ("pause", "stream_50k", "12.0"),
                    ("pause", "stream_1m", "2.0"),
                ],
            )
        self.files["conf/server.graphml"] = graphml(
            {"start": {"serverport": "80", "loglevel": "message", "stallout": "0 seconds"}}
        )
        models = {f"{kind}modelpath": f"../../../conf/{kind}.graphml" for kind in MODELS}
        self.files[f"{HOSTS}/user/tgenrc.graphml"] = graphml(
            {
                "start": START | {"peers": "web:80", "time": "5", "timeout": "1 minute"},
                "traffic": models
                | {
                    "packetmodelmode": "path",
                    "socksauthseed": "3",
                    "markovmodelseed": str(self.seed),
                },
            },
            [("start", "traffic"), ("traffic", "traffic")],
        )

    def write(self, directory: Path, *, order: int = 1) -> Path:
        """Write the directory as TinyTornet does, but with keys that Tor accepts."""
        super().write(directory, order=order)
        draw_seeded_keys(directory, self.seed)
        return directory
