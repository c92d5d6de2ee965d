"""Imports are atomic and reproducible, with one network for each seed, and write an experiment."""

from __future__ import annotations

import argparse
import shutil
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from onionlab.cli import main
from onionlab.commands import import_network
from onionlab.errors import UserError
from onionlab.experiment import load
from onionlab.experiment.tornettools import TornetSettings
from onionlab.experiment.tornettools_networks import write_first_experiment
from onionlab.tornet import keeping
from onionlab.tornet.keeping import find_generate_log, import_tornets, list_seeds, load_tornet
from onionlab.tornet.reading import GRAPH, read_tornet

from .tiny import HOSTS, TinyTornet, contents, process

REPOSITORY = Path(__file__).resolve().parents[2]


def written(tmp_path: Path, *seeds: int) -> list[Path]:
    return [TinyTornet(seed).write(tmp_path / f"tornet-{seed}") for seed in seeds]


def test_seed_n_is_the_nth_directory_and_a_repeated_import_changes_nothing(tmp_path: Path) -> None:
    directories = written(tmp_path, 1)
    (first,) = import_tornets(tmp_path, "tiny", directories)
    assert (first.seed, first.directory, first.is_new) == (1, tmp_path / "networks/tiny/1", True)
    (tmp_path / "networks/tiny/1/marked").touch()
    one, two = import_tornets(tmp_path, "tiny", [*directories, *written(tmp_path, 2)])
    assert (one.is_new, two.is_new) == (False, True)
    assert (tmp_path / "networks/tiny/1/marked").exists()
    assert list_seeds(tmp_path, "tiny") == [1, 2]
    assert load_tornet(tmp_path, "tiny", 2).tornet == two.tornet
    assert two.tornet.origin.generate["seed"] == 2


def test_the_stored_files(tmp_path: Path) -> None:
    tiny = TinyTornet()
    (kept,) = import_tornets(tmp_path, "tiny", [tiny.write(tmp_path / "tornet")])
    used = kept.contents()
    expected = {path: content for path, content in tiny.files.items() if "/" in path}
    expected[f"{HOSTS}/bw/v3bw"] = tiny.files[f"{HOSTS}/bw/v3bw.init"]
    assert used.keys() - expected.keys() == {GRAPH}
    assert {path: used[path] for path in expected} == expected
    kept_files = contents(kept.directory)
    assert kept_files.keys() == {*used, "tornet.json", "tornettools.generate.log"}
    assert not any(path.is_symlink() for path in kept.directory.rglob("*"))
    for content in kept_files.values():  # Paths of this machine do not appear.
        assert str(tmp_path).encode() not in content
        assert b"/elsewhere" not in content


def test_the_paths_that_are_kept(tmp_path: Path) -> None:
    (kept,) = import_tornets(tmp_path, "tiny", written(tmp_path, 1))
    graph = kept.path_graph()
    assert sorted(graph.nodes) == [3, 7, 9]
    assert graph.paths[3, 9].latency_ns == 309_000
    assert (graph.nodes_read, graph.edges_read) == (3, 6)
    (kept.directory / GRAPH).write_bytes(b"graph [\n]\n")
    with pytest.raises(UserError, match="has changed since the import"):
        kept.path_graph()


def test_the_log_of_a_network_is_found_by_its_relays_keys(tmp_path: Path) -> None:
    (kept,) = import_tornets(tmp_path, "tiny", written(tmp_path, 1))
    hosts = tmp_path / "run/hosts"
    shutil.copytree(kept.directory / HOSTS, hosts)
    log = find_generate_log(tmp_path, 1, hosts)
    assert log is not None
    assert log.read_bytes() == b"[INFO] Chose 20 of 6500 relays using scale factor 0.003\n"
    assert find_generate_log(tmp_path, 2, hosts) is None
    own = (hosts / "bob/fingerprint").read_bytes()
    (hosts / "bob/fingerprint").write_text(f"bob {7:040X}\n")
    assert find_generate_log(tmp_path, 1, hosts) is None
    (hosts / "bob/fingerprint").write_bytes(own)
    log.unlink()
    assert find_generate_log(tmp_path, 1, hosts) is None


def test_only_their_owner_reads_folders_of_hosts(tmp_path: Path) -> None:
    """Tor creates these folders with mode 700, and logs a line if it has to change the mode."""
    (kept,) = import_tornets(tmp_path, "tiny", written(tmp_path, 1))
    modes = {
        path: stat.S_IMODE((kept.directory / path).stat().st_mode)
        for path in ("conf", HOSTS, f"{HOSTS}/bob", f"{HOSTS}/bob/keys", f"{HOSTS}/hidden/hs")
    }
    assert [path for path, mode in modes.items() if mode == 0o700] == list(modes)[2:]


def test_nothing_is_imported_where_one_is_wrong(tmp_path: Path) -> None:
    directories = written(tmp_path, 1, 2)
    (directories[1] / "conf/stream.graphml").unlink()
    with pytest.raises(UserError, match="tornet-2: host user"):
        import_tornets(tmp_path, "tiny", directories)
    assert not (tmp_path / "networks").exists()


def test_nothing_is_left_where_the_disk_is_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_: object) -> str:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(keeping, "json_text", full)
    with pytest.raises(OSError, match="No space left"):
        keeping._write(tmp_path / "x", read_tornet(written(tmp_path, 1)[0]))
    monkeypatch.setattr(keeping, "_write", lambda directory, _: full(directory.mkdir(parents=True)))
    monkeypatch.setattr(keeping, "json_text", lambda data: repr(data))
    with pytest.raises(OSError, match="No space left"):
        import_tornets(tmp_path, "tiny", written(tmp_path, 2))
    assert list((tmp_path / "networks").iterdir()) == []


def test_a_file_that_changes_meanwhile(tmp_path: Path) -> None:
    (directory,) = written(tmp_path, 1)
    found = read_tornet(directory)
    (directory / "conf/resolv.conf").write_bytes(b"changed")
    with pytest.raises(UserError, match=r"conf/resolv.conf changed during the import"):
        keeping._write(tmp_path / "x", found)


def test_the_same_network_twice_is_refused(tmp_path: Path) -> None:
    one, two = written(tmp_path, 1, 2)
    with pytest.raises(UserError, match="are the same network, which would count twice"):
        import_tornets(tmp_path, "tiny", [one, two, one])
    import_tornets(tmp_path, "tiny", [one, two])
    with pytest.raises(UserError, match="seed 1 of tiny is a different network than"):
        import_tornets(tmp_path, "tiny", [two])
    (tmp_path / "networks/tiny/1").rename(tmp_path / "away")
    with pytest.raises(UserError, match=r"/tiny/2 and \S+/tornet-2 are the same network"):
        import_tornets(tmp_path, "tiny", [two])


LOG = "tornettools.generate.2026-01-01.log"


def without_peek(tiny: TinyTornet) -> None:
    """Remove a client. Remove the log, too, so that only the number of clients differs."""
    del tiny.files[LOG], tiny.config["hosts"]["peek"]
    for path in [path for path in tiny.files if path.startswith(f"{HOSTS}/peek/")]:
        del tiny.files[path]


@pytest.mark.parametrize(
    ("change", "name"),
    [
        (lambda t: t.config["general"].update(stop_time=4000), "stop_time"),
        (lambda t: t.host("probe")["processes"].append(process("oniontrace", "", 241)), "programs"),
        (lambda t: t.replace(LOG, "scale=0.003", "scale=0.3"), "network_scale"),
        (without_peek, "hosts of role perf-client"),
    ],
)
def test_networks_of_two_kinds_are_not_replicates(
    change: Callable[[TinyTornet], None], name: str, tmp_path: Path
) -> None:
    other = TinyTornet(2)
    change(other)
    directories = [*written(tmp_path, 1), other.write(tmp_path / "other")]
    with pytest.raises(UserError, match=f"are not replicates: they differ in {name}\n"):
        import_tornets(tmp_path, "tiny", directories)


def test_replicates_need_not_know_the_same_options(tmp_path: Path) -> None:
    first = written(tmp_path, 1)
    silent, newer = TinyTornet(2), TinyTornet(3)
    del silent.files[LOG]
    newer.replace(LOG, "geoip_path=None", "server_scale=0.1")
    others = [silent.write(tmp_path / "silent"), newer.write(tmp_path / "newer")]
    assert len(import_tornets(tmp_path, "tiny", [*first, *others])) == 3


@pytest.mark.parametrize("name", ["", "..", ".partial", "a/b", "a b", "x" * 101, "\n"])
def test_invalid_names_are_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="is not a valid name for networks"):
        import_tornets(tmp_path, name, [])


def test_a_missing_network(tmp_path: Path) -> None:
    with pytest.raises(UserError, match='no networks "tiny" found') as refused:
        load_tornet(tmp_path, "tiny", 1)
    assert "make import-network" in (refused.value.hint or "")
    import_tornets(tmp_path, "tiny", written(tmp_path, 1, 2))
    with pytest.raises(UserError, match="the network tiny has no seed 3: it has 1, 2"):
        load_tornet(tmp_path, "tiny", 3)


def test_changes_after_the_import_are_detected(tmp_path: Path) -> None:
    (kept,) = import_tornets(tmp_path, "tiny", written(tmp_path, 1))
    (kept.directory / "conf/resolv.conf").write_bytes(b"x")
    with pytest.raises(UserError, match=r"conf/resolv.conf has changed since the import"):
        kept.contents()
    (kept.directory / "conf/resolv.conf").unlink()
    with pytest.raises(UserError, match=r"conf/resolv.conf cannot be read"):
        kept.contents()
    record = kept.directory / "tornet.json"
    text = record.read_text()
    record.write_text(text.replace('"stop_ms": 3600000', '"stop_ms": 60000'))
    with pytest.raises(UserError, match=r"tornet.json has changed since the import"):
        load_tornet(tmp_path, "tiny", 1)
    record.write_text(text[:-100])
    with pytest.raises(UserError, match="is not valid JSON"):
        load_tornet(tmp_path, "tiny", 1)


def test_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(import_network, "working_root", lambda: tmp_path)
    one, two = written(tmp_path, 1, 2)
    # make passes all directories in a single argument.
    assert main(["import-network", "--name", "tiny", "--", f"{one} {two}"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("seed 1: tornet-1, ")
    assert lines[0].endswith(", imported")
    assert lines[1].startswith("  9 hosts: 1 authority, 1 exitguard, 1 guard, 1 middle, 1 server")
    assert lines[2] == "  processes: 8 tor, 5 tgen, 4 oniontrace"
    assert lines[3] == "  paths: 3 of 5 nodes and 6 of 15 edges, those in use"
    assert lines[4] == "  simulated time: 3600 s, of which 300 s bootstrap"
    assert lines[5] == (
        "  left out: ~/.local/bin/oniontrace, ~/.local/bin/tgen, ~/.local/bin/tor, "
        "general.progress, general.template_directory"
    )
    assert lines[-1] == str(tmp_path / "networks/tiny")
    assert main(["import-network", "--name", "tiny", str(one)]) == 0
    assert capsys.readouterr().out.splitlines()[0].endswith(", exists already")
    assert main(["import-network", "--name", "other", str(tmp_path)]) == 2
    assert "is not a directory of tornettools" in capsys.readouterr().err


def test_a_closed_output_leaves_network_and_experiment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(import_network, "working_root", lambda: tmp_path)
    (one,) = written(tmp_path, 1)

    def closed(*_: object) -> None:
        raise BrokenPipeError

    monkeypatch.setattr("builtins.print", closed)
    arguments = argparse.Namespace(directories=[str(one)], name="tiny")
    with pytest.raises(BrokenPipeError):
        import_network.run(arguments)
    assert list_seeds(tmp_path, "tiny") == [1]
    assert (tmp_path / "experiments/tiny.yaml").is_file()


# The experiment file that an import writes


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for name in ("tor-patches", "configs"):
        (tmp_path / name).symlink_to(REPOSITORY / name)
    return tmp_path


def imported(root: Path, stop_s: int = 3600) -> str:
    """Import two tiny networks as `tiny` and write the experiment. Return the output."""
    directories = []
    for seed in (1, 2):
        tiny = TinyTornet(seed)
        tiny.config["general"]["stop_time"] = stop_s
        directory = root / f"tornet-{seed}"
        directories.append(directory if directory.exists() else tiny.write(directory))
    kept = import_tornets(root, "tiny", directories)
    return write_first_experiment(root, "tiny", kept[0].tornet, len(kept))


@pytest.mark.parametrize(
    ("stop_s", "measured_s"),
    [
        (3600, (1200, 3480)),
        (1000, (333, 880)),
        # The networks bootstrap until 300 s, so the measurement does not begin earlier.
        (600, (300, 480)),
        (430, (300, 310)),
        (400, (300, 400)),
    ],
)
def test_the_written_experiment_can_be_run_as_it_is(
    root: Path, stop_s: int, measured_s: tuple[int, int]
) -> None:
    message = imported(root, stop_s)
    assert message == f"{root / 'experiments/tiny.yaml'} written: make experiment NAME=tiny"
    experiment = load("tiny", root=root)
    (level,) = experiment.levels.values()
    assert isinstance(level.settings, TornetSettings)
    time = level.settings.time
    assert (time.measured_start_s, time.measured_end_s) == measured_s
    assert time.stop_s == stop_s
    assert experiment.seeds == (1, 2)
    assert level.settings.tor.baseline == "ewma"


def test_the_written_settings_are_the_defaults_and_extend_nothing(root: Path) -> None:
    imported(root)
    file = root / "experiments/tiny.yaml"
    (written,) = load("tiny", root=root).levels.values()
    text = file.read_text()
    assert "extends" not in text
    bare = "".join(
        line
        for line in text.splitlines(keepends=True)
        if not line.startswith(("  oniontrace", "  deployment", "  trace", "  markov", "  stop"))
        and not line.startswith(("  measured_from", "  drain", "traffic:", "time:"))
    )
    file.write_text(bare)
    (of_defaults,) = load("tiny", root=root).levels.values()
    assert written.settings == of_defaults.settings


def test_an_existing_experiment_is_not_changed(root: Path) -> None:
    imported(root)
    file = root / "experiments/tiny.yaml"
    file.write_text(f"{file.read_text()}# mine\n")
    assert imported(root) == f"{file} exists and is not changed"
    assert file.read_text().endswith("# mine\n")


@pytest.mark.parametrize("name", ["figures", "Tiny", "tiny_1"])
def test_names_that_no_experiment_can_have(root: Path, name: str) -> None:
    kept = import_tornets(root, name, [TinyTornet().write(root / "tornet")])
    message = write_first_experiment(root, name, kept[0].tornet, 1)
    assert message == f"no experiments/{name}.yaml: no experiment can have this name"
    assert not (root / "experiments").exists()
