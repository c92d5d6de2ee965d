"""A paper's figures and claims from synthetic runs."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from analysis_synthetic import VARIANTS, digests, read_rows, study_content, write_run
from test_analysis_report import Collector

from analysis.errors import AnalysisError
from analysis.formats.study import Looks, PlannedLooks, Study
from analysis.judgement.claims.claim import Claim
from analysis.pages.claims import CLAIM_COLUMNS
from analysis.pages.paper import Paper, PaperResult, answer_other_study, build
from analysis.records.extract import extract

SEEDS = [1, 2, 3]
SLOW = {"ewma": 1.0, "rr": 1.3, "swrr": 0.8, "log": 1.31}
LOG = {**VARIANTS[2], "name": "log", "label": "SWRR logarithmic", "color": "#332288"}


def claim(name: str, direction: str, variants: str, *levels: str, **other: Any) -> Claim:
    content = {"metrics": ("ttfb_p50_s",), "class_name": "web", "figures": (), **other}
    return Claim(
        id=name,
        statement=f"The claim <{name}> & more.",
        section="5",
        levels=levels,
        variants=tuple(variants.split()),
        direction=direction,
        **content,
    )


GOODPUT = {"metrics": ("goodput_bytes_per_s",), "class_name": "all"}
CLAIMS = (
    claim("fastest", "lowest", "swrr rr ewma", "5mid", figures=(11, 13)),
    claim("slowest", "highest", "swrr rr ewma", "5mid"),
    claim("slower", "rises-against", "rr ewma", "20mid", "5mid"),
    claim("alike", "alike", "rr log", "5mid", **GOODPUT, margin=0.5),
    claim("timeouts", "lowest", "rr ewma", "5mid", metrics=("timeout_rate",)),
)


def study(name: str, level: str, variants: list[dict[str, Any]], papers: list[int]) -> Study:
    content = study_content(SEEDS, [level], variants)
    figures = [
        {**figure, "id": f"figure-{number}", "paper": number}
        for figure, number in zip(content["figures"][:2], papers, strict=True)
    ]
    extra = {"id": "own", "kind": "ttfb-320kib", "level": level}
    return Study.model_validate(
        {
            **content,
            "name": name,
            "baseline": variants[0]["name"],
            "figures": [*figures, extra],
            "provenance": {"engine": {"name": "none", "version": "1"}, "tor": [{"version": "0.4"}]},
        }
    )


STUDIES = (
    study("swrr-20mid", "20mid", VARIANTS, [8, 11]),
    study("swrr-5mid", "5mid", VARIANTS, [10, 13]),
    study("weights-5mid", "5mid", [VARIANTS[2], LOG, VARIANTS[1]], [4, 7]),
)
TABLES = (
    "answer.txt", "claims.csv", "claims.json", "claims.pdf", "claims.png", "figures.html",
    "levels-ewma.csv", "levels-ewma.pdf", "levels-ewma.png", "manifest.json",
)  # fmt: skip
"""Files in the folder of results besides the paper's numbered figures."""

PAPER = Paper("A paper <about> things", STUDIES, CLAIMS)


def with_figures(*papers: int, studies: tuple[Study, ...] = STUDIES) -> Paper:
    """Return a paper with only the figures numbered ``papers``, since drawing one takes seconds."""
    drawn = [tuple(figure for figure in one.figures if figure.paper in papers) for one in studies]
    fewer = zip(studies, drawn, strict=True)
    some = tuple(study.model_copy(update={"figures": figures}) for study, figures in fewer)
    return Paper("A paper", some, CLAIMS)


WITHOUT_FIGURES = with_figures()


def with_seeds(one: Study, *seeds: int) -> Study:
    """Return a copy of ``one`` that keeps only the runs on the networks with these seeds."""
    runs = tuple(run for run in one.runs if run.seed in seeds)
    return one.model_copy(update={"runs": runs})


def write_paper_store(root: Path) -> Path:
    for one in STUDIES:
        for run in one.runs:
            if not (root / run.directory).exists():
                # With many middle relays all variants are equal. With few middle relays they differ
                # by SLOW.
                slow = 1.0 if run.level == "20mid" else SLOW[run.variant]
                write_run(root / run.directory, run.seed, slow, web=5, bulk=1)
                extract(root / run.directory, root / run.records)
    return root


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_paper_store(tmp_path_factory.mktemp("store"))


@pytest.fixture(scope="module")
def made(store: Path, tmp_path_factory: pytest.TempPathFactory) -> PaperResult:
    return build(PAPER, store, tmp_path_factory.mktemp("figures"), {"onionlab": "1"})


@pytest.fixture
def partial_store(store: Path, tmp_path: Path) -> Path:
    """Return a store with links to all runs, from which a test removes some runs."""
    copy = tmp_path / "store"
    copy.mkdir()
    for run in store.iterdir():
        (copy / run.name).symlink_to(run)
    return copy


def read(made: PaperResult, name: str) -> Any:
    return json.loads((made.html.parent / name).read_text())


def read_claims(made: PaperResult, name: str = "claims.csv") -> dict[str, dict[str, str]]:
    return {row["claim"]: row for row in read_rows(made.html.parent / name)}


@pytest.mark.slow
@pytest.mark.always
def test_the_same_store_gives_the_same_bytes(
    store: Path, made: PaperResult, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    moved = tmp_path / "moved"
    shutil.copytree(store, moved)
    out = tmp_path / "out"
    out.mkdir()
    (out / "figure-4.pdf").write_text("of an earlier call")
    build(PAPER, moved, out, {"onionlab": "1"})
    first = digests(out)
    assert first == digests(made.html.parent)
    figures = [f"figure-{n}.{end}" for n in (4, 7, 8, 10, 11, 13) for end in ("csv", "pdf", "png")]
    assert sorted(first) == sorted([*figures, *TABLES])


def test_figures_are_vector_graphics_of_a_columns_width(made: PaperResult) -> None:
    paths = sorted(made.html.parent.glob("figure-*.pdf"))
    assert len(paths) == 6
    for path in paths:
        pdf = path.read_bytes()
        (box,) = re.findall(rb"/MediaBox \[ 0 0 ([0-9.]+) ([0-9.]+) \]", pdf)
        assert float(box[0]) == pytest.approx(3.5 * 72)
        assert b"/FontFile2" in pdf
        assert b"/Subtype /Type3" not in pdf
        assert b"/Subtype /Image" not in pdf
        assert b"Date" not in pdf
        assert path.with_suffix(".png").read_bytes()[:4] == b"\x89PNG"


def test_the_manifest_lists_the_runs_of_a_figure(made: PaperResult) -> None:
    manifest = read(made, "manifest.json")
    assert [figure["paper"] for figure in manifest["figures"]] == [4, 7, 8, 10, 11, 13]
    eleven = manifest["figures"][4]
    assert (eleven["id"], eleven["experiment"]) == ("figure-11", "swrr-20mid")
    assert (eleven["level"], eleven["data"]) == ("20mid", "figure-11.csv")
    assert [run["run_id"] for run in eleven["runs"]][:3] == [f"20mid-ewma-{n}" for n in SEEDS]
    assert len(eleven["runs"]) == 9
    assert eleven["missing"] == []
    assert set(eleven["files"]) == {"figure-11.pdf", "figure-11.png", "figure-11.csv"}
    found = digests(made.html.parent)
    assert all(found[name] == digest for name, digest in eleven["files"].items())
    of_experiment = manifest["experiments"]["swrr-20mid"]
    assert of_experiment["asked"]["seeds"] == SEEDS
    assert of_experiment["engine"] == {"name": "none", "version": "1"}
    assert manifest["software"] == {"onionlab": "1"}


@pytest.mark.usefixtures("svg_only")
def test_studies_with_one_baseline_share_a_plot_of_levels(
    store: Path, made: PaperResult, tmp_path: Path
) -> None:
    folder = made.html.parent
    rows = read_rows(folder / "levels-ewma.csv")
    places = [f"{n} middles at scale 0.1" for n in (20, 5)]
    assert list(dict.fromkeys((r["level"], r["variant"]) for r in rows)) == [
        (place, variant) for place in places for variant in ("Round robin", "SWRR")
    ]
    assert {r["baseline"] for r in rows} == {"EWMA"}
    medians = {r["metric"] for r in rows if r["class"] == "web"}
    assert medians == {"ttfb_p50_s", "time_to_320kib_p50_s"}
    slow = {
        r["level"]: float(r["effect"])
        for r in rows
        if (r["variant"], r["class"], r["metric"]) == ("Round robin", "web", "ttfb_p50_s")
    }
    # The variants were made equal with many middle relays, and different by these factors with few.
    assert slow[places[0]] == pytest.approx(1.0, rel=0.1)
    assert slow[places[1]] == pytest.approx(SLOW["rr"] / SLOW["ewma"], rel=0.1)
    manifest = read(made, "manifest.json")
    assert [set(plot["files"]) for plot in manifest["levels"]] == [
        {f"levels-ewma.{end}" for end in ("csv", "pdf", "png")}
    ]
    assert '<section id="levels">' in made.html.read_text()
    # With a single level there is no plot over levels, and the plot of an earlier call is removed.
    shutil.copytree(folder, tmp_path / "again")
    one_level = with_figures(10, studies=STUDIES[1:])
    page = build(one_level, store, tmp_path / "again").html
    assert not list((tmp_path / "again").glob("levels*"))
    assert '<section id="levels">' not in page.read_text()


@pytest.mark.usefixtures("svg_only")
def test_each_figure_shows_the_runs_of_its_own_experiment(store: Path, tmp_path: Path) -> None:
    _, whole, weights = with_figures(7, 10).studies
    studies = (whole, with_seeds(weights, 1))
    made = build(Paper("A paper", studies, CLAIMS[:1]), store, tmp_path)
    html = made.html.read_text()
    for number, variants, seeds in (
        (7, {"swrr", "log", "rr"}, "1"),
        (10, set(SLOW) - {"log"}, "3"),
    ):
        rows = read_rows(tmp_path / f"figure-{number}.csv")
        assert {row["variant"] for row in rows} == variants
        assert {row["seeds"] for row in rows} == {seeds}
        _, _, caption = html.partition(f"<strong>Figure {number}.")
        caption, _, _ = caption.partition("</figcaption>")
        assert ("One network per variant." in caption) == (seeds == "1")


def test_answers_are_in_both_tables_and_on_the_page(made: PaperResult) -> None:
    rows = read_claims(made)
    assert tuple(next(iter(rows.values()))) == CLAIM_COLUMNS
    assert {name: row["answer"] for name, row in rows.items()} == {
        "fastest": "supported",
        "slowest": "opposite",
        "slower": "supported",
        "alike": "supported",
        "timeouts": "cannot be tested here",
    }
    # The row of `fastest` shows the less certain of its two comparisons: SWRR against EWMA (a ratio
    # of 0.8) or against round robin (0.8 / 1.3 = 0.62).
    assert 0.55 < float(rows["fastest"]["effect"]) < 0.85
    assert float(rows["fastest"]["low"]) < float(rows["fastest"]["effect"])
    assert rows["fastest"]["seeds"] == "3"
    assert rows["timeouts"]["note"] == "timeout rate is 0% in all of these runs"
    assert (rows["timeouts"]["effect"], rows["timeouts"]["seeds"]) == ("", "3")

    data = read(made, "claims.json")["claims"]
    assert [one["id"] for one in data] == [one.id for one in CLAIMS]
    assert [part["text"] for part in data[0]["parts"]] == [
        "5 middles at scale 0.1: SWRR below Round robin",
        "5 middles at scale 0.1: SWRR below EWMA",
    ]
    html = made.html.read_text()
    page = Collector()
    page.feed(html)
    assert page.open == []
    drawn = ["levels-ewma", *(f"figure-{number}" for number in (4, 7, 8, 10, 11, 13))]
    local = {f"{name}.{end}" for name in drawn for end in ("pdf", "png", "csv")}
    assert {r for r in page.resources if not r.startswith(("data:image/svg+xml", "#"))} == local
    assert "Of 5 claims: 3 supported, 1 opposite and 1 cannot be tested here." in html
    assert "The claim &lt;fastest&gt; &amp; more." in html
    assert html.count("data:image/svg+xml") == 8
    assert 'href="#figure-11"' in html
    # On this page the panels of a figure are drawn one above the other, so the caption says "above"
    # and "below".
    assert "first payload byte (above) and 320 KiB (below)" in html
    assert not re.search(r"\bnan\b", re.sub(r"\"data:[^\"]*\"", "", html).lower())


@pytest.mark.usefixtures("svg_only")
def test_missing_runs_are_named_and_the_rest_is_answered(
    partial_store: Path, tmp_path: Path
) -> None:
    for seed in SEEDS:
        (partial_store / f"5mid-ewma-{seed}").unlink()
    (partial_store / "20mid-rr-2").unlink()
    made = build(with_figures(4, 10, 11), partial_store, tmp_path / "out")
    assert len(made.missing) == 4
    rows = read_claims(made)
    answers = {"fastest": "open", "slowest": "opposite", "alike": "supported"}
    assert {name: rows[name]["answer"] for name in answers} == answers
    for name in ("fastest", "slower"):
        assert rows[name]["note"] == "no runs of EWMA at 5 middles at scale 0.1"
    manifest = read(made, "manifest.json")
    by_number = {figure["paper"]: figure for figure in manifest["figures"]}
    assert [run["run_id"] for run in by_number[11]["missing"]] == ["20mid-rr-2"]
    # Networks differ more than variants do, so a figure shows only networks with runs of all
    # variants. These are 1 and 3.
    assert [run["run_id"] for run in by_number[11]["left_out"]] == ["20mid-ewma-2", "20mid-swrr-2"]
    assert {run["seed"] for run in by_number[11]["runs"]} == {1, 3}
    assert {row["seeds"] for row in read_rows(tmp_path / "out" / "figure-11.csv")} == {"2"}
    assert len(by_number[10]["missing"]) == 3
    assert by_number[4]["missing"] == []
    html = made.html.read_text()
    assert "4 of the planned runs are missing:" in html
    assert "Missing: 3 of 9 runs." in html
    assert "2 runs of other networks are excluded" in html


@pytest.mark.usefixtures("svg_only")
def test_a_figure_without_runs_has_a_note(partial_store: Path, tmp_path: Path) -> None:
    for path in partial_store.glob("20mid*"):
        path.unlink()
    made = build(with_figures(8), partial_store, tmp_path / "out")
    assert "No runs." in made.html.read_text()
    assert (
        read_claims(made)["slower"]["note"] == "no runs of Round robin at 20 middles at scale 0.1"
    )
    for path in partial_store.iterdir():
        path.unlink()
    with pytest.raises(AnalysisError, match="none of the 21 runs is in the store"):
        build(PAPER, partial_store, tmp_path / "out")


def changed(number: int, **changes: Any) -> Paper:
    studies = list(STUDIES)
    studies[number] = Study.model_validate(
        {**studies[number].model_dump(), **changes}  # model_copy() would not check the changes
    )
    return Paper("A paper", tuple(studies), CLAIMS)


def test_studies_that_do_not_fit_together_are_refused(store: Path, tmp_path: Path) -> None:
    weights = STUDIES[2].model_dump()
    other = [
        {**run, "run_id": "other"} if run["variant"] == "swrr" else run for run in weights["runs"]
    ]
    longer = [{**weights["levels"][0], "measured_end_s": 1000.0}]
    twice = [{**weights["figures"][0], "paper": 13}]
    same = [{**weights["figures"][0], "id": "figure-13"}]
    margins = [changed(n, margins={"ttfb_p50_s": 0.05 * n}).studies[n] for n in (1, 2)]
    for paper, message in (
        (changed(2, runs=other), "have different runs of swrr at the level 5mid"),
        (changed(2, levels=longer), "measure the level 5mid differently"),
        (changed(2, figures=twice), "swrr-5mid and weights-5mid both draw figure 13"),
        (changed(2, figures=same), "two figures of the paper have the name figure-13"),
        (Paper("A paper", tuple(margins), CLAIMS), "different margins for ttfb_p50_s"),
        (Paper("A paper", WITHOUT_FIGURES.studies, ()), "no figure of these experiments has"),
    ):
        with pytest.raises(AnalysisError, match=message):
            build(paper, store, tmp_path)


@pytest.mark.usefixtures("svg_only")
def test_answers_of_other_runs(store: Path, tmp_path: Path) -> None:
    one_seed = Paper("A paper", (with_seeds(STUDIES[1], 1),), CLAIMS)
    other_study = answer_other_study(one_seed, store, "one-seed.tar.xz")
    made = build(WITHOUT_FIGURES, store, tmp_path, other_study=other_study)
    table = tmp_path / "claims-beside.csv"
    rows = read_claims(made, table.name)
    assert list(rows) == [claim.id for claim in CLAIMS], "in the order of the paper"
    fastest = rows["fastest"]
    assert (fastest["answer"], fastest["seeds"]) == ("supported", "3")
    assert (fastest["answer_beside"], fastest["seeds_beside"]) == ("open", "1")
    assert fastest["low"]
    assert not fastest["low_beside"]
    assert fastest["note_beside"] == "one pair: no spread to judge by"
    assert rows["timeouts"]["answer"] == rows["timeouts"]["answer_beside"]
    html = made.html.read_text()
    assert "The runs of one-seed.tar.xz give 1 of the 5 claims the same answer." in html
    # The paper on cell times has claims, too, but does not number its graphs.
    assert not list(tmp_path.glob("figure-*"))
    assert "The figures of swrr-20mid, swrr-5mid, weights-5mid are in their own reports." in html
    build(WITHOUT_FIGURES, store, tmp_path)
    assert not table.exists(), "of an earlier call"
    with pytest.raises(AnalysisError, match=r"other\.tar\.xz: none of the runs exists"):
        answer_other_study(PAPER, tmp_path, "other.tar.xz")


@pytest.mark.usefixtures("svg_only")
def test_figures_of_other_claims_are_removed(store: Path, tmp_path: Path) -> None:
    studies = STUDIES[1:]  # These studies have one level, so no plot over levels is drawn.
    build(with_figures(4, 10, studies=studies), store, tmp_path)
    (tmp_path / "figure-of-mine.png").write_text("kept")
    (tmp_path / "figure-4.pdf").unlink()
    build(with_figures(studies=studies), store, tmp_path)
    kept = {name for name in TABLES if not name.startswith("levels")}
    assert {path.name for path in tmp_path.iterdir()} == {*kept, "figure-of-mine.png"}
    (tmp_path / "manifest.json").write_text("[]")
    build(with_figures(10, studies=studies), store, tmp_path)
    assert (tmp_path / "figure-10.pdf").is_file()


@pytest.mark.usefixtures("svg_only")
@pytest.mark.parametrize(
    ("looks", "told"),
    [
        (None, False),
        (Looks((3,), 3), False),
        (Looks((1, 3), 3), False),
        (Looks((2, 3), 3), True),
        (Looks((3,), 3, (PlannedLooks((2,), 2),)), True),
    ],
)
def test_networks_added_after_looks_have_a_note(
    store: Path, tmp_path: Path, looks: Looks | None, told: bool
) -> None:
    grown = WITHOUT_FIGURES.studies[0].model_copy(update={"looks": looks})
    paper = Paper("A paper", (grown,), CLAIMS)
    html = build(paper, store, tmp_path).html.read_text(encoding="utf-8")
    assert ("Networks were added to swrr-20mid after looks" in html) == told
