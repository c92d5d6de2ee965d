"""The error messages for experiment files, word for word.

Each case edits a valid file.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from onionlab.errors import UserError
from onionlab.experiment import load
from onionlab.experiment.load import REFERENCE_HINT
from onionlab.network.sample import ADDRESSES_PER_ROLE
from onionlab.programs.tor.variants import load_variants

from .conftest import REPOSITORY, VALID

Refused = Callable[[str], list[str]]
Write = Callable[[str, str], None]

UNITS_OF_SIZE = "the units are B, KB, KiB, MB, MiB, GB, GiB"
VARIANTS = ", ".join(sorted(load_variants(REPOSITORY)))

# id: (text to replace, replacement, message)
CASES = {
    "size with a slip": (
        '"320 KiB"',
        '"320 Kb!"',
        '17: traffic.web.request: expected a size such as "320 KiB", got "320 Kb!": '
        f'{UNITS_OF_SIZE}; did you mean "320 KB"?',
    ),
    "timeout of zero": (
        'timeout: "60 s"',
        'timeout: "0 s"',
        '19: traffic.web.timeout: expected a time such as "60 s", got "0 s": '
        "it must be more than 0, or use none",
    ),
    "unknown key": (
        "    timeout:",
        "    timeouts:",
        '19: traffic.web.timeouts: unknown key; did you mean "timeout"?',
        "15: traffic.web.timeout: missing: time after which a download is aborted",
    ),
    "unknown key like no other": (
        "  baseline: ewma\n",
        "  baseline: ewma\n  zzz: 1\n",
        "25: tor.zzz: unknown key; the keys here are variants, baseline, deployment, scheduler, "
        "trace, consensus_params, torrc",
    ),
    "a key that only the harness sets": (
        "    guard: {count: 2}",
        "    guard: {count: 2, full_count: 3}",
        '6: network.relays.guard.full_count: unknown key; did you mean "count"?',
    ),
    "unknown section": (
        "traffic:",
        "trafic:",
        '14: trafic: unknown key; did you mean "traffic"?',
        "1: traffic: missing: classes of clients by name, for instance `web` and `bulk`",
    ),
    "a list where a mapping belongs": (
        "    guard: {count: 2}",
        "    guard: [count, 2]",
        "6: network.relays.guard: expected a mapping (key: value), got a list",
    ),
    "a mapping where a list belongs": (
        "[rr, ewma]",
        "{rr: 1}",
        "23: tor.variants: expected a list, got a mapping",
    ),
    "text where a number belongs": (
        "count: 4",
        "count: four",
        '16: traffic.web.count: expected a whole number, got "four"',
    ),
    "no traffic": (
        VALID[VALID.index("traffic:") : VALID.index("tor:")],
        "traffic: {}\n",
        "14: traffic: expected 1 or more entries",
    ),
    "a class with a bad name": (
        "  web:",
        "  Web 2:",
        '15: traffic.Web 2: expected text that matches ^[a-z]+$, got "Web 2"',
    ),
    "a class with a reserved name": (
        "  web:",
        "  perf:",
        "15: traffic.perf: this name belongs to the clients of network.perf_clients",
    ),
    "a class named like a role of relays": (
        "  web:",
        "  guard:",
        "15: traffic.guard: this name belongs to the relays of this role, where they are traced",
    ),
    "pause by two rules": (
        '{uniform: ["1 s", "3 s"]}',
        '{uniform: ["1 s", "3 s"], choices: ["1 s"]}',
        "18: traffic.web.pause: expected one of uniform and choices, got both",
    ),
    "pause by no rule": (
        '{uniform: ["1 s", "3 s"]}',
        "{}",
        "18: traffic.web.pause: expected uniform or choices; without a pause write none",
    ),
    "pause without a choice": (
        '{uniform: ["1 s", "3 s"]}',
        "{choices: []}",
        "18: traffic.web.pause: expected at least one pause in choices; without a pause write none",
    ),
    "pause with steps of nothing": (
        '{uniform: ["1 s", "3 s"]}',
        '{choices: ["1 s"], step: "1 s"}',
        "18: traffic.web.pause: expected uniform together with step",
    ),
    "pause in too many steps": (
        '["1 s", "3 s"]',
        '["1 s", "5 h"]',
        "18: traffic.web.pause: expected at most 10000 pauses; make step larger",
    ),
    "pause the wrong way round": (
        '["1 s", "3 s"]',
        '["3 s", "1 s"]',
        '18: traffic.web.pause.uniform: expected two times such as ["1 s", "60 s"], the lower one '
        'first, got "3 s" first',
    ),
    "pause in steps that do not fit": (
        '["1 s", "3 s"]',
        '["1 s", "3500 ms"]',
        "18: traffic.web.pause: expected a uniform span that is a multiple of step",
    ),
    "no exit": (
        "    exit: {count: 1}",
        "    exit: {count: 0}",
        "5: network.relays: no exit: no stream could leave the network; give exit or exitguard",
    ),
    "no guard": (
        "    guard: {count: 2}",
        "    guard: {count: 0}",
        "5: network.relays: no guard: no client could enter the network; give guard or exitguard",
    ),
    "no server": (
        "    count: 2\n    bandwidth",
        "    count: 0\n    bandwidth",
        "11: network.servers.count: no server: the clients need at least one",
    ),
    "no client": (
        "count: 4",
        "count: 0",
        "14: traffic: no client: every class has a count of 0",
    ),
    "more clients than addresses": (
        "count: 4",
        "count: 70000",
        f"14: traffic: more clients than addresses: 70000 of them, {ADDRESSES_PER_ROLE} addresses",
    ),
    "clients that come too late": (
        'after: "5 s"',
        'after: "3 min"',
        "21: traffic.web.start: some of these clients would start after the measured span, which "
        "ends 150 s after the bootstrap",
    ),
    "unknown variant": (
        "[rr, ewma]",
        "[rrr, ewma]",
        f'23: tor.variants: unknown variant "rrr"; known are {VARIANTS}; did you mean "rr"?',
    ),
    "a variant twice": (
        "[rr, ewma]",
        "[rr, ewma, rr]",
        '23: tor.variants: "rr" is listed twice',
    ),
    "baseline that does not run": (
        "baseline: ewma",
        "baseline: emwa",
        '24: tor.baseline: expected one of this experiment\'s variants (rr, ewma), got "emwa"; '
        'did you mean "ewma"?',
    ),
    "unknown geography": (
        "internet-2019",
        "internet-2018",
        '13: network.geography: unknown geography "internet-2018"; known are internet-2019; '
        'did you mean "internet-2019"?',
    ),
    "unknown capacities": (
        "guard: {count: 2}",
        "guard: {count: 2, capacity: guards}",
        '6: network.relays.guard.capacity: unknown capacity distribution "guards"; known are '
        'exit, exitguard, guard, middle; did you mean "guard"?',
    ),
    "unknown scheduler": (
        "  baseline: ewma\n",
        "  baseline: ewma\n  scheduler: {name: kist}\n",
        '25: tor.scheduler.name: expected one of KIST, KISTLite, Vanilla, got "kist"; '
        'did you mean "KIST"?',
    ),
    "scheduler too slow": (
        "  baseline: ewma\n",
        '  baseline: ewma\n  scheduler: {run_interval: "1 s"}\n',
        "25: tor.scheduler.run_interval: Tor takes at most 100 ms",
    ),
    "congestion control that is gone": (
        "cc_alg: 0",
        "cc_alg: 5",
        "26: tor.consensus_params.cc_alg: expected 0 (fixed windows) or 2 (Vegas), got 5",
    ),
    "a consensus parameter with a slip": (
        "cc_alg: 0",
        "cc_algo: 2",
        "26: tor.consensus_params.cc_algo: Tor 0.4.9 reads no parameter of this name; "
        'did you mean "cc_alg"?',
    ),
    "a torrc option of the harness": (
        "  baseline: ewma\n",
        "  baseline: ewma\n  torrc: {relay: {OrPort: 9001}}\n",
        "25: tor.torrc.relay.OrPort: cannot be set here: the harness gives every host its own",
    ),
    "a torrc option in two lines": (
        "  baseline: ewma\n",
        '  baseline: ewma\n  torrc: {all: {Log: "notice stdout\\nORPort 1"}}\n',
        "25: tor.torrc.all.Log: expected text or a number (one torrc line), "
        'got "notice stdout\\nORPort 1"',
    ),
    "a switch of Tor": (
        "  baseline: ewma\n",
        "  baseline: ewma\n  torrc: {all: {AvoidDiskWrites: true}}\n",
        "25: tor.torrc.all.AvoidDiskWrites: expected text or a number, got true; "
        "Tor's switches are 0 and 1",
    ),
    "deployment on more than all": (
        "  baseline: ewma\n",
        '  baseline: ewma\n  deployment: {fraction: "150 %"}\n',
        '25: tor.deployment.fraction: expected a fraction such as "5 %" or 0.05, got "150 %": '
        "not between 0 and 1",
    ),
    "deployment on nobody known": (
        "  baseline: ewma\n",
        "  baseline: ewma\n  deployment: relay\n",
        '25: tor.deployment: expected all, relays or {fraction: "50 %"} (of the relays), got '
        '"relay"; did you mean "relays"?',
    ),
    "an option of Shadow with a slip": (
        "title:",
        "engine: {shadow: {experimental: {use_memory_managr: true}}}\ntitle:",
        "1: engine.shadow.experimental.use_memory_managr: unknown key; "
        'did you mean "use_memory_manager"?',
    ),
    "an option of Shadow that spoils a run": (
        "title:",
        "engine: {shadow: {experimental: {use_preload_openssl_crypto: true}}}\ntitle:",
        "1: engine.shadow.experimental.use_preload_openssl_crypto: cannot be true here: "
        "Tor 0.4.9 exits at start with it (its AES self-test fails)",
    ),
    "an option of Shadow with a word for a number": (
        "title:",
        "engine: {shadow: {general: {parallelism: true, log_level: warn}}}\ntitle:",
        "1: engine.shadow.general.parallelism: expected a whole number, got true",
        "1: engine.shadow.general.log_level: expected one of error, warning, info, debug, trace, "
        'got "warn"; did you mean "warning"?',
    ),
    "a bootstrap that ends before clients' Tors begin": (
        'bootstrap: "5 min"',
        'bootstrap: "24999 ms"',
        "28: time.bootstrap: expected at least 25 s: clients' Tors do not start before, and "
        "traffic starts at its end",
    ),
    "a torrc option of the harness's, abbreviated as Tor allows": (
        "  baseline: ewma\n",
        "  baseline: ewma\n  torrc: {client: {socksPor: 1}}\n",
        "25: tor.torrc.client.socksPor: cannot be set here: only as SocksPort in tor.torrc.client",
    ),
    "a part of a parameter's name that a table has to know": (
        "cc_alg: 0",
        "cc_vegas_alpa_exit: 2",
        "26: tor.consensus_params.cc_vegas_alpa_exit: Tor 0.4.9 reads no parameter of this name; "
        'did you mean "cc_vegas_alpha_exit"?',
    ),
    "a parameter that the scheduler overrides": (
        "cc_alg: 0",
        "KISTSchedRunInterval: 2",
        "26: tor.consensus_params.KISTSchedRunInterval: Tor ignores it, because tor.scheduler sets "
        "KISTSchedRunInterval 10 msec; remove it, and set tor.scheduler.run_interval",
    ),
    "a parameter that a variant overrides": (
        "cc_alg: 0",
        "CircuitPriorityHalflifeMsec: 90000",
        "26: tor.consensus_params.CircuitPriorityHalflifeMsec: Tor ignores it, because variant "
        "ewma sets CircuitPriorityHalflife 30; remove it, or set CircuitPriorityHalflife "
        "to -1 in tor.torrc",
    ),
    "a parameter that every run overrides": (
        "cc_alg: 0",
        "hsdir_interval: 60",
        "26: tor.consensus_params.hsdir_interval: Tor ignores it, because "
        "configs/tor/common.torrc sets TestingTorNetwork 1; remove it",
    ),
    "a parameter that Tor's own default overrides": (
        "cc_alg: 0",
        "pb_dropguards: 1",
        "26: tor.consensus_params.pb_dropguards: Tor ignores it, because Tor's own default sets "
        "PathBiasDropGuards 0; remove it, or set PathBiasDropGuards to auto in tor.torrc",
    ),
    "a parameter that the experiment's own option switches off": (
        "    cc_alg: 0\n",
        "    cfx_max_legs_set: 3\n  torrc: {client: {ConfluxEnabled: 0}}\n",
        "26: tor.consensus_params.cfx_max_legs_set: Tor ignores it, because tor.torrc.client sets "
        "ConfluxEnabled 0; remove it, or set ConfluxEnabled to auto or 1 in tor.torrc",
    ),
    "a parameter above Tor's range": (
        "    cc_alg: 0\n",
        "    cc_alg: 0\n    circwindow: 50000\n",
        "27: tor.consensus_params.circwindow: Tor 0.4.9 accepts 100 to 1000, and replaces other "
        "values by the nearest of these",
    ),
    "parameters of the congestion control that is off": (
        "    cc_alg: 0\n",
        "    cc_alg: 0\n    cc_vegas_alpha_exit: 3\n    cc_xoff_client: 9\n    cfx_send_pct: 9\n",
        *(
            f"{line}: tor.consensus_params.{name}: Tor ignores it, because tor.consensus_params "
            "sets cc_alg 0; remove it, or set tor.consensus_params.cc_alg to 2"
            for line, name in ((27, "cc_vegas_alpha_exit"), (28, "cc_xoff_client"))
        ),
        "29: tor.consensus_params.cfx_send_pct: Tor ignores it, because tor.consensus_params sets "
        "cc_alg 0; remove it, or set tor.consensus_params.cc_alg to 2",
    ),
    "the fixed window with Tor's own congestion control": (
        "cc_alg: 0",
        "circwindow: 500",
        "26: tor.consensus_params.circwindow: Tor ignores it, because Tor's own default sets "
        "cc_alg 2; remove it, or set tor.consensus_params.cc_alg to 0",
    ),
    "an interval of the scheduler that has none": (
        "  baseline: ewma\n",
        '  baseline: ewma\n  scheduler: {name: Vanilla, run_interval: "2 ms"}\n',
        "25: tor.scheduler.run_interval: Tor ignores it, because tor.scheduler sets Schedulers "
        "Vanilla; remove it, or set tor.scheduler.name to KIST or KISTLite",
    ),
    "an option of another scheduler": (
        "  baseline: ewma\n",
        "  baseline: ewma\n  scheduler: {name: KISTLite}\n"
        "  torrc: {all: {kistSockBufSizeFactor: 3}}\n",
        "26: tor.torrc.all.kistSockBufSizeFactor: Tor ignores it, because tor.scheduler sets "
        "Schedulers KISTLite; remove it, or set tor.scheduler.name to KIST",
    ),
    "a half-life without EWMA": (
        "  variants: [rr, ewma]\n  baseline: ewma\n",
        "  variants: [rr, swrr-linear]\n  baseline: rr\n"
        "  torrc: {relay: {CircuitPriorityHalflife: 3}}\n",
        "25: tor.torrc.relay.CircuitPriorityHalflife: Tor ignores it, because variant rr sets "
        "CircuitPolicy RR; remove it, or compare other tor.variants",
    ),
    "a half-life of the consensus without EWMA": (
        VALID[VALID.index("  variants:") : VALID.index("    cc_alg: 0\n")],
        "  variants: [swrr-linear]\n  baseline: swrr-linear\n  consensus_params:\n"
        "    CircuitPriorityHalflifeMsec: 3000\n    CircuitPriorityTickSecs: 9\n",
        *(
            f"{line}: tor.consensus_params.CircuitPriority{name}: Tor ignores it, because variant "
            "swrr-linear sets CircuitPolicy SWRR; remove it, or compare other tor.variants"
            for line, name in ((26, "HalflifeMsec"), (27, "TickSecs"))
        ),
    ),
    "a weight function without SWRR": (
        "  baseline: ewma\n",
        "  baseline: ewma\n  torrc: {all: {SWRRWeightFunction: linear}}\n",
        "25: tor.torrc.all.SWRRWeightFunction: Tor ignores it, because variant rr sets "
        "CircuitPolicy RR; remove it, or compare other tor.variants",
    ),
    "a client's exit policy": (
        "  baseline: ewma\n",
        '  baseline: ewma\n  torrc: {client: {ExitPolicy: "reject *:*"}}\n',
        "25: tor.torrc.client.ExitPolicy: Tor ignores it, because configs/tor/client.torrc sets "
        "ClientOnly 1; remove it",
    ),
    "clients' options that only relays or authorities read": (
        "  baseline: ewma\n",
        "  baseline: ewma\n  torrc: {client: {AuthDirPinKeys: 0, DirCache: 0, "
        "OverloadStatistics: 1, PerConnBWRate: 1 MB, PublishServerDescriptor: 0}}\n",
        *(
            f"25: tor.torrc.client.{option}: Tor ignores it, because configs/tor/client.torrc sets "
            "ClientOnly 1; remove it"
            for option in (
                *("AuthDirPinKeys", "DirCache", "OverloadStatistics", "PerConnBWRate"),
                "PublishServerDescriptor",
            )
        ),
    ),
    "relays' options that only clients read": (
        "  baseline: ewma\n",
        "  baseline: ewma\n  torrc: {authority: {SafeSocks: 1}, "
        "relay: {MaxCircuitDirtiness: 20}}\n",
        "25: tor.torrc.authority.SafeSocks: Tor ignores it, because configs/tor/relay.torrc sets "
        "ORPort 9111 IPv4Only; remove it",
        "25: tor.torrc.relay.MaxCircuitDirtiness: Tor ignores it, because configs/tor/relay.torrc "
        "sets ORPort 9111 IPv4Only; remove it",
    ),
    "options out of Tor's limits": (
        "  baseline: ewma\n",
        "  baseline: ewma\n  torrc: {client: {circuitStreamTimeout: 9, "
        "MaxCircuitDirtiness: 5 weeks, PathsNeededToBuildCircuits: 0.2}, "
        "relay: {MaxMemInQueues: 60 mbytes}}\n",
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
        "  baseline: ewma\n",
        "  baseline: ewma\n  torrc: {client: {HiddenServiceEnableIntroDoSDefense: 1}, "
        "relay: {HiddenServiceMaxStreams: 9}}\n",
        "25: tor.torrc.client.HiddenServiceEnableIntroDoSDefense: Tor does not start with it on a "
        "client, which has no HiddenServiceDir; remove it, or set "
        "tor.consensus_params.HiddenServiceEnableIntroDoSDefense",
        "25: tor.torrc.relay.HiddenServiceMaxStreams: Tor does not start with it on a relay, which "
        "has no HiddenServiceDir; remove it",
    ),
    "an option of a defence that is off": (
        "  baseline: ewma\n",
        "  baseline: ewma\n  torrc: {relay: {DoSCircuitCreationRate: 3}}\n",
        "25: tor.torrc.relay.DoSCircuitCreationRate: Tor ignores it, because "
        "configs/tor/common.torrc sets DoSCircuitCreationEnabled 0; remove it, or set "
        "DoSCircuitCreationEnabled to 1 in tor.torrc",
    ),
    **{
        f"an option of a defence that only {why} switches": (
            "  baseline: ewma\n",
            f"  baseline: ewma\n  torrc: {{relay: {{{torrc}}}}}\n",
            f"25: tor.torrc.relay.{option}: Tor ignores it, because Tor's own default sets "
            f"{defence} 0; remove it, or set tor.consensus_params.{defence} to 1",
        )
        for why, torrc, option, defence in (
            (
                "the consensus",
                "DoSStreamCreationRate: 3",
                "DoSStreamCreationRate",
                "DoSStreamCreationEnabled",
            ),
            (
                "auto, hence the consensus,",
                "DoSConnectionEnabled: auto, DoSConnectionConnectRate: 3",
                "DoSConnectionConnectRate",
                "DoSConnectionEnabled",
            ),
        )
    },
    "a parameter of a defence that nothing switches on": (
        "cc_alg: 0",
        "DoSCircuitCreationRate: 3",
        "26: tor.consensus_params.DoSCircuitCreationRate: Tor ignores it, because Tor's own "
        "default sets DoSCircuitCreationEnabled 0; remove it, or set "
        "tor.consensus_params.DoSCircuitCreationEnabled to 1",
    ),
    "a parameter that another one switches off": (
        "    cc_alg: 0\n",
        "    DoSConnectionConnectRate: 9\n    DoSConnectionEnabled: 0\n    cbtdisabled: 1\n"
        "    cbtquantile: 60\n",
        "26: tor.consensus_params.DoSConnectionConnectRate: Tor ignores it, because "
        "tor.consensus_params sets DoSConnectionEnabled 0; remove it, or set "
        "tor.consensus_params.DoSConnectionEnabled to 1",
        "29: tor.consensus_params.cbtquantile: Tor ignores it, because tor.consensus_params sets "
        "cbtdisabled 1; remove it, or set tor.consensus_params.cbtdisabled to 0",
    ),
    "what other switches keep Tor from reading": (
        "    cc_alg: 0\n",
        "    HiddenServiceEnableIntroDoSRatePerSec: 9\n    dos_num_circ_max_outq: 5\n"
        "    nf_ito_low_reduced: 9000\n    nf_pad_single_onion: 1\n"
        "  torrc: {client: {NumEntryGuards: 3, PathBiasNoticeRate: 0.5, UseEntryGuards: 0}}\n",
        "26: tor.consensus_params.HiddenServiceEnableIntroDoSRatePerSec: Tor ignores it, because "
        "Tor's own default sets HiddenServiceEnableIntroDoSDefense 0; remove it, or set "
        "tor.consensus_params.HiddenServiceEnableIntroDoSDefense to 1",
        "27: tor.consensus_params.dos_num_circ_max_outq: Tor ignores it, because "
        "configs/tor/common.torrc sets DoSCircuitCreationEnabled 0; remove it, or set "
        "DoSCircuitCreationEnabled to 1 in tor.torrc",
        "28: tor.consensus_params.nf_ito_low_reduced: Tor ignores it, because Tor's own default "
        "sets ReducedConnectionPadding 0; remove it, or set ReducedConnectionPadding to 1 in "
        "tor.torrc",
        "29: tor.consensus_params.nf_pad_single_onion: Tor ignores it, because Tor's own default "
        "sets HiddenServiceSingleHopMode 0; remove it",
        "30: tor.torrc.client.NumEntryGuards: Tor ignores it, because tor.torrc.client sets "
        "UseEntryGuards 0; remove it, or set UseEntryGuards to 1 in tor.torrc",
        "30: tor.torrc.client.PathBiasNoticeRate: Tor ignores it, because "
        "configs/tor/common.torrc sets PathBiasCircThreshold 10000; remove it, or set "
        "PathBiasCircThreshold to less than 10000 in tor.torrc",
    ),
    "the interval of a scheduler that has none": (
        "    cc_alg: 0\n",
        "    KISTSchedRunInterval: 5\n  scheduler: {name: Vanilla}\n",
        "26: tor.consensus_params.KISTSchedRunInterval: Tor ignores it, because tor.scheduler "
        "sets Schedulers Vanilla; remove it",
    ),
    "clients' conflux and padding that are off": (
        "    cc_alg: 0\n",
        "    cc_alg: 2\n    cfx_enabled: 0\n    circpad_padding_disabled: 1\n"
        "  torrc: {client: {ConfluxClientUX: latency, ReducedCircuitPadding: 1}}\n",
        "29: tor.torrc.client.ConfluxClientUX: Tor ignores it, because tor.consensus_params sets "
        "cfx_enabled 0; remove it, or set tor.consensus_params.cfx_enabled to 1",
        "29: tor.torrc.client.ReducedCircuitPadding: Tor ignores it, because tor.consensus_params "
        "sets circpad_padding_disabled 1; remove it, or set "
        "tor.consensus_params.circpad_padding_disabled to 0",
    ),
    "a parameter with a default and in other letters": (
        "    cc_alg: 0\n",
        "    HiddenServiceEnableIntroDoSBurstPerSec: 9\n    HiddenServiceEnableIntroDoSDefense: 0\n"
        "    doscircuitcreationrate: 5\n",
        "26: tor.consensus_params.HiddenServiceEnableIntroDoSBurstPerSec: Tor ignores it, because "
        "tor.consensus_params sets HiddenServiceEnableIntroDoSDefense 0; remove it, or set "
        "tor.consensus_params.HiddenServiceEnableIntroDoSDefense to 1",
        "28: tor.consensus_params.doscircuitcreationrate: Tor 0.4.9 reads no parameter of this "
        'name; did you mean "DoSCircuitCreationRate"?',
    ),
    "an option that makes a variant another one": (
        "  baseline: ewma\n",
        "  baseline: ewma\n  torrc: {all: {circuitpolicy: RR}}\n",
        "25: tor.torrc.all.circuitpolicy: cannot be set here: variant rr is circuitpolicy RR",
        "23: tor.variants: CircuitPriorityHalflife of ewma: Tor ignores it, because tor.torrc.all "
        "sets circuitpolicy RR; remove it, or compare other tor.variants",
    ),
    "an option that a relay's own limit overrides": (
        "title:",
        "levels:\n  x:\n    label: x\n    overrides:\n      network: {relays: {middle: "
        '{bandwidth_rate: "200 KiB/s"}}}\n      tor: {torrc: {relay: {BandwidthRate: 75 KBytes}}}\n'
        "title:",
        "6: levels.x.overrides.tor.torrc.relay.BandwidthRate: network.relays.middle.bandwidth_rate "
        "overrides it in a relay's own torrc: remove one of them",
    ),
    "an option that each relay's own capacity overrides": (
        "title:",
        "levels:\n  x:\n    label: x\n    overrides:\n      network: {limited_by: bandwidth-rate}\n"
        "      tor: {torrc: {all: {bandwidthburst: 75 KBytes}}}\ntitle:",
        "6: levels.x.overrides.tor.torrc.all.bandwidthburst: network.limited_by: bandwidth-rate "
        "overrides it in a relay's own torrc: remove one of them",
    ),
    "a port where no traffic generator connects": (
        "  baseline: ewma\n",
        '  baseline: ewma\n  torrc: {client: {SocksPort: "9050 IsolateDestAddr"}}\n',
        "25: tor.torrc.client.SocksPort: expected one line that begins with 9000, which the "
        "traffic generators use",
    ),
    "a flag of the port that Tor does not have": (
        "  baseline: ewma\n",
        '  baseline: ewma\n  torrc: {client: {SocksPort: "9000 IsolateDestAdr"}}\n',
        "25: tor.torrc.client.SocksPort: Tor has no flag IsolateDestAdr of SocksPort",
    ),
    "a torrc option twice in other letters": (
        "  baseline: ewma\n",
        "  baseline: ewma\n  torrc: {all: {NumCPUs: 1, numcpus: 2}}\n",
        "25: tor.torrc.all.numcpus: Tor ignores case, and NumCPUs is set here too",
    ),
    "no seeds": (
        "seeds: 2",
        "seeds: 0",
        "3: seeds: expected a number of networks (1 to 10000) or a list of different ones such as "
        "[1, 2, 7], got 0",
    ),
    "a seed twice": (
        "seeds: 2",
        "seeds: [1, 2, 1]",
        "3: seeds: expected a number of networks (1 to 10000) or a list of different ones such as "
        "[1, 2, 7], got 1 twice",
    ),
    "networks by both names": (
        "seeds: 2",
        "networks: 2\nseeds: 2",
        "4: seeds: is another name of `networks`, which is here too; remove one of them",
    ),
    "a scope that the runs do not allow": (
        "seeds: 2",
        "networks: 2\nrepeats: 2\nscope: one-network",
        "5: scope: one-network needs exactly one network and at least two repeats, and there are "
        "2 and 2",
    ),
    "no title": (
        "title: A small experiment",
        'title: ""',
        '1: title: expected text, got ""',
    ),
    "a level with a slip in what it overrides": (
        "title:",
        "levels:\n  x:\n    label: x\n    overrides:\n      network:\n        relays: "
        "{midle: {count: 1}}\ntitle:",
        '6: levels.x.overrides.network.relays.midle: unknown key; did you mean "middle"?',
    ),
    "a level with an impossible network": (
        "title:",
        "levels:\n  x:\n    label: x\n    overrides: {network: {relays: {exit: {count: 0}}}}\n"
        "title:",
        "4: levels.x.overrides.network.relays: no exit: no stream could leave the network; "
        "give exit or exitguard",
    ),
    "a level that overrides itself": (
        "title:",
        "levels:\n  x:\n    label: x\n    overrides: {levels: {y: {label: y}}}\ntitle:",
        "4: levels.x.overrides.levels: unknown key; the keys here are network, traffic, tor, time, "
        "engine",
    ),
    "levels of different variants": (
        "title:",
        "levels:\n  x: {label: x}\n  y:\n    label: y\n    overrides:\n      tor: "
        "{variants: [ewma]}\ntitle:",
        "6: levels.y.overrides.tor.variants: must be the same in all levels",
    ),
    "a mistake that all levels replace": (
        'drain: "60 s"',
        'drain: "60 x"\nlevels: {x: {label: x, overrides: {time: {drain: "60 s"}}}}',
        '31: time.drain: expected a time such as "60 s", got "60 x": the units are ms, s, min, h',
    ),
    "a figure that could be of two levels": (
        "title:",
        "levels: {x: {label: x}, y: {label: y}}\nfigures:\n- {id: a, kind: ttfb-320kib}\ntitle:",
        "3: figures[1].level: expected one of the levels x, y, got nothing",
    ),
    "a figure twice": (
        "title:",
        "figures:\n- {id: a, kind: ttfb-320kib}\n- {id: a, kind: throughput-timeouts}\ntitle:",
        '3: figures[2].id: "a" is listed twice',
    ),
    "a figure of no kind": (
        "title:",
        "figures:\n- {id: a, kind: ttfb}\ntitle:",
        "2: figures[1].kind: expected one of throughput-timeouts, ttfb-320kib, quantile-ratios, "
        "stream-progress, starvation-map, "
        'got "ttfb"; did you mean "ttfb-320kib"?',
    ),
    "a file that is not there": (
        "title:",
        "extends: base/tabel1.yaml\ntitle:",
        '1: extends: no file "base/tabel1.yaml"; did you mean "base/table1.yaml"?',
    ),
    "a key twice": (
        "  geography:",
        "  servers: {}\n  geography:",
        "13: network.servers: duplicate key, first on line 10",
    ),
    "broken YAML": (
        "    guard: {count: 2}",
        "    guard: {count: 2",
        "7: broken YAML: did not find expected ',' or '}' (while parsing a flow mapping that "
        "begins on line 6)",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_message(case: str, refused: Refused, write: Write) -> None:
    write("base/table1", "title: x\n")
    before, after, *messages = CASES[case]
    assert VALID.count(before) == 1, before
    text = VALID.replace(before, after)
    assert sorted(refused(text)) == sorted(f"experiments/foo.yaml:{one}" for one in messages)


def test_a_circuit_needs_three_relays(refused: Refused) -> None:
    text = VALID.replace("    guard: {count: 2}", "    guard: {count: 1}")
    text = text.replace("      count: 3", "      count: 0")
    assert refused(text) == [
        "experiments/foo.yaml:5: network.relays: a circuit needs 3 different relays, this network "
        "has 2"
    ]


def test_one_relay_is_not_guard_and_exit_of_one_circuit(refused: Refused) -> None:
    text = VALID.replace("    guard: {count: 2}", "    exitguard: {count: 1}")
    text = text.replace("    exit: {count: 1}\n", "")
    assert refused(text) == [
        "experiments/foo.yaml:5: network.relays: the only exit is the only guard, and a relay "
        "takes one position in a circuit"
    ]


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
