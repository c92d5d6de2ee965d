"""The pages name only existing targets, variables, commands, options and experiments."""

from __future__ import annotations

import argparse
import re
import shlex
from collections.abc import Iterator

import pytest
import yaml

from onionlab.cli import build_parser, command_modules
from onionlab.experiment import experiment_names
from onionlab.experiment.claims_file import claim_files
from onionlab.make import PROGRAM_VARIABLES, command_variables
from onionlab.programs.tor.variants import load_variants

from .markdown import PAGES, REPOSITORY, Page

MAKEFILE = (REPOSITORY / "Makefile").read_text(encoding="utf-8")
TARGETS = set(re.findall(r"^([a-z-]+):.*?##", MAKEFILE, re.MULTILINE))
OF_TOR = {"check-spaces", "src/test/bench", "src/test/test"}
"""Targets of Tor's makefile, which pages about patches name."""
# Placeholders, and names of experiments, variants and claims that readers write when they follow a
# page.
OF_READERS = {"exhaustive", "small-window", "...", "NAME", "name", "figures"}
OF_READERS |= {"$HOME/releases/releases.yaml"}
# A shipped experiment needs imported networks of this name, so pages may import them.
ASKS = (REPOSITORY / "experiments/swrr-tornettools.yaml").read_text(encoding="utf-8")
NETWORKS = {yaml.safe_load(ASKS)["network"]["name"]}


def commands(page: Page) -> Iterator[list[str]]:
    """Yield the words of each shell command in code blocks and between backticks."""
    blocks = [fence.text for fence in page.fences if fence.language in ("sh", "bash", "")]
    blocks += re.findall(r"(?<=\n\n)((?: {4}[^\n]*\n)+)", page.text)
    lines = [line for block in blocks for line in block.replace("\\\n", " ").splitlines()]
    for line in [*lines, *page.code]:
        text = re.sub(r"^\w+=\S+ (?=make)", "", line.strip())
        if re.match(r"make [a-z]|(?:\.venv/bin/)?onionlab [a-z]", text):
            try:
                words = shlex.split(text, comments=True)
            except ValueError:  # the code span has an apostrophe
                continue
            yield words[: next((i for i, word in enumerate(words) if word in ("&&", ">", "|")), 99)]


BY_PATH = list(REPOSITORY.glob("configs/costs/*.yaml"))
"""Experiments that commands get as paths, because users do not choose them by name."""

# The changelog is left out, because it names commands that later versions do not have.
CALLS = {
    f"{path}: {' '.join(words)}": words
    for path, page in PAGES.items()
    if path != "CHANGELOG.md"
    for words in commands(page)
}
OF_MAKE = {name: words for name, words in CALLS.items() if words[0] == "make"}
OF_THE_PROGRAM = {name: words for name, words in CALLS.items() if words[0] != "make"}


def test_there_are_commands() -> None:
    assert len(CALLS) > 80


@pytest.mark.parametrize("words", OF_MAKE.values(), ids=OF_MAKE)
def test_make(words: list[str]) -> None:
    known = set(PROGRAM_VARIABLES)
    known.update(*(command_variables(word) for word in words[1:] if word in command_modules()))
    for word in (word.strip("[]") for word in words[1:]):
        name, assigned, value = word.partition("=")
        if not assigned:
            assert word in TARGETS | OF_TOR | {"..."}, word
            continue
        assert name in known, name
        if name == "NAME":
            # An import of networks writes an experiment that is named like the networks. Their name
            # must therefore differ from the names of all shipped experiments.
            names = set() if "network" in words[1] else set(experiment_names(REPOSITORY))
            names |= {str(path.relative_to(REPOSITORY)) for path in BY_PATH}
            assert value in names | NETWORKS | OF_READERS, value
        if name == "CLAIMS":
            assert value in {*claim_files(REPOSITORY), *OF_READERS}, value
        if name == "VARIANTS":
            assert set(value.split(",")) <= {*load_variants(REPOSITORY), *OF_READERS}, value


@pytest.mark.parametrize("page", PAGES.values(), ids=PAGES)
def test_no_status_of_the_program_is_promised_of_make(page: Page) -> None:
    """If a program fails, make always exits with 2. Only the program has other statuses.

    So a sentence about other statuses must name the program, onionlab.
    """
    call = re.compile(rf"\bmake (?:{'|'.join(TARGETS)})\b")
    status = re.compile(r'exit status|\bexits? with [13]\b|"Error [13]"')
    history = page.path == "CHANGELOG.md"
    for sentence in () if history else re.split(r"(?<=[.])\s", page.text):
        if call.search(sentence) and status.search(sentence):
            assert "onionlab" in sentence, sentence


@pytest.mark.parametrize("words", OF_THE_PROGRAM.values(), ids=OF_THE_PROGRAM)
def test_onionlab(words: list[str]) -> None:
    verb = words[1]
    assert verb in command_modules(), verb
    parser = build_parser(verb)
    (verbs,) = (one for one in parser._actions if isinstance(one, argparse._SubParsersAction))
    known = verbs.choices[verb]._option_string_actions
    for word in words[2:]:
        if word.startswith("--"):
            assert word.partition("=")[0] in known, word
