"""The registry of variants, ``tor-patches/variants.yaml``, and the patch series in that folder.

A variant is a build of Tor (a patch series, or none) together with torrc options. The file's
comments explain each key.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from pydantic import Field

from onionlab.programs.patches import Patch, Series, load_series
from onionlab.programs.registry import (
    Name,
    VariantDisplay,
    find_indistinguishable_styles,
    read_registry,
)
from onionlab.yamlfile.field_types import ExactText, Text, TorrcLine, one_of
from onionlab.yamlfile.model import Model, key
from onionlab.yamlfile.tree import Node, Problem
from onionlab.yamlfile.units import nearest, show

FOLDER = "tor-patches"
TESTS_FOLDER = "src/test/"

STOCK = "stock"
"""The name of the build without patches; a series cannot have it."""

PROOF_FROM = ("every-relay", "an-exit")
"""The relays that have to log a series' proof; `variants.yaml` explains each value."""

OptionName = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]


class _VariantEntry(VariantDisplay):
    series: Name | None = key(description="folder of its patches")
    torrc: dict[OptionName, TorrcLine] = key(description="options that every relay gets")
    proof: ExactText | None = key(description="text that relays must have logged")


class SeriesEntry(Model):
    """The registry's entry of a patch series."""

    description: Text = key(description="what it adds")
    proof_prefix: ExactText | None = key(description="what the proofs of its variants begin with")
    proof_from: Annotated[str, one_of(*PROOF_FROM)] = key(
        description="who must have logged the proof"
    )


class _File(Model):
    series: dict[Name, SeriesEntry] = key(description="patch series")
    variants: dict[Name, _VariantEntry] = Field(min_length=1, description="variants")


class TorVariant(_VariantEntry):
    """One variant of Tor, with its name.

    proof_from: the relays that must have logged the proof: one of ``PROOF_FROM``, from its series.
    Relays of a variant without a proof must not have logged any line with the proof prefix of a
    series.
    """

    name: str
    proof_from: str = PROOF_FROM[0]


@dataclass(frozen=True)
class Registry:
    """The content of the registry.

    Attributes:
        variants: By name, in the file's order.
        series: By name.
    """

    variants: dict[str, TorVariant]
    series: dict[str, SeriesEntry]

    @property
    def proof_prefixes(self) -> tuple[str, ...]:
        """The prefixes of the proofs of all series."""
        return tuple(entry.proof_prefix for entry in self.series.values() if entry.proof_prefix)


def tor_series(root: Path, name: str, *, tests: bool = False) -> Series:
    """Return the patches of one of Tor's series. Raises UserError.

    tests: whether to include patches of Tor's tests alone, on which its programs do not depend.
    """
    series = load_series(root, name, FOLDER)
    return series if tests else Series(name, tuple(filter(_is_code, series.patches)))


def _is_code(patch: Patch) -> bool:
    return not all(name.startswith(TESTS_FOLDER) for name in patch.files)


def load_variants(root: Path) -> dict[str, TorVariant]:
    """Return the variants by name, in the file's order. See :func:`load_registry`."""
    return load_registry(root).variants


def load_registry(root: Path) -> Registry:
    """Read ``tor-patches/variants.yaml`` of the checkout ``root``.

    Raises:
        UserError: The file or the patches of a series are missing, or the file has errors, which
            are all listed, one per line.
    """
    content = read_registry(root, FOLDER, _File, _inconsistencies)
    for name in content.series:
        tor_series(root, name)
    variants = {}
    for name, entry in content.variants.items():
        proof_from = content.series[entry.series].proof_from if entry.series else PROOF_FROM[0]
        variants[name] = TorVariant(name=name, proof_from=proof_from, **entry.model_dump())
    return Registry(variants, content.series)


def _inconsistencies(content: _File, tree: Node) -> Iterator[Problem]:
    if STOCK in content.series:
        yield tree.locate(("series", STOCK), "this is the name of the build without patches")
    for name, variant in content.variants.items():
        for key_name, message in _check_proof(variant, content.series):
            yield tree.locate(("variants", name, key_name), message)
    yield from find_indistinguishable_styles(content.variants, tree)


def _check_proof(
    variant: _VariantEntry, series: dict[str, SeriesEntry]
) -> Iterator[tuple[str, str]]:
    """Yield errors in a variant's proof, which has to match the proofs of its series."""
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
        yield "series", f"{variant.series} has no proof_prefix, so no variant can use it"
    elif variant.proof is not None and not variant.proof.startswith(prefix):
        yield "proof", f"it does not begin with its series' proof_prefix ({show(prefix)})"
