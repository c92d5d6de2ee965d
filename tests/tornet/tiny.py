"""A tiny directory like that of `tornettools generate`.

Its hosts have other names than tornettools', because roles follow from files, not from names.
"""

from __future__ import annotations

import copy
import lzma
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from uml.traffic_support import graphml as graphml_text

HOSTS = "shadow.data.template/hosts"
IDENTITY = "AB" * 20
RELAYS = {"alice": "authority", "bob": "relay", "eve": "relay", "mo": "relay"}
FINGERPRINTS = {name: f"{number:040X}" for number, name in enumerate(RELAYS)}
SERVICE = "a" * 56 + ".onion"
NODES = {"alice": 3, "bob": 3, "eve": 7, "mo": 9, "web": 9, "hidden": 3, "user": 7, "probe": 7}
NODES |= {"peek": 9}
FURTHER_NODE = 3
ATLAS_NODES = (1, 3, 5, 7, 9)
TOR_ARGUMENTS = "--defaults-torrc torrc-defaults -f torrc"
RSA_SECRET = b"-----BEGIN RSA PRIVATE KEY-----\nMIIC\n-----END RSA PRIVATE KEY-----\n"
SIZES = {"sendsize": "1 KiB", "recvsize": "50 KiB"}
MODEL_KINDS = ("flow", "stream", "packet")
MODEL = {
    "s0": {"type": "state", "name": "start"},
    "o0": {"type": "observation", "name": "+"},
    "o1": {"type": "observation", "name": "F"},
}


def graphml(
    vertices: Mapping[str, Mapping[str, str]], edges: Sequence[tuple[str, ...]] = ()
) -> bytes:
    return graphml_text(vertices, edges).encode()


def atlas(nodes: tuple[int, ...] = ATLAS_NODES) -> str:
    """Return a complete graph in GML. The latency from node 3 to 7, for instance, is 307 us."""
    lines = ["graph [", "  directed 0"]
    for number in nodes:
        lines += ["  node [", f"    id {number}", f'    label "node {number}"']
        lines += ['    country_code "DE"', '    ip_address "1.2.3.4"']
        lines += ['    host_bandwidth_up "50 Mbit"', '    host_bandwidth_down "100 Mbit"', "  ]"]
    for a in nodes:
        for b in nodes:
            if a <= b:
                lines += ["  edge [", f"    source {b}", f"    target {a}", '    jitter "0 ms"']
                lines += [f'    latency "{a}0{b} us"', "    packet_loss 0.0025", "  ]"]
    return "\n".join([*lines, "]", ""])


def ed25519_certificate(hours: int) -> bytes:
    """Return the content of keys/ed25519_signing_cert. hours: expiry, in hours since 1970."""
    head = b"== ed25519v1-cert: type4 ==".ljust(32, b"\0")
    return head + b"\x01\x04" + hours.to_bytes(4, "big") + bytes(134)


def bandwidths(relays: Mapping[str, str]) -> bytes:
    """Return tornettools' bandwidth file. relays: name -> fingerprint."""
    lines = [
        f"node_id=${fingerprint}\tbw=20\tnick={name}\n" for name, fingerprint in relays.items()
    ]
    return "".join(["946684801\n", *lines]).encode()


def ed25519_secret() -> bytes:
    """Return the secret key file of a relay or an onion service."""
    return b"== ed25519v1-secret: type0 ==".ljust(32, b"\0") + bytes(64)


def process(program: str, arguments: str, start_s: int, **more: Any) -> dict[str, Any]:
    return {
        "path": f"~/.local/bin/{program}",
        "args": arguments,
        "start_time": start_s,
        "expected_final_state": "running",
        **more,
    }


class TinyTornet:
    """The configuration and files of a directory, which tests change and then write.

    relays: name of a host -> `authority` or `relay`.
    """

    def __init__(self, seed: int = 1, relays: Mapping[str, str] = RELAYS) -> None:
        self.fingerprints = {name: f"{number:040X}" for number, name in enumerate(relays)}
        self.atlas = atlas()
        self.files: dict[str, bytes] = {}
        self.links: dict[str, str] = {f"{HOSTS}/bw/v3bw": "v3bw.init"}
        self.config: dict[str, Any] = {
            "general": {
                "bootstrap_end_time": 300,
                "stop_time": 3600,
                "progress": True,
                "template_directory": "shadow.data.template",
            },
            "network": {
                "use_shortest_path": False,
                "graph": {
                    "type": "gml",
                    "file": {"path": "/elsewhere/conf/atlas.gml.xz", "compression": "xz"},
                },
            },
            "hosts": {},
        }
        self._write_conf(seed)
        for number, (name, kind) in enumerate(relays.items(), start=1):
            self._add_relay(name, kind, f"100.0.0.{number}")
        self._add("web", [process("tgen", "../../../conf/server.graphml", 300)])
        self._add(
            "hidden",
            [
                process("tgen", "../../../conf/server.graphml", 300, environment={"TGENIP": "::1"}),
                process("tor", TOR_ARGUMENTS, 240),
            ],
        )
        self._torrc("hidden", "onion")
        self.files[f"{HOSTS}/hidden/hs/hostname"] = f"{SERVICE}\n".encode()
        self.files[f"{HOSTS}/hidden/hs/hs_ed25519_secret_key"] = ed25519_secret()
        for name, graph in (
            ("user", "tgenrc.graphml"),
            ("probe", "../../../conf/perf.graphml"),
            ("peek", "../../../conf/perf-hs.graphml"),
        ):
            self._add(name, [process("tor", TOR_ARGUMENTS, 240), process("tgen", graph, 300)])
            self._torrc(name, "client")
        models = {f"{kind}modelpath": f"../../../conf/{kind}.graphml" for kind in MODEL_KINDS}
        self.files[f"{HOSTS}/user/tgenrc.graphml"] = graphml(
            {"start": {"peers": "web:80"}, "traffic": {**models, "markovmodelseed": str(seed)}}
        )

    def _write_conf(self, seed: int) -> None:
        trusted = FINGERPRINTS["alice"]
        spaced = " ".join(trusted[i : i + 4] for i in range(0, 40, 4))
        self.files |= {
            "conf/common.torrc": (
                f"DirServer alice v3ident={IDENTITY} orport=9001 100.0.0.1:8080 {spaced}\n"
                "TestingTorNetwork 1\nDataDirectory . # here\n\nGeoIPFile \n"
                "ServerDNSResolvConfFile ../../../conf/resolv.conf\n"
            ).encode(),
            "conf/relay.torrc": b"ORPort 9001 IPv4Only\nSocksPort 0\n",
            "conf/authority.torrc": (
                "AuthoritativeDirectory 1\nV3BandwidthsFile ../bw/v3bw\n"
                f"TestingDirAuthVoteGuard {FINGERPRINTS['bob']},{FINGERPRINTS['eve']}\n"
                f"TestingDirAuthVoteExit ${FINGERPRINTS['eve']}\n"
            ).encode(),
            "conf/client.torrc": b"ORPort 0\nSocksPort 9050\n",
            "conf/onion.torrc": b"ORPort 0\nHiddenServiceDir hs\nHiddenServicePort 8080\n",
            "conf/resolv.conf": b"nameserver 127.0.0.1\n",
            "conf/server.graphml": graphml({"start": {"serverport": "80"}}),
            "conf/perf.graphml": graphml({"start": {"peers": "web:80"}, "stream": SIZES}),
            "conf/perf-hs.graphml": graphml(
                {"start": {"peers": f"{SERVICE}:8080"}, "stream": SIZES}
            ),
            f"{HOSTS}/bw/v3bw.init": bandwidths(self.fingerprints),
            "tornettools.generate.2026-01-01.log": (
                f"[INFO] The argument namespace is: Namespace(quiet=0, seed={seed}, tor='/x/tor', "
                "network_scale=0.003, events_csv='BW,CIRC', do_trace=False, geoip_path=None, "
                "torperf_scale=None, func=<function generate at 0x7f>, "
                "formatter_class=<class '__main__.C'>)\n"
                "[INFO] Chose 20 of 6500 relays using scale factor 0.003\n"
            ).encode(),
        }
        self.files |= {f"conf/{kind}.graphml": graphml(MODEL) for kind in MODEL_KINDS}

    def _add(self, name: str, processes: list[dict[str, Any]], address: str | None = None) -> None:
        entry: dict[str, Any] = {"network_node_id": NODES.get(name, FURTHER_NODE)}
        if address is not None:
            entry |= {"ip_addr": address}
        entry |= {"bandwidth_down": "1000000 kilobit", "bandwidth_up": "1000000 kilobit"}
        self.config["hosts"][name] = entry | {"processes": processes}

    def _add_relay(self, name: str, kind: str, address: str) -> None:
        tor = process("tor", f"--Address {name} --Nickname {name} {TOR_ARGUMENTS}", 1)
        trace = process("oniontrace", "Mode=log TorControlPort=9051", 2)
        self._add(name, [tor, trace], address)
        own = "" if kind == "authority" else "BandwidthRate 22710724\nBandwidthBurst 32 MBytes\n"
        kinds = ("relay", "authority") if kind == "authority" else ("relay",)
        self._torrc(name, *kinds, own=own)
        keys = {
            "fingerprint": f"{name} {self.fingerprints[name]}\n".encode(),
            "keys/secret_id_key": RSA_SECRET + b"\0",
            "keys/ed25519_master_id_secret_key": ed25519_secret(),
            "keys/ed25519_signing_cert": ed25519_certificate(500_000),
        }
        if kind == "authority":
            keys["keys/authority_signing_key"] = RSA_SECRET
            keys["keys/authority_certificate"] = (
                f"dir-key-certificate-version 3\nfingerprint {IDENTITY}\n"
                "dir-key-published 1999-12-01 00:00:01\ndir-key-expires 2001-12-01 00:00:01\n"
                "dir-key-certification\n-----BEGIN SIGNATURE-----\n-----END SIGNATURE-----\n"
            ).encode()
        self.files |= {f"{HOSTS}/{name}/{path}": content for path, content in keys.items()}

    def _torrc(self, name: str, *kinds: str, own: str = "") -> None:
        lines = [f"%include ../../../conf/{kind}.torrc\n" for kind in ("common", *kinds)]
        self.files[f"{HOSTS}/{name}/torrc-defaults"] = ("# defaults\n" + "".join(lines)).encode()
        self.files[f"{HOSTS}/{name}/torrc-defaults"] += own.encode()
        self.files[f"{HOSTS}/{name}/torrc"] = b"# own\n"

    def host(self, name: str) -> Any:
        return self.config["hosts"][name]

    def replace(self, path: str, old: str, new: str) -> None:
        """Replace ``old`` by ``new`` in a file. Fail if the file does not contain ``old``."""
        assert old.encode() in self.files[path]
        self.files[path] = self.files[path].replace(old.encode(), new.encode())

    def write(self, directory: Path, *, order: int = 1) -> Path:
        """Write the files to `directory`.

        If ``order`` is -1, reverse the order of files and hosts.
        """
        config = copy.deepcopy(self.config)
        config["hosts"] = dict(list(config["hosts"].items())[::order])
        contents = {
            **self.files,
            "shadow.config.yaml": yaml.safe_dump(config, sort_keys=False).encode(),
            "conf/atlas.gml.xz": lzma.compress(self.atlas.encode()),
        }
        for path, content in list(contents.items())[::order]:
            (directory / path).parent.mkdir(parents=True, exist_ok=True)
            (directory / path).write_bytes(content)
        for path, target in self.links.items():
            (directory / path).symlink_to(target)
        return directory


def contents(folder: Path) -> dict[str, bytes]:
    """Return path -> bytes of all files in a folder."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }
