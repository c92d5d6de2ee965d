"""Reading tornettools' directories: the values that are read, and the message for each error."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from onionlab.engines import base
from onionlab.errors import UserError
from onionlab.tornet import host_files, reading, tgen_graph
from onionlab.tornet.model import EPOCH_UNIX_S, Tornet, content_hash
from onionlab.tornet.reading import GRAPH, read_tornet

from .tiny import (
    FINGERPRINTS,
    HOSTS,
    RSA_SECRET,
    TOR_ARGUMENTS,
    TinyTornet,
    bandwidths,
    ed25519_certificate,
    graphml,
    process,
)

Change = Callable[[TinyTornet], object]

AUTHORITY, COMMON = "conf/authority.torrc", "conf/common.torrc"
PERF, SERVER, USER = "conf/perf.graphml", "conf/server.graphml", f"{HOSTS}/user/tgenrc.graphml"
PACKETS = "../../../conf/packet.graphml"
BANDWIDTHS = f"{HOSTS}/bw/v3bw.init"
CERTIFICATE = f"{HOSTS}/alice/keys/authority_certificate"
KEY, SERVICE_KEY = f"{HOSTS}/bob/keys/secret_id_key", f"{HOSTS}/hidden/hs/hs_ed25519_secret_key"


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
    assert tornet.programs == {"tor": 8, "tgen": 5, "oniontrace": 4}


def test_the_facts_of_a_host(tmp_path: Path) -> None:
    host = read(TinyTornet(), tmp_path).hosts["bob"]
    assert (host.node, host.address) == (3, "100.0.0.2")
    assert (host.up_bit_per_s, host.down_bit_per_s) == (10**9, 10**9)
    assert (host.rate_bytes_per_s, host.burst_bytes) == (22710724, 32 * 2**20)
    tor, trace = host.processes
    assert (tor.program, tor.start_ms, tor.runs_to_end) == ("tor", 1000, True)
    assert tor.arguments == ("--Address", "bob", "--Nickname", "bob", *TOR_ARGUMENTS.split())
    assert (trace.program, trace.start_ms) == ("oniontrace", 2000)


def test_a_host_without_bandwidths_uses_its_nodes_bandwidths(tmp_path: Path) -> None:
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


def test_the_origin_that_the_directory_shows(tmp_path: Path) -> None:
    origin = read(TinyTornet(4), tmp_path).origin
    assert origin.directory == "tornet"
    assert origin.generate == {
        "seed": 4,
        "network_scale": 0.003,
        "events_csv": "BW,CIRC",
        "do_trace": False,
        "torperf_scale": None,
    }
    atlas = origin.atlas
    assert (atlas.nodes, atlas.edges, atlas.nodes_kept, atlas.edges_kept) == (5, 15, 3, 6)


def test_a_later_failed_generate_is_ignored(tmp_path: Path) -> None:
    """A second `generate` for the same folder fails, but leaves a log with its options."""
    tiny = TinyTornet()
    log = tiny.files["tornettools.generate.2026-01-01.log"]
    failed = log.replace(b"0.003", b"0.3").partition(b"[INFO] Chose")[0]
    tiny.files["tornettools.generate.2026-01-02.log"] = failed
    found = read_tornet(tiny.write(tmp_path / "tornet"))
    assert found.tornet.origin.generate["network_scale"] == 0.003
    assert b"Chose 20 of 6500" in (found.generate_log or b"")


def test_the_hash_depends_only_on_the_content(tmp_path: Path) -> None:
    first = read(TinyTornet(), tmp_path / "a")
    written = TinyTornet().write(tmp_path / "b" / "of another name", order=-1)
    for path in written.rglob("*"):
        os.utime(path, (1, 1), follow_symlinks=False)
    (written / "shadow.data").mkdir()
    (written / "tornettools.generate.2026-01-01.log").unlink()
    other = read_tornet(written).tornet
    assert other.content_sha256 == first.content_sha256 == content_hash(first)
    assert other.origin != first.origin


CHANGES: list[Change] = [
    lambda t: t.files.update({"conf/resolv.conf": b"#\n"}),
    lambda t: t.host("mo")["processes"][0].update(start_time=2),
    lambda t: setattr(t, "atlas", t.atlas.replace("307 us", "308 us")),
    lambda t: t.config["general"].update(stop_time=3601),
    lambda t: t.host("web").update(network_node_id=3),
]


@pytest.mark.parametrize("change", CHANGES)
def test_the_hash_covers_everything_that_determines_a_run(change: Change, tmp_path: Path) -> None:
    first = read(TinyTornet(), tmp_path / "a")
    tiny = TinyTornet()
    change(tiny)
    assert read(tiny, tmp_path / "b").content_sha256 != first.content_sha256


def test_unused_files_have_no_effect(tmp_path: Path) -> None:
    first = read(TinyTornet(), tmp_path / "a")
    tiny = TinyTornet()
    tiny.atlas = tiny.atlas.replace("105 us", "106 us").replace('"node 5"', '"x"')
    other = read(tiny, tmp_path / "b")
    assert other.files[GRAPH] == first.files[GRAPH]
    assert other.content_sha256 == first.content_sha256


def test_an_uncompressed_atlas_is_recognised(tmp_path: Path) -> None:
    """tornettools writes `compression: xz` even if --atlas names an uncompressed file."""
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


def test_simulated_time_begins_at_the_engines_epoch() -> None:
    assert EPOCH_UNIX_S == base.EPOCH_UNIX_S


def without_authorities(tiny: TinyTornet) -> None:
    text(AUTHORITY, "AuthoritativeDirectory 1\n", "")(tiny)
    tiny.files[COMMON] = re.sub(rb"DirServer.*\n", b"", tiny.files[COMMON])


def without_bandwidth(tiny: TinyTornet) -> None:
    del tiny.host("web")["bandwidth_up"]
    tiny.atlas = tiny.atlas.replace('    host_bandwidth_up "50 Mbit"\n', "")


def drop(path: str) -> Change:
    return lambda tiny: tiny.files.pop(path)


def put(path: str, content: bytes) -> Change:
    return lambda tiny: tiny.files.update({path: content})


def text(path: str, old: str, new: str) -> Change:
    return lambda tiny: tiny.replace(path, old, new)


def host(name: str, **changes: Any) -> Change:
    return lambda tiny: tiny.host(name).update(changes)


def program(name: str, number: int = 0, **changes: Any) -> Change:
    """Return a change of a host's program, by default of the first one."""
    return lambda tiny: tiny.host(name)["processes"][number].update(changes)


def unset(name: str, number: int, key: str) -> Change:
    return lambda tiny: tiny.host(name)["processes"][number].pop(key)


def more(name: str, program: dict[str, Any]) -> Change:
    return lambda tiny: tiny.host(name)["processes"].append(program)


def graph(**changes: Any) -> Change:
    """Return a change of the description of the atlas."""
    return lambda tiny: tiny.config["network"]["graph"].update(changes)


FAULTS: dict[str, Change] = {
    r'host web: "conf/server\.graphml" is missing': drop(SERVER),
    r'host user: "\S+/hosts/user/torrc" is missing': drop(f"{HOSTS}/user/torrc"),
    r"host bob: without its keys: \S+/bob/keys/secret_id_key is missing": drop(KEY),
    r"host bob: \S+/keys/secret_id_key is not a complete secret key": put(KEY, RSA_SECRET[:-6]),
    r"hidden: \S+/hs/hs_ed25519_secret_key is not a complete secret key": put(SERVICE_KEY, b""),
    "authority_certificate is not a key certificate: line -----END SIGNATURE-----": text(
        CERTIFICATE, "-----END SIGNATURE-----", "-----END"
    ),
    r"host alice: \S+authority_certificate is not valid during the simulation": text(
        CERTIFICATE, "dir-key-expires 2001-12-01", "dir-key-expires 2000-01-01"
    ),
    "alice: its v3ident is (CD){20}, but (AB){20} in DirServer": text(CERTIFICATE, "ABAB", "CDCD"),
    r"host mo: \S+ed25519_signing_cert has expired when the simulation ends": put(
        f"{HOSTS}/mo/keys/ed25519_signing_cert", ed25519_certificate(262_969)
    ),
    "alice: its fingerprint is 1{40}, but 0{40} in DirServer: they belong to two": text(
        f"{HOSTS}/alice/fingerprint", "0000", "1111"
    ),
    r"\S+/bw/v3bw does not list host mo: it is truncated, or belongs to another network": put(
        BANDWIDTHS, bandwidths(FINGERPRINTS)[:-1]
    ),
    r"\S+/bw/v3bw lists E{40}, which is not a relay's fingerprint: it belongs to another": put(
        BANDWIDTHS, bandwidths({**FINGERPRINTS, "x": "E" * 40})
    ),
    "TestingDirAuthVoteGuard lists E{40}, which is not a relay's fingerprint": text(
        AUTHORITY, FINGERPRINTS["bob"], "E" * 40
    ),
    r"its address is 100\.0\.0\.9, but 100\.0\.0\.1 in DirServer": host(
        "alice", ip_addr="100.0.0.9"
    ),
    (
        r"DirServer names alma, which is not a host with AuthoritativeDirectory 1\n"
        "  host alice: an authority that no line DirServer names"
    ): text(COMMON, "DirServer alice", "DirServer alma"),
    "host web: neither it nor its node has a bandwidth: set bandwidth_up and": without_bandwidth,
    "host bob: its role is unknown": more("bob", process("tgen", f"../../../{PERF}", 300)),
    "host probe: its role is unknown": lambda t: t.host("probe")["processes"].pop(),
    "host web: its role is unknown: .*; remove it from": host(
        "web", processes=[process("oniontrace", "", 1)]
    ),
    "invalid line DirServer": text(COMMON, ":8080", ""),
    "trust different authorities: give both the same lines DirServer": put(
        f"{HOSTS}/bob/torrc", b"DirServer x v3ident=1 1.1.1.1:1 2\n"
    ),
    "there is no directory authority: set AuthoritativeDirectory 1 for": without_authorities,
    "no relay is voted exit by TestingDirAuthVoteExit: list the fingerprints": text(
        AUTHORITY, "TestingDirAuthVoteExit", "#"
    ),
    r'host user: "conf/stream\.graphml" is missing': drop("conf/stream.graphml"),
    r"conf/flow\.graphml is not a Markov model: specify a file with a vertex called start": put(
        "conf/flow.graphml", graphml({"start": {}})
    ),
    r"host web: conf/server\.graphml: not GraphML": put(SERVER, b"<graphml"),
    r"host probe: conf/perf\.graphml: attribute 'protocol' of vertices is unknown to TGen": put(
        PERF, graphml({"start": {}, "transfer": {"protocol": "tcp"}})
    ),
    r"host probe: conf/perf\.graphml: vertex 'transfer' is not an action of TGen": text(
        PERF, '"stream"', '"transfer"'
    ),
    r"probe: conf/perf\.graphml: vertex 'stream': attribute 'recvsize' is '0': only down": text(
        PERF, "50 KiB", "0"
    ),
    r"vertex 'stream': attribute 'sendsize' is missing: .*load comes from flow and stream": put(
        PERF, graphml({"start": {"peers": "web:80"}, "stream": {"packetmodelpath": PACKETS}})
    ),
    r"vertex 'start': attribute 'loglevel' is 'Critical': TGen then logs no streams": put(
        USER, graphml({"start": {"peers": "web:80", "loglevel": "Critical"}, "traffic": {}})
    ),
    (
        rf"host user: {HOSTS}/user/tgenrc\.graphml: its streams never end: conf/packet\.graphml "
        "has no observation 'F', and there is no 'timeout'"
    ): text("conf/packet.graphml", ">F<", ">-<"),
    "its streams never end: TGen's own packet model has no observation 'F'": text(
        USER, PACKETS, ""
    ),
    r"host web: conf/server\.graphml: vertex 'end': TGen ends there": put(
        SERVER, graphml({"start": {"serverport": "80"}, "end": {}})
    ),
    (
        r"shadow\.config\.yaml names 2 executables of tor, .*: ~/\.local/bin/tor \(host alice and 6"
        r" more\), ~/tor-kist/bin/tor \(host eve\)"
    ): program("eve", path="~/tor-kist//bin/tor"),
    r"hosts\.web\.processes\[1\]\.environment\.LD_PRELOAD: LD_PRELOAD refers to libraries": program(
        "web", environment={"LD_PRELOAD": "/x.so"}
    ),
    'host bob: its BandwidthBurst: "1 MBit/s" is not a number of bytes as Tor reads it': text(
        f"{HOSTS}/bob/torrc-defaults", "32 MBytes", "1 MBit/s"
    ),
    "probe: it runs a program twice: remove one": more("probe", process("tor", TOR_ARGUMENTS, 5)),
    "host bob: it runs a program twice: .*, for OnionTrace, .* without --record": more(
        "bob", process("oniontrace", "Mode=record", 300)
    ),
    "bob: its OnionTrace logs no events": program("bob", 1, args="TorControlPort=9051 Mode=record"),
    r"/peek/torrc does not belong to a host of shadow\.config\.yaml: that file is": lambda t: (
        t.config["hosts"].pop("peek")
    ),
    r"hosts\.web\.processes\[1\]\.start_time: missing": unset("web", 0, "start_time"),
    "user: its tgen has no expected_final_state: write `expected_final_state: running`": unset(
        "user", 1, "expected_final_state"
    ),
    "probe: its TGen has no peers to stream with: set the attribute peers": text(
        PERF, "web:80", ""
    ),
    'its peer "www" is neither a host nor an onion service': text(PERF, "web:80", "www:80"),
    r"hosts\.web\.processes\[1\]\.path: expected the path of one of tor, tgen, oniontrace": program(
        "web", path="/usr/bin/nginx"
    ),
    "without --defaults-torrc: specify its files with --defaults-torrc and -f": program(
        "probe", args="-f torrc"
    ),
    "probe: its Tor is called with other arguments": program("probe", args=f"{TOR_ARGUMENTS} -q"),
    "its DataDirectory is not the host's own folder: set `DataDirectory \\.` in its torrc": text(
        COMMON, "DataDirectory .", "DataDirectory /var/lib/tor"
    ),
    (
        '"/usr/share/tor/geoip" is a file on the machine where the network was generated: '
        "copy it into the network's conf/, .* such as ../../../conf/geoip"
    ): text(COMMON, "GeoIPFile ", "GeoIPFile /usr/share/tor/geoip"),
    r"bob and mo have one address, 100\.0\.0\.2: change an ip": host("mo", ip_addr="100.0.0.2"),
    "use_shortest_path is not false": lambda t: t.config["network"].pop("use_shortest_path"),
    r"network\.graph\.type: expected gml, got \"1_gbit_switch\"": graph(type="1_gbit_switch"),
    "neither /nowhere/other.gml nor": graph(file={"path": "/nowhere/other.gml"}),
    r"hosts\.web\.processes\[1\]\.start_time: not before stop": program("web", start_time=3600),
    r"general\.stop_time: not after bootstrap_end_time": lambda t: t.config["general"].update(
        bootstrap_end_time=3600
    ),
    r"general\.stop_time: expected a time of Shadow": lambda t: t.config["general"].pop(
        "stop_time"
    ),
    r"hosts\.web\.host_options: unknown key": host("web", host_options={"pcap_enabled": True}),
    "expected text that matches": lambda t: t.config["hosts"].update(
        {"../x": t.config["hosts"].pop("web")}
    ),
    "expected_final_state: expected running, or": program(
        "web", expected_final_state={"signaled": 9}
    ),
}


@pytest.mark.parametrize(("message", "change"), FAULTS.items())
def test_each_fault_is_reported(message: str, change: Change, tmp_path: Path) -> None:
    tiny = TinyTornet()
    change(tiny)
    with pytest.raises(UserError, match=message) as refused:
        read(tiny, tmp_path)
    assert refused.value.hint
    assert str(tmp_path / "tornet") in refused.value.message


def test_several_faults_are_reported_together(tmp_path: Path) -> None:
    tiny = TinyTornet()
    for path in ("conf/client.torrc", f"{HOSTS}/bob/keys/secret_id_key"):
        del tiny.files[path]
    with pytest.raises(UserError) as refused:
        read(tiny, tmp_path)
    first, *others = refused.value.message.splitlines()
    assert first.endswith(": 4 things are wrong")
    assert [line.split()[1] for line in others] == ["user:", "probe:", "peek:", "bob:"]


def test_consequences_of_a_fault_are_not_reported(tmp_path: Path) -> None:
    """Without its torrc, alice is not an authority, and no relay is voted an exit.

    Only the missing file is reported.
    """
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
        (
            "shadow.config.yaml",
            "is not a directory of tornettools 2: shadow.config.yaml is missing",
        ),
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
        (b"#" * 5000, r"expected at most 4 KiB"),
    ],
)
def test_an_invalid_configuration(
    content: bytes, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "MAX_BYTES", 4999)
    written = TinyTornet().write(tmp_path / "tornet")
    (written / "shadow.config.yaml").write_bytes(content)
    with pytest.raises(UserError, match=message):
        read_tornet(written)


@pytest.mark.parametrize("target", ["/etc/hostname", "../shadow.data.template", "x", None])
def test_pipes_and_links_out_of_the_directory_are_refused(
    target: str | None, tmp_path: Path
) -> None:
    written = TinyTornet().write(tmp_path / "tornet")
    if target is None:
        os.mkfifo(written / "conf/x")
    else:
        (written / "conf/x").symlink_to(target)
    with pytest.raises(UserError, match="conf/x is neither a file nor a link to a file of the"):
        read_tornet(written)


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


@pytest.mark.parametrize(
    ("module", "name", "message"),
    [
        (host_files, "MAX_FILE_BYTES", r"is larger than 0 MiB"),
        (tgen_graph, "MAX_BYTES", r"conf/server\.graphml: larger than 0 MiB"),
    ],
)
def test_a_file_that_is_too_large(
    module: ModuleType, name: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, name, 4)
    with pytest.raises(UserError, match=message):
        read(TinyTornet(), tmp_path)


def test_parts_that_are_not_imported_are_listed(tmp_path: Path) -> None:
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
