"""The registry of variants: ``tor-patches/variants.yaml`` and the patch series beside it.

A variant is a build of Tor (a patch series, or none) together with torrc options. The file says in
its own comments what each key means.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from pydantic import Field

from onionlab.programs.patches import Series, load_series
from onionlab.programs.registry import (
    Look,
    LookModel,
    Name,
    read_registry,
    twins,
)
from onionlab.yamlfile.field_types import ExactText, Text, TorrcLine, one_of
from onionlab.yamlfile.model import Model, key
from onionlab.yamlfile.tree import Node, Problem
from onionlab.yamlfile.units import nearest, show

FOLDER = "tor-patches"

STOCK = "stock"
"""Name of the build without patches; a series cannot have it."""

PROOF_FROM = ("every-relay", "an-exit")
"""Who can be asked for a series' proof; `variants.yaml` says what each means."""

OptionName = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]


class _VariantEntry(LookModel):
    series: Name | None = key(description="folder of its patches")
    torrc: dict[OptionName, TorrcLine] = key(description="options that every relay gets")
    proof: ExactText | None = key(description="text that relays must have logged")


class _SeriesEntry(Model):
    description: Text = key(description="what it adds")
    proof_prefix: ExactText | None = key(description="what the proofs of its variants begin with")
    proof_from: Annotated[str, one_of(*PROOF_FROM)] = key(
        description="who must have logged the proof"
    )


class _File(Model):
    series: dict[Name, _SeriesEntry] = key(description="patch series")
    variants: dict[Name, _VariantEntry] = Field(min_length=1, description="variants")


@dataclass(frozen=True)
class TorVariant(Look):
    """One variant of Tor, as tables and figures show it and relays run it.

    Attributes:
        series: Folder of its patches, or None for Tor as released.
        torrc: Options that every relay gets.
        proof: Text that relays must have logged for a run to count; None for a variant whose
            relays must not have logged any line that begins as a series' proofs do.
        proof_from: Who must have logged the proof: one of ``PROOF_FROM``, as its series says.
    """

    series: str | None
    torrc: dict[str, str]
    proof: str | None
    proof_from: str = PROOF_FROM[0]


@dataclass(frozen=True)
class SeriesEntry:
    """What the registry says of a patch series.

    Attributes:
        description: What it adds.
        proof_prefix: What the proofs of its variants begin with; None if no variant names it.
        proof_from: Who must have logged a proof: one of ``PROOF_FROM``.
    """

    description: str
    proof_prefix: str | None
    proof_from: str


@dataclass(frozen=True)
class Registry:
    """The whole file.

    Attributes:
        variants: By name, in the file's order.
        series: By name.
    """

    variants: dict[str, TorVariant]
    series: dict[str, SeriesEntry]

    @property
    def proof_prefixes(self) -> tuple[str, ...]:
        """What proofs of any series begin with."""
        return tuple(entry.proof_prefix for entry in self.series.values() if entry.proof_prefix)


def tor_series(root: Path, name: str) -> Series:
    """The patches of one of Tor's series. See :func:`onionlab.programs.registry.load_series`."""
    return load_series(root, name, FOLDER)


def load_variants(root: Path) -> dict[str, TorVariant]:
    """The variants by name, in the file's order. See :func:`load_registry`."""
    return load_registry(root).variants


def load_registry(root: Path) -> Registry:
    """Read ``tor-patches/variants.yaml`` of the checkout ``root``.

    Raises:
        UserError: The file is missing, or everything that is wrong with it, one line each; or a
            series' patches are not there.
    """
    content = read_registry(root, FOLDER, _File, _impossible)
    for name in content.series:
        tor_series(root, name)
    series = {name: SeriesEntry(**entry.model_dump()) for name, entry in content.series.items()}
    variants = {
        name: TorVariant(
            name=name,
            **entry.model_dump(),
            proof_from=PROOF_FROM[0] if entry.series is None else series[entry.series].proof_from,
        )
        for name, entry in content.variants.items()
    }
    return Registry(variants, series)


def _impossible(content: _File, tree: Node) -> Iterator[Problem]:
    if STOCK in content.series:
        yield tree.locate(("series", STOCK), "this is the name of the build without patches")
    for name, variant in content.variants.items():
        for key_name, message in _of_variant(variant, content.series):
            yield tree.locate(("variants", name, key_name), message)
    yield from twins(content.variants, tree)


def _of_variant(
    variant: _VariantEntry, series: dict[str, _SeriesEntry]
) -> Iterator[tuple[str, str]]:
    """A proof is of the variant's series; without one the log could not tell variants apart."""
    if variant.series is None:
        if variant.proof is not None:
            yield "proof", "a variant without a series has nothing to prove"
        return
    if variant.series not in series:
        yield (
            "series",
            f"no series {show(variant.series)} in this file{nearest(variant.series, series)}",
        )
        return
    prefix = series[variant.series].proof_prefix
    if prefix is None:
        yield "series", f"{variant.series} has no proof_prefix, so that no variant can name it"
    elif variant.proof is not None and not variant.proof.startswith(prefix):
        yield "proof", f"it does not begin with its series' proof_prefix ({show(prefix)})"
