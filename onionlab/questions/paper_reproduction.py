"""Reproduce a paper: run all experiments that repeat it, draw its figures and test its claims."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path

from analysis.formats.files import PLAN, STUDIES
from analysis.formats.plan_file import Request
from analysis.formats.study import load_study
from analysis.measures.data import ALL
from analysis.pages import paper
from analysis.pages.claims import OtherStudy
from onionlab import __version__
from onionlab.errors import UserError
from onionlab.experiment.claims_file import ClaimSet, load_claims
from onionlab.network.layout import RELAY_ROLES
from onionlab.programs.building import NotBuiltError, no_builds
from onionlab.runs.packing import open_packs
from onionlab.runs.plan import Plan, make_plan, read_plan
from onionlab.runs.workflow.drive import make_runs
from onionlab.runs.workflow.executor import Where
from onionlab.yamlfile.units import show

LOG = logging.getLogger(__name__)
DEFAULT_CLAIMS = "swrr"
FOLDER = "figures"
_LIBRARIES = ("matplotlib", "numpy", "scipy")
"""Libraries that affect the bytes of a figure."""


def reproduce_paper(
    root: Path,
    claims: str,
    request: Request,
    *,
    where: Where,
    run: bool,
    compare_with: Sequence[Path] = (),
) -> tuple[paper.PaperResult, UserError | None]:
    """Perform the missing runs, draw the figures and answer the claims.

    If a run fails, the other runs are still performed, and the error is returned with the result.
    Figures and tables lack the failed run.

    Args:
        root: The checkout.
        claims: Name or path of a file of claims.
        request: Settings that replace those of every experiment.
        where: Where the simulations run.
        run: Whether to perform missing runs. If this is False, nothing is built either.
        compare_with: Packs of other runs. The answers from these runs are shown in addition.

    Raises:
        UserError: Claims or experiments are invalid, a tool is missing, or no run is finished.
    """
    wanted = load_claims(claims, root=root)
    out = _results_folder(root, wanted)
    other = _answer_other_study(compare_with, wanted, out)
    plan = make_plan if run else _plan_without_building
    plans = [
        plan(root, replace(request, experiment=name), out=out / "plans" / name)
        for name in wanted.experiments
    ]
    failure = None
    if run:
        try:
            make_runs(root, plans, where)
        except UserError as error:
            failure = error
    try:
        paths = _draw(wanted, [plan.study for plan in plans], plans[0].store, out, other)
    except UserError as error:
        # No run is finished. If a run has failed, report this failure as the reason.
        if failure is not None:
            raise failure from error
        raise
    return paths, failure


def reproduce_from_packs(
    root: Path, claims: str, packs: Sequence[Path], compare_with: Sequence[Path] = ()
) -> paper.PaperResult:
    """Draw the figures and answer the claims from packs, without any build or engine.

    Raises:
        UserError: The claims are invalid, a pack is damaged, an experiment is in none of the packs,
            or two packs have different studies of an experiment.
    """
    wanted = load_claims(claims, root=root)
    out = _results_folder(root, wanted)
    other = _answer_other_study(compare_with, wanted, out)
    with open_packs(packs, out) as folder:
        studies = _find_studies(packs, folder, wanted)
        return _draw(wanted, studies, folder, out, other)


def _results_folder(root: Path, claims: ClaimSet) -> Path:
    """Return the folder of figures and answers. Each file of claims has a separate folder."""
    name = FOLDER if claims.name == DEFAULT_CLAIMS else f"{FOLDER}-{claims.name}"
    return root / "results" / name


def _plan_without_building(root: Path, request: Request, *, out: Path) -> Plan:
    """Return a new plan if all programs are built, and otherwise the last plan in ``out``.

    A run's name depends on its programs. Without them, the names of runs are known only from an
    earlier plan of the same request.

    Raises:
        UserError: The experiment is invalid, or its programs and an earlier plan are both missing.
    """
    try:
        with no_builds():
            return make_plan(root, request, out=out)
    except NotBuiltError as lacking:
        name, last_request = request.experiment, ""
        try:
            last = read_plan(out / PLAN)
            load_study(last.study)
        except UserError:
            pass
        else:
            # The paths of Shadow and TGen do not matter, because nothing is run.
            if replace(last.request, shadow=request.shadow, tgen=request.tgen) == request:
                LOG.info("%s: its programs are not built; these are the runs last planned", name)
                return last
            last_request = f" The last plan was for {_describe(last.request)}."
        raise UserError(
            f"{name}: nothing is built with NO_RUN, and without its programs its runs have no "
            f"names ({lacking.message})",
            f"leave NO_RUN out, or take the figures from packs (PACKS=).{last_request}",
        ) from lacking


def _describe(request: Request) -> str:
    """Return a request as a string of make variables."""
    seeds = request.seeds
    listed = seeds if seeds is None or isinstance(seeds, int) else ",".join(map(str, seeds))
    values = {
        "SCALE": request.scale,
        "NETWORKS": listed,
        "REPEATS": request.repeats,
        "ENGINE": request.engine,
    }
    return ", ".join(f"{name}={value}" for name, value in values.items() if value is not None)


def _answer_other_study(packs: Sequence[Path], wanted: ClaimSet, out: Path) -> OtherStudy | None:
    """Return the answers to the claims from the runs of packs; None if there are no packs."""
    if not packs:
        return None
    with open_packs(packs, out) as folder:
        content = _content(wanted, _find_studies(packs, folder, wanted))
        title = " and ".join(path.name for path in packs)
        return paper.answer_other_study(content, folder, title)


def _find_studies(packs: Sequence[Path], folder: Path, wanted: ClaimSet) -> list[Path]:
    """Return the path of the study of each experiment that the claims use, in the unpacked packs.

    A study is a JSON file that describes an experiment and its runs for the analysis.

    Raises:
        UserError: The packs have no study of an experiment, or no run has the class of a claim. The
            class is checked here, because only the runs show the classes of imported networks.
    """
    studies = [folder / STUDIES / f"{name}.json" for name in wanted.experiments]
    absent = [path.stem for path in studies if not path.is_file()]
    if absent:
        raise UserError(
            f"there are no runs of {', '.join(absent)} in {' '.join(map(str, packs))}",
            f"add packs of them; `make pack NAME={_results_folder(Path(), wanted).name}` packs all "
            "experiments of a paper",
        )
    levels = [level for study in map(load_study, studies) for level in study.levels]
    classes = {ALL, *RELAY_ROLES, *(name for level in levels for name in level.classes)}
    for claim in wanted.claims:
        if claim.class_name not in classes:
            raise UserError(
                f"claims {wanted.name}, {claim.id}: class: no run has {show(claim.class_name)}",
                f"the runs have {', '.join(sorted(classes))}",
            )
    return studies


def _content(wanted: ClaimSet, studies: Sequence[Path]) -> paper.Paper:
    return paper.Paper(wanted.paper, tuple(map(load_study, studies)), wanted.claims)


def _draw(
    wanted: ClaimSet, studies: Sequence[Path], store: Path, out: Path, other: OtherStudy | None
) -> paper.PaperResult:
    software = {"onionlab": __version__, **{name: version(name) for name in _LIBRARIES}}
    return paper.build(_content(wanted, studies), store, out, software, other)
