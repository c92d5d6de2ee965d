from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from onionlab.errors import UserError
from onionlab.experiment import load, parse_seeds
from onionlab.network.sample import ADDRESSES_PER_ROLE
from onionlab.runs.study_file import published_cell_times

from .conftest import VALID, LoadText, Write


def test_values_are_in_base_units(load_text: LoadText) -> None:
    experiment = load_text(VALID)
    assert (experiment.name, list(experiment.levels), experiment.seeds) == ("foo", ["foo"], (1, 2))
    assert (experiment.variants, experiment.baseline) == (("rr", "ewma"), "ewma")
    settings = experiment.levels["foo"].settings
    web = settings.traffic["web"]
    assert (web.request_bytes, web.timeout_s, web.stallout_s) == (327_680, 60.0, None)
    assert web.pause.times_s == (1.0, 2.0, 3.0)
    network, span = settings.network, settings.time
    assert network.servers.bandwidth_bit_per_s == 10**9
    assert network.clients.bandwidth_bit_per_s is None
    assert (network.relays.guard.capacity, network.relays.exitguard.count) == ("guard", 0)
    assert (span.measured_start_s, span.measured_end_s, span.stop_s) == (330.0, 450.0, 510.0)
    assert settings.tor.scheduler.run_interval_s == 0.01
    assert settings.tor.deployment.where == "all"
    assert (settings.client_count, settings.host_count) == (4, 3 + 6 + 2 + 4)
    assert experiment.warnings == ()
    json.dumps(settings.model_dump(mode="json"))


@pytest.mark.parametrize(
    ("written", "times_s"),
    [
        ("none", ()),
        ('{choices: ["1 s", "500 ms", "1 s"]}', (1.0, 0.5, 1.0)),
        ('{uniform: ["0 s", "1 s"], step: "500 ms"}', (0.0, 0.5, 1.0)),
        ('{uniform: ["2 s", "2 s"]}', (2.0,)),
    ],
)
def test_pauses(load_text: LoadText, written: str, times_s: tuple[float, ...]) -> None:
    text = VALID.replace('{uniform: ["1 s", "3 s"]}', written)
    assert load_text(text).levels["foo"].settings.traffic["web"].pause.times_s == times_s


def test_options_of_shadow_are_kept_as_written(load_text: LoadText) -> None:
    text = VALID + (
        "engine:\n  shadow:\n    general: {heartbeat_interval: null, parallelism: 1}\n"
        "    experimental: {runahead: 1 ms, use_new_tcp: false}\n"
    )
    shadow = load_text(text).levels["foo"].settings.engine.shadow
    assert shadow.general == {"heartbeat_interval": None, "parallelism": 1}
    assert shadow.experimental == {"runahead": "1 ms", "use_new_tcp": False}


def test_a_null_removes_a_setting_of_tor(checkout: Path, write: Write) -> None:
    tor = "tor: {consensus_params: {cc_alg: 2, cc_cwnd_min: 124}, torrc: {all: {NumCPUs: '2'}}}\n"
    write("base/a", VALID)
    write("base/b", tor)
    write("base/c", tor.replace("124", "62"))
    nulls = "tor: {consensus_params: {cc_cwnd_min: null}, torrc: {all: {NumCPUs: null}}}\n"
    write("foo", f"extends: [base/a.yaml, base/b.yaml, base/c.yaml]\n{nulls}")
    settings = load("foo", root=checkout).levels["foo"].settings.tor
    assert settings.consensus_params == {"cc_alg": 2}
    assert not settings.torrc.all
    # A null that removes nothing is an error, because it is more likely a forgotten value.
    write("foo", f"extends: base/a.yaml\n{nulls}")
    with pytest.raises(UserError, match="expected a whole number, got nothing"):
        load("foo", root=checkout)


def test_a_chain_of_files(checkout: Path, write: Write) -> None:
    write("base/a", VALID)
    write("base/b", 'extends: base/a.yaml\ntime: {measured: "90 s"}\nseeds: 5\n')
    write("base/c", 'traffic: {web: {pause: {choices: ["7 s"]}}}\n')
    write("foo", "extends: [./base/b.yaml, base/c.yaml]\nseeds: [3, 9]\ntitle: Another\n")
    experiment = load("foo", root=checkout)
    assert experiment.header.title == "Another"
    assert experiment.seeds == (3, 9)
    settings = experiment.levels["foo"].settings
    web = settings.traffic["web"]
    assert (settings.time.measured_s, settings.time.warm_up_s) == (90.0, 30.0)
    assert (web.pause.times_s, web.count) == ((7.0,), 4)
    assert experiment.files == tuple(
        f"experiments/{name}.yaml" for name in ("foo", "base/b", "base/a", "base/c")
    )


def test_an_error_names_its_file_and_the_remedy(checkout: Path, write: Write) -> None:
    write("base/a", VALID.replace('"320 KiB"', '"320 kib"'))
    write("base/b", "tor: {consensus_params: {cc_algo: 2}}\n")
    write("foo", 'extends: [base/a.yaml, base/b.yaml]\ntime:\n  drain: "5"\n')
    with pytest.raises(UserError) as caught:
        load("foo", root=checkout)
    assert caught.value.message.splitlines() == [
        "experiments/foo.yaml: 2 things are wrong",
        '  experiments/foo.yaml:3: time.drain: expected a time such as "60 s", got "5": '
        "a quantity needs its unit",
        '  experiments/base/a.yaml:17: traffic.web.request: expected a size such as "320 KiB", '
        'got "320 kib": the units are B, KB, KiB, MB, MiB, GB, GiB; did you mean "320 KiB"?',
    ]
    write("base/a", VALID)
    write("foo", "extends: [base/a.yaml, base/b.yaml]\n")
    with pytest.raises(
        UserError, match=r"base/b\.yaml:1: tor\.consensus_params\.cc_algo"
    ) as caught:
        load("foo", root=checkout)
    assert (caught.value.hint or "").startswith("A null in your file removes a setting of `tor`")


def test_levels(load_text: LoadText) -> None:
    experiment = load_text(
        VALID
        + "levels:\n"
        + "  few: {label: few middles, overrides: {network: {relays: {middle: {count: 1}}}}}\n"
        + "  many: {label: many middles}\n"
        + "figures:\n"
        + "  - {id: a, kind: ttfb-320kib, level: few, paper: 5}\n"
        + "  - {id: b, kind: throughput-timeouts, level: many, title: Mine}\n"
    )
    few, many = experiment.levels["few"], experiment.levels["many"]
    assert (few.label, many.label) == ("few middles", "many middles")
    assert few.settings.network.relays.middle.count == 1
    assert many.settings.network.relays.middle.count == 3
    assert few.settings.traffic == many.settings.traffic
    assert [(f.id, f.level, f.title, f.paper) for f in experiment.figures] == [
        ("a", "few", "Time to first byte and to 320 KiB, few middles", 5),
        ("b", "many", "Mine", None),
    ]


def test_a_level_may_supply_missing_keys(load_text: LoadText) -> None:
    text = VALID.replace("      count: 3\n", "      capacity: guard\n")
    experiment = load_text(
        text + "levels: {x: {label: x, overrides: {network: {relays: {middle: {count: 1}}}}}}\n"
    )
    middle = experiment.levels["x"].settings.network.relays.middle
    assert (middle.count, middle.capacity) == (1, "guard")


def test_by_default_each_level_has_each_kind_of_figure(load_text: LoadText) -> None:
    figures = load_text(VALID + "levels: {x: {label: x}, y: {label: y}}\n").figures
    kinds = ["throughput-timeouts", "ttfb-320kib", "quantile-ratios"]
    assert [(figure.id, figure.kind, figure.level) for figure in figures] == [
        (f"{level}-{kind}", kind, level) for level in ("x", "y") for kind in kinds
    ]
    # With one variant there is no figure that compares variants.
    one = VALID.replace("[rr, ewma]", "[ewma]")
    assert [figure.kind for figure in load_text(one).figures] == kinds[:2]


def test_margins(load_text: LoadText) -> None:
    assert load_text(VALID).header.margins == {}
    experiment = load_text(f'{VALID}margins: {{ttfb_p50_s: "3 %", timeout_rate: 0.005}}\n')
    assert experiment.header.margins == {"ttfb_p50_s": 0.03, "timeout_rate": 0.005}
    for wrong, message in (
        ("ttfb_p50_s: 0", r'such as "5 %" or 0\.05, got 0: it must be more than 0'),
        ("ttfb_p51_s: 0.1", r"margins.ttfb_p51_s: .* not judged.*\"ttfb_p50_s\""),
    ):
        with pytest.raises(UserError, match=message):
            load_text(f"{VALID}margins: {{{wrong}}}\n")


def test_published_cell_times(load_text: LoadText) -> None:
    assert load_text(VALID).header.published_cell_times is None
    times = {f"{name}_ms": 1.5 for name in ("minimum", "quartile1", "median", "mean", "quartile3")}
    times["maximum_ms"] = 4.0
    line = json.dumps({"cells": 9, **times})
    head = f"{VALID}published_cell_times: {{source: a text, role: guard, levels: "
    shown = published_cell_times(
        load_text(f"{head}{{foo: {{busy: {line}}}, other: {{all: {line}}}}}}}\n")
    )
    assert shown is not None
    assert (shown.source, shown.role) == ("a text", "guard")
    assert shown.content()["levels"] == {"foo": {"busy": {"count": 9, **times}}}
    with pytest.raises(UserError, match='bussy: unknown key; did you mean "busy"'):
        load_text(f"{head}{{foo: {{bussy: {line}}}}}}}\n")
    with pytest.raises(UserError, match="maximum_ms"):
        load_text(f"{head}{{foo: {{busy: {{cells: 9}}}}}}}}\n")


@pytest.mark.parametrize(
    ("endpoints", "message"),
    [
        ("[{class: wbe, metric: ttfb_p50_s}]", 'got "wbe"; did you mean "web"?'),
        (
            "[{class: web, metric: ttfb_p51_s}]",
            'no metric "ttfb_p51_s" that can be judged; did you mean "ttfb_p50_s"?',
        ),
        (
            "[{class: all, metric: ttfb_p50_s}]",
            'the class all has no metric "ttfb_p50_s" that can be judged; these classes have it: ',
        ),
        ("[{class: web, metric: timeout_count}]", 'the class web has no metric "timeout_count"'),
        ("[{class: web, metric: slow_start_s}]", 'the class web has no metric "slow_start_s"'),
        (str([{"class": "web", "metric": "ttfb_p50_s"}] * 2), "web ttfb_p50_s is named twice"),
    ],
)
def test_endpoints_that_the_traffic_does_not_have_are_refused(
    load_text: LoadText, endpoints: str, message: str
) -> None:
    with pytest.raises(UserError) as refused:
        load_text(f"{VALID}endpoints: {endpoints}\n")
    assert re.search(r"foo\.yaml:\d+: endpoints\[\d\]", refused.value.message)
    assert message in refused.value.message


def test_names(checkout: Path, write: Write, tmp_path: Path) -> None:
    write("swrr-5mid", VALID)
    elsewhere = tmp_path / "mine.yaml"
    elsewhere.write_text(VALID)
    assert load(str(elsewhere), root=checkout).name == "mine"
    with pytest.raises(UserError) as caught:
        load("swrr-5mids", root=checkout)
    assert caught.value.message == ('no experiment called "swrr-5mids"; did you mean "swrr-5mid"?')
    assert caught.value.hint == "`make list` shows all experiments"
    for name in ("", "nothing.yaml", "../swrr-5mid", "base/x"):
        with pytest.raises(UserError, match="no experiment"):
            load(name, root=checkout)
    elsewhere.rename(tmp_path / "My Own.yaml")
    with pytest.raises(UserError, match="named like its file"):
        load(str(tmp_path / "My Own.yaml"), root=checkout)
    # An experiment with such a name would use the results folder of another command.
    for name in ("figures", "figures-swrr", "compare", "celltrace-live", "swrr-5mid-engines"):
        write(name, VALID)
        with pytest.raises(UserError, match=f"results/{name} is for what another command makes"):
            load(name, root=checkout)
    write("figure", VALID)
    assert load("figure", root=checkout).name == "figure"


@pytest.mark.parametrize(("text", "networks"), [("3", 3), ("1,2,7", [1, 2, 7]), ("5,", [5])])
def test_networks_of_the_command_line(text: str, networks: object) -> None:
    assert parse_seeds(text) == networks


@pytest.mark.parametrize(
    "text", ["", "x", "0", "-1", "1,1", "1,,2", "1.5", "9" * 5000, "1_000", "٣"]
)
def test_networks_refused(text: str) -> None:
    with pytest.raises(UserError, match="NETWORKS: expected"):
        parse_seeds(text)


def test_networks_and_repeats(load_text: LoadText) -> None:
    experiment = load_text(VALID)
    assert (experiment.seeds, experiment.repeats) == ((1, 2), 1)
    assert load_text(VALID.replace("seeds:", "networks:")) == experiment
    repeated = experiment.with_overrides(seeds=[3], repeats=2)
    assert repeated.replicates == ((3, 1), (3, 2))
    assert repeated.asked["repeats"] == 2
    with pytest.raises(UserError, match="REPEATS: expected a whole number"):
        experiment.with_overrides(repeats=0)
    one = load_text(VALID.replace("seeds: 2", "networks: 1\nrepeats: 5\nscope: one-network"))
    with pytest.raises(UserError, match="one-network needs exactly one network and at least two"):
        one.with_overrides(repeats=1)


def test_scale(load_text: LoadText) -> None:
    experiment = load_text(VALID)
    smaller = experiment.with_overrides(scale=0.5, seeds=1)
    settings = smaller.levels["foo"].settings
    network = settings.network
    assert settings.traffic["web"].count == 2
    assert network.servers.count == 1
    assert network.authorities == 3
    relays = {role: (one.count, one.full_count) for role, one in network.relays.items()}
    assert relays == {"exitguard": (0, 0), "guard": (1, 2), "exit": (1, 1), "middle": (2, 3)}
    assert smaller.asked == {"experiment": "foo", "scale": 0.5, "seeds": [1]}
    assert smaller.shrunk == [
        "web clients 4 -> 2",
        "servers 2 -> 1",
        "guard relays 2 -> 1 (in total 0.5 of the full size)",
        "exit relays stay 1, each with 0.5 times the capacity (in total 0.5 of the full size)",
        "middle relays 3 -> 2, each with 0.75 times the capacity (in total 0.5 of the full size)",
        "authorities stay 3: they carry no load",
    ]
    assert experiment.shrunk == []
    exit_factor = network.capacity_total_factor("exit")
    assert network.relays.exit.count * exit_factor == pytest.approx(0.5 * 1)
    # The scale applies to the original size, not to the reduced one.
    assert smaller.with_overrides(scale=1.0, seeds=2) == experiment
    assert smaller.with_overrides() == smaller


@pytest.mark.parametrize(
    ("count", "scale", "scaled"),
    [
        (5, 0.1, 1),
        (15, 0.1, 2),
        (5, 0.3, 2),  # The exact result is 1.5, although the float 0.3 is less than three tenths.
        (1, 0.01, 1),
        (0, 0.5, 0),
    ],
)
def test_counts_are_rounded_half_up_and_at_least_one(
    load_text: LoadText, count: int, scale: float, scaled: int
) -> None:
    text = VALID.replace("geography:", f"perf_clients: {count}\n  geography:")
    settings = load_text(text).with_overrides(scale=scale).levels["foo"].settings
    assert settings.network.perf_clients == scaled


@pytest.mark.parametrize("scale", [0, -1, float("nan"), float("inf"), 101])
def test_scales_refused(load_text: LoadText, scale: float) -> None:
    with pytest.raises(UserError, match="SCALE: expected a number more than 0"):
        load_text(VALID).with_overrides(scale=scale)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        # Tor refuses a Nickname of more than 19 characters.
        (
            "web:\n    count: 4",
            "websitesfrom:\n    count: 9",
            "traffic.websitesfrom: one of its clients is called websitesfromclient18, and ",
        ),
        (
            "count: 4",
            "count: 60000",
            f"traffic: more clients than addresses: 120000 of them, {ADDRESSES_PER_ROLE} addresses",
        ),
    ],
)
def test_an_impossible_scale(load_text: LoadText, old: str, new: str, message: str) -> None:
    experiment = load_text(VALID.replace(old, new))
    assert experiment.with_overrides(scale=1) == experiment
    with pytest.raises(UserError) as caught:
        experiment.with_overrides(scale=2)
    assert caught.value.message.startswith(f"foo at SCALE=2: {message}")


def test_a_file_extends_files_in_other_folders(
    checkout: Path, write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write("foo", VALID)
    (tmp_path / "elsewhere").mkdir()
    for name, extended in (
        ("whole", checkout / "experiments" / "foo.yaml"),
        ("beside", "./whole.yaml"),
        ("above", "../experiments/foo.yaml"),
    ):
        path = tmp_path / "elsewhere" / f"{name}.yaml"
        path.write_text(f"extends: {extended}\ntitle: {name}\n", encoding="utf-8")
        assert load(str(path), root=checkout).header.title == name
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert load("./beside.yaml", root=checkout).header.title == "beside"


def test_names_are_checked_only_against_existing_files(checkout: Path, write: Write) -> None:
    for name in ("configs", "tor-patches"):
        (checkout / name).unlink()
    write("foo", VALID.replace("[rr, ewma]", "[new, ewma]").replace("internet-2019", "mars"))
    assert load("foo", root=checkout).variants == ("new", "ewma")


@pytest.mark.parametrize(
    "tor",
    [
        "consensus_params: {cc_alg: 0, circwindow: 1000}",
        "consensus_params: {cc_vegas_alpha_exit: 3}",
        # Tor builds some of these names from parts.
        "consensus_params: {cc_vegas_delta_onion: 100, cc_sscap_sbws: 100, "
        "max-consensus-age-to-cache-for-diff: 100}",
        # onionlab leaves out its own torrc options that would override these parameters.
        "consensus_params: {DoSCircuitCreationEnabled: 1, DoSCircuitCreationRate: 9, "
        "DoSConnectionEnabled: 1, DoSConnectionConnectRate: 9, pb_warnpct: 50}",
        "torrc: {all: {CircuitPriorityHalflife: 3}}",
        "torrc: {all: {CircuitPriorityHalflife: -1}}\n"
        "  consensus_params: {CircuitPriorityHalflifeMsec: 3000}",
        # Vanilla does not use the interval. The default interval is still accepted, because a level
        # of an experiment may override only the scheduler's name.
        'scheduler: {name: Vanilla, run_interval: "10 ms"}',
        'torrc: {all: {ExitPolicy: "accept *:*"}}',
        "torrc: {relay: {DoSCircuitCreationEnabled: 1, DoSCircuitCreationRate: 3}}",
        'torrc: {client: {SocksPort: "9000 IsolateDestAddr NoIsolateSOCKSAuth"}}',
    ],
)
def test_options_that_some_hosts_read_are_accepted(load_text: LoadText, tor: str) -> None:
    parameters = "  consensus_params:\n    cc_alg: 0\n"
    assert load_text(VALID.replace(parameters, f"  {tor}\n")).warnings == ()


OWN_VARIANT = """\
variants:
  mine:
    description: my branch
    label: mine
    color: "#888888"
    marker: s
    linestyle: "-"
"""

FOR_MY_TOR = """\
  consensus_params: {cc_alg: 3, cc_vegas_alpha_exit: 3, circwindow: 5000, cc_algo: 1, own_one: 2}
  torrc:
    client: {SocksPort: "9000 IsolateMyThing", MaxCircuitDirtiness: 5 weeks}
"""


@pytest.fixture
def add_variant(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Return a function that adds a variant `mine` with another key to the shipped variants."""

    def add(key: str) -> None:
        (tmp_path / "variants.yaml").write_text(f"{OWN_VARIANT}    {key}\n")
        monkeypatch.setenv("VARIANTS_FILE", str(tmp_path / "variants.yaml"))

    return add


@pytest.mark.parametrize(
    ("source", "is_changed"),
    [
        ("{git: /nowhere/tor, ref: my-branch}", True),
        (f"{{tarball: tor.tar.gz, sha256: {'a' * 64}}}", True),
        ("{debian: 0.4.9.11}", False),
        ("null", False),
    ],
)
def test_what_only_a_changed_tor_accepts_is_a_warning(
    load_text: LoadText,
    checkout: Path,
    add_variant: Callable[[str], None],
    source: str,
    is_changed: bool,
) -> None:
    """The parameters of a changed congestion control are unknown to Tor 0.4.9."""
    add_variant(f"source: {source}")
    text = VALID.replace("  consensus_params:\n    cc_alg: 0\n", FOR_MY_TOR)
    text = text.replace("[rr, ewma]", "[mine, ewma]")
    if is_changed:
        experiment = load_text(text)
    else:
        with pytest.raises(UserError, match="5 things are wrong"):
            load_text(text)
        experiment = load("foo", root=checkout, any_tor=True)
    assert experiment.with_overrides(scale=2).scale == 2
    only = "; only a Tor that knows it accepts it"
    limits = "and replaces other values by the nearest of these"
    assert sorted(one.partition(": tor.")[2] for one in experiment.warnings) == [
        f"consensus_params.cc_alg: expected 0 (fixed windows) or 2 (Vegas), got 3{only}",
        "consensus_params.cc_algo: Tor 0.4.9 reads no parameter of this name; did you mean "
        f'"cc_alg"?{only}',
        f"consensus_params.circwindow: Tor 0.4.9 accepts 100 to 1000, {limits}{only}",
        "consensus_params.own_one: Tor 0.4.9 reads no parameter of this name; only another Tor may",
        f"torrc.client.MaxCircuitDirtiness: Tor 0.4.9 accepts 10 seconds to 30 days, {limits}"
        f"{only}",
        f"torrc.client.SocksPort: Tor has no flag IsolateMyThing of SocksPort{only}",
    ]


def test_options_of_variants_that_cannot_have_an_effect_are_refused(
    load_text: LoadText, add_variant: Callable[[str], None]
) -> None:
    add_variant("torrc: {CircuitPriorityHalflife: 3, KISTSockBufSizeFactor: 3}")
    tor = "  variants: [stock, mine]\n  baseline: stock\n"
    two = VALID.replace("  variants: [rr, ewma]\n  baseline: ewma\n", tor)
    assert load_text(two).variants == ("stock", "mine")
    with pytest.raises(UserError, match=r"variants differ in it \(stock: 30, mine: 3\)"):
        load_text(two.replace(tor, tor + "  torrc: {relay: {CircuitPriorityHalflife: 9}}\n"))
    with pytest.raises(UserError, match="KISTSockBufSizeFactor of mine: Tor ignores it, because"):
        load_text(two.replace(tor, tor + "  scheduler: {name: Vanilla}\n"))


def test_warnings(load_text: LoadText) -> None:
    text = (
        VALID.replace('spread: "5 s"', 'spread: "50 s"')
        .replace('drain: "60 s"', 'drain: "10 s"')
        .replace("cc_alg: 0", "swrr_weight: 0")
        .replace('"320 KiB"', '"1 MiB"')
    )
    expected = {
        1: "the figure shows the class web, which does not request 320 KiB",
        21: "traffic.web.start: the last of these clients start 55 s after",
        26: "Tor 0.4.9 reads no parameter of this name",
        31: "time.drain: shorter than every timeout (the least is 60 s)",
    }
    for warning, (line, said) in zip(load_text(text).warnings, expected.items(), strict=True):
        assert warning.startswith(f"experiments/foo.yaml:{line}: ")
        assert said in warning
