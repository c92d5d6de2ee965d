"""Print or write the JSON Schema of experiment files, or print the table of their keys."""

from __future__ import annotations

import argparse

from onionlab.experiment.header import EXPERIMENTS
from onionlab.experiment.reference import SCHEMAS, editor_schema, key_table
from onionlab.paths import working_root

HELP = "print the JSON Schema of experiment files, or write it for editors, or print all keys"


def setup_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "kind",
        nargs="?",
        choices=sorted(SCHEMAS),
        default="tor",
        help="the key `kind` of the files; tor: files without it (default)",
    )
    output = parser.add_mutually_exclusive_group()
    output.add_argument(
        "--reference", action="store_true", help="print the table of all keys (Markdown) instead"
    )
    output.add_argument(
        "--write",
        action="store_true",
        help=f"write the schemas of all kinds into {EXPERIMENTS}/, where editors look for them",
    )


def run(args: argparse.Namespace) -> int:
    """Write the schema of each kind of experiment, or print the schema or key table of one kind."""
    if args.write:
        folder = working_root() / EXPERIMENTS
        folder.mkdir(exist_ok=True)
        for file, model in SCHEMAS.values():
            (folder / file).write_text(editor_schema(model), encoding="utf-8")
        print(f"wrote the JSON Schemas of experiment files into {EXPERIMENTS}/")
        return 0
    _, model = SCHEMAS[args.kind]
    print(key_table(model) if args.reference else editor_schema(model), end="")
    return 0
