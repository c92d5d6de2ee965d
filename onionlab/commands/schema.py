"""The JSON Schema of experiment files, and the reference of their keys."""

from __future__ import annotations

import argparse

from onionlab.experiment.formats_reference import formats_page
from onionlab.experiment.reference import (
    json_schema,
    peers_json_schema,
    peers_reference,
    reference,
    tornet_json_schema,
    tornet_reference,
    with_reference,
)
from onionlab.paths import working_root

FORMATS_PAGE = "docs/reference/formats.md"

HELP = "print the JSON Schema of experiment files, or write it and the reference of keys"


def setup_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    what = parser.add_mutually_exclusive_group()
    what.add_argument(
        "--reference", action="store_true", help="print the reference of keys (Markdown) instead"
    )
    what.add_argument(
        "--write",
        action="store_true",
        help="write experiments/schema.json, and the references of keys and of file formats in "
        "docs/reference",
    )


def run(args: argparse.Namespace) -> int:
    """Print or write."""
    if args.reference:
        print(reference(), end="")
    elif args.write:
        root = working_root()
        for file, schema, page, made in (
            ("schema.json", json_schema(), "experiments.md", reference),
            ("peers.schema.json", peers_json_schema(), "transfer-experiments.md", peers_reference),
            (
                "tornettools.schema.json",
                tornet_json_schema(),
                "tornettools-experiments.md",
                tornet_reference,
            ),
        ):
            schema_file, page_file = root / "experiments" / file, root / "docs/reference" / page
            text = with_reference(page_file.read_text(encoding="utf-8"), made)
            schema_file.write_text(schema, encoding="utf-8")
            page_file.write_text(text, encoding="utf-8")
            print(f"wrote {schema_file.relative_to(root)} and {page_file.relative_to(root)}")
        formats_file = root / FORMATS_PAGE
        formats_file.write_text(formats_page(), encoding="utf-8")
        print(f"wrote {FORMATS_PAGE}")
    else:
        print(json_schema(), end="")
    return 0
