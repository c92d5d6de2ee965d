"""Detection of differences between the inputs of two sets of runs."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain

from analysis.comparison.run_sets import RunSet, SetRun
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
    "project": "this project's version, and therefore the files it writes",
    "machine": "shared libraries, and whether the processor has AES instructions",
}
"""The aspects that a comparison can be about, with their meanings."""

_ASPECT_OF_FILE = (
    (re.compile(r"conf/tor\.variant\.|.*/torrc-defaults\Z"), "variant"),
    (re.compile(r"conf/tor\."), "configuration"),
    (re.compile(r"conf/tgen\."), "load"),
    (re.compile(rf"{re.escape(RUN)}\Z"), "time"),
    (re.compile(rf"conf/network\.gml\Z|conf/resolv\.conf\Z|{re.escape(CLIENTS)}\Z"), "network"),
    (re.compile(rf"{re.escape(HOST_TEMPLATES)}/"), "network"),
)
"""Patterns of the paths of input files, with the aspect to which matching files belong.

A file that matches no pattern belongs to the aspect "engine files".
"""

TORRC = re.compile(r"conf/tor\.[^/]*\.torrc\Z")
"""Input files whose texts a set of runs contains, so that comparisons can list changed options."""

MAX_OPTIONS = 4
"""Maximum number of differing options of torrc files that are listed."""

MAX_VALUE_LENGTH = 60
"""Maximum number of characters of an option's values that are listed for each side."""

_ENGINE_OWN = ("conf/network.gml",)
"""Files that only some engines write, so their absence does not indicate a different network."""

_DRAWN = ("network", "configuration", "engine files")
"""Aspects that depend on the seed and are ignored for runs with different seeds or repeats.

The configuration depends on the seed because the torrc contains the keys of the authorities.
"""

_ALLOWED = ("machine",)
"""Aspects in which two sets may always differ. Such differences are reported but not refused.

Updates of shared libraries change the bytes of runs, but they do not make a comparison unfair.
"""

_COVERED: Mapping[str, Sequence[str]] = {
    # Another version of this project may write any input differently.
    "project": ("network", "load", "time", "configuration", "engine files"),
    # The programs of the hosts are named in the engine's input file.
    "variant": ("engine files",),
    "tor": ("engine files",),
    "engine": ("engine files",),
    # The engine's input file also contains hosts, locations and the end time. The TGen files of
    # clients list the servers.
    "network": ("engine files", "load"),
    "time": ("engine files",),
}
"""Aspect -> other aspects that may differ as a consequence if the sets differ in this aspect."""

Differences = Mapping[str, Sequence[str]]
"""Aspect -> descriptions of the differences in it."""


def classify_file(file: str) -> str:
    """Return the aspect, a key of ``ASPECTS`` or "engine files", to which an input file belongs."""
    return next(
        (aspect for pattern, aspect in _ASPECT_OF_FILE if pattern.match(file)), "engine files"
    )


def differences(a: RunSet, b: RunSet, pairs: Sequence[tuple[SetRun, SetRun]]) -> Differences:
    """Return the differences between the runs of each pair, and between the sets.

    The records of both sets have the same format and definitions.
    """
    texts = {**a.texts, **b.texts}
    found: dict[str, dict[str, None]] = {}
    for aspect, detail in chain(
        *(_pair_differences(run, partner, texts) for run, partner in pairs), _set_differences(a, b)
    ):
        found.setdefault(aspect, {})[detail] = None
    if "engine files" in found and not any(
        "engine files" in covered and aspect in found for aspect, covered in _COVERED.items()
    ):
        # Nothing else explains the difference, so the engine had different options.
        found["engine"] = found.pop("engine files")
    return {name: tuple(details) for name, details in found.items()}


def _set_differences(a: RunSet, b: RunSet) -> Iterator[tuple[str, str]]:
    for level in a.levels:
        other_level = level if level in b.levels else b.levels[0]
        if level not in a.spans or other_level not in b.spans:
            continue
        ours, theirs = a.spans[level], b.spans[other_level]
        for class_name in sorted({*ours.load, *theirs.load}):
            loads = [span.load.get(class_name, {}) for span in (ours, theirs)]
            for name in sorted({*loads[0], *loads[1]}):
                x, y = (load.get(name) for load in loads)
                if x != y:
                    shown = ("none" if one is None else f"{one:.12g}" for one in (x, y))
                    yield "load", f"{class_name} {name}: {' / '.join(shown)}"
        for name in ("measured_start_s", "measured_end_s", "stop_s"):
            x, y = getattr(ours, name), getattr(theirs, name)
            if x != y:
                yield "time", f"{name}: {x:g} / {y:g}"


def _pair_differences(a: SetRun, b: SetRun, texts: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    if a.variant != b.variant:
        yield "variant", f"{a.variant} / {b.variant}"
    yield from _tor_differences(a, b)
    for key in sorted(set(a.engine) | set(b.engine)):
        if a.engine.get(key) != b.engine.get(key):
            x, y = (_short(run.engine.get(key, "none")) for run in (a, b))
            yield "engine", f"{key}: {x} / {y}"
    for name in sorted(set(a.machine) & set(b.machine)):
        if a.machine[name] != b.machine[name]:
            yield "machine", f"{name}: {_short(a.machine[name])} / {_short(b.machine[name])}"
    other_engine = a.engine.get("name") != b.engine.get("name")
    changed: dict[str, list[str]] = {}
    for file in sorted(set(a.files) | set(b.files)) if a.files and b.files else ():
        if a.files.get(file) == b.files.get(file):
            continue
        aspect = classify_file(file)
        if file.startswith(f"{HOST_TEMPLATES}/") and (file in a.files) != (file in b.files):
            # Only one side has this host, so the networks differ.
            aspect = "network"
        if other_engine and (file in _ENGINE_OWN or aspect == "engine files"):
            continue
        if (a.seed, a.repeat) != (b.seed, b.repeat) and aspect in _DRAWN:
            continue
        if aspect == "variant":
            # If both runs have the same variant, the definition of this variant changed.
            if a.variant != b.variant:
                continue
            aspect = "configuration"
        changed.setdefault(aspect, []).append(file)
    for aspect, files in changed.items():
        more = f" and {len(files) - 1} more" if len(files) > 1 else ""
        yield aspect, f"{files[0]}{more}{_options(a, b, files, texts)}"


def _options(a: SetRun, b: SetRun, files: Iterable[str], texts: Mapping[str, str]) -> str:
    """List the options whose values differ between both sides' torrc files; return "" if none do.

    texts: hash of a torrc file -> its text. Files whose text is missing are ignored.
    """
    options: list[str] = []
    for file in files:
        ours, theirs = (texts.get(run.files.get(file, "")) for run in (a, b))
        if ours is not None and theirs is not None:
            options += _changed_options(ours, theirs)
    if not options:
        return ""
    more = f"; and {len(options) - MAX_OPTIONS} more" if len(options) > MAX_OPTIONS else ""
    return f" ({'; '.join(options[:MAX_OPTIONS])}{more})"


def _changed_options(a: str, b: str) -> Iterator[str]:
    """Yield a description of each option that has different values, in the order of the files."""
    ours, theirs = _option_values(a), _option_values(b)
    for name in dict.fromkeys((*ours, *theirs)):
        if ours.get(name) != theirs.get(name):
            values = (", ".join(side.get(name, [])) or "not set" for side in (ours, theirs))
            shown = (
                text if len(text) <= MAX_VALUE_LENGTH else f"{text[:MAX_VALUE_LENGTH]}..."
                for text in values
            )
            yield f"{name}: {' / '.join(shown)}"


def _option_values(torrc: str) -> dict[str, list[str]]:
    """Return the values of each option, one for each line of the torrc that sets the option."""
    values: dict[str, list[str]] = {}
    for line in torrc.splitlines():
        name, _, value = line.partition("#")[0].strip().partition(" ")
        if name:
            values.setdefault(name, []).append(value.strip())
    return values


def _tor_differences(a: SetRun, b: SetRun) -> Iterator[tuple[str, str]]:
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
    # Each patch series has a program of its own, so different variants may run different programs.
    # Report different programs only if the variants are equal.
    if a.variant == b.variant and set(a.tor) != set(b.tor):
        yield "tor", f"programs: {' '.join(sorted(a.tor))} / {' '.join(sorted(b.tor))}"


def _short(text: str) -> str:
    return text[:12] if re.fullmatch(r"[0-9a-f]{40,}", text) else text


def settle_about(found: Differences, about: Sequence[str]) -> tuple[str, ...]:
    """Return ``about`` or, if it is empty, the aspect that differs.

    Returns:
        Aspects; empty if ``about`` is empty and no difference is known.

    Raises:
        AnalysisError: ``about`` has an unknown aspect, other aspects differ as well, or ``about``
            is empty and several aspects differ.
    """
    for aspect in about:
        if aspect not in ASPECTS:
            raise AnalysisError(
                f"a comparison cannot be about {aspect!r}",
                "\n".join(f"  {name}: {meaning}" for name, meaning in ASPECTS.items()),
            )
    if about:
        beyond = _beyond(found, about)
        if not beyond:
            return tuple(about)
        more_than = " and ".join(about)
    else:
        beyond, more_than = list(found), "one aspect"
        if not found:
            return ()
        for aspect in found:
            if aspect in ASPECTS and not _beyond(found, [aspect]):
                return (aspect,)
    listed = [
        f"\n  {aspect}: {detail}"
        for aspect in beyond
        for detail in (*found[aspect][:3], *(["..."] if found[aspect][3:] else []))
    ]
    askable = dict.fromkeys(aspect for aspect in (*about, *beyond) if aspect != "engine files")
    raise AnalysisError(
        f"the two sets differ in more than {more_than}:{''.join(listed)}",
        "compare sets that differ in one aspect only, or allow all of them: "
        f"--allow-diff {','.join(askable)}",
    )


def _beyond(found: Differences, about: Sequence[str]) -> list[str]:
    """Return the aspects in which the sets differ, but must not differ.

    The aspects in ``about`` and ``_ALLOWED`` may differ, and so may the aspects that differ as a
    consequence of ``about`` (see ``_COVERED``).
    """
    covered = {*about}.union(_ALLOWED, *(_COVERED.get(aspect, ()) for aspect in about))
    return [aspect for aspect in found if aspect not in covered]
