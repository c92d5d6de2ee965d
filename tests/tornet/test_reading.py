"""What a directory of tornettools is read as, and what each fault in it is told as."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from onionlab.engines import base
from onionlab.errors import UserError
from onionlab.tornet import (
    host_files,
    path_graph,
    read_tornet,
    reading,
    shadow_config,
    tgen_graph,
)
from onionlab.tornet.model import EPOCH_UNIX_S, Tornet, content_hash
from onionlab.tornet.reading import GRAPH

from .tiny import (
    FINGERPRINTS,
    HOSTS,
    RSA_SECRET,
    SERVICE,
    TOR_ARGUMENTS,
    TinyTornet,
    bandwidths,
    ed25519_certificate,
    ed25519_secret,
    graphml,
    process,
)

BANDWIDTHS = f"{HOSTS}/bw/v3bw.init"
CERTIFICATE = f"{HOSTS}/alice/keys/authority_certificate"


def read(tiny: TinyTornet, tmp_path: Path, **how: Any) -> Tornet:
    return read_tornet(tiny.write(tmp_path / "tornet", **how)).tornet


def test_hosts_have_the_roles_that_their_files_make(tmp_path: Path) -> None:
    tornet = read(TinyTornet(), tmp_path)
    assert {name: host.role for name, host in tornet.hosts.items()} == {
        "alice": "authority",
        "bob": "guard",
        "eve": "exitguard",
        "mo": "middle",
        "web": "server",
        "hidden": "onion-service",
        "user": "markov-client",
        "probe": "perf-client",
        "peek": "perf-client",
    }
    assert [n for n, host in tornet.hosts.items() if host.uses_onion_services] == ["peek"]
    assert tornet.counts["perf-client"] == 2
    assert list(tornet.by_role("perf-client", "authority")) == ["alice", "peek", "probe"]
    assert tornet.programs == {"tor": 8, "tgen": 5, "oniontrace": 4}


def test_an_exit_that_is_no_guard(tmp_path: Path) -> None:
    tiny = TinyTornet()
    tiny.replace("conf/authority.torrc", "," + "0" * 39 + "2", "")
    assert read(tiny, tmp_path).hosts["eve"].role == "exit"


def test_what_is_known_of_a_host(tmp_path: Path) -> None:
    host = read(TinyTornet(), tmp_path).hosts["bob"]
    assert (host.node, host.address) == (3, "100.0.0.2")
    assert (host.up_bit_per_s, host.down_bit_per_s) == (10**9, 10**9)
    assert (host.rate_bytes_per_s, host.burst_bytes) == (22710724, 32 * 2**20)
    tor, trace = host.processes
    assert (tor.program, tor.start_ms, tor.runs_to_end) == ("tor", 1000, True)
    assert tor.arguments == ("--Address", "bob", "--Nickname", "bob", *TOR_ARGUMENTS.split())
    assert (trace.program, trace.start_ms) == ("oniontrace", 2000)


def test_a_host_without_bandwidths_has_those_of_its_node(tmp_path: Path) -> None:
    tiny = TinyTornet()
    del tiny.host("web")["bandwidth_up"], tiny.host("web")["bandwidth_down"]
    host = read(tiny, tmp_path).hosts["web"]
    assert (host.up_bit_per_s, host.down_bit_per_s) == (50_000_000, 100_000_000)


def test_times_and_options_of_the_simulation(tmp_path: Path) -> None:
    tiny = TinyTornet()
    tiny.config["general"] |= {"seed": 7, "model_unblocked_syscall_latency": True}
    tiny.config["general"]["stop_time"] = "1 h"
    tiny.config["experimental"] = {"runahead": "1 ms"}
    tornet = read(tiny, tmp_path)
    assert (tornet.stop_ms, tornet.bootstrap_end_ms) == (3_600_000, 300_000)
    assert tornet.options == {
        "general": {"model_unblocked_syscall_latency": True},
        "experimental": {"runahead": "1 ms"},
    }


@pytest.mark.parametrize(
    ("section", "option", "message"),
    [
        (
            "experimental",
            {"native_preemption_enabled": True},
            r"yaml:\d+: experimental\.native_preemption_enabled: cannot be true here: "
            "it makes two runs of one seed differ",
        ),
        (
            "experimental",
            {"use_preload_openssl_crypto": True},
            r"use_preload_openssl_crypto: cannot be true here: Tor 0\.4\.9 exits",
        ),
        (
            "experimental",
            {"use_preload_openssl_rng": False},
            "use_preload_openssl_rng: cannot be false here: it makes two runs of one seed differ",
        ),
        ("experimental", {"interface_qdisk": "fifo"}, 'did you mean "interface_qdisc"'),
        ("experimental", {"seed": 1}, "experimental.seed: unknown key"),
        ("general", {"progress": 3}, "general.progress: expected true or false, got 3"),
        ("host_option_defaults", {"pcap_enabled": "x"}, "expected true or false"),
    ],
)
def test_an_option_that_shadow_or_a_run_cannot_take(
    section: str, option: dict[str, object], message: str, tmp_path: Path
) -> None:
    tiny = TinyTornet()
    tiny.config.setdefault(section, {}).update(option)
    with pytest.raises(UserError, match=message):
        read(tiny, tmp_path)


def test_an_option_that_only_another_value_of_spoils_a_run(tmp_path: Path) -> None:
    tiny = TinyTornet()
    tiny.config["experimental"] = {
        "native_preemption_enabled": False,
        "native_preemption_sim_interval": "10 ms",
        "use_preload_openssl_crypto": False,
        "use_preload_openssl_rng": True,
    }
    assert read(tiny, tmp_path).options["experimental"] == tiny.config["experimental"]


def test_the_origin_as_far_as_the_directory_tells(tmp_path: Path) -> None:
    origin = read(TinyTornet(4), tmp_path).origin
    assert origin.directory == "tornet"
    assert origin.generate == {
        "seed": 4,
        "network_scale": 0.003,
        "events_csv": "BW,CIRC",
        "do_trace": False,
    }
    atlas = origin.atlas
    assert (atlas.nodes, atlas.edges, atlas.nodes_kept, atlas.edges_kept) == (5, 15, 3, 6)


def test_a_generate_that_failed_later_tells_nothing(tmp_path: Path) -> None:
    """It finds the folders of the first one, ends, and leaves a log of other options."""
    tiny = TinyTornet()
    log = tiny.files["tornettools.generate.2026-01-01.log"]
    failed = log.replace(b"0.003", b"0.3").partition(b"[INFO] Chose")[0]
    tiny.files["tornettools.generate.2026-01-02.log"] = failed
    found = read_tornet(tiny.write(tmp_path / "tornet"))
    assert found.tornet.origin.generate["network_scale"] == 0.003
    assert b"Chose 20 of 6500" in (found.generate_log or b"")


def test_a_directory_without_its_log_has_no_options(tmp_path: Path) -> None:
    tiny = TinyTornet()
    del tiny.files["tornettools.generate.2026-01-01.log"]
    assert read(tiny, tmp_path).origin.generate == {}


def test_the_hash_is_of_the_content_alone(tmp_path: Path) -> None:
    first = read(TinyTornet(), tmp_path / "a")
    written = TinyTornet().write(tmp_path / "b" / "of another name", order=-1)
    for path in written.rglob("*"):
        os.utime(path, (1, 1), follow_symlinks=False)
    (written / "shadow.data").mkdir()
    (written / "tornettools.generate.2026-01-01.log").unlink()
    other = read_tornet(written).tornet
    assert other.content_sha256 == first.content_sha256 == content_hash(first)
    assert other.origin != first.origin


def changed_file(tiny: TinyTornet) -> None:
    tiny.files["conf/resolv.conf"] += b"#\n"


def changed_start(tiny: TinyTornet) -> None:
    tiny.host("mo")["processes"][0]["start_time"] = 2


def changed_path(tiny: TinyTornet) -> None:
    tiny.atlas = tiny.atlas.replace("307 us", "308 us")


def changed_stop(tiny: TinyTornet) -> None:
    tiny.config["general"]["stop_time"] = 3601


def changed_node(tiny: TinyTornet) -> None:
    tiny.host("web")["network_node_id"] = 3


@pytest.mark.parametrize(
    "change", [changed_file, changed_start, changed_path, changed_stop, changed_node]
)
def test_the_hash_is_of_all_that_determines_a_run(
    change: Callable[[TinyTornet], None], tmp_path: Path
) -> None:
    first = read(TinyTornet(), tmp_path / "a")
    tiny = TinyTornet()
    change(tiny)
    assert read(tiny, tmp_path / "b").content_sha256 != first.content_sha256


def test_what_is_not_in_use_plays_no_part(tmp_path: Path) -> None:
    first = read(TinyTornet(), tmp_path / "a")
    tiny = TinyTornet()
    tiny.atlas = tiny.atlas.replace("105 us", "106 us").replace('"node 5"', '"x"')
    other = read(tiny, tmp_path / "b")
    assert other.files[GRAPH] == first.files[GRAPH]
    assert other.content_sha256 == first.content_sha256


def test_a_decompressed_atlas_counts_as_what_it_is(tmp_path: Path) -> None:
    """tornettools writes `compression: xz` for the plain file of its option --atlas, too."""
    tiny = TinyTornet()
    first = read(tiny, tmp_path / "a")
    written = tiny.write(tmp_path / "b")
    (written / "conf/atlas.gml.xz").write_text(tiny.atlas)
    assert read_tornet(written).tornet.content_sha256 == first.content_sha256


def test_an_atlas_outside_of_the_directory(tmp_path: Path) -> None:
    tiny = TinyTornet()
    tiny.config["network"]["graph"]["file"]["path"] = str(tmp_path / "plain.gml")
    (tmp_path / "plain.gml").write_text(tiny.atlas)
    written = tiny.write(tmp_path / "tornet")
    (written / "conf/atlas.gml.xz").unlink()
    assert len(read_tornet(written).tornet.hosts) == 9


def test_simulated_time_begins_when_the_engines_say() -> None:
    assert EPOCH_UNIX_S == base.EPOCH_UNIX_S


Change = Callable[[TinyTornet], object]


def without_bandwidth(tiny: TinyTornet) -> None:
    del tiny.host("web")["bandwidth_up"]
    tiny.atlas = tiny.atlas.replace('    host_bandwidth_up "50 Mbit"\n', "")


FAULTS: dict[str, tuple[Change, str]] = {
    "a file named in the YAML is missing": (
        lambda t: t.files.pop("conf/server.graphml"),
        r'host web: "conf/server\.graphml" is missing',
    ),
    "a torrc is missing": (
        lambda t: t.files.pop(f"{HOSTS}/user/torrc"),
        r'host user: "\S+/hosts/user/torrc" is missing',
    ),
    "an included torrc is missing": (
        lambda t: t.files.pop("conf/client.torrc"),
        r'host user: "conf/client\.torrc" is missing',
    ),
    "a torrc that includes itself": (
        lambda t: t.replace("conf/client.torrc", "ORPort 0", "%include ../../../conf/client.torrc"),
        "host user: torrc-defaults includes more than 100 files",
    ),
    "a relay without keys": (
        lambda t: t.files.pop(f"{HOSTS}/bob/keys/secret_id_key"),
        r"host bob: without its keys: \S+/bob/keys/secret_id_key is missing",
    ),
    "a relay without fingerprint": (
        lambda t: t.files.update({f"{HOSTS}/bob/fingerprint": b"bob 12\n"}),
        r"host bob: \S+/bob/fingerprint holds no fingerprint",
    ),
    "an authority without its certificate": (
        lambda t: t.files.pop(CERTIFICATE),
        r"host alice: without its keys: \S+authority_certificate is missing",
    ),
    "an onion service without its key": (
        lambda t: t.files.pop(f"{HOSTS}/hidden/hs/hs_ed25519_secret_key"),
        r"host hidden: without its keys: \S+/hs/hs_ed25519_secret_key is missing",
    ),
    "an identity key that is empty": (
        lambda t: t.files.update({f"{HOSTS}/bob/keys/secret_id_key": b""}),
        r"host bob: \S+/keys/secret_id_key is not a complete secret key: Tor would generate "
        r"another",
    ),
    "an identity key that is cut short": (
        lambda t: t.files.update({f"{HOSTS}/bob/keys/secret_id_key": RSA_SECRET[:-6]}),
        r"host bob: \S+/keys/secret_id_key is not a complete secret key",
    ),
    "an ed25519 key that is cut short": (
        lambda t: t.files.update(
            {f"{HOSTS}/mo/keys/ed25519_master_id_secret_key": ed25519_secret()[:-1]}
        ),
        r"host mo: \S+/keys/ed25519_master_id_secret_key is not a complete secret key",
    ),
    "an ed25519 key that is none": (
        lambda t: t.replace(f"{HOSTS}/mo/keys/ed25519_master_id_secret_key", "type0", "type4"),
        r"host mo: \S+/keys/ed25519_master_id_secret_key is not a complete secret key",
    ),
    "a signing key of an authority that is empty": (
        lambda t: t.files.update({f"{HOSTS}/alice/keys/authority_signing_key": b""}),
        r"host alice: \S+/keys/authority_signing_key is not a complete secret key",
    ),
    "an onion service's key that is empty": (
        lambda t: t.files.update({f"{HOSTS}/hidden/hs/hs_ed25519_secret_key": b""}),
        r"host hidden: \S+/hs/hs_ed25519_secret_key is not a complete secret key",
    ),
    "a certificate that is cut short": (
        lambda t: t.replace(CERTIFICATE, "-----END SIGNATURE-----", "-----END"),
        "authority_certificate is not a key certificate: line -----END SIGNATURE----- is missing",
    ),
    "a certificate that has expired": (
        lambda t: t.replace(
            CERTIFICATE, "dir-key-expires 2001-12-01", "dir-key-expires 2000-01-01"
        ),
        r"host alice: \S+authority_certificate is not valid during the simulation",
    ),
    "a certificate of today": (
        lambda t: t.replace(CERTIFICATE, "published 1999", "published 2026"),
        r"host alice: \S+authority_certificate is not valid during the simulation",
    ),
    "a certificate over a year old": (
        lambda t: t.replace(CERTIFICATE, "published 1999-12-01", "published 1998-12-01"),
        r"host alice: \S+authority_certificate is not valid during the simulation",
    ),
    "a certificate that is none": (
        lambda t: t.replace(CERTIFICATE, "dir-key-published", "dir-key-publisht"),
        "authority_certificate is not a key certificate: line dir-key-published is missing",
    ),
    "a certificate of another network": (
        lambda t: t.replace(CERTIFICATE, "ABAB", "CDCD"),
        "authority_certificate belongs to another network: DirServer has another v3ident",
    ),
    "a signing key that has expired": (
        lambda t: t.files.update(
            {f"{HOSTS}/mo/keys/ed25519_signing_cert": ed25519_certificate(262_969)}
        ),
        r"host mo: \S+ed25519_signing_cert has expired when the simulation ends",
    ),
    "a signing key that is none": (
        lambda t: t.files.update({f"{HOSTS}/mo/keys/ed25519_signing_cert": b""}),
        r"host mo: \S+ed25519_signing_cert: not a certificate of a signing key",
    ),
    "keys of another network": (
        lambda t: t.replace(f"{HOSTS}/alice/fingerprint", "0000", "1111"),
        "host alice: its keys belong to another network",
    ),
    "a bandwidth file that is empty": (
        lambda t: t.files.update({BANDWIDTHS: b""}),
        r"\S+/bw/v3bw does not list host alice, nor 3 more",
    ),
    "a bandwidth file that is cut short": (
        lambda t: t.files.update({BANDWIDTHS: t.files[BANDWIDTHS][:-1]}),
        r"\S+/bw/v3bw does not list host mo: it is truncated, or belongs to another network",
    ),
    "a bandwidth file with a relay that is no host": (
        lambda t: t.files.update({BANDWIDTHS: bandwidths({**FINGERPRINTS, "x": "E" * 40})}),
        r"\S+/bw/v3bw lists E{40}, which is not a host's: the file belongs to another network",
    ),
    "a guard whose folder is of another network": (
        lambda t: t.files.update({f"{HOSTS}/bob/fingerprint": f"bob {'E' * 40}\n".encode()}),
        r"\S+/bw/v3bw does not list host bob: it is truncated, or belongs to another network",
    ),
    "a guard that is no host": (
        lambda t: t.replace("conf/authority.torrc", FINGERPRINTS["bob"], "E" * 40),
        "TestingDirAuthVoteGuard lists E{40}, which is not a relay's fingerprint",
    ),
    "an exit that is no host": (
        lambda t: t.replace("conf/authority.torrc", "VoteExit ", f"VoteExit {'E' * 40},"),
        "TestingDirAuthVoteExit lists E{40}, which is not a relay's fingerprint",
    ),
    "another address than every Tor believes": (
        lambda t: t.host("alice").update(ip_addr="100.0.0.9"),
        r"host alice: its address is not 100\.0\.0\.1, as in DirServer",
    ),
    "an authority that nobody trusts": (
        lambda t: t.replace("conf/common.torrc", "DirServer alice", "DirServer alma"),
        "the authority alma that every Tor trusts is not a host",
    ),
    "an authority that no line names": (
        lambda t: t.replace("conf/common.torrc", "DirServer alice", "DirServer alma"),
        "host alice: an authority that no Tor trusts",
    ),
    "a host without bandwidth": (
        without_bandwidth,
        "host web: neither it nor its node has a bandwidth: set bandwidth_up and bandwidth_down",
    ),
    "a relay with traffic of its own": (
        lambda t: t.host("bob")["processes"].append(
            process("tgen", "../../../conf/perf.graphml", 300)
        ),
        "host bob: its role is unknown",
    ),
    "a client without traffic": (
        lambda t: t.host("probe")["processes"].pop(),
        "host probe: its role is unknown",
    ),
    "a line that trusts nobody": (
        lambda t: t.replace("conf/common.torrc", ":8080", ""),
        "invalid line DirServer",
    ),
    "hosts that trust different authorities": (
        lambda t: t.files.update({f"{HOSTS}/bob/torrc": b"DirServer x v3ident=1 1.1.1.1:1 2\n"}),
        "trust different authorities: give both the same lines DirServer",
    ),
    "no authority": (
        lambda t: t.replace("conf/authority.torrc", "AuthoritativeDirectory 1\n", ""),
        "the network has no directory authority: set AuthoritativeDirectory 1",
    ),
    "no exit": (
        lambda t: t.replace("conf/authority.torrc", "TestingDirAuthVoteExit", "#"),
        "no relay is voted exit by TestingDirAuthVoteExit: list the fingerprints",
    ),
    "no guard": (
        lambda t: t.replace("conf/authority.torrc", "TestingDirAuthVoteGuard", "#"),
        "no relay is voted guard by TestingDirAuthVoteGuard",
    ),
    "a missing model": (
        lambda t: t.files.pop("conf/stream.graphml"),
        r'host user: "conf/stream\.graphml" is missing',
    ),
    "a model that is none": (
        lambda t: t.files.update({"conf/flow.graphml": graphml({"start": {}})}),
        r"host user: conf/flow\.graphml is not a Markov model: specify a file with a vertex "
        r"called start",
    ),
    "a broken graph": (
        lambda t: t.files.update({"conf/server.graphml": b"<graphml"}),
        r"host web: conf/server\.graphml: not GraphML",
    ),
    "a host that no rule understands": (
        lambda t: t.host("web").update(processes=[process("oniontrace", "", 1)]),
        "host web: its role is unknown: .*; remove it from",
    ),
    "a client that neither fetches nor has models": (
        lambda t: t.files.update({"conf/perf.graphml": graphml({"start": {"peers": "web:80"}})}),
        r"host probe: conf/perf\.graphml: it has no vertex that is a stream",
    ),
    "a graph for TGen before 1.0": (
        lambda t: t.files.update(
            {"conf/perf.graphml": graphml({"start": {}, "transfer": {"protocol": "tcp"}})}
        ),
        r"host probe: conf/perf\.graphml: attribute 'protocol' of vertices is unknown to TGen 1\.x",
    ),
    "an action that TGen does not have": (
        lambda t: t.replace("conf/perf.graphml", '"stream"', '"transfer"'),
        r"host probe: conf/perf\.graphml: vertex 'transfer' is not an action of TGen",
    ),
    "an upload": (
        lambda t: t.replace("conf/perf.graphml", "50 KiB", "0"),
        r"host probe: conf/perf\.graphml: vertex 'stream': attribute 'recvsize' is '0': only down",
    ),
    "a download that sends without end": (
        lambda t: t.replace("conf/perf.graphml", "1 KiB", ""),
        r"host probe: conf/perf\.graphml: vertex 'stream': attribute 'sendsize' is missing",
    ),
    "a packet model alone": (
        lambda t: t.files.update(
            {
                "conf/perf.graphml": graphml(
                    {
                        "start": {"peers": "web:80"},
                        "stream": {"packetmodelpath": "../../../conf/packet.graphml"},
                    }
                )
            }
        ),
        r"host probe: conf/perf\.graphml: vertex 'stream': attribute 'sendsize' is missing: .*"
        "load comes from flow and stream models",
    ),
    "a log without streams": (
        lambda t: t.files.update(
            {
                f"{HOSTS}/user/tgenrc.graphml": graphml(
                    {"start": {"peers": "web:80", "loglevel": "Critical"}, "traffic": {}}
                )
            }
        ),
        rf"host user: {HOSTS}/user/tgenrc\.graphml: vertex 'start': attribute 'loglevel' is "
        "'Critical': TGen then logs no streams",
    ),
    "streams without end": (
        lambda t: t.replace("conf/packet.graphml", ">F<", ">-<"),
        rf"host user: {HOSTS}/user/tgenrc\.graphml: its streams never end: conf/packet\.graphml "
        "has no observation 'F', and there is no 'timeout'",
    ),
    "streams without end, by TGen's own model": (
        lambda t: t.replace(f"{HOSTS}/user/tgenrc.graphml", "../../../conf/packet.graphml", ""),
        "its streams never end: TGen's own packet model has no observation 'F'",
    ),
    "a TGen that ends by itself": (
        lambda t: t.files.update(
            {"conf/server.graphml": graphml({"start": {"serverport": "80"}, "end": {}})}
        ),
        r"host web: conf/server\.graphml: vertex 'end': TGen ends there",
    ),
    "two executables of Tor": (
        lambda t: t.host("eve")["processes"][0].update(path="~/tor-kist//bin/tor"),
        r"shadow\.config\.yaml names 2 executables of tor, .*: ~/\.local/bin/tor \(host alice and 6"
        r" more\), ~/tor-kist/bin/tor \(host eve\)",
    ),
    "two executables of TGen": (
        lambda t: t.host("web")["processes"][0].update(path="tgen"),
        r"names 2 executables of tgen, .*: tgen \(host web\), ~/\.local/bin/tgen \(host hidden and",
    ),
    "libraries of another machine": (
        lambda t: t.host("web")["processes"][0].update(environment={"LD_PRELOAD": "/x.so"}),
        r"hosts\.web\.processes\[1\]\.environment\.LD_PRELOAD: LD_PRELOAD refers to libraries",
    ),
    "a limit that Tor cannot read": (
        lambda t: t.replace(f"{HOSTS}/bob/torrc-defaults", "32 MBytes", "1 MBit/s"),
        'host bob: its BandwidthBurst: "1 MBit/s" is not a number of bytes as Tor reads it',
    ),
    "two Tors": (
        lambda t: t.host("probe")["processes"].append(process("tor", TOR_ARGUMENTS, 5)),
        "host probe: it runs Tor or TGen twice: remove one",
    ),
    "a network that was generated to be recorded": (
        lambda t: t.host("bob")["processes"].append(
            {"path": "~/.local/bin/oniontrace", "args": "Mode=record", "start_time": 300}
        ),
        "host bob: it runs OnionTrace twice.*: generate the network without --record",
    ),
    "an OnionTrace that only records": (
        lambda t: t.host("bob")["processes"][-1].update(args="TorControlPort=9051 Mode=record"),
        "host bob: its OnionTrace logs no events",
    ),
    "a configuration that is cut short": (
        lambda t: t.config["hosts"].pop("peek"),
        rf"{HOSTS}/peek/torrc does not belong to a host of shadow\.config\.yaml: that file is",
    ),
    "a process that starts at no time": (
        lambda t: t.host("web")["processes"][0].pop("start_time"),
        r"hosts\.web\.processes\[1\]\.start_time: missing",
    ),
    "a process that ends in no state": (
        lambda t: t.host("user")["processes"][1].pop("expected_final_state"),
        "host user: its tgen has no expected_final_state: write `expected_final_state: running`",
    ),
    "a client without peers": (
        lambda t: t.replace("conf/perf.graphml", "web:80", ""),
        "host probe: its TGen has no peers to stream with: set the attribute peers",
    ),
    "a peer that is not there": (
        lambda t: t.replace("conf/perf.graphml", "web:80", "www:80"),
        'host probe: its peer "www" is neither a host nor an onion service',
    ),
    "an onion service that is not there": (
        lambda t: t.replace(f"{HOSTS}/hidden/hs/hostname", SERVICE, "b" * 56 + ".onion"),
        "host peek: its peer .* is neither a host nor an onion service",
    ),
    "a program that cannot be had": (
        lambda t: t.host("web")["processes"][0].update(path="/usr/bin/nginx"),
        r"hosts\.web\.processes\[1\]\.path: expected the path of one of tor, tgen, oniontrace",
    ),
    "a Tor called otherwise": (
        lambda t: t.host("probe")["processes"][0].update(args="-f torrc"),
        "without --defaults-torrc: specify its files with --defaults-torrc and -f",
    ),
    "a word too many for Tor": (
        lambda t: t.host("probe")["processes"][0].update(args=TOR_ARGUMENTS + " --quiet"),
        "host probe: its Tor is called with other arguments",
    ),
    "a word too many for TGen": (
        lambda t: t.host("web")["processes"][0].update(args="a b"),
        "host web: its TGen is called with other arguments than a graph: give only its path",
    ),
    "a data directory elsewhere": (
        lambda t: t.replace("conf/common.torrc", "DataDirectory .", "DataDirectory /var/lib/tor"),
        "its DataDirectory is not the host's own folder: set `DataDirectory \\.` in its torrc",
    ),
    "a file on the machine": (
        lambda t: t.replace("conf/common.torrc", "GeoIPFile ", "GeoIPFile /usr/share/tor/geoip"),
        '"/usr/share/tor/geoip" is a file on the machine where the network was generated: '
        "copy it into the network's conf/, .* such as ../../../conf/geoip",
    ),
    "a path out of the directory": (
        lambda t: t.replace("conf/common.torrc", "../conf/resolv.conf", "../../../etc/resolv.conf"),
        r'"\S*etc/resolv.conf" is missing',
    ),
    "one address twice": (
        lambda t: t.host("mo").update(ip_addr="100.0.0.2"),
        r"host mo: has the address 100\.0\.0\.2 of host bob: change its ip_addr",
    ),
    "paths over several edges": (
        lambda t: t.config["network"].update(use_shortest_path=True),
        "use_shortest_path is not false",
    ),
    "paths over several edges by default": (
        lambda t: t.config["network"].pop("use_shortest_path"),
        "use_shortest_path is not false",
    ),
    "a graph of another type": (
        lambda t: t.config["network"]["graph"].update(type="1_gbit_switch"),
        r"network\.graph\.type: expected gml, got \"1_gbit_switch\"",
    ),
    "an atlas that is not there": (
        lambda t: t.config["network"]["graph"]["file"].update(path="/nowhere/other.gml"),
        "neither /nowhere/other.gml nor",
    ),
    "an atlas without a node in use": (
        lambda t: t.host("web").update(network_node_id=11),
        "1 nodes that hosts attach to are missing, such as 11",
    ),
    "a program that starts too late": (
        lambda t: (
            t.config["general"].update(stop_time="301 s", bootstrap_end_time=0)
            or t.host("web")["processes"][0].update(start_time=301)
        ),
        r"hosts\.web\.processes\[1\]\.start_time: not before stop_time",
    ),
    "a bootstrap without end": (
        lambda t: t.config["general"].update(bootstrap_end_time=3600),
        r"general\.stop_time: not after bootstrap_end_time",
    ),
    "no end": (
        lambda t: t.config["general"].pop("stop_time"),
        r"general\.stop_time: expected a time of Shadow",
    ),
    "a key that is not known": (
        lambda t: t.host("web").update(host_options={"pcap_enabled": True}),
        r"hosts\.web\.host_options: unknown key",
    ),
    "a path as a host's name": (
        lambda t: t.config["hosts"].update({"../x": t.config["hosts"].pop("web")}),
        "expected text that matches",
    ),
    "a process that ends by a signal": (
        lambda t: t.host("web")["processes"][0].update(expected_final_state={"signaled": 9}),
        "expected_final_state: expected running, or",
    ),
}


@pytest.mark.parametrize(("change", "message"), FAULTS.values(), ids=FAULTS)
def test_a_fault_is_told(change: Change, message: str, tmp_path: Path) -> None:
    tiny = TinyTornet()
    change(tiny)
    with pytest.raises(UserError, match=message) as refused:
        read(tiny, tmp_path)
    assert refused.value.hint
    assert str(tmp_path / "tornet") in refused.value.message


def test_several_faults_are_told_together(tmp_path: Path) -> None:
    tiny = TinyTornet()
    for path in ("conf/client.torrc", f"{HOSTS}/bob/keys/secret_id_key"):
        del tiny.files[path]
    with pytest.raises(UserError) as refused:
        read(tiny, tmp_path)
    first, *others = refused.value.message.splitlines()
    assert first.endswith(": 4 things are wrong")
    assert [line.split()[1] for line in others] == ["user:", "probe:", "peek:", "bob:"]


def test_what_follows_from_a_fault_is_not_told(tmp_path: Path) -> None:
    """Without its torrc the one authority is none, nobody votes, and no relay is an exit."""
    tiny = TinyTornet()
    del tiny.files["conf/authority.torrc"]
    with pytest.raises(UserError) as refused:
        read(tiny, tmp_path)
    directory = tmp_path / "tornet"
    assert refused.value.message == f'{directory}: host alice: "conf/authority.torrc" is missing'


@pytest.mark.parametrize(
    ("removed", "message"),
    [
        (None, "directory .* not found"),
        ("shadow.config.yaml", "is not a directory of tornettools: shadow.config.yaml is missing"),
        ("conf", "is incomplete: conf/ is missing"),
        (HOSTS, f"is incomplete: {HOSTS}/ is missing"),
        ("conf/atlas.gml.xz", "neither /elsewhere/conf/atlas.gml.xz nor"),
    ],
)
def test_another_directory(removed: str | None, message: str, tmp_path: Path) -> None:
    directory = tmp_path / "tornet"
    if removed is not None:
        TinyTornet().write(directory)
        path = directory / removed
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    with pytest.raises(UserError, match=message):
        read_tornet(directory)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", r"shadow\.config\.yaml:1: the file is empty"),
        (b"general: {", r"shadow\.config\.yaml:1: broken YAML"),
        (b"a: 1\nb: \xff\n", r"shadow\.config\.yaml:2: not text in UTF-8"),
        (b"general: {}\n", r"shadow\.config\.yaml: 2 things are wrong"),
        (b"- x\n", "expected a mapping"),
        (b"#" * 5000, r"larger than 0 MiB"),
    ],
)
def test_a_configuration_that_is_none(
    content: bytes, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shadow_config, "MAX_BYTES", 4999)
    written = TinyTornet().write(tmp_path / "tornet")
    (written / "shadow.config.yaml").write_bytes(content)
    with pytest.raises(UserError, match=message):
        read_tornet(written)


def test_a_file_that_is_too_large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_files, "MAX_FILE_BYTES", 4)
    with pytest.raises(UserError, match=r"is larger than 0 MiB"):
        read(TinyTornet(), tmp_path)


def test_a_directory_for_shadow_1(tmp_path: Path) -> None:
    (tmp_path / "shadow.config.xml").write_text("<shadow/>")
    with pytest.raises(UserError, match=r"is for Shadow 1\.x"):
        read_tornet(tmp_path)


def out_of_the_directory(written: Path) -> None:
    (written / "conf/x").symlink_to("/etc/hostname")


def to_a_folder(written: Path) -> None:
    (written / "conf/x").symlink_to("../shadow.data.template")


def to_nowhere(written: Path) -> None:
    (written / "conf/x").symlink_to("x")


def no_file(written: Path) -> None:
    os.mkfifo(written / "conf/x")


@pytest.mark.parametrize(
    ("change", "message", "hint"),
    [
        (out_of_the_directory, "conf/x is a link out of the directory", "Replace it with a copy"),
        (to_a_folder, "conf/x is a link", "Replace it with a copy"),
        (to_nowhere, "conf/x is a broken link", "Remove it if no host reads it"),
        (no_file, "conf/x is not a regular file", "Remove it."),
    ],
)
def test_what_cannot_be_kept(
    change: Callable[[Path], None], message: str, hint: str, tmp_path: Path
) -> None:
    written = TinyTornet().write(tmp_path / "tornet")
    change(written)
    with pytest.raises(UserError, match=message) as refused:
        read_tornet(written)
    assert (refused.value.hint or "").startswith(hint)


def test_an_atlas_that_holds_more_than_any_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half a megabyte of xz can hold gigabytes of blank lines."""
    tiny = TinyTornet()
    tiny.atlas = tiny.atlas.replace("graph [\n", "graph [" + "\n" * 20_000, 1)
    written = tiny.write(tmp_path / "tornet")
    monkeypatch.setattr(reading, "MAX_ATLAS_BYTES", 20_000)
    with pytest.raises(UserError, match=r"atlas\.gml\.xz is not an atlas: it holds more than"):
        read_tornet(written)
    monkeypatch.undo()
    monkeypatch.setattr(path_graph, "MAX_LINES", 20_000)
    with pytest.raises(UserError, match=r"atlas\.gml\.xz: more than 20000 lines"):
        read_tornet(written)


def test_a_graph_of_tgen_that_is_too_large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tgen_graph, "MAX_BYTES", 10)
    with pytest.raises(UserError, match=r"conf/server\.graphml: larger than 0 MiB"):
        read(TinyTornet(), tmp_path)


def test_what_is_left_out_is_listed(tmp_path: Path) -> None:
    tiny = TinyTornet()
    tiny.config["general"]["seed"] = 666
    tiny.files["shadow.log"] = b""
    assert read_tornet(tiny.write(tmp_path / "tornet")).left_out == (
        "~/.local/bin/oniontrace",
        "~/.local/bin/tgen",
        "~/.local/bin/tor",
        "general.progress",
        "general.seed",
        "general.template_directory",
        '"shadow.log"',
    )


def test_an_atlas_that_is_cut_short(tmp_path: Path) -> None:
    written = TinyTornet().write(tmp_path / "tornet")
    atlas = written / "conf/atlas.gml.xz"
    atlas.write_bytes(atlas.read_bytes()[:-40])
    with pytest.raises(UserError, match=r"atlas\.gml\.xz is damaged"):
        read_tornet(written)
