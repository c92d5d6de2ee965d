"""Files of claims: their valid contents, and the messages for mistakes."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from analysis.judgement.claims.directions import DIRECTIONS
from onionlab.errors import UserError
from onionlab.experiment import experiment_names
from onionlab.experiment.claims_file import ClaimSet, claim_files, load_claims

from .conftest import LEVELS_AND_FIGURE, REPOSITORY, VALID, Write

EXPERIMENT = VALID + LEVELS_AND_FIGURE

CLAIMS = """\
paper: A paper
experiments: [foo]
claims:
  - id: first
    statement: RR is slower.
    section: "5.1"
    figures: [3]
    metrics: [ttfb_p50_s]
    class: web
    levels: [few]
    variants: [rr, ewma]
    direction: highest
    margin: "10 %"
  - id: second
    statement: Timeouts become more.
    section: "5.2"
    metrics: [timeout_rate]
    class: all
    levels: [many, few]
    variants: [rr]
    direction: rises
"""

TORNET = """\
kind: tornettools
title: On networks that are elsewhere
description: It says what it is.
network: {name: elsewhere}
tor: {variants: [ewma, rr], baseline: ewma}
seeds: 1
"""

Read = Callable[[str], ClaimSet]


@pytest.fixture
def read(checkout: Path, write: Write) -> Read:
    """Return a function that writes content to experiments/claims/it.yaml and loads this file."""
    (checkout / "experiments" / "claims").mkdir()
    write("foo", EXPERIMENT)

    def read_it(text: str) -> ClaimSet:
        write("claims/it", text)
        return load_claims("it", root=checkout)

    return read_it


@pytest.mark.parametrize("name", claim_files(REPOSITORY))
def test_shipped_claims_are_read_in_a_new_checkout(name: str) -> None:
    """Packs can be evaluated in any checkout, even if it lacks the imported networks."""
    assert load_claims(name, root=REPOSITORY).claims


def test_classes_of_a_network_that_is_not_here_are_not_known(write: Write, read: Read) -> None:
    write("tornet", TORNET)
    of_network = CLAIMS.replace("[foo]", "[tornet]").replace("figures: [3]\n    ", "")
    (one,) = read(re.sub(r"(?s)  - id: second.*", "", of_network).replace("few", "tornet")).claims
    assert one.class_name == "web"


def test_a_claims_file_is_read(read: Read, checkout: Path) -> None:
    claims = read(CLAIMS)
    assert (claims.name, claims.paper, list(claims.experiments)) == ("it", "A paper", ["foo"])
    first, second = claims.claims
    assert (first.id, first.figures, first.class_name, first.margin) == ("first", (3,), "web", 0.1)
    assert (second.levels, second.figures, second.margin) == (("many", "few"), (), None)
    path = checkout / "experiments" / "claims" / "it.yaml"
    assert load_claims(str(path), root=checkout) == claims
    # A file of claims is not an experiment.
    assert experiment_names(checkout) == ["foo"]
    assert claim_files(checkout) == ["it"]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("paper: A paper\n", "", "1: paper: missing: reference of the paper"),
        ("[foo]", "[fo]", '2: experiments[1]: no experiment "fo"; did you mean "foo"?'),
        ("id: second", "id: first", '14: claims[2].id: "first" is listed twice'),
        ("[ttfb_p50_s]", "[ttfb_p5_s]", '8: claims[1].metrics[1]: unknown metric "ttfb_p5_s"; did'),
        ("[ttfb_p50_s]", "[]", "8: claims[1].metrics: expected 1 or more entries"),
        ("[timeout_rate]", "[timeout_count]", 'no verdict; did you mean "timeout_rate"?'),
        ("class: web", "class: all", "class: ttfb_p50_s is a metric of single classes"),
        ("class: web", "class: bulk", "9: claims[1].class: expected one of all, web, got"),
        ("levels: [few]", "levels: [five]", "10: claims[1].levels[1]: expected one of few, many"),
        ("[rr, ewma]", "[rr, ewna]", 'got "ewna"; did you mean "ewma"?'),
        ("[rr, ewma]", "[rr]", "11: claims[1].variants: highest takes at least 2: the first"),
        ("[rr, ewma]", "[rr, rr]", '11: claims[1].variants[2]: "rr" is listed twice'),
        ("[many, few]", "[few]", "19: claims[2].levels: rises takes at least 2: each variant"),
        ("highest", "higher", "12: claims[1].direction: expected one of lowest"),
        ('"10 %"', "0", '13: claims[1].margin: expected a fraction such as "5 %" or 0.05, got 0'),
        ("figures: [3]", "figures: [4]", "figures[1]: no experiment draws the paper's figure 4"),
        ("figures: [3]", "figure: 3", '7: claims[1].figure: unknown key; did you mean "figures"?'),
        ('"5.1"', "5.1", "6: claims[1].section: expected text, got 5.1"),
    ],
)
def test_a_mistake_is_named_with_its_line(read: Read, old: str, new: str, message: str) -> None:
    assert old in CLAIMS
    with pytest.raises(UserError) as caught:
        read(CLAIMS.replace(old, new, 1))
    (line,) = caught.value.message.splitlines()
    assert message in line
    assert line.startswith("experiments/claims/it.yaml:")
    assert caught.value.hint == "docs/reference/claims.md explains every key"


def test_a_list_whose_only_item_is_wrong_is_not_empty(read: Read) -> None:
    one = CLAIMS[: CLAIMS.index("  - id: second")]
    with pytest.raises(UserError, match="direction: expected one of lowest") as caught:
        read(one.replace("highest", "highst"))
    assert len(caught.value.message.splitlines()) == 1
    with pytest.raises(UserError, match="claims: expected 1 or more entries"):
        read(one[: one.index("claims:")] + "claims: []\n")


def test_a_variant_has_to_run_at_the_claims_level(read: Read, write: Write) -> None:
    write("bar", VALID.replace("[rr, ewma]", "[swrr-linear, ewma]"))
    text = CLAIMS.replace("[foo]", "[foo, bar]").replace("[rr, ewma]", "[swrr-linear, ewma]")
    with pytest.raises(UserError, match="no experiment runs swrr-linear at the level few"):
        read(text)
    with pytest.raises(UserError, match="no experiment runs rr at the level bar"):
        read(CLAIMS.replace("[foo]", "[foo, bar]").replace("levels: [few]", "levels: [bar]"))


def test_a_missing_file(checkout: Path) -> None:
    with pytest.raises(UserError, match='no claims called "swr"'):
        load_claims("swr", root=checkout)
    with pytest.raises(UserError, match="no file of claims"):
        load_claims("./swr.yaml", root=checkout)
    with pytest.raises(UserError, match=re.escape('did you mean "swrr"')):
        load_claims("swr", root=REPOSITORY)


# Claims files that are shipped with the project.


def test_the_papers_claims_cover_its_figures() -> None:
    claims = load_claims("swrr", root=REPOSITORY)
    drawn = sorted(
        figure.paper
        for experiment in claims.experiments.values()
        for figure in experiment.figures
        if figure.paper is not None
    )
    assert drawn == list(range(2, 14))
    assert {number for claim in claims.claims for number in claim.figures} == set(drawn)
    assert len(claims.claims) >= 18
    assert {claim.section for claim in claims.claims} == {"4.2.2", "5"}
    for claim in claims.claims:
        weights = claim.section == "4.2.2"
        assert all(("swrr" in name) for name in claim.variants) == weights
        assert all((number <= 7) == weights for number in claim.figures)


def test_the_documentation_names_every_key_and_direction() -> None:
    text = (REPOSITORY / "docs" / "reference" / "claims.md").read_text(encoding="utf-8")
    for name, direction in DIRECTIONS.items():
        assert re.search(rf"^\| `{name}` \| {re.escape(direction.meaning)} ", text, re.MULTILINE)
    keys = ("id", "statement", "section", "figures", "metrics", "class", "levels", "variants")
    for key in (*keys, "direction", "margin", "value", "paper", "experiments", "claims"):
        assert f"| `{key}` |" in text
