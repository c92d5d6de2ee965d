"""Sets of runs with known statistics and without logs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from analysis.comparison.run_sets import RunSet, SetRun, Span, TorBuild, Value

# Metrics of runs whose only class of clients is web: name -> (class, value in a usual run). The
# class "all" stands for all clients.
USUAL: Mapping[str, tuple[str, float]] = {
    "goodput_bytes_per_s": ("all", 2e6),
    "timeout_rate": ("all", 0.02),
    "ttfb_p50_s": ("web", 1.2),
    "ttfb_p90_s": ("web", 4.0),
    "ttfb_p99_s": ("web", 9.0),
    "time_to_320kib_p50_s": ("web", 4.7),
    "time_to_320kib_p90_s": ("web", 11.0),
    "time_to_320kib_p99_s": ("web", 25.0),
}
STREAMS = 500.0
ENGINE = {"name": "shadow", "version": "3.3.0", "commit": "f1b2cacf2"}
TOR = {"tor-circuit-policy": TorBuild(version="0.4.9.11", sha256="ab" * 32)}
FILES = {
    "clients.json": "c1",
    "run.json": "r1",
    "conf/network.gml": "n1",
    "conf/tgen.web.graphml": "l1",
    "conf/tor.common.torrc": "t1",
    "shadow.config.yaml": "s1",
    "shadow.data.template/hosts/relay1/keys/secret_id_key": "k1",
}
SPAN = Span(measured_start_s=420, measured_end_s=1020, stop_s=1080, load={"web": {"count": 8}})


def make_set(
    name: str = "quick:ewma",
    *,
    variant: str = "ewma",
    seeds: range | tuple[int, ...] = range(1, 9),
    effect: float = 1.0,
    noise: float = 0.01,
    noise_seed: int = 1,
    level: str = "quick",
    missing: tuple[str, ...] = (),
    engine: Mapping[str, str] = ENGINE,
    tor: Mapping[str, TorBuild] = TOR,
    machine: Mapping[str, str] = {},
    files: Mapping[str, str] = FILES,
    records: str = "",
    project: str = "0.1.0 c0ffee",
) -> RunSet:
    """Return a set of runs, one on each network, with values of the metrics in USUAL.

    A network has the same random factor in all sets. The noise differs between sets with different
    values of ``noise_seed``, and between variants whose names have different lengths.

    Args:
        effect: Factor of all times.
        noise: Standard deviation of a metric's logarithm between runs on one network.
        missing: Metrics that have a reason instead of a value.
        records: Hash of all runs' records, or "" if each run has a different one.
    """
    runs = []
    values: list[dict[str, Any]] = []
    for seed in seeds:
        own = np.random.default_rng([seed, 7]).normal(0, 0.1)
        rng = np.random.default_rng([noise_seed, seed, len(variant)])
        runs.append(
            SetRun(
                run_id=f"{name}{seed}",
                level=level,
                variant=variant,
                seed=seed,
                engine=dict(engine),
                tor=dict(tor),
                machine=dict(machine),
                files={**files, f"conf/tor.variant.{variant}.torrc": variant},
                records={"streams.parquet": records or f"{name}{noise_seed}{effect}{seed}"},
                project=project,
            )
        )
        place = {"level": level, "variant": variant, "seed": seed}
        for metric, (class_name, usual) in USUAL.items():
            scaled = usual * float(np.exp(own + rng.normal(0, noise)))
            if metric.endswith("_s") and not metric.endswith("per_s"):
                scaled *= effect
            if metric == "timeout_rate":
                scaled = round(usual * STREAMS) / STREAMS
            value: dict[str, Any] = {"class": class_name, "metric": metric, "value": scaled}
            if metric in missing:
                value |= {"value": None, "reason": "the curve ends at 12.0%"}
            values.append(place | value)
        values.append({**place, "class": "all", "metric": "streams_started", "value": STREAMS})
    return RunSet(
        name=name,
        records_format=1,
        spans={level: SPAN},
        runs=tuple(runs),
        values=tuple(Value.model_validate(value) for value in values),
    )
