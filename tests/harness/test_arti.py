"""Clients of Arti: their files, their build with a fake cargo, and refused settings."""

from __future__ import annotations

import os
import shutil
import tarfile
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from shell_scripts import write_script

from onionlab.engines.shadow.engine import ShadowEngine
from onionlab.errors import UserError
from onionlab.experiment import load
from onionlab.programs import arti
from onionlab.programs.arti import ArtiClient, ensure_arti, obtain_arti
from onionlab.programs.building import NotBuiltError, file_sha256, no_builds
from onionlab.programs.tor.variants import load_variants
from onionlab.rundir import RunDirectory, compose
from onionlab.rundir.arti import BOOTSTRAPPED
from onionlab.rundir.keys import ed25519_identity, load_keys
from onionlab.rundir.verify import RunRefusedError, verify_tor_logs

from .checkout import REPOSITORY, Checkout, extended
from .test_end_to_end import ENGINES

HOSTS = "shadow.data.template/hosts"
VARIANTS = {"variants": ["arti", "ewma"], "baseline": "ewma"}
PROOF = "Circuit policy in use: EWMA."


def composed(
    folder: Path,
    engine: ShadowEngine,
    deployment: Any,
    variant: str = "arti",
    experiment: str = "quick",
) -> RunDirectory:
    path = extended(folder, experiment, tor={**VARIANTS, "deployment": deployment})
    (level,) = load(str(path), root=REPOSITORY).levels.values()
    variants = load_variants(REPOSITORY)
    return compose(
        REPOSITORY,
        level.settings,
        variant=variants[variant],
        baseline=variants["ewma"],
        seed=1,
        engine=engine,
    )


def programs(run: RunDirectory) -> dict[str, str]:
    """Return the first program of each client."""
    clients = run.simulation.network.by_role("client")
    return {host.name: run.simulation.processes[host.name][0].program for host in clients}


def test_arti_bootstraps_from_the_networks_authorities(
    tmp_path: Path, shadow_engine: ShadowEngine
) -> None:
    run = composed(tmp_path, shadow_engine, "clients")
    assert set(programs(run).values()) == {"arti-2.7.0"}
    assert run.tor_programs == ("arti-2.7.0", "tor-circuit-policy")
    text = run.files["conf/arti.toml"].decode()
    for host in run.simulation.network.by_role("authority"):
        keys = load_keys(REPOSITORY, 1, host.name, is_authority=True)
        assert f'"{keys.v3_identity}"' in text
        assert f'rsa_identity = "{keys.fingerprint}"' in text
        assert f'ed_identity = "{ed25519_identity(1, host.name)}"' in text
        assert f'orports = ["{host.address}:9111"]' in text
    # The network has two guards, and Tor may leave the weights of positions out of its consensus.
    assert "guard-min-filtered-sample-size = 2\n" in text
    assert "bwweightscale = 1\n" in text
    assert 'vanguards.mode = "disabled"\n' in text
    assert "hsdir_interval" not in text
    assert not any(f"{HOSTS}/{name}/torrc" in run.files for name in programs(run))


def test_arti_finds_the_directories_of_onion_services_as_c_tor_does(
    tmp_path: Path, shadow_engine: ShadowEngine
) -> None:
    text = (REPOSITORY / "configs/tor/common.torrc").read_text()
    interval_min = int(text.partition("V3AuthVotingInterval ")[2].split()[0])
    run = composed(tmp_path, shadow_engine, "clients", experiment="minimal-tor")
    settings = run.files["conf/arti.toml"].decode()
    assert f"hsdir_interval = {24 * interval_min}\n" in settings
    assert 'vanguards.mode = "lite"\n' in settings


def test_only_clients_differ_from_a_run_with_tors(
    tmp_path: Path, shadow_engine: ShadowEngine
) -> None:
    mine = composed(tmp_path, shadow_engine, "clients")
    other = composed(tmp_path, shadow_engine, "clients", "ewma")
    for name, content in other.files.items():
        if not name.startswith(tuple(f"{HOSTS}/{host}/torrc" for host in programs(mine))):
            assert mine.files[name] == content or name == "shadow.config.yaml"
    assert "conf/arti.toml" not in other.files
    starts = [
        {name: [one.start_ms for one in run.simulation.processes[name]] for name in programs(run)}
        for run in (mine, other)
    ]
    assert starts[0] == starts[1]


def test_a_share_of_the_clients_is_arti(tmp_path: Path, shadow_engine: ShadowEngine) -> None:
    run = composed(tmp_path, shadow_engine, {"clients": "50 %"})
    assert sorted(programs(run).values()) == ["arti-2.7.0"] * 6 + ["tor-circuit-policy"] * 6
    for name, program in programs(run).items():
        assert (f"{HOSTS}/{name}/torrc" in run.files) == program.startswith("tor")


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        (
            {"tor": {**VARIANTS, "torrc": {"client": {"NumEntryGuards": 1}}}},
            "tor.torrc.client: arti has clients of Arti, which read no torrc; set it in",
        ),
        ({"tor": {**VARIANTS, "torrc": {"all": {"NumCPUs": 1}}}}, "tor.torrc.all: arti has"),
        (
            {"tor": {**VARIANTS, "deployment": "relays"}},
            "clients run the baseline ewma, so the Arti of",
        ),
        (
            {
                "tor": {**VARIANTS, "torrc": {"authority": {"V3AuthVotingInterval": "1 minute"}}},
                "network": {"onion_services": 1},
            },
            "tor.torrc.authority: arti has clients of Arti, whose period of onion services'",
        ),
        (
            {"tor": VARIANTS, "traffic": {"web": {"circuit": "one", "repeat": "once"}}},
            "traffic.web.circuit: arti has clients of Arti, and only C Tor logs the circuit",
        ),
    ],
)
def test_settings_that_arti_lacks(tmp_path: Path, changes: dict[str, Any], problem: str) -> None:
    with pytest.raises(UserError) as caught:
        load(str(extended(tmp_path, "quick", **changes)), root=REPOSITORY)
    assert problem in caught.value.message


def test_a_client_must_have_logged_that_it_is_arti(
    tmp_path: Path, shadow_engine: ShadowEngine
) -> None:
    run = composed(tmp_path, shadow_engine, "clients")
    for name, expectation in run.expectations.items():
        (tmp_path / name).mkdir()
        is_arti = name in programs(run)
        text = BOOTSTRAPPED if is_arti else expectation.proof
        file = f"{programs(run)[name]}.1000.stderr" if is_arti else "tor-x.1000.stdout"
        (tmp_path / name / file).write_text(f"INFO arti: {text}\n")
    proofs = verify_tor_logs(tmp_path, run.expectations, ["Circuit policy in use: "])
    assert proofs == {BOOTSTRAPPED: 12, PROOF: 7}
    log = tmp_path / "webclient1/arti-2.7.0.1000.stderr"
    for text, problem in (
        ("hello\n", "Arti never bootstrapped: webclient1"),
        ("", "Arti logged nothing: webclient1"),
    ):
        log.write_text(text)
        with pytest.raises(RunRefusedError, match=problem):
            verify_tor_logs(tmp_path, run.expectations, ["Circuit policy in use: "])


CARGO = """\
echo "$@" >>{folder}/calls
case "$*" in
info*arti@9.9.9) echo 'error: could not find `arti@9.9.9` in registry' >&2; exit 101;;
info*arti@8.8.8) echo 'error: no route to host' >&2; exit 101;;
info*) cp {folder}/arti-2.7.0.crate "$CARGO_HOME/registry/cache/index/";;
build*) while [ "$1" != --target-dir ]; do shift; done
    mkdir -p "$2/release"; echo "$CARGO_ENCODED_RUSTFLAGS" >"$2/release/arti";;
esac
"""


@pytest.fixture
def cargo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Provide a fake cargo and rustc. Return their folder. Its file `calls` lists cargo's calls."""
    folder = tmp_path / "rust"
    (folder / "home/registry/cache/index").mkdir(parents=True)
    source = folder / "arti-2.7.0"
    source.mkdir()
    (source / "Cargo.toml").write_text('rust-version = "1.92"\n')
    with tarfile.open(folder / "arti-2.7.0.crate", "w:gz") as archive:
        archive.add(source, source.name)
    sha256 = file_sha256(folder / "arti-2.7.0.crate")
    monkeypatch.setattr(arti, "CRATE_SHA256", {"2.7.0": sha256})
    monkeypatch.setenv("CARGO_HOME", str(folder / "home"))
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}/usr/bin{os.pathsep}/bin")
    write_script(folder / "cargo", CARGO.format(folder=folder))
    write_script(folder / "rustc", "echo rustc 1.95.0\n")
    return folder


def test_arti_is_built_once_and_without_paths_of_the_machine(tmp_path: Path, cargo: Path) -> None:
    client = ArtiClient(arti="2.7.0")
    built = ensure_arti(obtain_arti(tmp_path, client), jobs=1)
    assert (built.version, built.path.name) == ("2.7.0", "arti-2.7.0")
    assert built.source["arti"]["sha256"] == arti.CRATE_SHA256["2.7.0"]
    assert built.source["toolchain"]["rust"] == "rustc 1.95.0"
    assert f"--remap-path-prefix={cargo}/home=/cargo" in built.path.read_text()
    calls = (cargo / "calls").read_text()
    assert "build --release --locked" in calls
    with no_builds():
        assert ensure_arti(obtain_arti(tmp_path, client)) == built
    assert (cargo / "calls").read_text() == calls
    # A node of a cluster may have no Rust.
    write_script(cargo / "rustc", "exit 1\n")
    assert ensure_arti(obtain_arti(tmp_path, client)) == built
    assert arti.is_built(tmp_path, client)


@pytest.mark.parametrize(
    ("version", "rust", "problem"),
    [
        ("2.7.0", None, "Arti 2.7.0 is built with Rust, and `rustc` is missing"),
        ("2.7.0", "rustc 1.85.0", "Arti 2.7.0 needs Rust 1.92, and this is rustc 1.85.0"),
        ("2.6.0", "rustc 1.81.0", "Arti 2.6.0 needs Rust 1.82, and this is rustc 1.81.0"),
        ("9.9.9", "rustc 1.95.0", "Arti has no version 9.9.9"),
        ("8.8.8", "rustc 1.95.0", "cargo cannot fetch arti@8.8.8"),
    ],
)
def test_what_cannot_be_built_is_one_error(
    tmp_path: Path, cargo: Path, version: str, rust: str | None, problem: str
) -> None:
    write_script(cargo / "rustc", f"echo {rust}\n" if rust else "exit 1\n")
    with pytest.raises(UserError) as caught:
        obtain_arti(tmp_path, ArtiClient(arti=version))
    assert problem == caught.value.message
    assert caught.value.hint
    assert "build" not in ((cargo / "calls").read_text() if (cargo / "calls").exists() else "")


def test_without_builds_and_rust_the_error_is_that_arti_is_not_built(
    tmp_path: Path, cargo: Path
) -> None:
    write_script(cargo / "rustc", "exit 1\n")
    client = ArtiClient(arti="2.7.0")
    with no_builds(), pytest.raises(NotBuiltError, match="is not fetched"):
        obtain_arti(tmp_path, client)
    crate = tmp_path / "build/arti/source/arti-2.7.0.crate"
    crate.parent.mkdir(parents=True)
    shutil.copyfile(cargo / crate.name, crate)
    with no_builds(), pytest.raises(NotBuiltError, match=r"arti-2\.7\.0 is not built"):
        obtain_arti(tmp_path, client)
    assert not arti.is_built(tmp_path, client)


@pytest.mark.parametrize(
    ("hashes", "problem"),
    [({}, "is damaged"), ({"2.7.0": "0" * 64}, f"has SHA-256 [0-9a-f]+, not {'0' * 64}")],
)
def test_a_damaged_crate_is_one_error(
    tmp_path: Path,
    cargo: Path,
    monkeypatch: pytest.MonkeyPatch,
    hashes: dict[str, str],
    problem: str,
) -> None:
    monkeypatch.setattr(arti, "CRATE_SHA256", hashes)
    crate = cargo / "arti-2.7.0.crate"
    crate.write_bytes(crate.read_bytes()[:40])
    with pytest.raises(UserError, match=problem):
        obtain_arti(tmp_path, ArtiClient(arti="2.7.0"))


def test_a_build_without_an_executable_is_one_error(tmp_path: Path, cargo: Path) -> None:
    text = (cargo / "cargo").read_text().replace("$2/release", "$2/triple/release")
    write_script(cargo / "cargo", text.partition("\n")[2])
    with pytest.raises(UserError, match="cargo has not written") as caught:
        ensure_arti(obtain_arti(tmp_path, ArtiClient(arti="2.7.0")), jobs=1)
    assert "build.target" in str(caught.value.hint)


@pytest.mark.slow
@pytest.mark.tor
@ENGINES
def test_clients_of_arti_fetch_beside_those_of_tor(
    engine: str, checkout: Checkout, circuit_policy_build: None
) -> None:
    try:
        with no_builds():
            ensure_arti(obtain_arti(REPOSITORY, ArtiClient(arti=arti.DEFAULT_VERSION)))
    except UserError as error:
        pytest.skip(f"the build of Arti takes 20 minutes: {error.message}")
    tor = {**VARIANTS, "deployment": {"clients": "50 %"}}
    path = extended(checkout.root, "minimal-tor", tor=tor)
    options = ("--engine", engine, "--variants", "arti", "--networks", "1")
    checkout.onionlab("run", *options, str(path))
    (run_id,) = checkout.run_names("one")
    hosts = checkout.store.run(run_id) / "shadow.data/hosts"
    clients = [*hosts.glob("*client*/arti-*.stderr"), *hosts.glob("*client*/tor-*.stdout")]
    assert Counter(log.suffix for log in clients) == {".stderr": 3, ".stdout": 3}
    for log in clients:
        (traffic,) = log.parent.glob("tgen.*.stdout")
        assert "stream-success" in traffic.read_text()
