"""The arguments by which several verbs name an experiment and what to change in it.

Imports nothing of the program: doctor works on a machine that lacks its packages.
Empty values count as not given: that is what make passes on for a variable that is not set.
"""

from __future__ import annotations

import argparse
import contextlib
import re
import shlex
from collections.abc import Iterable
from pathlib import Path


def add_request_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare NAME, --variants and what ``add_override_arguments`` declares."""
    parser.add_argument("name", help="name of an experiment, or the path of its file")
    add_variants_argument(parser)
    add_override_arguments(parser)


def add_variants_argument(parser: argparse.ArgumentParser) -> None:
    """Declare --variants."""
    parser.add_argument(
        "--variants", default="", help="some of its variants, or others that there are: rr,ewma"
    )


def add_override_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare --scale, --networks, --repeats and what ``add_engine_arguments`` declares."""
    parser.add_argument("--scale", default="", help="multiply hosts and load, for instance 0.1")
    add_networks_argument(
        parser, "a number n (networks 1 to n) or a list: 1,4,7; experiment takes auto"
    )
    add_repeats_argument(parser)
    add_engine_arguments(parser)


def add_networks_argument(parser: argparse.ArgumentParser, help_text: str) -> None:
    """Declare --networks and its other name --seeds."""
    parser.add_argument(
        "--networks",
        "--seeds",
        dest="seeds",
        metavar="NETWORKS",
        default="",
        action=SameTwice,
        help=help_text,
    )


def add_repeats_argument(parser: argparse.ArgumentParser) -> None:
    """Declare --repeats."""
    parser.add_argument("--repeats", default="", help="runs of each variant on each network")


class SameTwice(argparse.Action):
    """Store the value of an option with two names. Two different values are an error."""

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
    """Declare --engine, --shadow and --tgen."""
    parser.add_argument("--engine", default="auto", help="auto or the name of an engine")
    parser.add_argument("--shadow", default="", help="path of Shadow, if it is not on the PATH")
    parser.add_argument("--tgen", default="", help="path of TGen, if it is not on the PATH")


def add_jobs_argument(parser: argparse.ArgumentParser) -> None:
    """Declare --jobs."""
    parser.add_argument("--jobs", default="", help="simulations side by side")


def add_executor_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare --executor and what goes with it."""
    parser.add_argument(
        "--executor",
        choices=("", "slurm", "generic"),
        default="",
        help="make the runs as jobs of a cluster (docs/how-to/cluster.md); default: here",
    )
    parser.add_argument("--partition", default="", help="of Slurm, where its jobs go")
    parser.add_argument("--account", default="", help="of Slurm, which pays for its jobs")
    parser.add_argument("--qos", default="", help="of Slurm: quality of service of its jobs")
    parser.add_argument("--max-jobs", default="", help="jobs in a cluster's queue at a time")
    parser.add_argument(
        "--profile", default="", help="folder of a Snakemake profile; default: configs/EXECUTOR"
    )


def listed_files(texts: Iterable[str]) -> list[Path]:
    """The files that an argument for several names, each in a word of its own or in one together.

    One text for all of them is what make has: FROM="a.tar.xz b.tar.xz", and with spaces in a name
    FROM="'my runs.tar.xz' b.tar.xz". The name of a file that is there is that file, spaces and all.
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
    """The names of a list with commas, with spaces, or with both: none of them has either."""
    return tuple(re.findall(r"[^\s,]+", text))


def whole_number(text: str) -> int:
    """A type of arguments: a whole number of at least 1."""
    number = int(text)
    if not 1 <= number < 10**9:
        raise ValueError
    return number


whole_number.__name__ = "whole number"
"""What argparse calls it: `invalid whole number value: '0'`."""
