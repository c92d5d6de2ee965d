"""Write the tables of published results into the pages of docs/explanation.

``python docs/results.py`` reads the packs (archives of runs) in docs/runs. It replaces the blocks
between the marks ``<!-- results: NAME -->`` and ``<!-- end -->``. A test compares the pages with
the packs.
"""

from __future__ import annotations

import re
import sys
import tempfile
import textwrap
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import cache
from pathlib import Path
from statistics import fmean

import numpy as np

from analysis.formats.files import STUDIES
from analysis.formats.manifest import read_manifest
from analysis.formats.study import Study, load_study
from analysis.inference.corrections import endpoint_weights
from analysis.inference.intervals import Interval
from analysis.inference.sample_size import shown_from_spreads
from analysis.judgement.claims.claim import Answer, ClaimResult
from analysis.judgement.estimates import (
    RunStatistics,
    Statistics,
    add_run,
    against_baseline,
    over_networks,
)
from analysis.judgement.verdicts import LEVEL, Grade
from analysis.measures.metric import Statistic
from analysis.measures.run_data import load_run
from analysis.pages.numbers import NOTHING, format_effect, format_number
from analysis.pages.paper import Paper, answer_other_study
from analysis.pages.summary import SummaryRow, summarise
from onionlab.experiment.claims_file import load_claims
from onionlab.runs.packing import open_packs

Packs = tuple[Path, ...]
"""Files that `onionlab pack` wrote."""

ROOT = Path(__file__).resolve().parents[1]
RUNS = ROOT / "docs" / "runs"
NETWORKS = 5
WIDTH = 100
TIMES = "\N{MULTIPLICATION SIGN}"
METRIC = "time_to_320kib_p50_s"
THROUGHPUT = "goodput_bytes_per_s"
ENDPOINTS = (
    ("web", METRIC, "Web: 320 KiB, median"),
    ("web", "ttfb_p50_s", "Web: first byte, median"),
    ("all", THROUGHPUT, "Throughput"),
    ("all", "timeout_rate", "Timeout rate"),
)
"""Class, metric and label of the endpoints."""
POLICY_ENDPOINTS = (
    ("web", METRIC, "Web: 320 KiB, median"),
    ("web", "time_to_320kib_p90_s", "Web: 320 KiB, 90% quantile"),
    ("web", "ttfb_p50_s", "Web: first byte, median"),
    ("all", THROUGHPUT, "All: throughput"),
    ("web", THROUGHPUT, "Web: throughput"),
    ("bulk", "timeout_rate", "Bulk: timeout rate"),
    ("all", "timeout_rate", "All: timeout rate"),
    ("bulk", "failure_rate", "Bulk: failure rate"),
    ("all", "failure_rate", "All: failure rate"),
)
"""Class, metric and label of the rows of tables that compare the circuit policies."""
ARTI_METRICS = POLICY_ENDPOINTS[:4]
"""Class, metric and label of the columns of tables on clients of Arti."""
TODAY_ENDPOINTS = (*ENDPOINTS[:3], ("all", "failure_rate", "Failure rate"))
TORNET_ENDPOINTS = (
    ("all", THROUGHPUT, "All: throughput"),
    ("perf-exit", "ttfb_p50_s", "From exits: first byte, median"),
    ("perf-exit", "ttfb_p90_s", "From exits: first byte, 90% quantile"),
    *(
        ("perf-exit", f"time_to_last_byte_{size}_p50_s", f"From exits: {label}, median")
        for size, label in (("50kib", "50 KiB"), ("1mib", "1 MiB"), ("5mib", "5 MiB"))
    ),
    ("perf-onion", "ttfb_p50_s", "From onion services: first byte, median"),
    ("markov-exit", "circuit_build_time_p50_s", "Circuit build time, Markov clients, median"),
    ("perf-exit", "circuit_build_time_p50_s", "Circuit build time, perf clients, median"),
    ("all", "timeout_rate", "All: timeout rate"),
)
"""Class, metric and label of the rows of the table on networks of tornettools."""
LABELS = {
    "ewma": "EWMA",
    "rr": "RR",
    "swrr-linear": "SWRR linear",
    "swrr-literal": "SWRR as printed",
}
POLICIES = ("ewma", "rr", "swrr-linear")


@cache
def answers(
    packs: Packs, name: str = "swrr", experiments: tuple[str, ...] = ()
) -> tuple[ClaimResult, ...]:
    """Return the answers to the claims of a paper from the runs in packs.

    Args:
        packs: packs with the experiments.
        name: name of the file with the claims, in experiments/claims.
        experiments: some of the paper's experiments. Only claims whose levels and variants these
            experiments have are answered. By default, all claims are.
    """
    wanted = load_claims(name, root=ROOT)
    with _open(packs) as store:
        studies = tuple(
            load_study(store / STUDIES / f"{experiment}.json")
            for experiment in experiments or wanted.experiments
        )
        levels = {level.name for study in studies for level in study.levels}
        variants = {variant.name for study in studies for variant in study.variants}
        claims = tuple(
            claim
            for claim in wanted.claims
            if not experiments
            or (levels.issuperset(claim.levels) and variants.issuperset(claim.variants))
        )
        paper = Paper(wanted.paper, studies, claims)
        return answer_other_study(paper, store, "published packs").answers


def _open(packs: Packs) -> AbstractContextManager[Path]:
    """Return a context manager that unpacks packs into a temporary folder and yields it."""
    return open_packs(packs, Path(tempfile.gettempdir()))


def answer_counts(answered: Sequence[ClaimResult]) -> str:
    """Return a sentence that counts the answers, the most frequent one first."""
    counts = Counter(_answer(one) for one in answered)
    first, *others = (f"{number} {answer}" for answer, number in counts.most_common())
    return textwrap.fill(f"Of {len(answered)} claims: {', '.join([first, *others])}.", WIDTH)


def answer_table(answered: Sequence[ClaimResult]) -> str:
    """Return a table of all claims with their answers.

    Each row has the comparison that decides the answer, the effect with its interval, and the
    number of networks with an effect of the same sign. For an open claim, the row also has the
    number of further networks that would answer the claim.
    """
    rows = []
    for one in answered:
        part = one.deciding
        effect, interval = format_effect(part.effect, part.scale, part.metric.unit)
        side = NOTHING if part.agreeing is None else f"{part.agreeing} of {part.count}"
        more = ""
        if one.answer is Answer.OPEN:
            more = "unknown" if one.more_networks is None else str(one.more_networks)
        statement = " ".join(one.claim.statement.split())
        comparison = part.text.removesuffix(f", {part.metric.label}")
        text = f"{effect} {interval}".strip()
        rows.append((statement, _answer(one), comparison, text, side, more))
    head = ("Claim", "Answer", "Deciding comparison", "Effect", "Networks", "More networks")
    return _table(head, rows)


def claim_parts(answered: Sequence[ClaimResult], name: str) -> str:
    """Return a list of the comparisons of one claim, each with its effect, interval and grade.

    name: the claim's `id`.
    """
    (claim,) = (one for one in answered if one.claim.id == name)
    lines = []
    for part in claim.parts:
        effect, interval = format_effect(part.effect, part.scale, part.metric.unit)
        grade = part.grade.value if part.grade else "not judged"
        text = f"{part.text.replace(' at scale 0.1', '')}: {effect} {interval}, {grade}"
        lines.append(textwrap.fill(text, WIDTH, initial_indent="- ", subsequent_indent="  "))
    return "\n".join(lines)


def _answer(answered: ClaimResult) -> str:
    """Return the answer's word, or "suggested" if an open claim has a suggested difference."""
    suggested = answered.deciding.grade is Grade.SUGGESTED
    return "suggested" if answered.answer is Answer.OPEN and suggested else answered.answer.value


def time_table(pack: Path, experiment: str) -> str:
    """Return a table of median times to 320 KiB, with a row for each level.

    A row has the baseline's time, and the ratio of each other variant's time to this time.
    """
    study, statistics = _open_study((pack,), experiment)
    assert study.baseline is not None
    shown = [name for name in LABELS if name in {one.name for one in study.variants}]
    others = [name for name in shown if name != study.baseline]
    head = ("", f"{LABELS[study.baseline]}, s", *(LABELS[name] for name in others))
    rows = []
    for level in study.levels:
        times = statistics[level.name, "web"]
        base = times[METRIC, study.baseline]
        values = [one.value for one in base.values() if one.value is not None]
        mean = format_number(sum(values) / len(values))
        span = f"{mean} ({format_number(min(values))} to {format_number(max(values))})"
        ratios = (_ratio(against_baseline(times[METRIC, name], base).ratio) for name in others)
        rows.append((level.label, span, *ratios))
    return _table(head, rows)


def starvation_table() -> str:
    """Return a table of means over networks, for nine streams and a middle relay of 200 KiB/s.

    The table has a row for each metric, and a column for each congestion control. A cell lists the
    values of all variants.
    """
    study, statistics = _open_study(STARVATION, "starvation")
    rows = []
    for metric in ("starvation", "jain_index_streams", "completion_spread_s", "stream_gap_max_s"):
        cells = []
        for level in ("r200-s9", "vegas-r200-s9"):
            values = statistics[level, "streams"]
            means = (
                fmean(one.value or 0.0 for one in values[metric, variant.name].values())
                for variant in study.variants
            )
            cells.append(", ".join(format_number(mean) for mean in means))
        rows.append((f"`{metric}`", *cells))
    labels = ", ".join(variant.label for variant in study.variants)
    return _table((f"Metric: {labels}", "Fixed windows", "Vegas"), rows)


def network_table(packs: Sequence[tuple[str, Packs, str]]) -> str:
    """Return a table of the median time to 320 KiB on each network.

    A cell has the time under EWMA, and the ratios of RR's and SWRR's times to this time.

    packs: for each row its label, its packs, and the name of the experiment in these packs.
    """
    rows = []
    for name, files, experiment in packs:
        study, statistics = _open_study(files, experiment)
        times = statistics[study.levels[0].name, "web"]
        cells = []
        for network, statistic in sorted(times[METRIC, "ewma"].items()):
            assert statistic.value is not None
            ratios = [
                (times[METRIC, one][network].value or 0) / statistic.value
                for one in ("rr", "swrr-linear")
            ]
            cells.append(f"{statistic.value:.2f} s, {TIMES}{ratios[0]:.2f}, {TIMES}{ratios[1]:.2f}")
        rows.append((name, *cells, *[""] * (NETWORKS - len(cells))))
    return _table(("Network", *(str(number + 1) for number in range(NETWORKS))), rows)


def policy_table(
    rows: Sequence[tuple[str, Packs, str, str]],
    *,
    head: str,
    endpoints: Sequence[tuple[str, str, str]] = POLICY_ENDPOINTS,
) -> str:
    """Return a table that compares EWMA, RR and SWRR in pairs, with rows for each endpoint.

    A row has EWMA's mean over networks. Each effect is shown with its interval, and with the number
    of networks in which the effect has the same sign.

    Args:
        rows: for each row of an endpoint its label, its packs, and the names of the experiment and
            of the level in these packs.
        head: the title of the column with the labels.
        endpoints: class, metric and label of each endpoint.
    """
    lines = []
    for class_name, metric, name in endpoints:
        for label, packs, experiment, level in rows:
            _, statistics = _open_study(packs, experiment)
            values = statistics[level, class_name]
            base = fmean(one.value or 0.0 for one in values[metric, "ewma"].values())
            cells = (
                _effect_and_networks(values, metric, variant, other) for variant, other in PAIRS
            )
            lines.append((name, label, _value(base, metric), *cells))
    pairs = (f"{LABELS[variant]} against {LABELS[other]}" for variant, other in PAIRS)
    return _table(("Metric", head, "EWMA", *pairs), lines)


def endings_table(packs: Packs, experiment: str) -> str:
    """Return a table of the numbers of downloads that succeeded, timed out and stalled.

    The table has a row for each class and level, and a column for each policy. The numbers are sums
    over networks.
    """
    study, statistics = _open_study(packs, experiment)
    rows = []
    for class_name in ("bulk", "web"):
        for level in study.levels:
            values = statistics[level.name, class_name]
            cells = []
            for variant in POLICIES:
                counts = (
                    sum(one.value or 0 for one in values[f"{outcome}_count", variant].values())
                    for outcome in ("success", "timeout", "stall")
                )
                cells.append(", ".join(f"{count:,.0f}" for count in counts))
            rows.append((f"{class_name.capitalize()}, {level.name}", *cells))
    return _table(("", *(LABELS[name] for name in POLICIES)), rows)


PROGRAMS = {"arti": "Arti", "oniontrace": "OnionTrace", "tor": "Tor"}
"""First part of a program's name in manifests -> the name that pages show."""

PAIRS = (("rr", "ewma"), ("swrr-linear", "ewma"), ("swrr-linear", "rr"))


def _value(value: float, metric: str) -> str:
    if metric.endswith("_rate"):
        return f"{100 * value:.1f}%"
    if metric == THROUGHPUT:
        return f"{value / 1e6:.2f} MB/s"
    return f"{value:.2f} s"


def _effect_and_networks(
    values: Mapping[tuple[str, str], Mapping[int, Statistic]], metric: str, variant: str, base: str
) -> str:
    """Return the text of `_effect`, and how many networks' effects have the mean effect's sign."""
    networks = values.get((metric, variant))
    if not networks:
        return NOTHING
    # None becomes NaN.
    own, of_base = (
        np.array([values[metric, name][network].value for network in networks], np.float64)
        for name in (variant, base)
    )
    if lacking := np.count_nonzero(np.isnan(own + of_base)):
        return f"{NOTHING} (not reached in {lacking} of {len(networks)})"
    effects = own - of_base if metric.endswith("_rate") else np.log(own / of_base)
    agreeing = int(np.sum(np.sign(effects) == np.sign(effects.mean())))
    return f"{_effect(values, metric, variant, base)}, {agreeing}/{len(networks)}"


def effects_by_level(packs: Packs, experiments: Sequence[str]) -> str:
    """Return a table of the effects of RR and SWRR against EWMA on ``ENDPOINTS``, by level.

    Each effect is followed by its spread between networks: the standard deviation of the networks'
    log ratios or, for rates, of the differences. In parentheses follow the smallest differences
    that a study of as many networks, and one of ten networks, can detect.
    """
    columns: list[tuple[str, Mapping[tuple[str, str, str], SummaryRow]]] = []
    for experiment in experiments:
        study, statistics = _open_study(packs, experiment)
        found = summarise(study, statistics)
        columns += [
            (
                level.label,
                {
                    (r.class_name, r.metric.name, r.variant.name): r
                    for r in found
                    if r.level == level
                },
            )
            for level in study.levels
        ]
    rows = []
    weights = endpoint_weights(len(ENDPOINTS))
    for (class_name, metric, label), weight in zip(ENDPOINTS, weights, strict=True):
        for variant in ("rr", "swrr-linear"):
            cells = [
                text
                for _, found in columns
                for text in _effect_and_spread(found[class_name, metric, variant], weight * LEVEL)
            ]
            rows.append((f"{label}, {LABELS[variant]}", *cells))
    head = [text for label, _ in columns for text in (label, "spread")]
    return _table(("", *head), rows)


def _effect_and_spread(row: SummaryRow, level: float) -> tuple[str, str]:
    """Return a row's effect, and its spread between networks with the detectable differences.

    level: the endpoint's part of the error level.
    """
    pairs = sorted(row.own.keys() & row.base.keys())
    own, base = ([one[network].value or 0.0 for network in pairs] for one in (row.own, row.base))
    detectable = row.judgement.verdict.detectable if row.judgement else None
    assert detectable is not None
    if row.metric.name.endswith("_rate"):
        spread = float(np.std(np.subtract(own, base), ddof=1))
        of_ten = spread * shown_from_spreads(10, level)
        effect = " ".join(filter(None, format_effect(row.effect, "difference", "1")))
        return effect, f"{100 * spread:.2f} ({100 * detectable:.2f}, {100 * of_ten:.2f}) points"
    spread = float(np.std(np.log(np.divide(own, base)), ddof=1))
    of_ten = np.exp(spread * shown_from_spreads(10, level))
    return _ratio(row.effect), f"{spread:.3f} ({TIMES}{detectable:.2f}, {TIMES}{of_ten:.2f})"


def effect_table(
    packs: Sequence[tuple[str, Packs, str]],
    *,
    variants: Sequence[str],
    endpoints: Sequence[tuple[str, str, str]] = ENDPOINTS,
) -> str:
    """Return a table of effects on endpoints, with a column for each study.

    The variants of a study are compared with the baseline of the same study.

    Args:
        packs: for each column its label, its packs, and the name of the experiment in these packs.
        variants: variants to compare with the baseline.
        endpoints: class, metric and label of each endpoint.
    """
    studies = [_open_study(files, experiment) for _, files, experiment in packs]
    labels = {variant.name: variant.label for study, _ in studies for variant in study.variants}
    rows = []
    for class_name, metric, label in endpoints:
        for variant in variants:
            cells = [
                _effect(found[study.levels[0].name, class_name], metric, variant, study.baseline)
                for study, found in studies
            ]
            name = f"{label}, {labels[variant]}" if len(variants) > 1 else label
            rows.append((name, *cells))
    return _table(("", *(label for label, _, _ in packs)), rows)


def arti_table() -> str:
    """Return a table that compares Arti's clients with C Tor's clients.

    The table has a row for each engine and level of the experiment arti-clients, and a row for the
    experiment swrr-5mid at a tenth of its size.
    """
    rows = []
    for engine, pack in ARTI_CLIENTS.items():
        study, found = _open_study((pack,), "arti-clients")
        for level in study.levels:
            ratios = _arti_ratios(found, found, (level.name, "arti"), (level.name, "ewma"))
            rows.append((f"{level.label}, {engine}", *ratios))
    of_arti, of_c_tor = (
        _open_study(ARTI_TENTH, name)[1] for name in ("swrr-5mid-arti", "swrr-5mid")
    )
    ratios = _arti_ratios(of_arti, of_c_tor, ("5mid", "arti"), ("5mid", "ewma"))
    rows.append(("a tenth of swrr-5mid, embedded engine", *ratios))
    return _table(("", *(label for _, _, label in ARTI_METRICS)), rows)


def arti_under_vegas() -> str:
    """Return a table of Vegas's effect on clients of C Tor and of Arti in congested networks."""
    rows = []
    for engine, pack in ARTI_CLIENTS.items():
        _, found = _open_study((pack,), "arti-clients")
        for variant, label in (("ewma", "C Tor"), ("arti", "Arti")):
            pair = ("heavy-vegas", variant), ("heavy-fixed", variant)
            rows.append((f"{label}, {engine}", *_arti_ratios(found, found, *pair)))
    return _table(("", *(label for _, _, label in ARTI_METRICS)), rows)


def _arti_ratios(
    own: Statistics, base: Statistics, own_run: tuple[str, str], base_run: tuple[str, str]
) -> list[str]:
    """Return the ratios own / base of the metrics in ARTI_METRICS for two sets of runs.

    own_run, base_run: (level, variant) of each set in its statistics.
    """
    return [
        _ratio(
            against_baseline(
                own[own_run[0], class_name][metric, own_run[1]],
                base[base_run[0], class_name][metric, base_run[1]],
            ).ratio
        )
        for class_name, metric, _ in ARTI_METRICS
    ]


def arti_failures() -> str:
    """Return a sentence on failed downloads in all runs that `arti_table` compares."""
    studies = [_open_study((pack,), "arti-clients") for pack in ARTI_CLIENTS.values()]
    studies += [_open_study(ARTI_TENTH, name) for name in ("swrr-5mid-arti", "swrr-5mid")]
    highest = []
    for variant in ("ewma", "arti"):
        rates = [
            one.value
            for _, statistics in studies
            for (_, class_name), values in statistics.items()
            if class_name == "web"
            for one in values.get(("failure_rate", variant), {}).values()
        ]
        highest.append(max(rate for rate in rates if rate is not None))
        assert None not in rates
    text = (
        "The highest failure rate of web downloads in a run, timeouts included, is "
        f"{highest[0]:.1%} with clients of C Tor, and {highest[1]:.1%} with clients of Arti."
    )
    return textwrap.fill(text, WIDTH)


def repeats_table(packs: Sequence[tuple[str, Packs, str]]) -> str:
    """Return the standard deviations of effects against EWMA, between and within networks.

    An effect is a log ratio or, for a rate, a difference in percentage points.

    packs: for each pair of columns its label, packs with repeats of each network, and the name of
        the experiment in these packs.
    """
    spreads = []
    for _, files, experiment in packs:
        summary = summarise(*_open_study(files, experiment))
        spreads.append({(r.class_name, r.metric.name, r.variant.name): r.spread for r in summary})
    rows = []
    for class_name, metric, label in ENDPOINTS:
        for variant in ("rr", "swrr-linear"):
            components = [found[class_name, metric, variant] for found in spreads]
            cells = [
                _deviation(interval, points=metric.endswith("_rate"))
                for one in components
                for interval in ((one.between, one.within) if one else (None, None))
            ]
            rows.append((f"{label}, {LABELS[variant]}", *cells))
    head = [f"{label}: {part}" for label, _, _ in packs for part in ("between", "within")]
    return _table(("", *head), rows)


def _deviation(interval: Interval | None, *, points: bool) -> str:
    if interval is None:
        return NOTHING
    return f"{100 * interval.estimate:.2f}" if points else f"{interval.estimate:.3f}"


def run_facts(packs: Packs) -> str:
    """Return a sentence on the packs' runs: their number, programs, machines and costs."""
    with _open(packs) as store:
        manifests = [read_manifest(path) for path in sorted(store.glob("*/manifest.json"))]
    engines = Counter(
        f"{one.identity['engine']['name']} {one.identity['engine']['version']}" for one in manifests
    )
    cpus = Counter(one.host["cpu"] for one in manifests)
    # Dictionaries keep the order and drop repetitions.
    programs = dict.fromkeys(
        f"{PROGRAMS[name.split('-')[0]]} {program.version}"
        for one in manifests
        for name, program in sorted(one.tor.items(), reverse=True)
    )
    cpu_s = [one.cpu_s or 0 for one in manifests]
    machines = ", ".join(f"{number} on {name}" for name, number in cpus.most_common())
    text = (
        f"{len(manifests)} runs; {', '.join(programs)}; engine {', '.join(engines)}; {machines}; "
        f"{min(cpu_s):,.0f} to {max(cpu_s):,.0f} s of CPU time each."
    )
    return textwrap.fill(text, WIDTH)


def arti_cost() -> str:
    """Return sentences that compare CPU time and memory of clients of Arti and of C Tor.

    At each level, the means over all networks are compared.
    """
    more_cpu_s, more_mib, cpu_of_c_tor = [], [], []
    with _open((ARTI_CLIENTS["embedded engine"],)) as store:
        study = load_study(store / STUDIES / "arti-clients.json")
        for level in study.levels:
            clients = sum(load.count or 0 for load in level.classes.values())
            own, base = (
                [
                    read_manifest(store / run.directory / "manifest.json")
                    for run in study.runs
                    if (run.level, run.variant) == (level.name, name)
                ]
                for name in ("arti", "ewma")
            )
            cpu_s = [fmean(one.cpu_s or 0 for one in runs) for runs in (own, base)]
            cpu_of_c_tor.append(cpu_s[1])
            more_cpu_s.append((cpu_s[0] - cpu_s[1]) / clients)
            memory = [fmean(one.peak_memory_bytes or 0 for one in runs) for runs in (own, base)]
            more_mib.append((memory[0] - memory[1]) / clients / 2**20)
    text = (
        f"By level, runs with clients of C Tor took {min(cpu_of_c_tor):.0f} to "
        f"{max(cpu_of_c_tor):.0f} s of CPU time. "
        f"A client of Arti needs {min(more_cpu_s):.1f} to {max(more_cpu_s):.1f} s more CPU time "
        f"and {min(more_mib):.1f} to {max(more_mib):.1f} MiB more memory than one of C Tor, "
        f"in {study.levels[0].stop_s:.0f} simulated seconds."
    )
    return textwrap.fill(text, WIDTH)


@cache
def _open_study(files: Packs, experiment: str) -> tuple[Study, Statistics]:
    """Return the study of an experiment in packs, and the statistics of its runs."""
    runs: RunStatistics = {}
    with _open(files) as store:
        study = load_study(store / STUDIES / f"{experiment}.json")
        for run in study.runs:
            add_run(runs, run, load_run(store / run.records, study.level(run.level)))
    return study, over_networks(runs)


def _effect(
    values: Mapping[tuple[str, str], Mapping[int, Statistic]],
    metric: str,
    variant: str,
    baseline: str | None = "ewma",
) -> str:
    """Return a variant's effect against the baseline: the difference of a rate, or the ratio.

    values: (metric, variant) -> network -> statistic.
    """
    assert baseline is not None
    against = against_baseline(values[metric, variant], values[metric, baseline])
    if not metric.endswith("_rate"):
        return _ratio(against.ratio)
    return " ".join(filter(None, format_effect(against.difference, "difference", "1")))


def _ratio(ratio: Interval | None) -> str:
    if ratio is None or ratio.low is None or ratio.high is None:
        return NOTHING
    return f"{TIMES}{ratio.estimate:.2f} [{ratio.low:.2f}, {ratio.high:.2f}]"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    first, *rest = (f"| {' | '.join(line)} |" for line in (head, *rows))
    return "\n".join([first, f"|{'---|' * len(head)}", *rest])


CAPACITIES = tuple(sorted((RUNS / "representative").glob("swrr-capacities-network-*.tar.xz")))
TEN_MIDDLES = tuple(sorted((RUNS / "representative").glob("swrr-10mid-network-*.tar.xz")))
REPRESENTATIVE = CAPACITIES + TEN_MIDDLES
FULL_SIZE = tuple(sorted(RUNS.glob("*full-size-uml.tar.xz")))
LEVELS = [f"swrr-{number}mid" for number in (20, 10, 5)]
MAIN = [(level, CAPACITIES, "swrr-capacities", level) for level in ("representative", "random")]
BY_LEVEL = (
    ("10, representative", TEN_MIDDLES, "swrr-10mid", "10mid"),
    ("10, random (pilot)", FULL_SIZE, "swrr-10mid", "10mid"),
    ("20, random (pilot)", FULL_SIZE, "swrr-20mid", "20mid"),
)
BY_NETWORK = (
    ("random capacities, pilot", (RUNS / "swrr-5mid-full-size-uml.tar.xz",), "swrr-5mid"),
    ("representative capacities", CAPACITIES, "swrr-capacities"),
    ("representative, ten middles", TEN_MIDDLES, "swrr-10mid"),
)
REPEATS = (
    ("Full size", (RUNS / "repeats-uml.tar.xz",), "swrr-5mid"),
    ("A tenth", (RUNS / "repeats-scale0.1-uml.tar.xz",), "swrr-5mid"),
)
TODAY = (
    ("Embedded engine", (RUNS / "today-uml.tar.xz",), "today"),
    ("Shadow", (RUNS / "today-shadow.tar.xz",), "today"),
    ("Links alone, embedded engine", (RUNS / "today-links-uml.tar.xz",), "today"),
)
ARTI_CLIENTS = {
    "embedded engine": RUNS / "arti-clients-uml.tar.xz",
    "Shadow": RUNS / "arti-clients-shadow.tar.xz",
}
ARTI_TENTH = tuple(RUNS / f"swrr-5mid-{name}-scale0.1-uml.tar.xz" for name in ("arti", "ewma"))
ARTI_POLICIES = (
    ("Clients of Arti, 5 networks", ARTI_TENTH, "swrr-5mid-arti"),
    ("Clients of C Tor, 3 networks", (RUNS / "repeats-scale0.1-uml.tar.xz",), "swrr-5mid"),
)
LIMITS = (RUNS / "swrr-limits-scale0.1-uml.tar.xz",)
SHADOW = tuple(RUNS / f"{name}-scale0.1-shadow.tar.xz" for name in ("swrr-5mid", "swrr-5mid-links"))
ENGINES = (
    ("both, Vanilla: embedded", LIMITS, "swrr-limits", "both-vanilla"),
    ("both, Vanilla: Shadow", SHADOW[:1], "swrr-5mid", "5mid"),
    ("link, KIST: embedded", LIMITS, "swrr-limits", "link-kist"),
    ("link, KIST: Shadow, 3 networks", SHADOW[1:], "swrr-5mid-links", "5mid"),
)
STARVATION = tuple(sorted(RUNS.glob("starvation-*.tar.xz")))
TORNET = (RUNS / "swrr-tornettools-uml.tar.xz",)
VEGAS = tuple(RUNS / f"{name}-5mid-vegas-scale0.1-uml.tar.xz" for name in ("swrr", "weights"))
FIXED_AND_VEGAS = (
    ("Fixed windows, 3 networks", (RUNS / "repeats-scale0.1-uml.tar.xz",), "swrr-5mid"),
    ("Vegas, 5 networks", VEGAS[:1], "swrr-5mid-vegas"),
)


def _times(name: str) -> Callable[[], str]:
    pack = RUNS / f"{name}-scale0.1-uml.tar.xz"
    return lambda: time_table(pack, name)


PAGES: Mapping[str, Mapping[str, Callable[[], str]]] = {
    "docs/explanation/swrr-answers.md": {
        "counts": lambda: answer_counts(answers(FULL_SIZE)),
        "runs": lambda: run_facts(FULL_SIZE),
        "ten middles' runs": lambda: run_facts(TEN_MIDDLES),
        "policies": lambda: policy_table(MAIN, head="Capacities"),
        "endings": lambda: endings_table(CAPACITIES, "swrr-capacities"),
        "policies' runs": lambda: run_facts(CAPACITIES),
        "levels": lambda: policy_table(
            BY_LEVEL, head="Middles", endpoints=[POLICY_ENDPOINTS[i] for i in (0, 2, 3, 5)]
        ),
        "representative answers": lambda: answer_table(
            answers(REPRESENTATIVE, experiments=("swrr-5mid", "swrr-10mid"))
        ),
        "engines": lambda: policy_table(
            ENGINES, head="Limited by, scheduler, engine", endpoints=ENDPOINTS[:3]
        ),
        "engines' runs": lambda: run_facts(SHADOW),
        "answers": lambda: answer_table(answers(FULL_SIZE)),
        "networks": lambda: network_table(BY_NETWORK),
    },
    "docs/explanation/calibration.md": {
        "capacities": lambda: effects_by_level(CAPACITIES, ["swrr-capacities"]),
        "spread by level": lambda: effects_by_level(FULL_SIZE, LEVELS),
        "capacities' runs": lambda: run_facts(CAPACITIES),
        "repeats": lambda: repeats_table(REPEATS),
        "repeats' runs": lambda: run_facts(REPEATS[0][1]),
    },
    "docs/explanation/replication.md": {
        "limits": _times("swrr-limits"),
        "limits' claims": lambda: answer_counts(answers(LIMITS, "swrr-limits")),
        "rate or link": lambda: claim_parts(answers(LIMITS, "swrr-limits"), "rate-brings-together"),
        "limits' runs": lambda: run_facts(LIMITS),
        "schedulers": _times("swrr-schedulers"),
        "load": _times("swrr-load"),
        "reading": _times("swrr-reading"),
    },
    "docs/explanation/realistic-networks.md": {
        "tornettools": lambda: policy_table(
            [("3", TORNET, "swrr-tornettools", "swrr-tornettools")],
            head="Networks",
            endpoints=TORNET_ENDPOINTS,
        ),
        "tornettools' claims": lambda: answer_counts(answers(TORNET, "swrr-tornettools")),
        "tornettools' runs": lambda: run_facts(TORNET),
    },
    "docs/explanation/starvation.md": {
        "starvation's claims": lambda: answer_table(answers(STARVATION, "starvation")),
        "starvation": starvation_table,
        "starvation's runs": lambda: run_facts(STARVATION),
    },
    "docs/explanation/arti.md": {
        "arti": arti_table,
        "arti's failures": arti_failures,
        "arti under Vegas": arti_under_vegas,
        "arti's policies": lambda: effect_table(ARTI_POLICIES, variants=["rr", "swrr-linear"]),
        "arti's runs": lambda: run_facts((ARTI_CLIENTS["embedded engine"],)),
        "arti's runs on Shadow": lambda: run_facts((ARTI_CLIENTS["Shadow"],)),
        "arti's runs at a tenth": lambda: run_facts(ARTI_TENTH),
        "arti's cost": arti_cost,
    },
    "docs/explanation/congestion-control.md": {
        "today": lambda: effect_table(TODAY, variants=["rr"], endpoints=TODAY_ENDPOINTS),
        "today's runs": lambda: run_facts(TODAY[0][1]),
        "today's runs on Shadow": lambda: run_facts(TODAY[1][1]),
        "today's runs behind links": lambda: run_facts(TODAY[2][1]),
        "vegas": lambda: effect_table(FIXED_AND_VEGAS, variants=["rr", "swrr-linear"]),
        "weights": lambda: effect_table(
            [("Against SWRR linear", VEGAS, "weights-5mid-vegas")],
            variants=["swrr-proportional", "swrr-logarithmic"],
        ),
        "vegas runs": lambda: run_facts(VEGAS),
    },
}
"""Page -> name of a block -> function that returns the block's text."""


def replace_block(text: str, name: str, block: str) -> str:
    """Return a page with one block replaced.

    Raises:
        ValueError: the page does not have exactly one block with this name.
    """
    pattern = re.compile(rf"(<!-- results: {re.escape(name)} -->\n).*?(<!-- end -->)", re.DOTALL)
    replaced, count = pattern.subn(lambda found: f"{found[1]}{block}\n{found[2]}", text)
    if count != 1:
        raise ValueError(f"{count} blocks are named {name!r}")
    return replaced


def main() -> None:
    """Write all blocks, or those named on the command line.

    Exit with an error if no page has a named block.
    """
    names = sys.argv[1:]
    known = [name for blocks in PAGES.values() for name in blocks]
    if unknown := [name for name in names if name not in known]:
        sys.exit(f"no page has a block {', '.join(unknown)}; there are: {', '.join(known)}")
    for page, blocks in PAGES.items():
        path = ROOT / page
        for name, make in blocks.items():
            if names and name not in names:
                continue
            text = replace_block(path.read_text(encoding="utf-8"), name, make())
            path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
