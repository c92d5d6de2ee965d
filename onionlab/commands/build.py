"""``onionlab build``: Tor for the variants."""

from __future__ import annotations

import argparse

from onionlab.commands._arguments import whole_number
from onionlab.paths import working_root
from onionlab.programs.tor.build import ensure_variants
from onionlab.programs.tor.variants import load_variants

HELP = "build Tor for the variants (all of them, or those named)"


def setup_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "variants", nargs="*", metavar="VARIANT", help="a variant of tor-patches/variants.yaml"
    )
    parser.add_argument(
        "--tor-source",
        metavar="PATH",
        help="release tarball or source tree of Tor (default: variable TOR_SOURCE, "
        "else Debian's source package)",
    )
    parser.add_argument(
        "--update-source", action="store_true", help="ask Debian for its current version of Tor"
    )
    parser.add_argument(
        "--jobs", type=whole_number, metavar="N", help="compilers at once (default: CPUs)"
    )


def run(args: argparse.Namespace) -> int:
    root = working_root()
    names = args.variants or list(load_variants(root))
    builds = ensure_variants(
        root,
        names,
        say=print,
        tor_source=args.tor_source,
        update_source=args.update_source,
        jobs=args.jobs,
    )
    width = max(len(name) for name in builds)
    for name, built in builds.items():
        place = built.tor.relative_to(root)
        print(f"{name:{width}}  Tor {built.version}  {place}  SHA-256 {built.sha256[:16]}")
    return 0
