"""Sets of runs by name: an experiment's results, a variant of them, a pack, a checkout, an import.

quick            results/quick of this checkout, all variants
quick:rr         one variant
PATH             a results folder anywhere (it holds study.json), or an import's
PATH:rr          one variant of it
PACK             the runs of a file that `onionlab pack` wrote; PACK:rr: of one variant
PACK:quick:rr    where it holds those of several experiments
CHECKOUT         another checkout: the experiment and variant that the other side names
"""

from __future__ import annotations

import contextlib
import hashlib
import re
from collections.abc import Iterable, Iterator
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
from analysis.formats.published import is_published, read_published
from analysis.formats.record_files import read_parse_report, read_records_format
from analysis.formats.study import Level, Run, Study, load_study
from analysis.judgement.judging import read_statistics
from analysis.pages.study_notes import scope_note, simulated
from onionlab.errors import UserError
from onionlab.paths import is_file, is_folder
from onionlab.runs.packing import open_pack
from onionlab.runs.store import Store

_PACK = re.compile(r"(?P<file>.+\.tar\.xz)(:(?P<rest>.*))?")

RECORD_FILES = (files.STREAMS_TABLE, files.GOODPUT_TABLE)

HOW_TO_NAME = (
    "name an experiment that was run (quick), one variant of it (quick:rr), a results folder, "
    "another checkout, a pack of runs (FILE.tar.xz:quick:rr), or an import"
)


@dataclass(frozen=True)
class Named:
    """A set's name taken apart.

    Attributes:
        folder: where its files are; of a pack, where that is unpacked for the time being.
        experiment: as it was named.
        packed: whether it is an experiment of a pack.
    """

    text: str
    folder: Path
    variant: str
    experiment: str
    packed: bool = False

    @property
    def runs(self) -> tuple[Path, str, str]:
        """What two names of the same runs have in common."""
        return self.folder, self.experiment if self.packed else "", self.variant


def open_pair(root: Path, a: str, b: str) -> tuple[RunSet, RunSet]:
    """The two sets that a comparison names.

    Raises:
        UserError: a name that stands for nothing, runs or records that are missing, or the same
            set twice.
    """
    with _Packs(root / "results") as packs:
        names = _resolve_pair(root, a, b, packs)
        if names[0].runs == names[1].runs:
            raise UserError(
                f"{a} and {b} are the same runs",
                "name two variants, for instance quick:ewma quick:rr",
            )
        return _open(names[0]), _open(names[1])


class _Packs(contextlib.ExitStack):
    """Packs that are unpacked below a folder while the block lasts, each once."""

    def __init__(self, below: Path) -> None:
        super().__init__()
        self._below = below
        self._open: dict[Path, Path] = {}

    def folder(self, file: Path) -> Path:
        """Where its content is. Raises UserError: no pack, or damaged."""
        file = file.resolve()
        if file not in self._open:
            self._open[file] = self.enter_context(open_pack(file, self._below))
        return self._open[file]


def _resolve_pair(root: Path, a: str, b: str, packs: _Packs) -> tuple[Named, Named]:
    first, second = _resolve(root, a, packs), _resolve(root, b, packs)
    if first is None and second is None:
        raise UserError(f"neither {a} nor {b} names an experiment", HOW_TO_NAME)
    one = first or _in_checkout(a, second)
    two = second or _in_checkout(b, first)
    # A variant named on one side is meant on both, unless both are of the same folder.
    if one.folder != two.folder:
        if one.variant and not two.variant:
            two = replace(two, variant=one.variant)
        elif two.variant and not one.variant:
            one = replace(one, variant=two.variant)
    return one, two


def _resolve(root: Path, text: str, packs: _Packs) -> Named | None:
    """None: another checkout, whose experiment the other side has to name."""
    if not text.strip():
        raise UserError("a set of runs has no name", HOW_TO_NAME)
    if pack := _PACK.fullmatch(text):
        return _resolve_packed(text, packs.folder(Path(pack["file"])), pack["rest"] or "")
    path = Path(text)
    if is_folder(path) and not _is_set(path):
        if (path / "results").is_dir() or (path / "experiments").is_dir():
            return None
        if path.name == "runs" and (path.parent / "results").is_dir():
            return None
    name, colon, variant = text.rpartition(":")
    if not colon or _is_set(path):
        name, variant = text, ""
    for folder in (Path(name), root / "results" / name):
        if name and _is_set(folder):
            return Named(text, folder.resolve(), variant, Path(name).name)
    raise UserError(f"there are no runs of {name or text}", HOW_TO_NAME)


def _resolve_packed(text: str, folder: Path, rest: str) -> Named:
    experiments = sorted(path.stem for path in (folder / files.STUDIES).glob("*.json"))
    experiment, _, variant = rest.partition(":")
    if experiment not in experiments:
        if len(experiments) != 1 or variant:
            raise UserError(
                f"{text} names no experiment of the pack",
                f"it holds runs of: {', '.join(experiments)}",
            )
        experiment, variant = experiments[0], experiment
    return Named(text, folder, variant, experiment, packed=True)


def _in_checkout(text: str, other: Named | None) -> Named:
    assert other is not None
    path = Path(text)
    checkout = path.parent if path.name == "runs" else path
    folder = checkout / "results" / other.experiment
    if not _is_set(folder):
        raise UserError(
            f"{checkout} has no results of {other.experiment}",
            f"run it there: make experiment NAME={other.experiment}",
        )
    return Named(f"{text}:{other.experiment}", folder.resolve(), other.variant, other.experiment)


def _is_set(folder: Path) -> bool:
    return is_file(folder / files.RUN_SET) or is_file(folder / files.STUDY)


def _open(named: Named) -> RunSet:
    if (named.folder / files.RUN_SET).is_file():
        made = read_run_set(named.folder / files.RUN_SET)
        return made.only(named.variant) if named.variant else made
    study, store = _packed_study(named) if named.packed else _stored_study(named)
    if named.variant:
        runs = tuple(run for run in study.runs if run.variant == named.variant)
        if not runs:
            raise AnalysisError(
                f"{study.name} has no runs of {named.variant!r}",
                f"its variants are: {', '.join(variant.name for variant in study.variants)}",
            )
        study = study.model_copy(update={"runs": runs})
    return set_of_study(study, store, name=named.text)


def _stored_study(named: Named) -> tuple[Study, Path]:
    return load_study(named.folder / files.STUDY), _store_of(named.folder)


def _packed_study(named: Named) -> tuple[Study, Path]:
    """Of its runs those that are in the pack: it may have been written before all were made."""
    study = load_study(named.folder / files.STUDIES / f"{named.experiment}.json")
    store = Store(named.folder)
    runs = tuple(run for run in study.runs if store.is_finished(run.run_id))
    return study.model_copy(update={"runs": runs}), named.folder


def _store_of(folder: Path) -> Path:
    """Return the run store that a results folder's plan names, or that is next to the folder."""
    candidates = []
    plan = folder / files.PLAN
    # The plan may be of a format that this version does not read otherwise.
    with contextlib.suppress(AnalysisError, KeyError, TypeError):
        candidates.append(store_of(plan, read_json(plan)["store"]))
    candidates += [parent / "runs" for parent in folder.parents]
    for store in candidates:
        if store.is_dir():
            return store
    raise UserError(
        f"the runs behind {folder} are gone", "make the experiment again, or name another folder"
    )


def set_of_study(study: Study, store: Path, *, name: str) -> RunSet:
    """A study's runs with their statistics and what their manifests say.

    Raises:
        AnalysisError: a manifest or records are missing or damaged; says of which run.
    """
    if not study.runs:
        raise AnalysisError(f"{name} has no runs", "run the experiment first")
    _require_runs(study, store)
    runs = tuple(_set_run(study, store, run) for run in study.runs)
    return RunSet(
        name=name,
        records_format=_records_format(study, store),
        spans={level.name: _span(level) for level in study.levels},
        margins=study.margins,
        endpoints=study.endpoints,
        scope=scope_note(study),
        notes=tuple(_not_counted(study, store)),
        simulated=tuple(simulated(study)),
        runs=runs,
        values=values_from_statistics(read_statistics(study, store)),
        texts=_torrc_texts(runs, store),
    )


def _not_counted(study: Study, store: Path) -> Iterator[str]:
    """Yield a note for each run of which a part of the logs did not count."""
    for run in study.runs:
        report = read_parse_report(store / run.records / files.PARSE_REPORT)
        if text := report.not_counted():
            yield f"Not counted of {run.run_id}: {text}."


def _torrc_texts(runs: Iterable[SetRun], store: Path) -> dict[str, str]:
    """SHA-256 -> text of the runs' torrc files, of those that are there: packs leave them out."""
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


def _require_runs(study: Study, store: Path) -> None:
    """Raises AnalysisError, which says in words what is missing, where not all runs are there."""
    missing = [run for run in study.runs if not Store(store).is_finished(run.run_id)]
    if missing:
        are = "is" if len(missing) == 1 else "are"
        raise AnalysisError(
            f"of the {len(study.runs)} runs of {study.name} {len(missing)} {are} missing: "
            f"{study.format_runs(missing)}",
            f"make what is missing: make experiment {_variables(study)}",
        )


def _variables(study: Study) -> str:
    """What asks make for a study's runs."""
    seeds = sorted({run.seed for run in study.runs})
    counted = seeds == list(range(1, len(seeds) + 1))
    scale = study.asked.get("scale", 1)
    asked = {
        "NAME": study.name,
        "SCALE": "" if scale == 1 else scale,
        "NETWORKS": len(seeds) if counted else "".join(f"{seed}," for seed in seeds),
        "REPEATS": study.repeats if study.repeats > 1 else "",
    }
    return " ".join(f"{name}={value}" for name, value in asked.items() if value)


def _records_format(study: Study, store: Path) -> int:
    """The newest among the runs' records, as they say themselves."""

    def format_of(run: Run) -> int:
        with study.naming(run):
            return read_records_format(store / run.records)

    return max(map(format_of, study.runs))


def _span(level: Level) -> Span:
    return Span(
        measured_start_s=level.measured_start_s,
        measured_end_s=level.measured_end_s,
        stop_s=level.stop_s,
        load={name: entry.model_dump() for name, entry in level.classes.items()},
    )


def _set_run(study: Study, store: Path, run: Run) -> SetRun:
    with study.naming(run):
        manifest = read_manifest(Store(store).manifest(run.run_id))
        records = record_hashes(store / run.records)
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
        files=manifest.identity.get("files", {}),
        records=records,
        project=" ".join(part for part in (manifest.onionlab, manifest.commit) if part),
    )


def record_hashes(records: Path) -> dict[str, str]:
    """File -> SHA-256 of a run's record tables; of a published run those that it has them from.

    Raises:
        AnalysisError: one is missing.
    """
    if is_published(records):
        of_all = read_published(records).records
        return {name: of_all[name] for name in RECORD_FILES if name in of_all}
    hashes = {}
    for name in RECORD_FILES:
        try:
            hashes[name] = hashlib.sha256((records / name).read_bytes()).hexdigest()
        except OSError:
            raise AnalysisError(
                f"{records / name} is missing", "extract the run's records first"
            ) from None
    return hashes
