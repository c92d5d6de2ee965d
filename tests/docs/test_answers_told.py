"""The page of the SWRR paper's answers against what the published runs say."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

from analysis.formats.files import STUDIES
from analysis.formats.study import load_study
from analysis.judgement.claims.answers import answer_claims
from analysis.judgement.claims.claim import Answer, Answered, Labels
from analysis.judgement.judging import RunStatistics, add_run, over_networks
from analysis.measures.leeway import leeway
from analysis.measures.run_data import load_run
from analysis.pages.paper_runs import distinct_runs, key_of
from onionlab.experiment.claims_file import load_claims
from onionlab.runs.packing import opened_together

REPOSITORY = Path(__file__).parents[2]
PAGE = REPOSITORY / "docs" / "explanation" / "swrr-answers.md"
REPLICATION = REPOSITORY / "docs" / "explanation" / "replication.md"
RUNS = REPOSITORY / "docs" / "runs"
PACK = RUNS / "swrr-scale0.1-uml.tar.xz"
NUMBERS = {"one": 1, "three": 3, "four": 4, "sixteen": 16}


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> list[Answered]:
    return answers_of([PACK], tmp_path_factory.mktemp("pack"))


def answers_of(packs: list[Path], folder: Path) -> list[Answered]:
    """What the runs of packs answer to the SWRR paper's claims."""
    wanted = load_claims("swrr", root=REPOSITORY)
    runs: RunStatistics = {}
    leeways = {}
    with opened_together(packs, folder) as store:
        studies = [load_study(store / STUDIES / f"{name}.json") for name in wanted.experiments]
        levels = {level.name: level for study in studies for level in study.levels}
        for run in distinct_runs(studies).values():
            data = load_run(store / run.records, levels[run.level])
            add_run(runs, run, data)
            leeways[key_of(run)[:3]] = leeway(data, levels[run.level])
    statistics = over_networks(runs)
    labels = Labels({name: level.label for name, level in levels.items()}, {})
    return answer_claims(wanted.claims, statistics, labels=labels, leeways=leeways)


@pytest.mark.slow
def test_the_table_has_the_answers_of_the_published_runs(answers: list[Answered]) -> None:
    rows = re.findall(r"^\| (With|As|Under|The)(.+?) \| (.+?) \| ", PAGE.read_text(), re.MULTILINE)
    told = {f"{first}{rest}": answer for first, rest, answer in rows}
    assert told == {" ".join(one.claim.statement.split()): one.answer.value for one in answers}


@pytest.mark.slow
def test_the_first_sentence_counts_them(answers: list[Answered]) -> None:
    counts = Counter(one.answer for one in answers)
    sentence = " ".join(PAGE.read_text().split("\n\n")[1].split())
    said = re.match(
        r"Of the paper's 25 claims (\w+) is supported, of (\w+) the opposite is shown, (\w+) claim "
        r"a difference where there is no relevant one, (\w+) cannot be tested at this size and "
        r"(\w+) are open",
        sentence,
    )
    assert said is not None
    assert [NUMBERS[word] for word in said.groups()] == [counts[answer] for answer in Answer]


@pytest.mark.slow
def test_throughput_is_saturated_where_the_page_says_so(answers: list[Answered]) -> None:
    heads = Counter(
        one.deciding.untestable.head for one in answers if one.deciding.untestable is not None
    )
    assert heads == {
        "timeout rate is 0% in all of these runs": 6,
        "throughput is saturated at 5 middles": 6,
        "the same streams time out under both variants at 5 middles": 3,
        "throughput is saturated at 10 middles": 1,
    }


@pytest.mark.slow
@pytest.mark.parametrize(
    ("column", "packs"), [(2, "swrr-likely-scale0.1-uml.tar.xz"), (3, "*full-size*.tar.xz")]
)
def test_the_replication_has_the_answers_of_its_runs(
    column: int, packs: str, tmp_path: Path
) -> None:
    table = REPLICATION.read_text().partition("| The paper says | At a tenth |")[2]
    rows = [row.split(" | ") for row in table.partition("\n\n")[0].splitlines()[2:]]
    found = answers_of(sorted(RUNS.glob(packs)), tmp_path)
    # In the order of the claims, whose words the page puts shorter.
    for row, one in zip(rows, found, strict=True):
        said = row[column - 1].replace("*", "")
        # What the page leaves out of "cannot be tested here" at one size.
        assert said.startswith(one.answer.value.removesuffix(" here")), one.claim.id
