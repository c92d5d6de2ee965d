"""A paper again: the runs of all experiments that repeat it, then its figures and claims."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
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
from onionlab.experiment.network_settings import RELAY_ROLES
from onionlab.programs.building import NotBuiltError, no_builds
from onionlab.runs.packing import open_packs
from onionlab.runs.plan import Plan, read_plan
from onionlab.runs.planning import make_plan
from onionlab.runs.workflow.drive import make_runs
from onionlab.runs.workflow.executor import Executor
from onionlab.yamlfile.units import show

DEFAULT_CLAIMS = "swrr"
"""Those of `make figures` without CLAIMS."""

FOLDER = "figures"

# What besides the records decides the bytes of a figure.
_DRAWN_WITH = ("matplotlib", "numpy", "scipy")


@dataclass(frozen=True)
class PaperAgain:
    """What was written, and what did not work on the way.

    Attributes:
        paths: of the figures and tables.
        failure: why not all runs could be made, if so.
    """

    paths: paper.PaperResult
    failure: UserError | None


def repeat_paper(
    root: Path,
    claims: str,
    request: Request,
    *,
    jobs: int | None,
    run: bool,
    say: Callable[[str], None],
    executor: Executor | None = None,
    beside: Sequence[Path] = (),
) -> PaperAgain:
    """Make the runs that are missing, and the figures and answers from those that are there.

    request: what to change in every experiment; its own experiment's name is not used. run: whether
    missing runs are made; if not, nothing is built either. A run that fails is missing in figures
    and tables, and all that do not need it are made. beside: packs whose answers stand beside
    these. Raises UserError where claims or experiments are wrong, a tool is missing, or there is no
    run at all.
    """
    wanted = load_claims(claims, root=root)
    out = results_of(root, wanted)
    others = _answers_of(beside, wanted, out)

    def plan_of(name: str) -> Plan:
        asked, place = replace(request, experiment=name), out / "plans" / name
        if run:
            return make_plan(root, asked, say, out=place)
        return _plan_of_what_is_built(root, asked, say, out=place)

    plans = {name: plan_of(name) for name in wanted.experiments}
    failure = None
    if run:
        try:
            make_runs(root, list(plans.values()), jobs=jobs, say=say, executor=executor)
        except UserError as error:
            failure = error
    store = next(iter(plans.values())).store
    try:
        paths = _draw(wanted, [plan.study for plan in plans.values()], store, out, others)
    except UserError as error:
        # With no run at all the reason is what failed, not the empty store.
        if failure is not None:
            raise failure from error
        raise
    return PaperAgain(paths, failure)


def results_of(root: Path, claims: ClaimSet) -> Path:
    """Where figures and answers of a file of claims go: each file has a folder of its own."""
    name = FOLDER if claims.name == DEFAULT_CLAIMS else f"{FOLDER}-{claims.name}"
    return root / "results" / name


def _plan_of_what_is_built(
    root: Path, request: Request, say: Callable[[str], None], *, out: Path
) -> Plan:
    """A plan for which nothing is built; where something would have to be, the last one in ``out``.

    A run's name depends on the programs that it takes, to the bit: without them nobody can tell
    which runs are asked for, unless the same was planned before.

    Raises:
        UserError: the experiment is wrong, or neither its programs nor such a plan are there.
    """
    lines: list[str] = []
    try:
        with no_builds():
            plan = make_plan(root, request, lines.append, out=out)
    except NotBuiltError as lacking:
        last = _last_plan(out)
        if last is None or _asked(last.request) != _asked(request):
            asked = "" if last is None else f" The last plan was for {_words(last.request)}."
            raise UserError(
                f"{request.experiment}: nothing is built with NO_RUN, and without its programs "
                f"its runs have no names ({lacking.message})",
                f"leave NO_RUN out, or take the figures from packs (PACKS=).{asked}",
            ) from lacking
        say(f"{request.experiment}: its programs are not built; these are the runs last planned")
        return last
    for line in lines:
        say(line)
    return plan


def _last_plan(out: Path) -> Plan | None:
    """The plan that an earlier call left, with what the analysis is told; None without."""
    try:
        plan = read_plan(out / PLAN)
        load_study(plan.study)
    except UserError:
        return None
    return plan


def _asked(request: Request) -> Request:
    """What a plan is for, wherever its engine is found."""
    return replace(request, shadow=None, tgen=None)


def _words(request: Request) -> str:
    """What a plan is for, as make takes it."""
    seeds = request.seeds
    listed = seeds if seeds is None or isinstance(seeds, int) else ",".join(map(str, seeds))
    asked = {
        "SCALE": request.scale,
        "NETWORKS": listed,
        "REPEATS": request.repeats,
        "ENGINE": request.engine,
    }
    return ", ".join(f"{name}={value}" for name, value in asked.items() if value is not None)


def published_paper(
    root: Path, claims: str, files: Sequence[Path], beside: Sequence[Path] = ()
) -> PaperAgain:
    """Make the figures and answers from the runs of packs, which needs no build and no engine.

    beside: packs of other runs, whose answers stand beside these. Raises UserError where the claims
    are wrong, a pack is damaged, none has an experiment, or two do not go together.
    """
    wanted = load_claims(claims, root=root)
    out = results_of(root, wanted)
    others = _answers_of(beside, wanted, out)
    with open_packs(files, out) as folder:
        studies = _studies_of(files, folder, wanted)
        return PaperAgain(_draw(wanted, studies, folder, out, others), None)


def _answers_of(packs: Sequence[Path], wanted: ClaimSet, out: Path) -> OtherStudy | None:
    """What the runs of packs answer; None without packs."""
    if not packs:
        return None
    with open_packs(packs, out) as folder:
        content = _content(wanted, _studies_of(packs, folder, wanted))
        title = " and ".join(path.name for path in packs)
        return paper.answer_other_study(content, folder, title)


def _studies_of(packs: Sequence[Path], folder: Path, wanted: ClaimSet) -> list[Path]:
    """The studies of the experiments that claims are about. Raises UserError where one has none."""
    studies = [folder / STUDIES / f"{name}.json" for name in wanted.experiments]
    absent = [path.stem for path in studies if not path.is_file()]
    if absent:
        raise UserError(
            f"{' '.join(map(str, packs))} has no runs of {', '.join(absent)}",
            f"it was written of other results than `make figures CLAIMS={wanted.name}`",
        )
    _require_classes(wanted, studies)
    return studies


def _require_classes(wanted: ClaimSet, studies: Sequence[Path]) -> None:
    """Raise UserError where a claim is of a class that no run has.

    Of experiments on imported networks, only their runs tell it where the networks are not here.
    """
    levels = [level for study in map(load_study, studies) for level in study.levels]
    there = {ALL, *RELAY_ROLES, *(name for level in levels for name in level.classes)}
    for claim in wanted.claims:
        if claim.class_name not in there:
            raise UserError(
                f"claims {wanted.name}, {claim.id}: class: no run has {show(claim.class_name)}",
                f"the runs have {', '.join(sorted(there))}",
            )


def _content(wanted: ClaimSet, studies: Sequence[Path]) -> paper.Paper:
    return paper.Paper(wanted.paper, tuple(map(load_study, studies)), wanted.claims)


def _draw(
    wanted: ClaimSet, studies: Sequence[Path], store: Path, out: Path, beside: OtherStudy | None
) -> paper.PaperResult:
    software = {"onionlab": __version__, **{name: version(name) for name in _DRAWN_WITH}}
    return paper.build(_content(wanted, studies), store, out, software, beside)
