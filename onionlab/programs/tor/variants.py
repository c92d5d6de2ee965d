"""The registry of variants, ``tor-patches/variants.yaml``, and the patch series in its folder.

A variant is a build of Tor (a source, with or without a patch series) together with torrc options.
The file's comments explain each key. If the variable VARIANTS_FILE names another file of this form,
that file adds variants and series.

Each variant can have a proof: a string that Tor logs if it runs the variant's code and options.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from pydantic import Field

from onionlab.errors import UserError
from onionlab.paths import is_file
from onionlab.programs.arti import AnyClient
from onionlab.programs.patches import Patch, Series, load_series
from onionlab.programs.registry import (
    Name,
    VariantDisplay,
    find_indistinguishable_styles,
    read_registry,
)
from onionlab.programs.tor.tor_source import FORMS_TEXT, TorSource
from onionlab.yamlfile.field_types import ExactText, Text, TorrcLine, one_of
from onionlab.yamlfile.model import Model, key
from onionlab.yamlfile.tree import Node, Problem
from onionlab.yamlfile.units import nearest, show

FOLDER = "tor-patches"
TESTS_FOLDER = "src/test"
OWN_FILE_VARIABLE = "VARIANTS_FILE"

STOCK = "stock"
"""The name of the build without patches. No series may have this name."""

PROOF_FROM = ("every-relay", "an-exit")
"""The relays that have to log a series' proof; `variants.yaml` explains each value."""

OptionName = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]


@dataclass(frozen=True)
class TorBuild:
    """The properties that determine a build of Tor on this machine.

    series: the name of its patch series; None for Tor as released. source: None for the default.
    """

    series: str | None = None
    source: TorSource | None = None


class _VariantEntry(VariantDisplay):
    source: TorSource | None = key(None, description="the source that it is built from")
    series: Name | None = key(None, description="folder of its patches")
    torrc: dict[OptionName, TorrcLine] = key({}, description="options that every relay gets")
    proof: ExactText | None = key(None, description="text that relays must have logged")
    client: AnyClient = key(None, description="what clients run in place of Tor: a version of Arti")


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


class _OwnFile(_File):
    series: dict[Name, SeriesEntry] = key({}, description="patch series")


class TorVariant(_VariantEntry):
    """A variant of Tor: its entry in variants.yaml, and its name.

    A run counts only if its relays logged the variant's ``proof``. If the variant has no proof, the
    relays must not have logged a line with the ``proof_prefix`` of any series. This rule does not
    apply if the variant ``has_own_code``. proof_from: which relays have to log the proof; one of
    ``PROOF_FROM``. This is a setting of the patch series. source_id: `Source.id` of the variant's
    source; empty until the variant is built.
    """

    name: str
    proof_from: str = PROOF_FROM[0]
    source_id: str = ""

    @property
    def build(self) -> TorBuild:
        """The series and the source from which its program is built."""
        return TorBuild(self.series, self.source)

    @property
    def has_own_code(self) -> bool:
        """Return whether the source is a commit or a tarball, which can contain changes of Tor."""
        return self.source is not None and self.source.debian is None


def group_by_build(variants: Iterable[TorVariant]) -> dict[TorBuild, list[str]]:
    """Return the names of the variants of each build."""
    found: dict[TorBuild, list[str]] = {}
    for variant in variants:
        found.setdefault(variant.build, []).append(variant.name)
    return found


@dataclass(frozen=True)
class Registry:
    """The content of the registry, by name, in the file's order."""

    variants: dict[str, TorVariant]
    series: dict[str, SeriesEntry]

    @property
    def proof_prefixes(self) -> tuple[str, ...]:
        """For all series, the beginnings of the log lines that prove which options Tor uses."""
        return tuple(entry.proof_prefix for entry in self.series.values() if entry.proof_prefix)


def tor_series(root: Path, name: str, *, tests: bool = False) -> Series:
    """Return the patches of one of Tor's series. Raises UserError like `load_series`.

    name: a series, or several series joined by ``+``, whose patches are applied one after the
    other. tests: whether to include changes of Tor's tests, on which its programs do not depend.
    """
    patches: list[Patch] = []
    for part in name.split("+"):
        own = own_file(root)
        if own is None or (root / FOLDER / part).is_dir():
            series = load_series(root, part, FOLDER)
        else:
            series = load_series(own.parent.parent, part, own.parent.name)
        patches += series.patches
    if not tests:
        patches = [code for one in patches if (code := one.without(TESTS_FOLDER))]
    return Series(name, tuple(patches))


def own_file(root: Path) -> Path | None:
    """Return the file that VARIANTS_FILE names; None if this variable is not set.

    A relative path starts at the checkout.
    """
    named = os.environ.get(OWN_FILE_VARIABLE)
    return root / Path(named).expanduser() if named else None


def load_variants(root: Path) -> dict[str, TorVariant]:
    """Return the variants by name, in the file's order. See :func:`load_registry`."""
    return load_registry(root).variants


def load_registry(root: Path) -> Registry:
    """Read ``tor-patches/variants.yaml`` of the checkout ``root``, and the user's own file.

    Raises UserError if a file or the patches of a series are missing, or if a file has errors,
    which are all listed, one per line.
    """
    registry = _read(root, root / FOLDER / "variants.yaml", _File, Registry({}, {}))
    own = own_file(root)
    if own is None:
        return registry
    if not is_file(own):
        hint = "name an existing file, or do not set this variable"
        raise UserError(f"{OWN_FILE_VARIABLE}: {own} not found", hint)
    return _read(root, own, _OwnFile, registry)


def _read(root: Path, path: Path, model: type[_File], known: Registry) -> Registry:
    """Return the registry ``known`` with the content of a file added."""
    content = read_registry(
        root, path, model, lambda content, tree: _inconsistencies(content, tree, known)
    )
    for name in content.series:
        tor_series(root, name)
    series = {**known.series, **content.series}
    variants = dict(known.variants)
    for name, entry in content.variants.items():
        proof_from = series[entry.series].proof_from if entry.series else PROOF_FROM[0]
        values = {key_name: getattr(entry, key_name) for key_name in _VariantEntry.model_fields}
        if entry.source is not None:
            values["source"] = entry.source.seen_from(path.resolve().parent)
        variants[name] = TorVariant(name=name, proof_from=proof_from, **values)
    return Registry(variants, series)


def _inconsistencies(content: _File, tree: Node, known: Registry) -> Iterator[Problem]:
    if STOCK in content.series:
        yield tree.locate(("series", STOCK), "this is the name of the build without patches")
    for section in ("series", "variants"):
        for name in getattr(known, section).keys() & getattr(content, section).keys():
            yield tree.locate((section, name), f"{FOLDER}/variants.yaml has one of this name")
    series = {**known.series, **content.series}
    for name, variant in content.variants.items():
        if variant.source is not None and not variant.source.is_complete:
            yield tree.locate(("variants", name, "source"), f"expected {FORMS_TEXT}")
        for key_name, message in _check_proof(variant, series):
            yield tree.locate(("variants", name, key_name), message)
    yield from find_indistinguishable_styles(content.variants, tree)


def _check_proof(
    variant: _VariantEntry, series: Mapping[str, SeriesEntry]
) -> Iterator[tuple[str, str]]:
    """Yield key and message of each error in a variant's series and proof."""
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
    elif variant.proof is None:
        yield "proof", "missing: a build with a series has to log that its code is in use"
    elif not variant.proof.startswith(prefix):
        yield "proof", f"it does not begin with its series' proof_prefix ({show(prefix)})"
