"""Networks that an installed tornettools generates, from invented outputs of `stage`."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from onionlab.errors import UserError
from onionlab.paths import working_root
from onionlab.programs.tor.build import ensure_series
from onionlab.rundir.seeded_keys import draw_seeded_keys
from onionlab.tornet.generating import find_tornettools, generate_tornets
from onionlab.tornet.keeping import KeptTornet, list_seeds

from .staging import write_staged

TMODEL = "ONIONLAB_TMODEL"
OPTIONS = (
    *("--network_scale", "0.003", "--process_scale", "0.001", "--load_scale", "0.01"),
    *("--torperf_num_exit", "2", "--torperf_num_onion_service", "2"),
    *("--onion_service_user_scale", "1"),
)


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Return the inputs of `tornettools generate`: a folder of staged files, and one of tmodel.

    The staged files are invented, and so is tmodel's atlas, the graph of latencies.
    """
    try:
        find_tornettools()
    except UserError as error:
        pytest.skip(f"needs tornettools: {error.message}")
    named = os.environ.get(TMODEL)
    if not named:
        pytest.skip(f"needs a copy of tmodel's data, named by {TMODEL}")
    staged, tmodel = write_staged(tmp_path_factory.mktemp("made-up"))
    for folder in ("data/privcount", "data/shadow/tgen"):
        shutil.copytree(Path(named) / folder, tmodel / folder)
    return staged, tmodel


@pytest.mark.slow
def test_networks_are_generated_and_imported(inputs: tuple[Path, Path], tmp_path: Path) -> None:
    staged, tmodel = inputs
    built = ensure_series(working_root(), {None})[None]

    def generate(root: Path, seeds: int) -> list[KeptTornet]:
        return generate_tornets(
            root,
            "made-up",
            seeds,
            staged=staged,
            tmodel=tmodel,
            options=OPTIONS,
            tor=built.path,
            draw_keys=draw_seeded_keys,
        )

    one, other = generate(tmp_path, 2)
    # Network 1 does not depend on the folder, nor on the random keys that Tor draws while
    # tornettools runs, because keys that depend only on the seed replace them.
    (again,) = generate(tmp_path / "elsewhere", 1)
    assert again.tornet.files == one.tornet.files
    assert again.tornet.content_sha256 == one.tornet.content_sha256
    assert list_seeds(tmp_path, "made-up") == [1, 2]
    assert one.tornet.content_sha256 != other.tornet.content_sha256
    for kept in (one, other):
        counts = kept.tornet.counts
        # The network has 0.3% of the public network's 6,486 relays, with the same shares of guards
        # and middle relays.
        assert counts["guard"] in range(4, 8)
        assert counts["middle"] in range(9, 13)
        assert (counts["authority"], counts["perf-client"]) == (3, 4)
        assert counts["markov-client"] > 100
        assert counts["onion-service"] >= 1
        assert kept.tornet.origin.generate["network_scale"] == 0.003
        assert kept.tornet.origin.atlas.sha256
        # The BandwidthRate of most relays exceeds the rate of their link, and so has no effect.
        relays = kept.tornet.by_role("guard", "middle", "exit", "exitguard").values()
        limited = [h for h in relays if (h.rate_bytes_per_s or 2**40) < h.up_bit_per_s / 8]
        assert len(limited) <= 2
