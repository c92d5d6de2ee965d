"""Store imported networks. Each network is either complete or absent.

    networks/<name>/<seed>/             one network; seed n is the n-th directory of an import
        tornet.json                     the model, hashes and origin (onionlab/tornet/model.py)
        conf/ shadow.data.template/     the files; conf/network.gml has only the paths in use
        tornettools.generate.log        the log of `tornettools generate` (optional, no run uses it)
    networks/.partial/                  an import in progress; never read

tornettools does not derive keys from a seed, so the files themselves have to be stored. A network
is added to its set by one rename, after all networks of an import were checked and written.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import re
import shutil
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from analysis.formats.durable import put_in_place
from analysis.formats.files import HOST_TEMPLATES, TORNET
from analysis.formats.json_files import json_text, read_as
from onionlab.errors import UserError
from onionlab.paths import networks_directory
from onionlab.tornet.model import Role, Tornet, content_hash
from onionlab.tornet.path_graph import PathGraph, read_path_graph
from onionlab.tornet.reading import GRAPH, FoundTornet, read_tornet
from onionlab.yamlfile.units import show

NAME_PATTERN = r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}"
GENERATE_LOG = "tornettools.generate.log"
"""The name of the stored log of `tornettools generate`. `tornettools parse` finds the log by the
beginning of this name."""
IMPORT_HINT = "import it again: make import-network FROM=directory NAME=name"


@dataclass(frozen=True)
class KeptTornet:
    """An imported network.

    Only `import_tornets` sets the last two attributes. is_new: whether this import added the
    network to the set. left_out: the parts of the imported directory that were not stored.
    """

    directory: Path
    seed: int
    tornet: Tornet
    is_new: bool = False
    left_out: tuple[str, ...] = ()

    def contents(self) -> dict[str, bytes]:
        """Return the bytes of each file that a run starts from, by path.

        Raises:
            UserError: a file is missing, or has changed since the import.
        """
        return {path: self.content(path) for path in sorted(self.tornet.files)}

    def path_graph(self) -> PathGraph:
        """Return the paths between the nodes to which hosts are attached, from GRAPH.

        Raises:
            UserError: see `contents`.
        """
        nodes = {host.node for host in self.tornet.hosts.values()}
        return read_path_graph([self.content(GRAPH)], str(self.directory / GRAPH), nodes)

    def content(self, path: str) -> bytes:
        """Return the bytes of one file. Raises UserError, see `contents`."""
        place = self.directory / path
        try:
            content = place.read_bytes()
        except OSError as error:
            raise UserError(f"{place} cannot be read: {error.strerror}", IMPORT_HINT) from None
        if hashlib.sha256(content).hexdigest() != self.tornet.files[path]:
            raise UserError(f"{place} has changed since the import", IMPORT_HINT)
        return content


def import_tornets(
    root: Path,
    name: str,
    directories: Sequence[Path],
    before_rename: Callable[[Tornet, int], None] = lambda _network, _count: None,
) -> list[KeptTornet]:
    """Import directories of ``tornettools generate`` as seeds 1, 2, ... of one set of networks.

    If the set already has a network of a seed, the directory for this seed has to contain the same
    network. The existing network is not modified.

    Args:
        root: The checkout.
        name: The name of the set.
        directories: Directories that ``tornettools generate`` wrote.
        before_rename: Function that writes files for the networks. Its arguments are the first
            network and the number of networks. It is called before the networks are put in place,
            so that an interrupted import leaves no network without these files.

    Raises:
        UserError: the name is invalid, a directory cannot be imported, or a directory is not a
            replicate of the other directories, for example because it has the same network or
            another simulated time. In these cases, nothing was imported.
    """
    require_name(name, "networks")
    if not directories:
        raise UserError(
            "no directory to import", "specify directories that `tornettools generate` wrote"
        )
    found = [(path, read_tornet(path)) for path in directories]
    existing = {seed: load_tornet(root, name, seed) for seed in list_seeds(root, name)}
    _require_replicates(name, found, existing)
    place = networks_directory(root)
    partial = place / ".partial" / uuid.uuid4().hex
    try:
        new = [(seed, one) for seed, (_, one) in enumerate(found, start=1) if seed not in existing]
        for seed, one in new:
            _write(partial / str(seed), one)
        before_rename(found[0][1].tornet, len(found))
        for seed, _ in new:
            put_in_place(partial / str(seed), place / name / str(seed))
    finally:
        shutil.rmtree(partial, ignore_errors=True)
        with contextlib.suppress(OSError):  # Another process may be using the folder.
            partial.parent.rmdir()
    return [
        KeptTornet(
            place / name / str(seed), seed, one.tornet, seed not in existing, left_out=one.left_out
        )
        for seed, (_, one) in enumerate(found, start=1)
    ]


def list_seeds(root: Path, name: str) -> list[int]:
    """Return the seeds of a set of networks in order. The list is empty if there is no such set."""
    require_name(name, "networks")
    folder = networks_directory(root) / name
    found = [path.parent.name for path in folder.glob(f"*/{TORNET}")]
    return sorted(int(one) for one in found if re.fullmatch("[1-9][0-9]{0,8}", one, re.ASCII))


def load_tornet(root: Path, name: str, seed: int) -> KeptTornet:
    """Load one network of a set. Its files are compared with their hashes when they are read.

    Raises:
        UserError: the network does not exist, or its tornet.json has changed since the import.
    """
    require_name(name, "networks")
    directory = networks_directory(root) / name / str(seed)
    if not (directory / TORNET).is_file():
        seeds = list_seeds(root, name)
        if not seeds:
            raise UserError(f"no networks {show(name)} found", IMPORT_HINT)
        raise UserError(
            f"the network {name} has no seed {seed}: it has {', '.join(map(str, seeds))}",
            "import one more directory for it, after the others",
        )
    tornet = read_as(Tornet, directory / TORNET, "imported network", wrong=IMPORT_HINT)
    if content_hash(tornet) != tornet.content_sha256:
        raise UserError(f"{directory / TORNET} has changed since the import", IMPORT_HINT)
    return KeptTornet(directory, seed, tornet)


def find_generate_log(root: Path, seed: int, hosts: Path) -> Path | None:
    """Return the log of ``tornettools generate`` for the network of a run.

    Args:
        root: The checkout.
        seed: The run's seed.
        hosts: The run's folder of hosts. The fingerprints of its relays identify the network.

    Returns:
        The path, or None if the network does not exist here, or was imported without its log.
    """
    for log in sorted(networks_directory(root).glob(f"[!.]*/{seed}/{GENERATE_LOG}")):
        tornet = read_as(Tornet, log.parent / TORNET, "imported network", wrong=IMPORT_HINT)
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


def require_name(name: str, what: str) -> None:
    """Raise UserError if a name cannot be the name of a folder of ``what``."""
    if re.fullmatch(NAME_PATTERN, name, re.ASCII) is None:
        raise UserError(
            f"{show(name)} is not a valid name for {what}",
            "use at most 100 letters, digits, `.`, `_` and `-`, and begin with a letter or digit",
        )


def _require_replicates(
    name: str, found: Sequence[tuple[Path, FoundTornet]], existing: dict[int, KeptTornet]
) -> None:
    """Raise UserError unless the networks of the set are all different and of one kind.

    found: the directories to import, in the order of seeds. The first directories may contain
    existing networks of the set. existing: seed -> network.
    """
    networks = {seed: (kept.directory, kept.tornet) for seed, kept in existing.items()}
    for seed, (path, one) in enumerate(found, start=1):
        if seed in networks and networks[seed][1].content_sha256 != one.tornet.content_sha256:
            raise UserError(
                f"seed {seed} of {name} is a different network than {path}",
                "name the directories in the order of the first import, new ones last, choose "
                f"another name, or remove {networks[seed][0].parent} if no run needs it",
            )
        networks[seed] = (path, one.tornet)
    for (at_a, a), (at_b, b) in itertools.combinations(networks.values(), 2):
        if a.content_sha256 == b.content_sha256:
            raise UserError(
                f"{at_a} and {at_b} are the same network, which would count twice",
                "generate another one with another --seed",
            )
    kinds = [(place, _kind(tornet)) for place, tornet in networks.values()]
    for (at_a, kind_a), (at_b, kind_b) in itertools.combinations(kinds, 2):
        # If only one of the two networks' logs contains an option of `tornettools generate`, this
        # option is not compared: a log may have been lost, and other versions of tornettools have
        # other options.
        different = [key for key in kind_a if kind_a[key] != kind_b.get(key, kind_a[key])]
        if different:
            raise UserError(
                f"{at_a} and {at_b} are not replicates: they differ in {', '.join(different)}",
                "generate them with the same options but --seed, or import them under two names",
            )


def _kind(tornet: Tornet) -> dict[str, object]:
    """Return the properties that must be equal in all replicates.

    The keys are names of properties for messages. The number of relays in each position is left
    out, because tornettools draws this number at random. Options of tornettools determine the
    numbers of all other hosts.
    """
    roles: tuple[Role, ...] = (
        "authority", "server", "onion-service", "markov-client", "perf-client",
    )  # fmt: skip
    return {
        "stop_time": tornet.stop_ms,
        "bootstrap_end_time": tornet.bootstrap_end_ms,
        "options": tornet.options,
        "programs": {
            (host.role, tuple(process.program for process in host.processes))
            for host in tornet.hosts.values()
        },
        **{f"hosts of role {role}": tornet.counts.get(role, 0) for role in roles},
        **{key: value for key, value in sorted(tornet.origin.generate.items()) if key != "seed"},
    }


def _write(directory: Path, found: FoundTornet) -> None:
    """Write one network's folder, with tornet.json last."""
    for path in sorted(found.tornet.files):
        content = found.graph if path == GRAPH else found.files.content(path)
        if hashlib.sha256(content).hexdigest() != found.tornet.files[path]:
            raise UserError(f"{path} changed during the import", "import it again")
        target = directory / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)
    # Only their owner may read hosts' folders, as Tor requires.
    for folder in (directory / HOST_TEMPLATES).glob("*/**/"):
        folder.chmod(0o700)
    if found.generate_log is not None:
        (directory / GENERATE_LOG).write_bytes(found.generate_log)
    (directory / TORNET).write_text(json_text(found.tornet.content()), encoding="utf-8")
