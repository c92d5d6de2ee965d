"""What differs between two sets of runs besides their results. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from analysis.comparison.run_sets import RunSet, SetRun
from analysis.comparison.torrc_options import changed_options
from analysis.errors import AnalysisError
from analysis.formats.files import CLIENTS, HOST_TEMPLATES, RUN

ASPECTS: Mapping[str, str] = {
    "variant": "the variant of Tor",
    "tor": "Tor's version or build",
    "engine": "the engine or its version",
    "network": "relays, clients and servers, their places, capacities and keys",
    "load": "what clients do",
    "time": "length of the run and measured span",
    "configuration": "torrc and consensus parameters",
    "project": "this project's version, and with it whatever files it writes",
}
"""What a comparison can be about."""

_ASPECT_OF_FILE = (
    (re.compile(r"conf/tor\.variant\.|.*/torrc-defaults\Z"), "variant"),
    (re.compile(r"conf/tor\."), "configuration"),
    (re.compile(r"conf/tgen\."), "load"),
    (re.compile(rf"{re.escape(RUN)}\Z"), "time"),
    (re.compile(rf"conf/network\.gml\Z|conf/resolv\.conf\Z|{re.escape(CLIENTS)}\Z"), "network"),
    (re.compile(rf"{re.escape(HOST_TEMPLATES)}/"), "network"),
)
"""An input file that fits none is the engine's own."""

TORRC = re.compile(r"conf/tor\.[^/]*\.torrc\Z")
"""Input files that sets keep the text of: short, and what differs in them has a name."""

OPTIONS_SHOWN = 4

_OF_HOSTS = f"{HOST_TEMPLATES}/"

_ENGINE_OWN = ("conf/network.gml",)
"""Written by an engine that has such a file, so that the lack of it says nothing of the network."""

_DRAWN = ("network", "configuration", "engine files")
"""Drawn from the seed, so that they tell nothing between runs of different seeds. The torrc names
the authorities' keys."""

_COVERED: Mapping[str, frozenset[str]] = {
    # A changed program may write any input in another way.
    "project": frozenset({"network", "load", "time", "configuration", "engine files"}),
    # The engine's own file names the programs of the hosts.
    "variant": frozenset({"engine files"}),
    "tor": frozenset({"engine files"}),
    "engine": frozenset({"engine files"}),
    # It also lists hosts, places and the end.
    "network": frozenset({"engine files", "load"}),
    "time": frozenset({"engine files"}),
}
"""Aspect asked about -> aspects that may differ as its consequence."""


@dataclass(frozen=True)
class Differences:
    """What differs, in words: aspect -> details. ``unknown``: aspects of which nothing is known."""

    found: Mapping[str, tuple[str, ...]]
    unknown: tuple[str, ...] = ()

    def beyond(self, about: Iterable[str]) -> list[str]:
        """Aspects that differ though they were not asked about."""
        asked = set(about)
        covered = asked.union(*(_COVERED.get(aspect, frozenset()) for aspect in asked))
        return [aspect for aspect in self.found if aspect not in covered]


def aspect_of(file: str) -> str:
    """The aspect that an input file of a run belongs to."""
    return next(
        (aspect for pattern, aspect in _ASPECT_OF_FILE if pattern.match(file)), "engine files"
    )


def differences(a: RunSet, b: RunSet, pairs: Sequence[tuple[SetRun, SetRun]]) -> Differences:
    """What differs between the runs of each pair, and between the sets."""
    found: dict[str, dict[str, None]] = {}
    texts = {**a.texts, **b.texts}
    for run, partner in pairs:
        for aspect, detail in _of_pair(run, partner, texts):
            found.setdefault(aspect, {})[detail] = None
    for level in a.levels:
        other_level = level if level in b.levels else b.levels[0]
        if level in a.spans and other_level in b.spans:
            ours, theirs = a.spans[level], b.spans[other_level]
            for class_name in sorted(set(ours.load) | set(theirs.load)):
                mine, other = ours.load.get(class_name, {}), theirs.load.get(class_name, {})
                for name in sorted(set(mine) | set(other)):
                    if mine.get(name) != other.get(name):
                        x, y = (_number(load.get(name)) for load in (mine, other))
                        found.setdefault("load", {})[f"{class_name} {name}: {x} / {y}"] = None
            for name in ("measured_start_s", "measured_end_s", "stop_s"):
                x, y = getattr(ours, name), getattr(theirs, name)
                if x != y:
                    found.setdefault("time", {})[f"{name}: {x:g} / {y:g}"] = None
    if "engine files" in found and not any(
        "engine files" in covered and aspect in found for aspect, covered in _COVERED.items()
    ):
        # Nothing else explains it: the engine was given other options.
        found["engine"] = found.pop("engine files")
    if a.records_format != b.records_format:
        detail = f"{a.records_format} / {b.records_format}"
        found.setdefault("records format", {})[detail] = None
    if a.definitions != b.definitions:
        found.setdefault("definitions", {})[f"{a.definitions} / {b.definitions}"] = None
    known = [run for pair in pairs for run in pair if run.files or run.engine or run.tor]
    unknown = () if known else ("tor", "engine", "network", "load", "time", "configuration")
    return Differences({name: tuple(details) for name, details in found.items()}, unknown)


def _of_pair(a: SetRun, b: SetRun, texts: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    if a.variant != b.variant:
        yield "variant", f"{a.variant} / {b.variant}"
    yield from _of_tor(a, b)
    for key in sorted(set(a.engine) | set(b.engine)):
        if a.engine.get(key) != b.engine.get(key):
            x, y = (_short(run.engine.get(key, "none")) for run in (a, b))
            yield "engine", f"{key}: {x} / {y}"
    other_engine = a.engine.get("name") != b.engine.get("name")
    changed: dict[str, list[str]] = {}
    for file in sorted(set(a.files) | set(b.files)) if a.files and b.files else ():
        if a.files.get(file) == b.files.get(file):
            continue
        aspect = aspect_of(file)
        if file.startswith(_OF_HOSTS) and (file in a.files) != (file in b.files):
            # A host that only one side has brings its torrc along.
            aspect = "network"
        if other_engine and (file in _ENGINE_OWN or aspect == "engine files"):
            continue
        if (a.seed, a.repeat) != (b.seed, b.repeat) and aspect in _DRAWN:
            continue
        if aspect == "variant":
            # A variant's own lines. With the variants the same, it is their text that changed.
            if a.variant != b.variant:
                continue
            aspect = "configuration"
        changed.setdefault(aspect, []).append(file)
    for aspect, files in changed.items():
        more = f" and {len(files) - 1} more" if len(files) > 1 else ""
        yield aspect, f"{files[0]}{more}{_options(a, b, files, texts)}"


def _options(a: SetRun, b: SetRun, files: Iterable[str], texts: Mapping[str, str]) -> str:
    """What differs inside of torrc files whose texts are known, behind their names; "" if none."""
    options: list[str] = []
    for file in files:
        ours, theirs = (texts.get(run.files.get(file, "")) for run in (a, b))
        if ours is not None and theirs is not None:
            options += changed_options(ours, theirs)
    if not options:
        return ""
    more = f"; and {len(options) - OPTIONS_SHOWN} more" if len(options) > OPTIONS_SHOWN else ""
    return f" ({'; '.join(options[:OPTIONS_SHOWN])}{more})"


def _of_tor(a: SetRun, b: SetRun) -> Iterator[tuple[str, str]]:
    if not a.tor or not b.tor:
        return
    versions = [sorted({build.version for build in run.tor.values()}) for run in (a, b)]
    if versions[0] != versions[1]:
        yield "tor", f"version: {' and '.join(versions[0])} / {' and '.join(versions[1])}"
        return
    for program in sorted(set(a.tor) & set(b.tor)):
        builds = a.tor[program], b.tor[program]
        if builds[0].sha256 != builds[1].sha256:
            yield "tor", f"build of {program}: {' / '.join(x.sha256[:12] for x in builds)}"
    # Another patch series has another program, so for variants that differ this is no news.
    if a.variant == b.variant and set(a.tor) != set(b.tor):
        yield "tor", f"programs: {' '.join(sorted(a.tor))} / {' '.join(sorted(b.tor))}"


def _number(value: float | None) -> str:
    return "none" if value is None else f"{value:.12g}"


def _short(text: str) -> str:
    return text[:12] if re.fullmatch(r"[0-9a-f]{40,}", text) else text


def settle_about(found: Differences, about: Sequence[str]) -> tuple[str, ...]:
    """What the comparison is about: what was asked, or else the one thing that differs.

    Returns:
        Aspects; none if nothing is known to differ.

    Raises:
        AnalysisError: an unknown aspect, more differs than was asked about, or several things
            differ and nothing was asked.
    """
    for aspect in about:
        if aspect not in ASPECTS:
            raise AnalysisError(
                f"a comparison cannot be about {aspect!r}",
                "\n".join(f"  {name}: {meaning}" for name, meaning in ASPECTS.items()),
            )
    if about:
        beyond = found.beyond(about)
        if beyond:
            raise AnalysisError(
                f"the two sets differ in more than {' and '.join(about)}:\n"
                + _listed(found, beyond),
                "compare sets that differ in one thing only" + _or_name([*about, *beyond]),
            )
        return tuple(about)
    if not found.found:
        return ()
    alone = [aspect for aspect in found.found if aspect in ASPECTS and not found.beyond([aspect])]
    if not alone:
        raise AnalysisError(
            "the two sets differ in more than one thing:\n" + _listed(found, list(found.found)),
            "compare sets that differ in one thing only" + _or_name(list(found.found)),
        )
    return (alone[0],)


def _listed(found: Differences, aspects: Sequence[str]) -> str:
    return "\n".join(
        f"  {aspect}: {detail}"
        for aspect in aspects
        for detail in (*found.found[aspect][:3], *(["..."] if found.found[aspect][3:] else []))
    )


def _or_name(aspects: Sequence[str]) -> str:
    askable = [aspect for aspect in dict.fromkeys(aspects) if aspect in ASPECTS]
    if len(askable) < len(set(aspects) - {"engine files"}):
        return ""
    return f", or ask about all of it: --allow-diff {','.join(askable)}"
