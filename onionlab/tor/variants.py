"""The registry of variants: ``tor-patches/variants.yaml`` and the patch series beside it.

A variant is a build of Tor (a patch series, or none) together with torrc options. The file says in
its own comments what each key means.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NoReturn

import yaml

from onionlab.errors import UserError
from onionlab.workshop import Patch

__all__ = [
    "PROOF_FROM",
    "STOCK",
    "Registry",
    "Series",
    "SeriesEntry",
    "Variant",
    "load_registry",
    "load_series",
    "load_variants",
]

STOCK = "stock"
"""Name of the build without patches; a series cannot have it."""

NAME = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")
PROOF_FROM = ("every-relay", "an-exit")
"""Who can be asked for a series' proof; `variants.yaml` says what each means."""

LINESTYLES = ("-", "--", "-.", ":")
OPTION = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@dataclass(frozen=True)
class Variant:
    """One variant of Tor, as tables and figures show it and relays run it.

    Attributes:
        name: What experiments call it.
        description: One line for tables.
        label: Its name in figures.
        color: ``#rrggbb``.
        marker: Matplotlib's marker.
        linestyle: Matplotlib's line style.
        series: Folder of its patches, or None for Tor as released.
        torrc: Options that every relay gets.
        proof: Text that relays must have logged for a run to count; None for a variant whose
            relays must not have logged any line that begins as a series' proofs do.
        proof_from: Who must have logged the proof: one of ``PROOF_FROM``, as its series says.
    """

    name: str
    description: str
    label: str
    color: str
    marker: str
    linestyle: str
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

    variants: dict[str, Variant]
    series: dict[str, SeriesEntry]

    @property
    def proof_prefixes(self) -> tuple[str, ...]:
        """What proofs of any series begin with."""
        return tuple(entry.proof_prefix for entry in self.series.values() if entry.proof_prefix)


@dataclass(frozen=True)
class Series:
    """A patch series, in the order in which the patches apply."""

    name: str
    patches: tuple[Patch, ...]


def load_variants(root: Path) -> dict[str, Variant]:
    """The variants by name, in the file's order. See :func:`load_registry`."""
    return load_registry(root).variants


def load_registry(root: Path) -> Registry:
    """Read ``tor-patches/variants.yaml`` of the checkout ``root``.

    Raises:
        UserError: The file is missing, is not YAML, or an entry is wrong; the message names it.
    """
    path = root / "tor-patches" / "variants.yaml"
    document = _Reader(_read_yaml(path), path.name)
    series = {name: _series_entry(name, reader) for name, reader in document.entries("series")}
    variants = {name: _variant(name, reader) for name, reader in document.entries("variants")}
    document.done()
    if not variants:
        raise UserError(f"{path.name}: it names no variants")
    looks: dict[tuple[str, str, str], str] = {}
    for name, variant in variants.items():
        where = f"{path.name}: variants.{variant.name}"
        if variant.series is not None and variant.series not in series:
            known = ", ".join(series) or "none"
            raise UserError(
                f"{where}: unknown series {variant.series!r}",
                f"Series that the file names: {known}.",
            )
        _check_proof(where, variant, series)
        if variant.series is not None:
            variants[name] = replace(variant, proof_from=series[variant.series].proof_from)
        look = (variant.color.lower(), variant.marker, variant.linestyle)
        twin = looks.setdefault(look, variant.name)
        if twin != variant.name:
            raise UserError(
                f"{where}: looks like {twin} (color, marker and linestyle are all the same)",
                "A figure with both could not be read.",
            )
    for name in series:
        load_series(root, name)
    return Registry(variants, series)


def load_series(root: Path, name: str, collection: str = "tor-patches") -> Series:
    """The patches of one series, in the order of its file ``series``.

    Without such a file the patches apply in the order of their names. A name such as ``a+b`` stands
    for the patches of ``a`` and then those of ``b``. ``collection`` is the folder of the checkout
    that holds the series.

    Raises:
        UserError: The folder or a patch is missing, or a patch is left out of the order.
    """
    if "+" in name:
        parts = [load_series(root, part, collection) for part in name.split("+")]
        return Series(name, tuple(patch for part in parts for patch in part.patches))
    folder = root / collection / name
    if not folder.is_dir():
        raise UserError(f"patch series {name}: there is no folder {collection}/{name}")
    present = sorted(path.name for path in folder.glob("*.patch"))
    order = folder / "series"
    if order.is_file():
        lines = (line.split("#", 1)[0].strip() for line in order.read_text("utf-8").splitlines())
        listed = [line for line in lines if line]
        for problem, names in (
            ("names a missing patch", sorted(set(listed) - set(present))),
            ("leaves out a patch", sorted(set(present) - set(listed))),
            ("names a patch twice", sorted({one for one in listed if listed.count(one) > 1})),
        ):
            if names:
                raise UserError(f"patch series {name}: its file `series` {problem}: {names[0]}")
    else:
        listed = present
    if not listed:
        raise UserError(f"patch series {name}: {collection}/{name} holds no *.patch")
    return Series(
        name, tuple(Patch(folder / entry, (folder / entry).read_bytes()) for entry in listed)
    )


class _UniqueKeyLoader(yaml.SafeLoader):
    """YAML with an error for a key that stands twice: PyYAML would keep the last silently."""


def _unique_mapping(loader: _UniqueKeyLoader, node: yaml.MappingNode) -> dict[Any, Any]:
    seen: set[Any] = set()
    for key_node, _ in node.value:
        key = loader.construct_object(key_node)
        if key in seen:
            raise yaml.constructor.ConstructorError(
                None, None, f"the key {key!r} stands twice", key_node.start_mark
            )
        seen.add(key)
    return loader.construct_mapping(node)


_UniqueKeyLoader.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, _unique_mapping)


def _read_yaml(path: Path) -> object:
    try:
        with path.open(encoding="utf-8") as stream:
            return yaml.load(stream, Loader=_UniqueKeyLoader)
    except FileNotFoundError as error:
        raise UserError(f"there is no {path}") from error
    except UnicodeDecodeError as error:
        raise UserError(f"{path} is not UTF-8 text") from error
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        line = f":{mark.line + 1}" if mark is not None else ""
        raise UserError(f"{path}{line}: not valid YAML: {error.problem}") from error


def _variant(name: str, reader: _Reader) -> Variant:
    _check_name(reader, name, "variant")
    variant = Variant(
        name=name,
        description=reader.take_text("description"),
        label=reader.take_text("label"),
        color=_color(reader.take("color")),
        marker=reader.take_text("marker"),
        linestyle=_linestyle(reader.take("linestyle")),
        series=reader.take_text_or_null("series"),
        torrc=dict(_torrc_option(option, value) for option, value in reader.entries("torrc")),
        proof=reader.take_text_or_null("proof"),
    )
    reader.done()
    return variant


def _series_entry(name: str, reader: _Reader) -> SeriesEntry:
    _check_name(reader, name, "series")
    if name == STOCK:
        reader.fail(f"{STOCK!r} is the name of the build without patches")
    entry = SeriesEntry(
        description=reader.take_text("description"),
        proof_prefix=reader.take_text_or_null("proof_prefix"),
        proof_from=_proof_from(reader.take("proof_from")),
    )
    reader.done()
    return entry


def _proof_from(reader: _Reader) -> str:
    text = reader.text()
    if text not in PROOF_FROM:
        reader.fail(f"{text!r}: it is one of {' '.join(PROOF_FROM)}")
    return text


def _check_proof(where: str, variant: Variant, series: dict[str, SeriesEntry]) -> None:
    """A proof is of the variant's series; without one the log could not tell variants apart."""
    if variant.series is None:
        if variant.proof is not None:
            raise UserError(f"{where}.proof: a variant without a series has nothing to prove")
        return
    prefix = series[variant.series].proof_prefix
    if prefix is None:
        raise UserError(
            f"{where}.series: {variant.series} has no proof_prefix, so that no variant can name it"
        )
    if variant.proof is not None and not variant.proof.startswith(prefix):
        raise UserError(
            f"{where}.proof: it does not begin with its series' proof_prefix ({prefix!r})"
        )


def _check_name(reader: _Reader, name: str, kind: str) -> None:
    if not NAME.fullmatch(name):
        reader.fail(f"the name of a {kind} has lower-case letters, digits and single hyphens")


def _color(reader: _Reader) -> str:
    text = reader.text()
    if not re.fullmatch(r"#[0-9A-Fa-f]{6}", text):
        reader.fail(f"{text!r}: a colour is written '#rrggbb'")
    return text


def _linestyle(reader: _Reader) -> str:
    text = reader.text()
    if text not in LINESTYLES:
        reader.fail(f"{text!r}: a line style is one of {' '.join(LINESTYLES)}")
    return text


def _torrc_option(option: str, reader: _Reader) -> tuple[str, str]:
    if not OPTION.fullmatch(option):
        reader.fail("not a torrc option's name")
    value = reader.value
    if isinstance(value, bool):
        # YAML reads on, off, yes and no as truth values; Tor wants 0, 1 or auto.
        reader.fail("write 0 or 1, or put the word in quotes")
    if isinstance(value, int | float):
        return option, str(value)
    text = reader.text()
    if "\n" in text:
        reader.fail("a torrc option stands on one line")
    return option, text


class _Reader:
    """A value of the document that knows where it stands and takes its keys out one by one."""

    def __init__(self, value: object, file: str, trail: tuple[str, ...] = ()) -> None:
        self.value = value
        self._file = file
        self._trail = trail
        self._taken: set[str] = set()

    def fail(self, message: str, hint: str | None = None) -> NoReturn:
        where = f"{self._file}: {'.'.join(self._trail)}" if self._trail else self._file
        raise UserError(f"{where}: {message}", hint)

    def done(self) -> None:
        """Complain of keys that nobody asked for: misspelt ones, most often."""
        unknown = [str(key) for key in self._mapping() if key not in self._taken]
        if unknown:
            known = ", ".join(sorted(self._taken))
            self.fail(f"unknown key {unknown[0]!r}", f"Known keys: {known}.")

    def take(self, key: str) -> _Reader:
        self._taken.add(key)
        mapping = self._mapping()
        if key not in mapping:
            self.fail(f"the key {key!r} is missing")
        return _Reader(mapping[key], self._file, (*self._trail, key))

    def take_text(self, key: str) -> str:
        return self.take(key).text()

    def take_text_or_null(self, key: str) -> str | None:
        reader = self.take(key)
        return None if reader.value is None else reader.text()

    def entries(self, key: str) -> list[tuple[str, _Reader]]:
        inner = self.take(key)
        return [(str(name), inner.take(name)) for name in inner._mapping()]

    def text(self) -> str:
        if not isinstance(self.value, str) or not self.value.strip():
            self.fail(f"expected text, got {self.value!r}")
        return self.value

    def _mapping(self) -> dict[Any, Any]:
        if not isinstance(self.value, dict):
            self.fail(f"expected keys with values, got {self.value!r}")
        return self.value
