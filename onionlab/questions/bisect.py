"""Find the first commit of Tor at which an endpoint of an experiment got worse.

The finished builds and runs alone determine which commit is tested next, and on how many networks
(``analysis.judgement.bisection``). No other state is stored, so the same command continues a search
that was interrupted. GOOD and BAD are the two commits between which a search takes place.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from analysis.formats.plan_file import Request
from analysis.formats.study import Looks, Study, load_study
from analysis.judgement.bisection import (
    FIRST_LOOK,
    Decision,
    Examination,
    decide_commit,
    find_first_bad,
    look_sizes,
)
from analysis.judgement.estimates import Statistics, read_statistics
from analysis.judgement.judging import USUAL_ENDPOINTS, Design, judge_comparison, usual_endpoints
from analysis.judgement.verdicts import LEVEL, Verdict
from analysis.measures.catalogue import OWN
from analysis.measures.data import ALL
from analysis.measures.metric import Quantity
from analysis.pages.bisection import Bisection, write
from analysis.pages.numbers import format_effect
from onionlab.engines import open_engine
from onionlab.errors import UserError
from onionlab.experiment import Experiment, load
from onionlab.paths import build_directory
from onionlab.programs.building import BuildFailedError
from onionlab.programs.git import find_commit, first_bad_candidates, list_commits, merge_base
from onionlab.programs.tor.build import BuiltTor, ensure_builds
from onionlab.programs.tor.build_trees import tor_directory
from onionlab.programs.tor.tor_source import TorSource, find_tor_source
from onionlab.programs.tor.variants import TorBuild
from onionlab.questions.tor_commits import require_tor, shorten, slug, write_experiment
from onionlab.runs.plan import make_plan
from onionlab.runs.workflow.drive import make_runs
from onionlab.runs.workflow.executor import Where
from onionlab.yamlfile.units import nearest, show

LOG = logging.getLogger(__name__)

TOO_FEW_STREAMS = "too few streams"
"""The beginning of a verdict's reason if GOOD or BAD has too few streams for the endpoint."""


@dataclass(frozen=True)
class BisectRequest:
    """The commits, the endpoint and the experiment of a search.

    Attributes:
        repository: A local git repository of Tor.
        good, bad: A branch, tag or hash of this repository; ``good`` is an ancestor of ``bad``.
        endpoint: Name of a metric, or CLASS:METRIC.
        runs: The experiment, with scale, repeats and engine.
        budget: Maximum number of networks on which a commit is tested.
        skip: Commits that are not tested.
    """

    repository: Path
    good: str
    bad: str
    endpoint: str
    runs: Request
    budget: int
    skip: Sequence[str] = ()


def _require_searchable(experiment: Experiment, endpoint: str) -> tuple[str, str]:
    """Return class and metric of the endpoint. The class is "" if it is unknown before the runs.

    Raises UserError if the experiment or the endpoint does not allow a search.
    """
    name = experiment.name
    require_tor(experiment)
    if len(experiment.levels) > 1 or experiment.header.scope != "networks":
        raise UserError(
            f"{name} has several levels, or the scope of one network, and a search needs one level "
            "and several networks",
            "name another experiment, for instance NAME=today",
        )
    (level,) = experiment.levels.values()
    classes = (ALL, *level.settings.classes)
    given, _, _ = endpoint.rpartition(":")
    if given and given not in classes:
        raise UserError(
            f"{name} has no class {show(given)}{nearest(given, classes)}",
            f"its classes: {', '.join(classes)}",
        )
    listed = [(one.class_name, one.metric) for one in experiment.header.endpoints]
    usual = [("", metric) for row in USUAL_ENDPOINTS for metric in row if OWN.quantity(metric)]
    class_name, metric = _find_endpoint(endpoint, listed or usual, name)
    quantity = OWN.quantity(metric)
    if quantity is None or not quantity.better:
        raise UserError(
            f"{metric} has no better direction, so no commit makes it worse",
            "name an endpoint of the experiment, such as ttfb_p50_s",
        )
    return class_name, metric


def _find_endpoint(
    text: str, endpoints: Sequence[tuple[str, str]], experiment: str
) -> tuple[str, str]:
    """Return class and metric of the first endpoint that ``text`` names.

    text: METRIC or CLASS:METRIC. An endpoint with an empty class matches every class. Raises
    UserError if ``text`` names none of the endpoints.
    """
    class_name, _, metric = text.rpartition(":")
    for endpoint in endpoints:
        if metric == endpoint[1] and class_name in ("", endpoint[0] or class_name):
            return endpoint
    names = [":".join(filter(None, one)) for one in endpoints]
    # If the experiment's file names no endpoints, some of the default endpoints are used. Only
    # after runs is it known which of them are used.
    its = "its endpoints" if all(one[0] for one in endpoints) else "its endpoints are among these"
    raise UserError(
        f"{experiment} has no endpoint {show(text)}{nearest(text, names)}",
        f"{its}: {', '.join(names)}",
    )


def _find_ends(root: Path, asked: BisectRequest) -> tuple[str, str]:
    """Return the hashes of the good and the bad commit.

    Raises UserError if GOOD or BAD is not a commit of Tor, if both are the same commit, or if the
    good commit is not an ancestor of the bad commit.
    """
    good, bad = (find_commit(asked.repository, ref).hash for ref in (asked.good, asked.bad))
    for commit in (good, bad):
        source = TorSource(git=str(asked.repository), ref=commit)
        find_tor_source(tor_directory(root), source)
    base = merge_base(asked.repository, good, bad)
    if good == bad:
        message, hint = f"GOOD and BAD are the same commit: {good}", "Name two commits that differ."
    elif base is None:
        message = f"GOOD ({asked.good}) and BAD ({asked.bad}) have no common history"
        hint = "If the repository is a shallow clone, fetch its history: git fetch --unshallow."
    elif base == bad:
        message = f"BAD ({asked.bad}) is an ancestor of GOOD ({asked.good})"
        hint = f"Exchange them: GOOD={asked.bad} BAD={asked.good}"
    elif base != good:
        message = f"GOOD ({asked.good}) is not an ancestor of BAD ({asked.bad})"
        hint = f"Search from their newest common ancestor: GOOD={base}"
    else:
        return good, bad
    raise UserError(message, hint)


class BisectSearch:
    """A search for the first bad commit.

    Attributes:
        good, bad: Hashes of the two commits.
        experiment: Name of the experiment.
        subjects: Hash -> subject line of the commits after the good one, parents before children.
        skip: Hashes of the commits that are not tested.
        endpoint: Class and metric. If the experiment names no endpoints, the class is empty until
            the first runs are finished.
        decided: SHA-256 of an executable -> the test of the commit from which it was built.
        left: Number of commits that may still be the first bad commit.
    """

    def __init__(self, root: Path, asked: BisectRequest, where: Where) -> None:
        """Check the request; nothing is built or run.

        Raises UserError if the commits, the experiment or the endpoint do not allow a search.
        """
        if asked.budget < FIRST_LOOK:
            raise UserError(
                f"MAX_NETWORKS: at least {FIRST_LOOK}, as many as the first look needs, got "
                f"{asked.budget}"
            )
        self.root, self.asked, self.where = root, asked, where
        experiment = load(asked.runs.experiment, root=root, any_tor=True)
        self.experiment = experiment.name
        self.endpoint = _require_searchable(experiment, asked.endpoint)
        self.good, self.bad = good, bad = _find_ends(root, asked)
        self.skip = {find_commit(asked.repository, ref).hash for ref in asked.skip} - {good, bad}
        self.subjects = dict(list_commits(asked.repository, good, bad))
        self.decided: dict[str, Examination] = {}
        self.left = 0
        LOG.info("%d commits from %s to %s", len(self.subjects), shorten(good), shorten(bad))

    @property
    def name(self) -> str:
        """The name of the experiments that the search writes, and of the folder of its results."""
        return f"{slug(self.experiment)}-{shorten(self.good)}-{shorten(self.bad)}"

    @property
    def metric(self) -> Quantity:
        """The metric of the endpoint."""
        found = OWN.quantity(self.endpoint[1])
        assert found is not None
        return found

    def first_request(self) -> Request:
        """Write the experiment of the first test, BAD against GOOD, and return its request."""
        return self._request(self.bad, FIRST_LOOK)

    def run(self) -> tuple[Bisection, Path]:
        """Build and run what is missing; return the result and the path of the report.

        Raises:
            UserError: The engine cannot be used, the good or the bad commit does not build, a run
                fails, or no commit between the two can be tested.
        """
        # If the engine is missing, report this before the builds, which take minutes.
        runs = self.asked.runs
        open_engine(runs.engine, root=self.root, shadow=runs.shadow, tgen=runs.tgen)
        for name, commit in (("GOOD", self.good), ("BAD", self.bad)):
            built = self._build(commit)
            if isinstance(built, UserError):
                raise UserError(
                    f"{name} ({shorten(commit)}) does not build: {built.message}",
                    f"{built.hint}\nName a commit near it that builds: {name}=COMMIT",
                )
            if name == "GOOD":
                self.decided[built.sha256] = Examination(commit, Decision.GOOD)
        search = find_first_bad(self._candidates, self._examine, self.good, self.bad, LEVEL)
        tested = [one for one in search.examinations if one.decision is not Decision.SKIPPED]
        if len(search.left) > 1 and len(tested) == 1:
            raise UserError(
                f"none of the {len(search.left) - 1} commits between GOOD and BAD can be tested; "
                f"the last one: {search.examinations[-1].note}",
                f"logs are in {tor_directory(self.root) / 'logs'}; name other commits, or install "
                "what the builds lack",
            )
        result = Bisection(
            self.experiment,
            self.metric,
            self.endpoint[0],
            {self.good: "GOOD", **self.subjects},
            search,
            LEVEL,
            self.asked.budget,
        )
        return result, write(result, self.root / "results" / "bisect" / self.name)

    def _candidates(self, bad: str, goods: Sequence[str]) -> list[str]:
        found = first_bad_candidates(self.asked.repository, bad, goods)
        self.left = len(found)
        return found

    def _build(self, commit: str) -> BuiltTor | BuildFailedError:
        """Build a commit unless it is built. Return the error if its source does not compile."""
        build = TorBuild(None, TorSource(git=str(self.asked.repository), ref=commit))
        try:
            return ensure_builds(self.root, {build: ()})[build]
        except BuildFailedError as error:
            return error

    def _examine(self, commit: str, level: float) -> Examination:
        """Test a commit, and log the result in a line."""
        left = self.left
        examination = self._examine_build(commit, level)
        verdict = examination.against_good
        texts = [examination.decision.value, examination.note]
        if verdict is not None:
            effect = format_effect(verdict.effect, verdict.scale, self.metric.unit)
            texts += [f"{' '.join(effect)} against GOOD, {examination.networks} networks"]
        LOG.info("%d commits left; %s: %s", left, shorten(commit), ", ".join(filter(None, texts)))
        return examination

    def _examine_build(self, commit: str, level: float) -> Examination:
        if commit in self.skip:
            return Examination(commit, Decision.SKIPPED, note="named in SKIP")
        try:
            built = self._build(commit)
            if isinstance(built, UserError):
                return Examination(commit, Decision.SKIPPED, note=built.message)
            same = self.decided.get(built.sha256)
            if same is not None:
                # Byte-identical programs have identical runs, so this decision cannot be a further
                # error, and its level is 0.
                note = f"the same program as {shorten(same.commit)}"
                return replace(same, commit=commit, level=0.0, note=note)
            self.decided[built.sha256] = self._test(commit, level)
        except UserError as error:
            if commit == self.bad:
                raise
            skip = ",".join((*self.asked.skip, shorten(commit)))
            hint = f"{error.hint or ''}\nto search without this commit: SKIP={skip}"
            raise type(error)(error.message, hint.lstrip()) from error
        return self.decided[built.sha256]

    def _test(self, commit: str, level: float) -> Examination:
        """Test a commit with as many networks as it needs, at most the budget."""
        sizes = look_sizes(self.asked.budget)
        for number, size in enumerate(sizes):
            study, statistics = self._measure(commit, size)
            looks = Looks(sizes[: number + 1], self.asked.budget)
            verdicts = [
                self._judge(study, statistics, commit, other, looks, level)
                for other in dict.fromkeys((self.good, self.bad))
                if other != commit
            ]
            reason = next((one.reason for one in verdicts if one.p_different is None), None)
            if reason is not None:
                why = "; ".join([reason, *self._describe_lacking(study, statistics, commit)])
                if commit != self.bad:
                    return Examination(commit, Decision.SKIPPED, note=f"not compared: {why}")
                raise UserError(
                    f"{self.asked.endpoint} of GOOD and BAD cannot be compared: {why}",
                    _how_to_compare(reason),
                )
            assert self.metric.better != ""
            decision = decide_commit(verdicts, self.metric.better, level)
            if commit == self.bad and decision is Decision.BAD and len(self.subjects) > 1:
                # Commits are compared with BAD, too. If BAD has too few streams, skip all commits.
                reason = self._judge(study, statistics, self.good, commit, looks, level).reason
                if reason.startswith(TOO_FEW_STREAMS):
                    raise UserError(
                        f"{self.asked.endpoint} of commits cannot be compared with BAD: {reason}",
                        _how_to_compare(reason),
                    )
            if decision is not Decision.OPEN or size == sizes[-1]:
                return Examination(commit, decision, level, size, verdicts[0])
        raise AssertionError("the looks end at the budget")

    def _describe_lacking(self, study: Study, statistics: Statistics, commit: str) -> Iterator[str]:
        """Yield which networks lack a value of the endpoint, for the commit, GOOD and BAD.

        If GOOD has a value on such a network, say that the commit (or BAD) may be worse than GOOD.
        """
        class_name, metric = self.endpoint
        by_variant = statistics[study.levels[0].name, class_name]
        names = {self.good: "GOOD", self.bad: "BAD"}
        lacking = {
            one: {
                network: statistic.reason
                for network, statistic in sorted(
                    by_variant.get((metric, _variant(one)), {}).items()
                )
                if statistic.value is None
            }
            for one in dict.fromkeys((commit, self.good, self.bad))
        }
        for one, networks in lacking.items():
            if not networks:
                continue
            its = f"{names.get(one, 'this commit')} has none on network"
            why = next(filter(None, networks.values()), "")
            text = f"{its} {', '.join(map(str, networks))}{why and f' ({why})'}"
            worse = one != self.good and networks.keys() - lacking[self.good].keys()
            yield f"{text}, so it may be worse than GOOD" if worse else text

    def _measure(self, commit: str, size: int) -> tuple[Study, Statistics]:
        """Perform missing runs of a commit, GOOD and BAD on `size` networks; return the results."""
        out = self.root / "results" / "bisect" / self.name / shorten(commit)
        plan = make_plan(self.root, self._request(commit, size), out=out)
        make_runs(self.root, [plan], self.where)
        study = load_study(plan.study)
        return study, read_statistics(study, plan.store)

    def _request(self, commit: str, size: int) -> Request:
        """Write an experiment that compares a commit with GOOD and BAD. Return its request.

        size: the number of networks.
        """
        commits = dict.fromkeys((self.good, self.bad, commit))
        variants = {_variant(one): (one, shorten(one)) for one in commits}
        folder = build_directory(self.root) / "bisect" / self.name / shorten(commit)
        runs, repository = self.asked.runs, self.asked.repository
        file = write_experiment(self.root, folder, self.name, runs.experiment, repository, variants)
        return replace(runs, experiment=str(file), seeds=size)

    def _judge(
        self,
        study: Study,
        statistics: Statistics,
        commit: str,
        other: str,
        looks: Looks,
        level: float,
    ) -> Verdict:
        """Return the verdict on ``commit`` against ``other``.

        Also update the attribute `endpoint`, because its class may be unknown before the first
        runs are finished.
        """
        place, good = study.levels[0].name, _variant(self.good)
        listed = [one.key for one in study.endpoints] or usual_endpoints(place, statistics, good)
        self.endpoint = _find_endpoint(self.asked.endpoint, listed, self.experiment)
        design = Design(
            error_level=level, margins=study.margins, endpoints=[self.endpoint], looks=looks
        )
        judged = judge_comparison(place, statistics, _variant(commit), _variant(other), design)
        return judged[0].verdict


def _how_to_compare(reason: str) -> str:
    """Return a hint for GOOD and BAD that cannot be compared. reason: the verdict's reason."""
    if reason.startswith(TOO_FEW_STREAMS):
        return (
            "write an experiment that extends this one, with a longer time.measured or more "
            "clients, and name its file: NAME=FILE"
        )
    return (
        "name the endpoint that counts failures (failure_rate or timeout_rate), or an experiment "
        "in which more downloads complete: NAME=FILE"
    )


def _variant(commit: str) -> str:
    return f"tor-{shorten(commit)}"
