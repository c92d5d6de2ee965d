"""Have tornettools generate networks, and import them."""

from __future__ import annotations

import argparse
import shlex
from pathlib import Path

from onionlab.commands._arguments import add_networks_argument, whole_number
from onionlab.commands.import_network import import_and_report
from onionlab.paths import working_root
from onionlab.programs.tor.build import ensure_series
from onionlab.rundir.seeded_keys import draw_seeded_keys
from onionlab.tornet.generating import generate_tornets

HELP = "have an installed tornettools generate networks, and import them"


def setup_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--name", required=True, help="name of the networks: networks/NAME")
    add_networks_argument(parser, "how many networks (default: 1)", whole_number)
    parser.add_argument(
        "--staged-dir", type=Path, required=True, help="folder with what `tornettools stage` wrote"
    )
    parser.add_argument(
        "--tmodel-dir", type=Path, required=True, help="copy of tmodel-ccs2018.github.io"
    )
    parser.add_argument(
        "--options",
        default="",
        help="further options of `tornettools generate`, as one text: '--network_scale 0.01'",
    )


def run(args: argparse.Namespace) -> int:
    """Generate and import the networks, and write their first experiment.

    Print a summary of each network, and whether the experiment was written. The last line of the
    output is the networks' folder.
    """
    root = working_root()
    import_and_report(
        root,
        args.name,
        lambda write: generate_tornets(
            root,
            args.name,
            args.networks or 1,
            staged=args.staged_dir,
            tmodel=args.tmodel_dir,
            options=shlex.split(args.options),
            build_tor=lambda: ensure_series(root, {None})[None].path,
            draw_keys=draw_seeded_keys,
            before_rename=write,
        ),
    )
    return 0
