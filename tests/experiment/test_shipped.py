"""The experiments that are shipped with the project."""

from __future__ import annotations

import functools
import importlib
import json
from typing import Any

import pytest
import yaml
from shipped import EXPERIMENTS

from onionlab.errors import UserError
from onionlab.experiment import load
from onionlab.experiment.load import load_resolved_experiment, resolve_experiment
from onionlab.experiment.reference import SCHEMAS, editor_schema

from .conftest import REPOSITORY

# jsonschema is installed with Snakemake and has no type annotations.
jsonschema: Any = importlib.import_module("jsonschema")

OF_THE_PAPER = {
    # name: (family of variants, the paper's figure of throughput and timeouts, and its figure of
    # times to the first byte and to 320 KiB)
    "weights-20mid": ("weights", 2, 5),
    "weights-10mid": ("weights", 3, 6),
    "weights-5mid": ("weights", 4, 7),
    "swrr-20mid": ("swrr", 8, 11),
    "swrr-10mid": ("swrr", 9, 12),
    "swrr-5mid": ("swrr", 10, 13),
}
VARIANTS = {
    "weights": (("swrr-linear", "swrr-proportional", "swrr-logarithmic"), "swrr-linear"),
    "swrr": (("swrr-linear", "rr", "ewma"), "ewma"),
}


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_it_loads_at_every_scale(name: str) -> None:
    whole = load(name, root=REPOSITORY)
    for scale in (1.0, 0.5, 0.1):
        if whole.kind is not None and scale != 1.0:
            with pytest.raises(UserError, match="has no counts to scale"):
                whole.with_overrides(scale=scale)
            continue
        experiment = whole.with_overrides(scale=scale)
        assert experiment.warnings == ()
        assert (experiment.shrunk == []) == (scale == 1.0)
        # Runs get their settings from plan.json, not from the experiment's files. So the settings
        # must be the same after conversion to JSON and back.
        planned = load_resolved_experiment(json.loads(json.dumps(resolve_experiment(experiment))))
        assert planned.levels == experiment.levels


@pytest.mark.parametrize("suffix", ["", "-vegas"])
@pytest.mark.parametrize("name", OF_THE_PAPER)
def test_table_1(name: str, suffix: str) -> None:
    family, load_figure, time_figure = OF_THE_PAPER[name]
    experiment = load(name + suffix, root=REPOSITORY)
    middles = int(name.partition("-")[2].removesuffix("mid"))
    (level,) = experiment.levels
    assert level == f"{middles}mid"
    settings = experiment.levels[level].settings
    network = settings.network
    assert (network.servers.count, network.authorities) == (100, 3)
    counts = {role: entry.count for role, entry in network.relays.items()}
    assert counts == {"exitguard": 5, "guard": 14, "exit": 10, "middle": middles}
    bulk, web = settings.traffic["bulk"], settings.traffic["web"]
    assert (bulk.count, bulk.request_bytes, bulk.pause.times_s) == (80, 5 * 1024**2, ())
    assert (web.count, web.request_bytes) == (320, 320 * 1024)
    assert web.pause.times_s == tuple(float(second) for second in range(1, 61))
    assert bulk.start.after_s + bulk.start.spread_s <= web.start.after_s
    assert all(one.timeout_s is not None for one in (bulk, web))
    assert settings.tor.deployment.where == "all"
    assert settings.tor.consensus_params["cc_alg"] == (2 if suffix else 0)
    assert (experiment.variants, experiment.baseline) == VARIANTS[family]
    figures = {figure.kind: figure.paper for figure in experiment.figures}
    if suffix:
        assert experiment.header.paper is None
        assert set(figures.values()) == {None}
    else:
        assert figures == {"throughput-timeouts": load_figure, "ttfb-320kib": time_figure}
        assert [one.id for one in experiment.figures] == [f"figure-{n}" for n in figures.values()]


@pytest.mark.parametrize("middles", [20, 10, 5])
def test_both_families_share_the_runs_of_linear_swrr(middles: int) -> None:
    def of(family: str) -> object:
        """Return the settings of a family's experiment, without its choice of variants."""
        settings = load(f"{family}-{middles}mid", root=REPOSITORY).levels[f"{middles}mid"].settings
        tor = settings.tor.model_copy(update={"variants": (), "baseline": ""})
        return settings.model_copy(update={"tor": tor})

    assert of("swrr") == of("weights")


@functools.cache
def validator(kind: str) -> Any:
    """Return a validator with the JSON Schema of a kind of experiments.

    It is cached, because the check of the schema takes long.
    """
    schema = json.loads(editor_schema(SCHEMAS[kind][1]))
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema)


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_every_file_fits_the_json_schema_that_it_names(name: str) -> None:
    """The experiment's own file and all files that it extends fit their JSON Schemas."""
    for file in load(name, root=REPOSITORY).files:
        path = REPOSITORY / file
        text = path.read_text(encoding="utf-8")
        first, _, _ = text.partition("\n")
        named = first.removeprefix("# yaml-language-server: $schema=")
        content = yaml.safe_load(text)
        kind = content.get("kind", "tor")
        assert (path.parent / named).resolve() == REPOSITORY / "experiments" / SCHEMAS[kind][0]
        validator(kind).validate(content)


@pytest.mark.parametrize(
    "wrong",
    [
        {"zzz": 1},
        {"time": {"drain": 60}},
        {"time": {"drain": "60 sec"}},
        {"network": {"relays": {"guard": {"full_count": 1}}}},
        {"network": {"packet_loss": 5}},
        {"traffic": {"Web": {}}},
        {"traffic": {"web": {"pause": "never"}}},
        {"tor": {"deployment": {"fraction": "half"}}},
        {"tor": {"scheduler": {"name": "kist"}}},
        {"engine": {"shadow": {"general": {"seed": 1}}}},
        {"levels": {"x": {"overrides": {"levels": {}}}}},
        {"figures": [{"kind": "ttfb"}]},
        {"seeds": [1, 1]},
    ],
)
def test_the_json_schema_refuses(wrong: object) -> None:
    with pytest.raises(jsonschema.ValidationError):
        validator("tor").validate(wrong)
