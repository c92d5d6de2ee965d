"""Build Tor for the variants, and Arti for named variants with its clients."""

from __future__ import annotations

import argparse

from onionlab.commands._arguments import add_build_arguments
from onionlab.paths import working_root
from onionlab.programs.arti import ensure_arti, obtain_arti
from onionlab.programs.building import BuiltProgram
from onionlab.programs.tor.build import ensure_variants
from onionlab.programs.tor.variants import load_variants

HELP = "build Tor for the variants (all, or those named), and Arti for named variants with it"


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
    variants = load_variants(root)
    # Few users compare clients of Arti, and a build of Arti takes long. Build only named clients.
    sources = {
        name: obtain_arti(root, client)
        for name in args.variants
        if name in variants and (client := variants[name].client)
    }
    builds = ensure_variants(
        root,
        args.variants or list(variants),
        tor_source=args.tor_source,
        update_source=args.update_source,
        jobs=args.jobs,
    )
    lines: list[tuple[str, str, BuiltProgram]] = [
        (name, "Tor", built) for name, built in builds.items()
    ]
    lines += [(name, "Arti", ensure_arti(one, jobs=args.jobs)) for name, one in sources.items()]
    width = max(len(name) for name in builds)
    for name, program, built in lines:
        place = built.path.relative_to(root)
        print(f"{name:{width}}  {program} {built.version}  {place}  SHA-256 {built.sha256[:16]}")
    return 0
