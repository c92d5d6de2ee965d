"""The error messages for experiment files, word for word.

Each case edits a valid file.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from onionlab.errors import UserError
from onionlab.experiment import load
from onionlab.experiment.load import REFERENCE_HINT
from onionlab.programs.tor.variants import load_variants

from .conftest import REPOSITORY, VALID, Refused, Write

VARIANTS = ", ".join(sorted(load_variants(REPOSITORY)))

# "number of a line of VALID: new content of the line" -> the message. The message begins with a
# line number only if it names another line.
LINES = {
    '1: title: ""': 'title: expected text, got ""',
    "3: seeds: [1, 2, 1]": "seeds: expected a number of networks (1 to 10000) or a list of "
    "different ones such as [1, 2, 7], got 1 twice",
    "3: networks: 2\nseeds: 2": "4: seeds: is another name of `networks`, which is here too; "
    "remove one of them",
    "3: networks: 2\nrepeats: 2\nscope: one-network": "5: scope: one-network needs exactly one "
    "network and at least two repeats, and there are 2 and 2",
    "6: guard: {count: 2, full_count: 3}": "network.relays.guard.full_count: unknown key; did you "
    'mean "count"?',
    "6: guard: [count, 2]": "network.relays.guard: expected a mapping (key: value), got a list",
    "6: guard: {count: 2, capacity: guards}": "network.relays.guard.capacity: unknown capacity "
    'distribution "guards"; known are ample, exit, exitguard, guard, middle; did you mean "guard"?',
    '6: guard: {count: 2, bandwidth_rate: "20 Gbit"}': "network.relays.guard.bandwidth_rate: Tor "
    "takes at most 2,147,483,647 bytes/s, got 20 Gbit; for more set a capacity, which limits the "
    "relay's link",
    "6: guard: {count: 0}": "5: network.relays: no guard: no client could enter the network; give "
    "guard or exitguard",
    "11: count: 0": "network.servers.count: no server: the clients need at least one",
    "13: geography: internet-2018": 'network.geography: unknown geography "internet-2018"; known '
    'are internet-2019, one-place; did you mean "internet-2019"?',
    "15: Web 2:": 'traffic.Web 2: expected text that matches ^[a-z]+$, got "Web 2"',
    "15: perf:": "traffic.perf: this name belongs to the clients of network.perf_clients",
    "15: websitesfromabc:": "traffic.websitesfromabc: one of its clients is called "
    "websitesfromabcclient4, and Tor takes names of at most 19 characters; use at most 12 letters",
    "15: guard:": "traffic.guard: this name belongs to the relays of this role, where they are "
    "traced",
    "16: count: four": 'traffic.web.count: expected a whole number, got "four"',
    "16: count: 0": "14: traffic: no client: every class has a count of 0",
    '18: pause: {uniform: ["1 s", "3 s"], choices: ["1 s"]}': "traffic.web.pause: expected one of "
    "uniform and choices, got both",
    "18: pause: {}": "traffic.web.pause: expected uniform or choices; without a pause write none",
    "18: pause: {choices: []}": "traffic.web.pause: expected at least one pause in choices; "
    "without a pause write none",
    '18: pause: {choices: ["1 s"], step: "1 s"}': "traffic.web.pause: expected uniform together "
    "with step",
    '18: pause: {uniform: ["1 s", "5 h"]}': "traffic.web.pause: expected at most 10000 pauses; "
    "make step larger",
    '18: pause: {uniform: ["3 s", "1 s"]}': "traffic.web.pause.uniform: expected two times such as "
    '["1 s", "60 s"], the lower one first, got "3 s" first',
    '18: pause: {uniform: ["1 s", "3500 ms"]}': "traffic.web.pause: expected a uniform span that "
    "is a multiple of step",
    '19: timeout: "0 s"': 'traffic.web.timeout: expected a time such as "60 s", got "0 s": it must '
    "be more than 0, or use none",
    '21: start: {after: "3 min", spread: "5 s"}': "traffic.web.start: some of these clients would "
    "start after the measured span, which ends 150 s after the bootstrap",
    "23: variants: {rr: 1}": "tor.variants: expected a list, got a mapping",
    "23: variants: [rrr, ewma]": f'tor.variants: unknown variant "rrr"; known are {VARIANTS}; '
    'did you mean "rr"?',
    "23: variants: [rr, ewma, rr]": 'tor.variants: "rr" is listed twice',
    "24: baseline: emwa": "tor.baseline: expected one of this experiment's variants (rr, ewma), "
    'got "emwa"; did you mean "ewma"?',
    '28: bootstrap: "24999 ms"': "time.bootstrap: expected at least 25 s: clients' Tors do not "
    "start before, and traffic starts at its end",
    '31: drain: "60 x"\nlevels: {x: {label: x, overrides: {time: {drain: "60 s"}}}}': (
        'time.drain: expected a time such as "60 s", got "60 x": the units are ms, s, min, h'
    ),
}

# text above the title -> the message
ABOVE = {
    "extends: base/tabel1.yaml": '1: extends: no file "base/tabel1.yaml"; did you mean '
    '"base/table1.yaml"?',
    "figures:\n- {id: a, kind: ttfb-320kib}\n- {id: a, kind: throughput-timeouts}": (
        '3: figures[2].id: "a" is listed twice'
    ),
    "figures:\n- {id: a, kind: ttfb}": "2: figures[1].kind: expected one of throughput-timeouts, "
    'ttfb-320kib, quantile-ratios, stream-progress, starvation-map, got "ttfb"; did you mean '
    '"ttfb-320kib"?',
    "levels:\n  x: {label: x}\n  y:\n    label: y\n    overrides:\n      tor: {variants: [ewma]}": (
        "6: levels.y.overrides.tor.variants: must be the same in all levels"
    ),
    "levels: {x: {label: x}, y: {label: y}}\nfigures:\n- {id: a, kind: ttfb-320kib}": (
        "3: figures[1].level: expected one of the levels x, y, got nothing"
    ),
    "engine: {shadow: {experimental: {use_memory_managr: true}}}": "1: engine.shadow.experimental."
    'use_memory_managr: unknown key; did you mean "use_memory_manager"?',
    "engine: {shadow: {experimental: {use_preload_openssl_crypto: true}}}": "1: engine.shadow."
    "experimental.use_preload_openssl_crypto: cannot be true here: Tor 0.4.9 exits at start with "
    "it (its AES self-test fails)",
    "engine: {shadow: {general: {parallelism: true}}}": "1: engine.shadow.general.parallelism: "
    "expected a whole number, got true",
    "engine: {shadow: {general: {log_level: warn}}}": "1: engine.shadow.general.log_level: "
    'expected one of error, warning, info, debug, trace, got "warn"; did you mean "warning"?',
}

# id: (text to replace, replacement, messages)
CASES = {
    "unknown key": (
        "    timeout:",
        "    timeouts:",
        '19: traffic.web.timeouts: unknown key; did you mean "timeout"?',
        "15: traffic.web.timeout: missing: time after which a download is aborted",
    ),
    "no traffic": (
        VALID[VALID.index("traffic:") : VALID.index("tor:")],
        "traffic: {}\n",
        "14: traffic: expected 1 or more entries",
    ),
    "too few relays for a circuit": (
        "    guard: {count: 2}\n    exit: {count: 1}\n    middle:\n      count: 3\n",
        "    guard: {count: 1}\n    exit: {count: 1}\n",
        "5: network.relays: a circuit needs 3 different relays, this network has 2",
    ),
    "one relay as guard and exit of a circuit": (
        "    guard: {count: 2}\n    exit: {count: 1}\n",
        "    exitguard: {count: 1}\n",
        "5: network.relays: the only exit is the only guard, and a relay takes one position in a "
        "circuit",
    ),
    "options of EWMA without this variant": (
        VALID[VALID.index("  variants:") : VALID.index("time:")],
        "  variants: [rr, swrr-linear]\n  baseline: rr\n"
        "  torrc: {relay: {CircuitPriorityHalflife: 3}}\n"
        "  consensus_params: {CircuitPriorityTickSecs: 9}\n",
        *(
            f"{key}: Tor ignores it, because variant rr sets CircuitPolicy RR; remove it, or "
            "compare other tor.variants"
            for key in (
                "25: tor.torrc.relay.CircuitPriorityHalflife",
                "26: tor.consensus_params.CircuitPriorityTickSecs",
            )
        ),
    ),
}

# overrides of a level on line 1 -> the message, without the path of the overrides
OVERRIDES = {
    'network: {relays: {middle: {bandwidth_rate: "200 KiB/s"}}}, '
    "tor: {torrc: {relay: {BandwidthRate: 75 KBytes}}}": (
        "tor.torrc.relay.BandwidthRate: network.relays.middle.bandwidth_rate overrides it in a "
        "relay's own torrc: remove one of them"
    ),
    "network: {limited_by: bandwidth-rate}, tor: {torrc: {all: {bandwidthburst: 75 KBytes}}}": (
        "tor.torrc.all.bandwidthburst: network.limited_by: bandwidth-rate overrides it in a "
        "relay's own torrc: remove one of them"
    ),
    "network: {relays: {midle: {count: 1}}}": "network.relays.midle: unknown key; did you mean "
    '"middle"?',
    "network: {relays: {exit: {count: 0}}}": "network.relays: no exit: no stream could leave the "
    "network; give exit or exitguard",
    "levels: {y: {label: y}}": "levels: unknown key; the keys here are network, traffic, tor, "
    "time, engine",
}

OWN_PARAMETERS = VALID[VALID.index("  consensus_params:") : VALID.index("time:")]

# keys of `tor` that replace OWN_PARAMETERS -> the message. The replaced text begins on line 25.
TOR = {
    "scheduler: {name: kist}": "scheduler.name: expected one of KIST, KISTLite, Vanilla, got "
    '"kist"; did you mean "KIST"?',
    'scheduler: {run_interval: "1 s"}': "scheduler.run_interval: expected at most 100 ms, "
    "which is Tor's limit",
    "consensus_params: {cc_alg: 5}": "consensus_params.cc_alg: expected 0 (fixed windows) or 2 "
    "(Vegas), got 5",
    # Tor 0.4.9 has no congestion control 3, so its parameters are unknown and are not checked.
    "consensus_params: {cc_alg: 3, cc_vegas_alpha_exit: 3, cfx_send_pct: 9, circwindow: 500}": (
        "consensus_params.cc_alg: expected 0 (fixed windows) or 2 (Vegas), got 3"
    ),
    "consensus_params: {cc_alg: 0, circwindow: 50000}": "consensus_params.circwindow: Tor 0.4.9 "
    "accepts 100 to 1000, and replaces other values by the nearest of these",
    'torrc: {all: {Log: "notice stdout\\nORPort 1"}}': "torrc.all.Log: expected text or a number "
    '(one torrc line), got "notice stdout\\nORPort 1"',
    "torrc: {all: {AvoidDiskWrites: true}}": "torrc.all.AvoidDiskWrites: expected text or a "
    "number, got true; Tor's switches are 0 and 1",
    "torrc: {all: {NumCPUs: 1, numcpus: 2}}": "torrc.all.numcpus: Tor ignores case, and NumCPUs is "
    "set here too",
    'torrc: {client: {SocksPort: "9050 IsolateDestAddr"}}': "torrc.client.SocksPort: expected one "
    "line that begins with 9000, which the traffic generators use",
    'torrc: {client: {SocksPort: "9000 IsolateDestAdr"}}': "torrc.client.SocksPort: Tor has no "
    "flag IsolateDestAdr of SocksPort",
    "deployment: relay": 'deployment: expected all, relays, clients or {fraction: "50 %"} (of the '
    'relays), {clients: "50 %"}, got "relay"; did you mean "relays"?',
}

# id: (keys of `tor` that replace OWN_PARAMETERS, several messages)
TOR_CASES = {
    # Tor builds the second name from parts. The third name differs from the right one only in upper
    # and lower case.
    "misspelt parameters": (
        "consensus_params: {cc_algo: 2, cc_vegas_alpa_exit: 2, doscircuitcreationrate: 5}",
        *(
            f"25: tor.consensus_params.{name}: Tor 0.4.9 reads no parameter of this name; "
            f'did you mean "{meant}"?'
            for name, meant in (
                ("cc_algo", "cc_alg"),
                ("cc_vegas_alpa_exit", "cc_vegas_alpha_exit"),
                ("doscircuitcreationrate", "DoSCircuitCreationRate"),
            )
        ),
    ),
    "torrc options of the harness": (
        "torrc: {relay: {OrPort: 9001}, client: {socksPor: 1}}",
        "25: tor.torrc.relay.OrPort: cannot be set here: the harness gives every host its own",
        # Tor accepts the beginning of an option's name, here of SocksPort.
        "25: tor.torrc.client.socksPor: cannot be set here: only as SocksPort in tor.torrc.client",
    ),
    "an option that makes a variant another one": (
        "torrc: {all: {circuitpolicy: RR}}",
        "25: tor.torrc.all.circuitpolicy: cannot be set here: variant rr is circuitpolicy RR",
        "23: tor.variants: CircuitPriorityHalflife of ewma: Tor ignores it, because tor.torrc.all "
        "sets circuitpolicy RR; remove it, or compare other tor.variants",
    ),
    "options out of Tor's limits": (
        "torrc: {client: {circuitStreamTimeout: 9, MaxCircuitDirtiness: 5 weeks, "
        "PathsNeededToBuildCircuits: 0.2}, relay: {MaxMemInQueues: 60 mbytes}}",
        "25: tor.torrc.client.MaxCircuitDirtiness: Tor 0.4.9 accepts 10 seconds to 30 days, and "
        "replaces other values by the nearest of these",
        "25: tor.torrc.client.PathsNeededToBuildCircuits: Tor 0.4.9 accepts 0.25 to 0.95, and "
        "replaces other values by the nearest of these",
        "25: tor.torrc.client.circuitStreamTimeout: Tor 0.4.9 accepts at least 10 seconds, and "
        "replaces lower values by this",
        "25: tor.torrc.relay.MaxMemInQueues: Tor 0.4.9 of a relay accepts at least 64 MB, and "
        "replaces lower values by this",
    ),
    "options of onion services on hosts without one": (
        "torrc: {client: {HiddenServiceEnableIntroDoSDefense: 1}, "
        "relay: {HiddenServiceMaxStreams: 9}}",
        "25: tor.torrc.client.HiddenServiceEnableIntroDoSDefense: Tor does not start with it on a "
        "client, which has no HiddenServiceDir; remove it, or set "
        "tor.consensus_params.HiddenServiceEnableIntroDoSDefense",
        "25: tor.torrc.relay.HiddenServiceMaxStreams: Tor does not start with it on a relay, which "
        "has no HiddenServiceDir; remove it",
    ),
}

CASES |= {
    **{text: ("title:", f"{text}\ntitle:", message) for text, message in ABOVE.items()},
    **{
        text: (
            "title:",
            f"levels: {{x: {{label: x, overrides: {{{text}}}}}}}\ntitle:",
            f"1: levels.x.overrides.{said}",
        )
        for text, said in OVERRIDES.items()
    },
    **{tor: (OWN_PARAMETERS, f"  {tor}\n", f"25: tor.{said}") for tor, said in TOR.items()},
    **{
        name: (OWN_PARAMETERS, f"  {tor}\n", *messages)
        for name, (tor, *messages) in TOR_CASES.items()
    },
}

# id: (keys of `tor`, messages). Each message lacks its beginning, which is the file, the line and
# "tor.", and lacks the words "Tor ignores it, because".
IGNORED = {
    "parameters that an option overrides": (
        "consensus_params: {KISTSchedRunInterval: 2, CircuitPriorityHalflifeMsec: 90000, "
        "hsdir_interval: 60, pb_dropguards: 1, cfx_max_legs_set: 3}\n"
        "  torrc: {client: {ConfluxEnabled: 0}}",
        "consensus_params.KISTSchedRunInterval: tor.scheduler sets KISTSchedRunInterval 10 msec; "
        "remove it, and set tor.scheduler.run_interval",
        "consensus_params.CircuitPriorityHalflifeMsec: variant ewma sets CircuitPriorityHalflife "
        "30; remove it, or set CircuitPriorityHalflife to -1 in tor.torrc",
        "consensus_params.hsdir_interval: configs/tor/common.torrc sets TestingTorNetwork 1; "
        "remove it",
        "consensus_params.pb_dropguards: Tor's own default sets PathBiasDropGuards 0; remove it, "
        "or set PathBiasDropGuards to auto in tor.torrc",
        "consensus_params.cfx_max_legs_set: tor.torrc.client sets ConfluxEnabled 0; remove it, "
        "or set ConfluxEnabled to auto or 1 in tor.torrc",
    ),
    "parameters of the congestion control that is off": (
        "consensus_params: {cc_alg: 0, cc_vegas_alpha_exit: 3, cc_xoff_client: 9, cfx_send_pct: 9}",
        *(
            f"consensus_params.{name}: tor.consensus_params sets cc_alg 0; remove it, "
            "or set tor.consensus_params.cc_alg to 2"
            for name in ("cc_vegas_alpha_exit", "cc_xoff_client", "cfx_send_pct")
        ),
    ),
    "the fixed window with Tor's own congestion control": (
        "consensus_params: {circwindow: 500}",
        "consensus_params.circwindow: Tor's own default sets cc_alg 2; remove it, "
        "or set tor.consensus_params.cc_alg to 0",
    ),
    "the interval of a scheduler that has none": (
        'scheduler: {name: Vanilla, run_interval: "2 ms"}\n'
        "  consensus_params: {KISTSchedRunInterval: 5}",
        "scheduler.run_interval: tor.scheduler sets Schedulers Vanilla; remove it, "
        "or set tor.scheduler.name to KIST or KISTLite",
        "consensus_params.KISTSchedRunInterval: tor.scheduler sets Schedulers Vanilla; remove it",
    ),
    "an option of another scheduler": (
        "torrc: {all: {kistSockBufSizeFactor: 3}}\n  scheduler: {name: KISTLite}",
        "torrc.all.kistSockBufSizeFactor: tor.scheduler sets Schedulers KISTLite; remove it, "
        "or set tor.scheduler.name to KIST",
    ),
    "a weight function without SWRR": (
        "torrc: {all: {SWRRWeightFunction: linear}}",
        "torrc.all.SWRRWeightFunction: variant rr sets CircuitPolicy RR; remove it, "
        "or compare other tor.variants",
    ),
    "clients' options that only relays or authorities read": (
        "torrc: {client: {AuthDirPinKeys: 0, DirCache: 0, OverloadStatistics: 1, "
        "PerConnBWRate: 1 MB, PublishServerDescriptor: 0, ExitPolicy: 'reject *:*'}}",
        *(
            f"torrc.client.{option}: configs/tor/client.torrc sets ClientOnly 1; remove it"
            for option in (
                *("AuthDirPinKeys", "DirCache", "OverloadStatistics", "PerConnBWRate"),
                *("PublishServerDescriptor", "ExitPolicy"),
            )
        ),
    ),
    "relays' options that only clients read": (
        "torrc: {authority: {SafeSocks: 1}, relay: {MaxCircuitDirtiness: 20}}",
        *(
            f"torrc.{option}: configs/tor/relay.torrc sets ORPort 9111 IPv4Only; remove it"
            for option in ("authority.SafeSocks", "relay.MaxCircuitDirtiness")
        ),
    ),
    "options of defences that are off": (
        "torrc: {relay: {DoSCircuitCreationRate: 3, DoSStreamCreationRate: 3, "
        "DoSConnectionEnabled: auto, DoSConnectionConnectRate: 3}}",
        "torrc.relay.DoSCircuitCreationRate: configs/tor/common.torrc sets "
        "DoSCircuitCreationEnabled 0; remove it, "
        "or set DoSCircuitCreationEnabled to 1 in tor.torrc",
        *(
            f"torrc.relay.{option}: Tor's own default sets {defence} 0; remove it, "
            f"or set tor.consensus_params.{defence} to 1"
            for option, defence in (
                ("DoSStreamCreationRate", "DoSStreamCreationEnabled"),
                ("DoSConnectionConnectRate", "DoSConnectionEnabled"),
            )
        ),
    ),
    "parameters that others switch off": (
        "consensus_params: {DoSConnectionConnectRate: 9, DoSConnectionEnabled: 0, cbtdisabled: 1, "
        "cbtquantile: 60, DoSCircuitCreationRate: 3}",
        "consensus_params.DoSConnectionConnectRate: tor.consensus_params sets "
        "DoSConnectionEnabled 0; remove it, or set tor.consensus_params.DoSConnectionEnabled to 1",
        "consensus_params.cbtquantile: tor.consensus_params sets cbtdisabled 1; remove it, "
        "or set tor.consensus_params.cbtdisabled to 0",
        "consensus_params.DoSCircuitCreationRate: Tor's own default sets DoSCircuitCreationEnabled "
        "0; remove it, or set tor.consensus_params.DoSCircuitCreationEnabled to 1",
    ),
    "what other switches keep Tor from reading": (
        "torrc: {client: {NumEntryGuards: 3, PathBiasNoticeRate: 0.5, UseEntryGuards: 0}}\n"
        "  consensus_params: {dos_num_circ_max_outq: 5, nf_ito_low_reduced: 9000, "
        "nf_pad_single_onion: 1}",
        "consensus_params.dos_num_circ_max_outq: configs/tor/common.torrc sets "
        "DoSCircuitCreationEnabled 0; remove it, "
        "or set DoSCircuitCreationEnabled to 1 in tor.torrc",
        "consensus_params.nf_ito_low_reduced: Tor's own default sets ReducedConnectionPadding 0; "
        "remove it, or set ReducedConnectionPadding to 1 in tor.torrc",
        "consensus_params.nf_pad_single_onion: Tor's own default sets HiddenServiceSingleHopMode "
        "0; remove it",
        "torrc.client.NumEntryGuards: tor.torrc.client sets UseEntryGuards 0; remove it, "
        "or set UseEntryGuards to 1 in tor.torrc",
        "torrc.client.PathBiasNoticeRate: configs/tor/common.torrc sets PathBiasCircThreshold "
        "10000; remove it, or set PathBiasCircThreshold to less than 10000 in tor.torrc",
    ),
}


@pytest.mark.parametrize("change", LINES)
def test_message_of_a_line(change: str, refused: Refused) -> None:
    number, _, text = change.partition(": ")
    lines = VALID.splitlines()
    old = lines[int(number) - 1]
    lines[int(number) - 1] = old[: len(old) - len(old.lstrip())] + text
    message = LINES[change]
    expected = message if message[0].isdigit() else f"{number}: {message}"
    assert refused("\n".join(lines)) == [f"experiments/foo.yaml:{expected}"]


@pytest.mark.parametrize("case", CASES)
def test_message(case: str, refused: Refused, write: Write) -> None:
    write("base/table1", "title: x\n")
    before, after, *messages = CASES[case]
    assert VALID.count(before) == 1, before
    text = VALID.replace(before, after)
    assert sorted(refused(text)) == sorted(f"experiments/foo.yaml:{one}" for one in messages)


@pytest.mark.parametrize(("tor", "messages"), [(a, b) for a, *b in IGNORED.values()], ids=IGNORED)
def test_options_that_tor_ignores_are_refused(
    tor: str, messages: list[str], refused: Refused
) -> None:
    found = refused(VALID.replace(OWN_PARAMETERS, f"  {tor}\n"))
    assert sorted(one.partition(": tor.")[2] for one in found) == sorted(
        one.replace(": ", ": Tor ignores it, because ", 1) for one in messages
    )


def test_all_errors_come_together_by_line(refused: Refused) -> None:
    text = VALID.replace("seeds: 2", "seed: 2").replace('"5 min"', '"5"').replace("rr,", "rr!,")
    assert refused(text) == [
        "experiments/foo.yaml:1: networks: missing: a number n (networks 1 to n) or a list; "
        "every variant runs on every network. A network is the seed of its relays, capacities, "
        "places, latencies, keys and weights",
        'experiments/foo.yaml:3: seed: unknown key; did you mean "seeds"?',
        "experiments/foo.yaml:23: tor.variants[1]: expected text that matches "
        '^[a-z0-9][a-z0-9-]*$, got "rr!"',
        'experiments/foo.yaml:28: time.bootstrap: expected a time such as "60 s", got "5": '
        "a quantity needs its unit",
    ]


def test_an_error_of_several_levels_is_reported_once(refused: Refused) -> None:
    text = VALID.replace("    exit: {count: 1}", "    exit: {count: 0}")
    assert refused(text + "levels: {x: {label: x}, y: {label: y}}\n") == [
        "experiments/foo.yaml:5: network.relays: no exit: no stream could leave the network; "
        "give exit or exitguard"
    ]


def test_files_that_extend_each_other(checkout: Path, write: Write) -> None:
    write("a", "extends: base/b.yaml\n" + VALID)
    write("base/b", "# b\nextends: ../a.yaml\n")
    with pytest.raises(UserError) as caught:
        load("a", root=checkout)
    assert caught.value.message == (
        "experiments/base/b.yaml:2: extends: the files extend each other in a circle: "
        "experiments/a.yaml -> experiments/base/b.yaml -> experiments/a.yaml"
    )
    assert caught.value.hint == REFERENCE_HINT


def test_not_text(checkout: Path) -> None:
    (checkout / "experiments" / "foo.yaml").write_bytes(b"title: x\ndescription: \xff\n")
    with pytest.raises(UserError) as caught:
        load("foo", root=checkout)
    assert caught.value.message == "experiments/foo.yaml:2: not text in UTF-8"
