"""Load sets of runs by name: an experiment, a variant of it, a pack, a checkout, an import.

A set has one of these names; a colon and a variant can follow, as in ``quick:rr``:

- ``quick``: the runs in results/quick of this checkout;
- a path: a results folder anywhere (with study.json), or the folder of an import;
- a file that `onionlab pack` wrote; ``PACK:quick:rr`` if it has several experiments;
- the path of another checkout: its runs of the experiment and variant of the other set in the
  comparison.
"""

from __future__ import annotations

import contextlib
import hashlib
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from analysis.comparison.differences import TORRC
from analysis.comparison.run_sets import (
    RunSet,
    SetRun,
    Span,
    TorBuild,
    read_run_set,
    values_from_statistics,
)
from analysis.errors import AnalysisError
from analysis.formats import files
from analysis.formats.json_files import read_json
from analysis.formats.manifest import read_manifest
from analysis.formats.plan_file import store_of
from analysis.formats.published import is_published
from analysis.formats.record_files import read_parse_report, read_records_format
from analysis.formats.study import Run, Study, load_study
from analysis.judgement.estimates import read_statistics
from analysis.pages.study_notes import scope_note, simulated
from onionlab.errors import UserError
from onionlab.paths import is_file, is_folder
from onionlab.runs.packing import open_pack, record_hashes
from onionlab.runs.store import Store

_PACK = re.compile(r"(?P<file>.+\.tar\.xz)(:(?P<rest>.*))?")

RECORD_FILES = (files.STREAMS_TABLE, files.GOODPUT_TABLE)

HOW_TO_NAME = (
    "name an experiment that was run (quick), one variant of it (quick:rr), a results folder, "
    "another checkout, a pack of runs (FILE.tar.xz:quick:rr), or an import"
)


@dataclass(frozen=True)
class _Reference:
    """A set of runs that the user has named.

    Attributes:
        text: The name that the user gave.
        folder: The results folder of the set, or the folder in which its pack is unpacked.
        variant: The only variant of the set, or empty if the set contains all variants.
        experiment: The name of the experiment.
        is_packed: Whether the runs are in a pack.
    """

    text: str
    folder: Path
    variant: str
    experiment: str
    is_packed: bool = False

    @property
    def runs(self) -> tuple[Path, str, str]:
        """A value that is equal for two references to the same runs."""
        return self.folder, self.experiment if self.is_packed else "", self.variant


def open_pair(root: Path, a: str, b: str) -> tuple[RunSet, RunSet]:
    """Return the two sets of runs of a comparison.

    Raises:
        UserError: A name is unknown, runs or records are missing, or both sets are the same.
    """
    with contextlib.ExitStack() as stack:
        unpacked: dict[Path, Path] = {}

        def unpack(file: Path) -> Path:
            file = file.resolve()
            if file not in unpacked:
                unpacked[file] = stack.enter_context(open_pack(file, root / "results"))
            return unpacked[file]

        first, second = (_resolve(root, text, unpack) for text in (a, b))
        if first is None and second is None:
            raise UserError(f"neither {a} nor {b} names an experiment", HOW_TO_NAME)
        one, other = first or _in_checkout(a, second), second or _in_checkout(b, first)
        # If only one name has a variant, it applies to both sets, unless they are in one folder.
        if one.folder != other.folder:
            one = replace(one, variant=one.variant or other.variant)
            other = replace(other, variant=other.variant or one.variant)
        if one.runs == other.runs:
            raise UserError(
                f"{a} and {b} are the same runs",
                "name two variants, for instance quick:ewma quick:rr",
            )
        return _load(one), _load(other)


def _resolve(root: Path, text: str, unpack: Callable[[Path], Path]) -> _Reference | None:
    """Return the set that ``text`` names.

    Return None for a checkout, because the other name of the comparison determines its experiment.
    unpack: a function that unpacks a pack and returns the folder.
    """
    if not text.strip():
        raise UserError("a set of runs has no name", HOW_TO_NAME)
    if pack := _PACK.fullmatch(text):
        return _resolve_packed(text, unpack(Path(pack["file"])), pack["rest"] or "")
    path = Path(text)
    if is_folder(path) and not _is_set(path):
        checkout = _checkout(path)
        if (checkout / "results").is_dir() or (checkout / "experiments").is_dir():
            return None
    name, colon, variant = text.rpartition(":")
    if not colon or _is_set(path):
        name, variant = text, ""
    for folder in (Path(name), root / "results" / name):
        if name and _is_set(folder):
            return _Reference(text, folder.resolve(), variant, Path(name).name)
    raise UserError(f"found no runs of {name or text}", HOW_TO_NAME)


def _resolve_packed(text: str, folder: Path, rest: str) -> _Reference:
    experiments = sorted(path.stem for path in (folder / files.STUDIES).glob("*.json"))
    experiment, _, variant = rest.partition(":")
    if experiment not in experiments:
        if len(experiments) != 1 or variant:
            raise UserError(
                f"{text} names no experiment of the pack",
                f"it holds runs of: {', '.join(experiments)}",
            )
        experiment, variant = experiments[0], experiment
    return _Reference(text, folder, variant, experiment, is_packed=True)


def _checkout(path: Path) -> Path:
    """Return a checkout's path. path: the checkout itself, or the folder `runs` in it."""
    return path.parent if path.name == "runs" else path


def _in_checkout(text: str, other: _Reference | None) -> _Reference:
    """Return the set in the checkout ``text`` with the experiment and the variant of ``other``."""
    assert other is not None
    checkout = _checkout(Path(text))
    folder = checkout / "results" / other.experiment
    if not _is_set(folder):
        raise UserError(
            f"{checkout} has no results of {other.experiment}",
            f"run it in that checkout: make experiment NAME={other.experiment}",
        )
    name = f"{text}:{other.experiment}"
    return _Reference(name, folder.resolve(), other.variant, other.experiment)


def _is_set(folder: Path) -> bool:
    return is_file(folder / files.RUN_SET) or is_file(folder / files.STUDY)


def _load(reference: _Reference) -> RunSet:
    folder, variant = reference.folder, reference.variant
    if (folder / files.RUN_SET).is_file():
        run_set = read_run_set(folder / files.RUN_SET)
        return run_set.only(variant) if variant else run_set
    if reference.is_packed:
        study, store = load_study(folder / files.STUDIES / f"{reference.experiment}.json"), folder
        # A pack may have been written before all runs were finished.
        runs = [run for run in study.runs if Store(store).is_finished(run.run_id)]
    else:
        study, store = load_study(folder / files.STUDY), _find_store(folder)
        runs = list(study.runs)
    if variant:
        runs = [run for run in runs if run.variant == variant]
        if not runs:
            raise AnalysisError(
                f"{study.name} has no runs of {variant!r}",
                f"its variants are: {', '.join(variant.name for variant in study.variants)}",
            )
    return load_run_set(study.model_copy(update={"runs": tuple(runs)}), store, name=reference.text)


def _find_store(folder: Path) -> Path:
    """Return the run store in the folder's plan, or else the nearest `runs` above the folder."""
    candidates = []
    plan = folder / files.PLAN
    # Ignore a plan that another version has written in an unsupported format.
    with contextlib.suppress(AnalysisError, KeyError, TypeError):
        candidates.append(store_of(plan, read_json(plan)["store"]))
    candidates += [parent / "runs" for parent in folder.parents]
    for store in candidates:
        if store.is_dir():
            return store
    raise UserError(
        f"{folder} has no store with its runs", "run the experiment again, or name another folder"
    )


def load_run_set(study: Study, store: Path, *, name: str) -> RunSet:
    """Return an experiment's runs with their statistics and the facts of their manifests.

    ``study`` is the experiment's study.json, which lists the runs. ``store`` contains their files.

    Raises:
        AnalysisError: A run is missing, or its manifest or records are missing or damaged.
    """
    if not study.runs:
        raise AnalysisError(f"{name} has no runs", "run the experiment first")
    missing = [run for run in study.runs if not Store(store).is_finished(run.run_id)]
    if missing:
        are = "is" if len(missing) == 1 else "are"
        raise AnalysisError(
            f"{len(missing)} of the {len(study.runs)} runs of {study.name} {are} missing: "
            f"{study.format_runs(missing)}",
            f"make the missing runs: make experiment {_make_variables(study)}",
        )
    runs, formats, notes = [], [], []
    for run in study.runs:
        with study.naming(run):
            runs.append(_set_run(study, store, run))
            formats.append(read_records_format(store / run.records))
        report = read_parse_report(store / run.records / files.PARSE_REPORT)
        if text := report.not_counted():
            notes.append(f"Not counted of {run.run_id}: {text}.")
    return RunSet(
        name=name,
        records_format=max(formats),
        spans={
            level.name: Span(
                measured_start_s=level.measured_start_s,
                measured_end_s=level.measured_end_s,
                stop_s=level.stop_s,
                load={name: entry.model_dump() for name, entry in level.classes.items()},
            )
            for level in study.levels
        },
        margins=study.margins,
        endpoints=study.endpoints,
        looks=study.looks,
        scope=scope_note(study),
        notes=tuple(notes),
        simulated=tuple(simulated(study)),
        runs=tuple(runs),
        values=values_from_statistics(read_statistics(study, store)),
        texts=_torrc_texts(runs, store),
    )


def _torrc_texts(runs: Iterable[SetRun], store: Path) -> dict[str, str]:
    """Return the texts of the runs' torrc files, by SHA-256.

    Files that are missing or have changed since the run are omitted.
    """
    wanted = {
        sha256: store / run.run_id / file
        for run in runs
        for file, sha256 in run.files.items()
        if TORRC.match(file)
    }
    texts = {}
    for sha256, path in wanted.items():
        with contextlib.suppress(OSError, UnicodeDecodeError):
            content = path.read_bytes()
            if hashlib.sha256(content).hexdigest() == sha256:
                texts[sha256] = content.decode()
    return texts


def _make_variables(study: Study) -> str:
    """Return the make variables that request a study's runs."""
    seeds = sorted({run.seed for run in study.runs})
    counted = seeds == list(range(1, len(seeds) + 1))
    scale = study.asked.get("scale", 1)
    values = {
        "NAME": study.name,
        "SCALE": "" if scale == 1 else scale,
        "NETWORKS": len(seeds) if counted else "".join(f"{seed}," for seed in seeds),
        "REPEATS": study.repeats if study.repeats > 1 else "",
    }
    return " ".join(f"{name}={value}" for name, value in values.items() if value)


def _set_run(study: Study, store: Path, run: Run) -> SetRun:
    manifest = read_manifest(Store(store).manifest(run.run_id))
    hashes = record_hashes(store / run.records)
    for name in RECORD_FILES:
        if name not in hashes and not is_published(store / run.records):
            raise AnalysisError(
                f"{store / run.records / name} is missing", "extract the run's records first"
            )
    programs = manifest.identity.get("programs", {})
    return SetRun(
        run_id=run.run_id,
        level=run.level,
        variant=run.variant,
        seed=study.replicate(run),
        repeat=1 if study.scope == "one-network" else run.repeat,
        engine={key: str(value) for key, value in manifest.identity.get("engine", {}).items()},
        tor={
            program: TorBuild(
                version=build.version,
                sha256=str(programs.get(program, build.sha256)),
                source=str(build.source or ""),
            )
            for program, build in manifest.tor.items()
        },
        machine={
            name: str(value)
            for key in ("libraries", "processor")
            for name, value in manifest.identity.get(key, {}).items()
        },
        files=manifest.identity.get("files", {}),
        records={name: hashes[name] for name in RECORD_FILES if name in hashes},
        project=" ".join(part for part in (manifest.onionlab, manifest.commit) if part),
    )
