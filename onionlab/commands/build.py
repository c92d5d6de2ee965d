"""Build Tor for the variants."""

from __future__ import annotations

import argparse

from onionlab.commands._arguments import add_build_arguments
from onionlab.paths import working_root
from onionlab.programs.tor.build import ensure_variants
from onionlab.programs.tor.variants import load_variants

HELP = "build Tor for the variants (all of them, or those named)"


def setup_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "variants", nargs="*", metavar="VARIANT", help="a variant of tor-patches/variants.yaml"
    )
    parser.add_argument(
        "--update-source", action="store_true", help="ask Debian for its current version of Tor"
    )
    add_build_arguments(parser)


def run(args: argparse.Namespace) -> int:
    root = working_root()
    builds = ensure_variants(
        root,
        args.variants or list(load_variants(root)),
        tor_source=args.tor_source,
        update_source=args.update_source,
        jobs=args.jobs,
    )
    width = max(len(name) for name in builds)
    for name, built in builds.items():
        place = built.path.relative_to(root)
        print(f"{name:{width}}  Tor {built.version}  {place}  SHA-256 {built.sha256[:16]}")
    return 0
