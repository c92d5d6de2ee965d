"""Arguments that several commands have, and their types.

This module imports only the standard library and this project, so that `doctor` starts fast and
needs few packages. An argument with an empty value counts as not given.
"""

from __future__ import annotations

import argparse
import contextlib
import math
import re
import shlex
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

AUTO = "auto"
"""Value of --networks: add networks until each endpoint is settled or the maximum is reached."""
DEFAULT_MAX_NETWORKS = 20
"""Maximum number of networks with AUTO if --max-networks is not given."""


def add_request_arguments(parser: argparse.ArgumentParser, *, auto: bool = False) -> None:
    """Declare NAME, --variants, and the arguments of `add_override_arguments`."""
    parser.add_argument("name", help="name of an experiment, or the path of its file")
    add_variants_argument(parser)
    add_override_arguments(parser, auto=auto)


def add_variants_argument(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--variants",
        type=variants,
        default=(),
        help="comma-separated variants to run, such as rr,ewma (default: those of the experiment)",
    )


def add_override_arguments(parser: argparse.ArgumentParser, *, auto: bool = False) -> None:
    """Declare --scale, --networks, --repeats, and the arguments of `add_engine_arguments`.

    auto: whether --networks may be AUTO.
    """
    parser.add_argument("--scale", type=number, help="multiply hosts and load, for instance 0.1")
    kind, more = (networks_or_auto, ", or auto") if auto else (networks, "")
    add_networks_argument(parser, f"a number n (networks 1 to n) or a list: 1,4,7{more}", kind)
    add_repeats_argument(parser)
    add_engine_arguments(parser)


def add_max_networks_argument(parser: argparse.ArgumentParser) -> None:
    text = f"maximum number with --networks {AUTO}, {DEFAULT_MAX_NETWORKS} by default"
    parser.add_argument("--max-networks", type=whole_number, help=text)


def networks(text: str) -> int | list[int] | None:
    """Parse a number of networks (3) or a list of them (1,4,7). Raises UserError for other text."""
    from onionlab.experiment import parse_seeds

    return parse_seeds(text) if text else None


def networks_or_auto(text: str) -> int | list[int] | str | None:
    """Parse AUTO, or a value that `networks` parses."""
    return AUTO if text == AUTO else networks(text)


def add_networks_argument(
    parser: argparse.ArgumentParser, help_text: str, kind: Callable[[str], Any] = networks
) -> None:
    """Declare --networks and its other name --seeds; ``kind`` parses the value."""
    parser.add_argument(
        *("--networks", "--seeds"), type=kind, action=SameTwice, metavar="NETWORKS", help=help_text
    )


def add_repeats_argument(parser: argparse.ArgumentParser) -> None:
    text = "runs of each variant on each network"
    parser.add_argument("--repeats", type=whole_number, help=text)


class SameTwice(argparse.Action):
    """Store the value of an option that has two names. Refuse two different values."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: object,
        option_string: str | None = None,
    ) -> None:
        before = getattr(namespace, self.dest)
        if before and values and values != before:
            raise argparse.ArgumentError(self, f"was given {before} and {values}; leave one out")
        setattr(namespace, self.dest, values or before)


def add_engine_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--engine", default="auto", help="auto or the name of an engine (compare-engines: names)"
    )
    parser.add_argument("--shadow", default="", help="path of Shadow, if it is not on the PATH")
    parser.add_argument("--tgen", default="", help="path of TGen, if it is not on the PATH")


def add_jobs_argument(
    parser: argparse.ArgumentParser, help_text: str = "maximum number of simulations at a time"
) -> None:
    parser.add_argument("--jobs", type=whole_number, metavar="N", help=help_text)


def add_build_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare --tor-source and --jobs of commands that build Tor."""
    parser.add_argument(
        "--tor-source",
        metavar="PATH",
        help="release tarball or source tree of Tor (default: variable TOR_SOURCE, else Debian's "
        "source package)",
    )
    add_jobs_argument(parser, "maximum number of compilers at a time (default: CPUs)")


def add_run_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare --jobs, and the arguments of `add_executor_arguments`."""
    add_jobs_argument(parser)
    add_executor_arguments(parser)


def add_executor_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--executor",
        choices=("", "slurm", "generic"),
        default="",
        help="make the runs as jobs of a cluster (docs/how-to/cluster.md); default: here",
    )
    parser.add_argument("--partition", default="", help="Slurm's partition for the jobs")
    parser.add_argument("--account", default="", help="Slurm's account that pays for the jobs")
    parser.add_argument("--qos", default="", help="Slurm's quality of service for the jobs")
    text = "maximum number of jobs in a cluster's queue at a time"
    parser.add_argument("--max-jobs", type=whole_number, help=text)
    parser.add_argument(
        "--profile", default="", help="folder of a Snakemake profile; default: configs/EXECUTOR"
    )


def listed_files(texts: Iterable[str]) -> list[Path]:
    """Return the files that the values of an argument name. A value can name several files.

    make passes all names in one value: FROM="a.tar.xz b.tar.xz", and for names with spaces
    FROM="'my runs.tar.xz' b.tar.xz". A value is split into words if no file has the whole value as
    its name, but a file has one of the words as its name.
    """
    return [path for text in texts for path in _files_of(text)]


def _files_of(text: str) -> list[Path]:
    with contextlib.suppress(OSError, ValueError):
        if not Path(text).exists():
            words = [Path(word) for word in shlex.split(text)]
            if any(path.exists() for path in words):
                return words
    return [Path(text)]


def listed_names(text: str) -> tuple[str, ...]:
    """Split a list of names at commas and spaces."""
    return tuple(re.findall(r"[^\s,]+", text))


def variants(text: str) -> tuple[str, ...]:
    """Parse names of variants, separated by commas or spaces."""
    names = listed_names(text)
    if text and not names:
        raise _wrong("names such as rr,ewma", text)
    return names


def whole_number(text: str) -> int | None:
    """Parse a whole number of at least 1."""
    if text and (re.fullmatch(r"[0-9]{1,9}", text, re.ASCII) is None or int(text) < 1):
        raise _wrong("a whole number of at least 1", text)
    return int(text) if text else None


def number(text: str) -> float | None:
    """Parse a finite number."""
    if not text:
        return None
    with contextlib.suppress(ValueError):
        if math.isfinite(value := float(text)):
            return value
    raise _wrong("a number such as 0.1", text)


def _wrong(expected: str, text: str) -> argparse.ArgumentTypeError:
    shown = text if len(text) <= 50 else f"{text[:50]}..."
    return argparse.ArgumentTypeError(f"expected {expected}, got {shown!r}")
