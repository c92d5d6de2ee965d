"""Imported networks as they are kept: each whole, or not there.

    networks/<name>/<seed>/             one network: seed n of its set is the n-th directory
        tornet.json                     its model, hashes and origin (onionlab/tornet/model.py)
        conf/ shadow.data.template/     its files, with the cut graph as conf/network.gml
        tornettools.generate.log        what `tornettools generate` told, if it was there; in no run
    networks/.partial/                  what is being imported; never read

Keys of tornettools are not drawn from a seed, so the files themselves have to be kept. A network
enters its set by one rename, after all networks of an import were checked and written.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import re
import shutil
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from analysis.formats.durable import put_in_place
from analysis.formats.files import HOST_TEMPLATES, TORNET
from analysis.formats.json_files import json_text, read_as
from onionlab.errors import UserError
from onionlab.paths import networks_directory
from onionlab.tornet.model import Tornet, content_hash
from onionlab.tornet.path_graph import PathGraph, read_path_graph
from onionlab.tornet.reading import GRAPH, FoundTornet, read_tornet
from onionlab.yamlfile.units import show

NAME_PATTERN = r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}"
GENERATE_LOG = "tornettools.generate.log"
"""`tornettools parse` takes any file whose name begins so."""
AGAIN = "import it again: make import-network FROM=directory NAME=name"


@dataclass(frozen=True)
class KeptTornet:
    """An imported network.

    is_new: whether this import brought it; left_out: what it did not carry over.
    """

    directory: Path
    seed: int
    tornet: Tornet
    is_new: bool = False
    left_out: tuple[str, ...] = ()

    def contents(self) -> dict[str, bytes]:
        """The bytes of each file that a run starts from, by path.

        Raises:
            UserError: one is missing, or is not what was imported.
        """
        return {path: self.content(path) for path in sorted(self.tornet.files)}

    def path_graph(self) -> PathGraph:
        """The paths between the nodes that hosts attach to, from GRAPH.

        Raises:
            UserError: as `contents`.
        """
        nodes = {host.node for host in self.tornet.hosts.values()}
        lines = self.content(GRAPH).splitlines(keepends=True)
        return read_path_graph(lines, str(self.directory / GRAPH), nodes)

    def content(self, path: str) -> bytes:
        """The bytes of one file. Raises UserError as `contents`."""
        place = self.directory / path
        try:
            content = place.read_bytes()
        except OSError as error:
            raise UserError(f"{place} cannot be read: {error.strerror}", AGAIN) from None
        if hashlib.sha256(content).hexdigest() != self.tornet.files[path]:
            raise UserError(f"{place} is not what was imported", AGAIN)
        return content


def import_tornets(
    root: Path,
    name: str,
    directories: Sequence[Path],
    before_rename: Callable[[Tornet, int], None] = lambda _network, _count: None,
) -> list[KeptTornet]:
    """Import directories of ``tornettools generate`` as seeds 1, 2, ... of one set of networks.

    Seeds that are there already have to be the same networks; they are left as they are.

    Args:
        root: The working root.
        name: Of the set.
        directories: What ``tornettools generate`` wrote.
        before_rename: Writes what belongs to the networks, from the first of them and their number,
            so that an interrupted import leaves no network without it.

    Raises:
        UserError: the name is none, a directory cannot be imported, or it is no replicate of the
            others: the same network, or simulated for another time. Nothing was imported then.
    """
    _require_name(name)
    if not directories:
        raise UserError("no directory to import", "name what `tornettools generate` wrote")
    found = [(path, read_tornet(path)) for path in directories]
    there = {seed: load_tornet(root, name, seed) for seed in seeds_of(root, name)}
    _require_replicates(name, found, there)
    place = networks_directory(root)
    partial = place / ".partial" / uuid.uuid4().hex
    try:
        new = [(seed, one) for seed, (_, one) in enumerate(found, start=1) if seed not in there]
        for seed, one in new:
            _write(partial / str(seed), one)
        before_rename(found[0][1].tornet, len(found))
        for seed, _ in new:
            put_in_place(partial / str(seed), place / name / str(seed))
    finally:
        shutil.rmtree(partial, ignore_errors=True)
        with contextlib.suppress(OSError):  # others may be at work in it
            partial.parent.rmdir()
    return [
        KeptTornet(
            place / name / str(seed), seed, one.tornet, seed not in there, left_out=one.left_out
        )
        for seed, (_, one) in enumerate(found, start=1)
    ]


def seeds_of(root: Path, name: str) -> list[int]:
    """The seeds of a set of networks, in order; none where there is no such set."""
    _require_name(name)
    folder = networks_directory(root) / name
    found = [path.parent.name for path in folder.glob(f"*/{TORNET}")]
    return sorted(int(one) for one in found if re.fullmatch("[1-9][0-9]{0,8}", one, re.ASCII))


def load_tornet(root: Path, name: str, seed: int) -> KeptTornet:
    """One network of a set. Its files are held against their hashes when they are read.

    Raises:
        UserError: it is not there, or its record is not what was imported.
    """
    _require_name(name)
    directory = networks_directory(root) / name / str(seed)
    if not (directory / TORNET).is_file():
        seeds = seeds_of(root, name)
        if not seeds:
            raise UserError(f"there is no network {show(name)}", AGAIN)
        raise UserError(
            f"the network {name} has no seed {seed}: it has {', '.join(map(str, seeds))}",
            "import one directory more for it, behind the others",
        )
    tornet = read_as(Tornet, directory / TORNET, "imported network", wrong=AGAIN)
    if content_hash(tornet) != tornet.content_sha256:
        raise UserError(f"{directory / TORNET} is not what was imported", AGAIN)
    return KeptTornet(directory, seed, tornet)


def generate_log_of(root: Path, seed: int, hosts: Path) -> Path | None:
    """The log of ``tornettools generate`` of the network that a run was made in.

    Args:
        root: the checkout.
        seed: the run's.
        hosts: the run's folder of hosts. Keys are drawn for each network anew, so that relays'
            fingerprints tell which one it is.

    Returns:
        None where that network is not here, or came without its log.
    """
    for log in sorted(networks_directory(root).glob(f"[!.]*/{seed}/{GENERATE_LOG}")):
        tornet = read_as(Tornet, log.parent / TORNET, "imported network", wrong=AGAIN)
        relays = [f"{name}/fingerprint" for name, host in tornet.hosts.items() if host.fingerprint]
        if relays and all(
            _sha256(hosts / path) == tornet.files[f"{HOST_TEMPLATES}/{path}"] for path in relays
        ):
            return log
    return None


def _sha256(path: Path) -> str | None:
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError:
        return None


def _require_name(name: str) -> None:
    if re.fullmatch(NAME_PATTERN, name, re.ASCII) is None:
        raise UserError(
            f"{show(name)} is no name for networks",
            "letters, digits, points and hyphens only, at most 100 of them",
        )


def _require_replicates(
    name: str, found: Sequence[tuple[Path, FoundTornet]], there: dict[int, KeptTornet]
) -> None:
    """Raises UserError unless the networks are different ones of one kind."""
    first_seed: dict[str, int] = {}
    for seed, (path, one) in enumerate(found, start=1):
        kept = there.get(seed)
        if kept is not None and kept.tornet.content_sha256 != one.tornet.content_sha256:
            raise UserError(
                f"seed {seed} of {name} is another network than {path}",
                f"choose another name, or remove {kept.directory.parent} if no run needs it",
            )
        same = first_seed.setdefault(one.tornet.content_sha256, seed)
        if same != seed:
            raise UserError(
                f"{found[same - 1][0]} and {path} are the same network: it would count twice",
                "generate another one with another --seed",
            )
    for seed, kept in there.items():
        same = first_seed.get(kept.tornet.content_sha256, seed)
        if same != seed:
            raise UserError(
                f"{found[same - 1][0]} is seed {seed} of {name} already: it would count twice",
                "name the directories in the order of the first import, new ones last",
            )
    networks = [
        *((str(path), one.tornet) for path, one in found),
        *((str(kept.directory), kept.tornet) for kept in there.values()),
    ]
    kinds = [(place, _kind(tornet), tornet.origin.generate) for place, tornet in networks]
    for (at_a, a, told_a), (at_b, b, told_b) in itertools.combinations(kinds, 2):
        different = [
            *(name for name, of_a, of_b in zip(a._fields, a, b, strict=True) if of_a != of_b),
            # What only one of them tells need not differ: logs are lost, and options are new.
            *(
                name
                for name in sorted(told_a.keys() & told_b.keys() - {"seed"})
                if told_a[name] != told_b[name]
            ),
        ]
        if different:
            raise UserError(
                f"{at_a} and {at_b} are no replicates: they differ in {', '.join(different)}",
                "generate them with the same options but --seed, or import them under two names",
            )


class _Kind(NamedTuple):
    """What replicates have in common; the fields' names are for people.

    How many relays of a position there are tornettools draws, and of all others the options say.
    """

    stop_time: int
    bootstrap_end_time: int
    options: str
    programs: frozenset[tuple[str, tuple[str, ...]]]
    authorities: int
    servers: int
    onion_services: int
    markov_clients: int
    perf_clients: int


def _kind(tornet: Tornet) -> _Kind:
    return _Kind(
        stop_time=tornet.stop_ms,
        bootstrap_end_time=tornet.bootstrap_end_ms,
        options=json_text(tornet.options),
        programs=frozenset(
            (host.role, tuple(process.program for process in host.processes))
            for host in tornet.hosts.values()
        ),
        authorities=tornet.counts.get("authority", 0),
        servers=tornet.counts.get("server", 0),
        onion_services=tornet.counts.get("onion-service", 0),
        markov_clients=tornet.counts.get("markov-client", 0),
        perf_clients=tornet.counts.get("perf-client", 0),
    )


def _write(directory: Path, found: FoundTornet) -> None:
    """Write one network's folder; tornet.json last."""
    for path, content in _contents(found):
        if hashlib.sha256(content).hexdigest() != found.tornet.files[path]:
            raise UserError(f"{path} changed while it was imported", "import it again")
        target = directory / path
        _make_folder(target.parent, directory)
        target.write_bytes(content)
    if found.generate_log is not None:
        (directory / GENERATE_LOG).write_bytes(found.generate_log)
    (directory / TORNET).write_text(json_text(found.tornet.content()), encoding="utf-8")


def _contents(found: FoundTornet) -> Iterator[tuple[str, bytes]]:
    for path in sorted(found.files.paths):
        yield path, found.files.content(path)
    yield GRAPH, found.graph


def _make_folder(folder: Path, directory: Path) -> None:
    """Make a folder; a host's own and those below are for their owner alone, as Tor wants them."""
    for one in (*reversed(folder.relative_to(directory).parents), folder.relative_to(directory)):
        path = directory / one
        if not path.is_dir():
            path.mkdir(parents=True)
            if one.is_relative_to(HOST_TEMPLATES) and one != Path(HOST_TEMPLATES):
                path.chmod(0o700)
