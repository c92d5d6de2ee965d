"""A paper's figures and claims from the runs that repeat it: one folder, one manifest, one page.

The same runs give the same bytes. Runs that are not there are named wherever they are missed.
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

from analysis.errors import AnalysisError
from analysis.figures.catalogue import check_kind
from analysis.figures.figure_data import FigureData
from analysis.figures.style import COLUMN
from analysis.figures.writing import FigurePaths, write_figure
from analysis.formats import files
from analysis.formats.json_files import read_json
from analysis.formats.study import Run, Study
from analysis.inference.intervals import CONFIDENCE, Interval
from analysis.judgement.claims.answers import answer_claims
from analysis.judgement.claims.claim import Answer, Answered, Claim, Names, Part
from analysis.judgement.judging import Statistics, add_run
from analysis.judgement.verdicts import LEVEL
from analysis.measures.run_data import load_run
from analysis.pages.html import environment, image_uri, replaced
from analysis.pages.numbers import NOTHING, exact, format_interval, format_number, scaled

MANIFEST_FORMAT = 1

CLAIM_COLUMNS = (
    "claim", "section", "figures", "statement", "direction", "metrics", "class", "levels",
    "variants", "answer", "part", "metric", "scale", "effect", "low", "high", "margin",
    "p_different", "p_equivalent", "seeds", "more_seeds", "note",
)  # fmt: skip

Key = tuple[str, str, int]
"""Level, variant and seed of a run."""


@dataclass(frozen=True)
class Paper:
    """What is to be repeated.

    Attributes:
        title: which paper.
        studies: the experiments that repeat it; the same level, variant and seed is the same run in
            all of them.
        claims: what it says.
    """

    title: str
    studies: tuple[Study, ...]
    claims: tuple[Claim, ...]


@dataclass(frozen=True)
class PaperPaths:
    """What ``build`` wrote, and the answers."""

    html: Path
    manifest: Path
    claims_csv: Path
    claims_json: Path
    figures: tuple[FigurePaths, ...]
    answers: tuple[Answered, ...]
    missing: tuple[Run, ...]


@dataclass(frozen=True)
class _Drawing:
    """One of the paper's figures: whose it is and which runs it shows, leaves out and lacks."""

    number: int
    study: Study
    data: FigureData
    shown: tuple[Run, ...]
    left_out: tuple[Run, ...]
    missing: tuple[Run, ...]


def build(
    paper: Paper, store: Path, out: Path, software: Mapping[str, str] | None = None
) -> PaperPaths:
    """Writes the figures, claims.csv, claims.json, manifest.json and figures.html into ``out``.

    Args:
        paper: with every run that there should be.
        store: directory to which the studies' run and record directories are relative.
        out: made if missing; what an earlier call wrote there is replaced.
        software: names and versions of what made the runs, for the manifest.

    Raises:
        AnalysisError: the studies do not fit together, there is nothing to draw, no run at all is
            there, or records are damaged.
    """
    runs = _distinct_runs(paper.studies)
    there = {key: run for key, run in runs.items() if _has_records(run, store)}
    missing = tuple(run for key, run in runs.items() if key not in there)
    drawings = _drawings(paper.studies, there)
    if not (drawings or paper.claims):
        raise AnalysisError(
            "there is no claim to answer, and no figure of these experiments has a number in the "
            "paper",
            "give one to each: figures: [{..., paper: 8}]",
        )
    if not there:
        raise AnalysisError(
            f"none of the {len(runs)} runs is in the store", "make them first: make figures"
        )
    statistics: Statistics = {}
    levels = {level.name: level for study in paper.studies for level in study.levels}
    # One run's records at a time, and each once, though several figures show it.
    for run in there.values():
        data = load_run(store / run.records, levels[run.level])
        add_run(statistics, run, data)
        for drawing in drawings:
            if _key(run) in map(_key, drawing.shown):
                drawing.data.add(run.variant, run.seed, data, levels[run.level])
    answers = tuple(
        answer_claims(paper.claims, statistics, _margins(paper.studies), _names(paper.studies))
    )
    out.mkdir(parents=True, exist_ok=True)
    drawn_names = [f"{d.data.spec.id}.{end}" for d in drawings for end in ("pdf", "png", "csv")]
    tables = (files.CLAIMS_CSV, files.CLAIMS_JSON, files.FIGURES_INDEX, files.FIGURES_PAGE)
    # Of an earlier call with other claims, or with figures that have other names now.
    stale = _drawn_before(out / files.FIGURES_INDEX) - set(drawn_names)
    with replaced(out, [*drawn_names, *tables]) as scratch:
        drawn = [write_figure(d.data, d.study, scratch, COLUMN) for d in drawings]
        (scratch / files.CLAIMS_CSV).write_text(_claims_csv(answers), encoding="utf-8")
        (scratch / files.CLAIMS_JSON).write_text(
            _json(_claims_data(paper, answers)), encoding="utf-8"
        )
        manifest = _manifest(paper, drawings, drawn, dict(software or {}))
        (scratch / files.FIGURES_INDEX).write_text(_json(manifest), encoding="utf-8")
        html = _page(paper, drawings, drawn, answers, missing, manifest)
        (scratch / files.FIGURES_PAGE).write_text(html, encoding="utf-8")
    for name in stale:
        (out / name).unlink(missing_ok=True)
    return PaperPaths(
        html=out / files.FIGURES_PAGE,
        manifest=out / files.FIGURES_INDEX,
        claims_csv=out / files.CLAIMS_CSV,
        claims_json=out / files.CLAIMS_JSON,
        figures=tuple(paths.moved_to(out) for paths in drawn),
        answers=answers,
        missing=missing,
    )


def _drawn_before(manifest: Path) -> set[str]:
    """The figures' files that an earlier manifest lists; none where there is no such manifest."""
    try:
        figures = read_json(manifest)["figures"]
        return {Path(name).name for figure in figures for name in figure["files"]}
    except (AnalysisError, KeyError, TypeError):
        return set()


def _has_records(run: Run, store: Path) -> bool:
    return (store / run.records / files.PARSE_REPORT).is_file()


def _key(run: Run) -> Key:
    return run.level, run.variant, run.seed


def _distinct_runs(studies: Sequence[Study]) -> dict[Key, Run]:
    """All runs, those that several studies share once, by level, variant and seed."""
    runs: dict[Key, tuple[Study, Run]] = {}
    levels: dict[str, tuple[Study, object]] = {}
    for study in studies:
        for level in study.levels:
            first, same = levels.setdefault(level.name, (study, level))
            if level != same:
                raise AnalysisError(
                    f"{first.name} and {study.name} measure the level {level.name} differently",
                    "claims are about one setting for each level: see the two experiments' files",
                )
        for run in study.runs:
            first, known = runs.setdefault(_key(run), (study, run))
            if run.run_id != known.run_id:
                raise AnalysisError(
                    f"{first.name} and {study.name} have different runs of {run.variant} at the "
                    f"level {run.level}, seed {run.seed}",
                    "their settings have to be the same: see the two experiments' files",
                )
    return {key: runs[key][1] for key in sorted(runs)}


def _drawings(studies: Sequence[Study], there: Mapping[Key, Run]) -> list[_Drawing]:
    """The figures that have a number in the paper, by that number."""
    drawings: dict[int, _Drawing] = {}
    for study in studies:
        for spec in study.figures:
            if spec.paper is None:
                continue
            check_kind(spec)
            if spec.paper in drawings:
                other = drawings[spec.paper].study.name
                raise AnalysisError(f"{other} and {study.name} both draw figure {spec.paper}")
            data = FigureData(spec, study.level(spec.level), study.baseline)
            shown = [
                _runs_to_show(study, level.name, there)
                for level in study.levels
                if data.takes(level)
            ]
            drawings[spec.paper] = _Drawing(
                spec.paper, study, data, *(tuple(chain(*runs)) for runs in zip(*shown, strict=True))
            )
    ids = [drawing.data.spec.id for drawing in drawings.values()]
    for name in ids:
        if ids.count(name) > 1:
            raise AnalysisError(f"two figures of the paper have the name {name}")
    return [drawings[number] for number in sorted(drawings)]


def _runs_to_show(
    study: Study, level: str, there: Mapping[Key, Run]
) -> tuple[tuple[Run, ...], tuple[Run, ...], tuple[Run, ...]]:
    """A level's runs that are shown, those that are left out and those that are missing.

    Seeds differ by more than variants do, so where runs are missing lines of different seeds would
    show a difference that is none: only the seeds are shown that all variants with runs have.
    """
    runs = [run for v in study.variants for run in study.runs_of(level, v.name)]
    present = [run for run in runs if _key(run) in there]
    missing = tuple(run for run in runs if run not in present)
    seeds = {
        variant: {run.seed for run in present if run.variant == variant}
        for variant in dict.fromkeys(run.variant for run in present)
    }
    common = set.intersection(*seeds.values()) if seeds else set()
    shown = tuple(run for run in present if run.seed in common or not common)
    return shown, tuple(run for run in present if run not in shown), missing


def _margins(studies: Sequence[Study]) -> dict[str, float]:
    margins: dict[str, float] = {}
    for study in studies:
        for metric, margin in study.margins.items():
            if margins.setdefault(metric, margin) != margin:
                raise AnalysisError(
                    f"the experiments have different margins for {metric}",
                    "a claim may set its own: margin",
                )
    return margins


def _names(studies: Sequence[Study]) -> Names:
    return Names(
        {level.name: level.label for study in studies for level in study.levels},
        {variant.name: variant.label for study in studies for variant in study.variants},
    )


def _number(value: float | None) -> float | None:
    # Nine digits are more than any metric has, and the same on every machine.
    return None if value is None else float(f"{value:.9g}")


def _bounds(effect: Interval | None) -> tuple[float | None, float | None, float | None]:
    return (None, None, None) if effect is None else (effect.estimate, effect.low, effect.high)


def _claims_csv(answers: Sequence[Answered]) -> str:
    """One line per claim, with the part on which its answer rests."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(CLAIM_COLUMNS)
    for answered in answers:
        claim, part = answered.claim, answered.deciding
        effect = part.effect
        writer.writerow(
            [
                claim.id,
                claim.section,
                " ".join(map(str, claim.figures)),
                claim.statement,
                claim.direction,
                " ".join(claim.metrics),
                claim.class_name,
                " ".join(claim.levels),
                " ".join(claim.variants),
                answered.answer.value,
                part.text,
                part.metric.name,
                part.scale if effect else "",
                *(exact(value) for value in _bounds(effect)),
                exact(part.margin),
                exact(part.p_different),
                exact(part.p_equivalent),
                answered.seeds,
                "" if answered.more_seeds is None else answered.more_seeds,
                part.reason,
            ]
        )
    return text.getvalue()


def _claims_data(paper: Paper, answers: Sequence[Answered]) -> dict[str, Any]:
    """All claims with all their parts, as plain data."""
    return {
        "paper": paper.title,
        "error_level": LEVEL,
        "confidence": CONFIDENCE,
        "claims": [
            {
                "id": answered.claim.id,
                "statement": answered.claim.statement,
                "section": answered.claim.section,
                "figures": list(answered.claim.figures),
                "direction": answered.claim.direction,
                "metrics": list(answered.claim.metrics),
                "class": answered.claim.class_name,
                "levels": list(answered.claim.levels),
                "variants": list(answered.claim.variants),
                "answer": answered.answer.value,
                "seeds": answered.seeds,
                "more_seeds": answered.more_seeds,
                "deciding_part": answered.parts.index(answered.deciding),
                "parts": [_part_data(part) for part in answered.parts],
            }
            for answered in answers
        ],
    }


def _part_data(part: Part) -> dict[str, Any]:
    effect = part.effect
    return {
        "text": part.text,
        "metric": part.metric.name,
        "answer": part.answer.value,
        "scale": part.scale if effect else None,
        **dict(zip(("effect", "low", "high"), map(_number, _bounds(effect)), strict=True)),
        "margin": _number(part.margin),
        "p_different": _number(part.p_different),
        "p_equivalent": _number(part.p_equivalent),
        "seeds": part.count,
        "more_seeds": part.more_seeds,
        "note": part.reason,
    }


def _manifest(
    paper: Paper,
    drawings: Sequence[_Drawing],
    drawn: Sequence[FigurePaths],
    software: dict[str, str],
) -> dict[str, Any]:
    """Which figure is of which runs, made with what."""
    return {
        "format": MANIFEST_FORMAT,
        "paper": paper.title,
        "software": software,
        "records_format": files.RECORDS_FORMAT,
        "experiments": {
            study.name: {
                "asked": study.asked,
                "shrunk": list(study.shrunk),
                "engine": study.provenance.get("engine"),
                "tor": study.provenance.get("tor"),
            }
            for study in paper.studies
        },
        "figures": [
            {
                "paper": drawing.number,
                "id": drawing.data.spec.id,
                "title": drawing.data.spec.title,
                "kind": drawing.data.spec.kind,
                "level": drawing.data.level.name,
                "experiment": drawing.study.name,
                "files": {
                    path.name: hashlib.sha256(path.read_bytes()).hexdigest()
                    for path in (paths.pdf, paths.png, paths.csv)
                },
                "data": paths.csv.name,
                "runs": _run_list(drawing.shown),
                "left_out": _run_list(drawing.left_out),
                "missing": _run_list(drawing.missing),
            }
            for drawing, paths in zip(drawings, drawn, strict=True)
        ],
    }


def _run_list(runs: Sequence[Run]) -> list[dict[str, Any]]:
    return [{"run_id": run.run_id, "variant": run.variant, "seed": run.seed} for run in runs]


def _json(value: object) -> str:
    return json.dumps(value, indent=2, sort_keys=True, ensure_ascii=False, allow_nan=False) + "\n"


def _page(
    paper: Paper,
    drawings: Sequence[_Drawing],
    drawn: Sequence[FigurePaths],
    answers: Sequence[Answered],
    missing: Sequence[Run],
    manifest: Mapping[str, Any],
) -> str:
    numbers = {drawing.number for drawing in drawings}
    values = {
        "title": paper.title,
        "confidence": round(100 * CONFIDENCE),
        "error_level": round(100 * LEVEL),
        "tally": {answer.value: _count(answers, answer) for answer in Answer},
        "claims": [_claim_row(answered, numbers) for answered in answers],
        "figures": [
            {
                "number": drawing.number,
                "title": drawing.data.spec.title,
                "paths": paths,
                "uri": image_uri(paths.svg),
                "shown": len(drawing.shown),
                "left_out": len(drawing.left_out),
                "missing": len(drawing.missing),
            }
            for drawing, paths in zip(drawings, drawn, strict=True)
        ],
        "missing": missing,
        "studies": paper.studies,
        "provenance": _json({name: manifest[name] for name in ("software", "experiments")}),
    }
    return environment().get_template("paper.html.j2").render(values)


def _count(answers: Sequence[Answered], answer: Answer) -> int:
    return sum(answered.answer is answer for answered in answers)


def _claim_row(answered: Answered, numbers: set[int]) -> dict[str, Any]:
    return {
        "claim": answered.claim,
        "linked": [number for number in answered.claim.figures if number in numbers],
        "answer": answered.answer.value,
        "deciding": _part_row(answered.deciding),
        "parts": [_part_row(part) for part in answered.parts],
        "seeds": answered.seeds,
    }


def _part_row(part: Part) -> dict[str, Any]:
    effect, interval = _effect_text(part)
    note = part.reason
    if not note and part.more_seeds is not None:
        note = f"about {part.more_seeds} more {'seed' if part.more_seeds == 1 else 'seeds'}"
    return {
        "text": part.text,
        "metric": part.metric.label,
        "answer": part.answer.value,
        "effect": effect,
        "interval": interval,
        "note": note,
    }


def _effect_text(part: Part) -> tuple[str, str]:
    """An effect for readers: a factor, or a difference, of rates in percentage points."""
    if part.effect is None:
        return NOTHING, ""
    if part.scale == "ratio":
        bounds = (part.effect.low, part.effect.high)
        low, high = (None if bound is None else _factor(bound) for bound in bounds)
        interval = f"[{low}, {high}]" if low is not None and high is not None else ""
        return f"\N{MULTIPLICATION SIGN}{_factor(part.effect.estimate)}", interval
    factor, unit = (100.0, " points") if part.metric.unit == "1" else (1.0, f" {part.metric.unit}")
    estimate = format_number(part.effect.estimate * factor, sign=True)
    return estimate + unit, format_interval(scaled(part.effect, factor), sign=True)


def _factor(value: float) -> str:
    # From two seeds an interval may reach any size; more digits would say no more.
    if value > 1000:
        return ">1000"
    return f"{value:.3f}" if value >= 0.001 else "<0.001"
