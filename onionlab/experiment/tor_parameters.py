"""Consensus parameters and options that Tor reads, and what keeps it from reading them.

Tor ignores a parameter if it does not know the name or if an option of torrc takes its place, and
an option if another one switches off what it belongs to. It gives no error in these cases.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

# Smallest and largest value of each parameter in Tor 0.4.9.11. If a limit depends on another
# parameter, the widest range is given. In Tor 0.4.5 only circ_max_cell_queue_size (1000..),
# cbtinitialtimeout, cbtmintimeout (500..) and hsdir_interval (30..) have narrower ranges.
_RANGES = """
..        AuthDirNumSRVAgreements maxunmeasuredbw
0..1      AllowNonearlyExtend DoSCircuitCreationEnabled DoSConnectionEnabled
0..1      DoSRefuseSingleHopClientRendezvous DoSStreamCreationEnabled ExtendByEd25519ID
0..1      HiddenServiceEnableIntroDoSDefense UseGuardFraction allow-network-reentry
0..1      assume-reachable assume-reachable-ipv6 cbtdisabled cc_cwnd_full_per_cwnd cfx_enabled
0..1      circpad_padding_disabled circpad_padding_reduced nf_pad_before_usage nf_pad_relays
0..1      nf_pad_single_onion pb_dropguards publish-dummy-tap-key publish-family-list
0..1      refuseunknownexits use-family-ids use-family-lists vanguards-lite-enabled
0..3      cc_alg
0..14     cbtmaxopencircs
0..100    cc_cwnd_full_minpct cc_rtt_reset_pct circpad_global_max_padding_pct pb_extremepct
0..100    pb_extremeusepct pb_noticepct pb_noticeusepct pb_warnpct
0..128    hs_intro_num_extra
0..255    cfx_drain_pct cfx_max_linked_set cfx_max_prebuilt_set cfx_max_unlinked_leg_retry
0..255    cfx_num_legs_set cfx_send_pct exit_dns_num_attempts sendme_accept_min_version
0..255    sendme_emit_min_version
0..1000   cc_vegas_alpha_exit cc_vegas_alpha_onion cc_vegas_alpha_sbws cc_vegas_beta_exit
0..1000   cc_vegas_beta_onion cc_vegas_beta_sbws cc_vegas_gamma_exit cc_vegas_gamma_onion
0..1000   cc_vegas_gamma_sbws
0..8192   max-consensus-age-to-cache-for-diff try-diff-for-consensus-newer-than
0..10000  cfx_low_exit_threshold
0..32767  cc_cwnd_full_gap
0..50000  circpad_max_circ_queued_cells
0..60000  nf_ito_high nf_ito_high_reduced nf_ito_low nf_ito_low_reduced
0..65534  circpad_global_allowed_cells
0..100000 overload_onionskin_ntor_scale_percent
0..       DoSCircuitCreationDefenseTimePeriod HiddenServiceEnableIntroDoSBurstPerSec
0..       HiddenServiceEnableIntroDoSRatePerSec cc_vegas_delta_exit cc_vegas_delta_onion
0..       cc_vegas_delta_sbws cfx_max_oooq_bytes dos_num_circ_max_outq hs_intro_max_introduce2
0..       hs_intro_max_lifetime hs_intro_min_introduce2 hs_intro_min_lifetime
0..       overload_onionskin_ntor_period_secs
1..2      DoSCircuitCreationDefenseType DoSConnectionDefenseType
1..3      DoSStreamCreationDefenseType
1..10     hs_service_max_rdv_failures
1..16     hsdir_n_replicas
1..19     guard-hs-l2-number
1..20     cbtnummodes
1..90     onion-key-grace-period-days onion-key-rotation-days
1..99     cc_xon_change_pct
1..100    guard-extreme-restriction-percent guard-max-sample-threshold-percent
1..128    hsdir_spread_fetch hsdir_spread_store
1..250    cc_cwnd_inc_rate
1..254    cc_sendme_inc
1..255    cc_ewma_cwnd_pct
1..500    cc_cwnd_inc_pct_ss
1..600    CircuitPriorityTickSecs
1..1000   cc_cwnd_inc cellq_high cellq_low
1..3650   guard-confirmed-min-lifetime-days guard-lifetime-days
1..3650   guard-remove-unlisted-guards-after-days
1..5000   cc_xon_rate
1..10000  cbtmincircs cc_xoff_client cc_xoff_exit
1..120000 exit_dns_timeout
1..       CircuitPriorityHalflifeMsec DoSCircuitCreationBurst DoSCircuitCreationMinConnections
1..       DoSCircuitCreationRate DoSConnectionConnectBurst DoSConnectionConnectRate
1..       DoSConnectionMaxConcurrentCount DoSStreamCreationBurst DoSStreamCreationRate
1..       HSV3MaxDescriptorSize MaxOnionQueueDelay bwweightscale cbttestfreq
1..       guard-hs-l2-lifetime-max guard-hs-l2-lifetime-min guard-internet-likely-down-interval
1..       guard-max-sample-size guard-meaningful-restriction-percent
1..       guard-min-filtered-sample-size guard-n-primary-dir-guards-to-use guard-n-primary-guards
1..       guard-n-primary-guards-to-use guard-nonprimary-guard-connect-timeout
1..       guard-nonprimary-guard-idle-timeout max_pending_tasks_per_cpu onion_queue_wait_cutoff
1..       pb_multfactor perconnbwburst perconnbwrate
2..20     cc_bwe_min
2..100    KISTSchedRunInterval KISTSchedRunIntervalClient cc_xon_ewma_cnt
2..       cc_ewma_max cc_ewma_ss pb_scalefactor
3..255    cfx_max_legs_set
3..1000   cbtrecentcount
3..10000  cbtmaxtimeouts
3..       pb_minuse
4..       FastFlagMaxThreshold FastFlagMinThreshold
5..14400  hsdir_interval
5..       pb_mincircs
10..99    cbtclosequantile cbtquantile
10..60000 cbtlearntimeout
10..      DoSConnectionConnectDefenseTimePeriod cbtinitialtimeout cbtmintimeout pb_scalecircs
10..      pb_scaleuse
25..95    min_paths_for_circs_pct
31..1000  cc_cwnd_min
31..10000 cc_cwnd_init
50..      circ_max_cell_queue_size circ_max_cell_queue_size_out
60..86400 nf_conntimeout_clients
60..604800 nf_conntimeout_relays
100..1000 circwindow
100..     cc_sscap_exit cc_sscap_onion cc_sscap_sbws
500..     cc_cwnd_max cc_ss_max
509..     orconn_high orconn_low
"""


def _read_ranges(table: str) -> Iterator[tuple[str, range]]:
    for line in table.strip().splitlines():
        limits, *names = line.split()
        low, high = limits.split("..")
        values = range(int(low or -(2**31)), int(high or 2**31 - 1) + 1)
        yield from ((name, values) for name in names)


CONSENSUS_PARAMETERS: Mapping[str, range] = dict(_read_ranges(_RANGES))
"""The parameters that Tor 0.4.9.11 passes to networkstatus_get_param() and its relatives, and the
values that it accepts. It replaces others by the nearest of these."""


@dataclass(frozen=True)
class Override:
    """A torrc option because of which Tor ignores others, or consensus parameters.

    Attributes:
        names: Name or pattern of what Tor ignores, in lower case.
        option: The torrc option.
        group: Hosts that would read it: authority, relay, client or all.
        harmless: Values of the option with which Tor still reads it; "<N": numbers below N. "!"
            precedes a value that does not suffice: another setting keeps Tor from reading it then.
    """

    names: str
    option: str
    group: str
    harmless: tuple[str, ...]

    def concerns(self, name: str) -> bool:
        """Return whether Tor may ignore this option or parameter."""
        return fnmatch.fnmatchcase(name.casefold(), self.names)

    def holds(self, value: str) -> bool:
        """Return whether Tor ignores them if the option has this value."""
        word = re.split("[ ,]", value.strip('"'))[0]
        return not any(_equals(word, one.lstrip("!")) for one in self.harmless)

    @property
    def remedies(self) -> tuple[str, ...]:
        """The values of the option that a message proposes: those that suffice."""
        return tuple(one for one in self.harmless if not one.startswith("!"))


def overrides_of(parameter: str) -> Iterator[Override]:
    """Yield the options that can take the place of a parameter."""
    return (one for one in OVERRIDES if one.concerns(parameter))


def conditions_of(name: str) -> Iterator[Override]:
    """Yield what can make Tor ignore an option of torrc or a parameter."""
    own = name.casefold()
    return (one for one in CONDITIONS if one.concerns(name) and one.option.casefold() != own)


def _equals(word: str, expected: str) -> bool:
    try:
        number = float(word)
    except ValueError:
        return word.casefold() == expected.casefold()
    if expected.startswith("<"):
        return number < float(expected[1:])
    # Tor treats each negative number as "not set".
    return expected.lstrip("-").isdigit() and max(number, -1) == int(expected)


# Parameters, option, group, harmless values: a line for each pair in the source of Tor 0.4.9.11.
_TABLE = """
assume-reachable                      AssumeReachable                       relay     0
assume-reachable-ipv6                 AssumeReachable                       relay     0
cbtinitialtimeout                     CircuitBuildTimeout                   client    0
circpad_*                             CircuitPadding                        client    1
circpad_*                             CircuitPadding                        relay     1
CircuitPriorityHalflifeMsec           CircuitPriorityHalflife               relay     -1
nf_conntimeout_clients                CircuitsAvailableTimeout              client    0
cfx_enabled                           ConfluxEnabled                        client    auto
cfx_*                                 ConfluxEnabled                        client    auto,1
cfx_*                                 ConfluxEnabled                        relay     auto,1
nf_ito_*                              ConnectionPadding                     client    auto,1
nf_pad_[bs]*                          ConnectionPadding                     client    auto,1
nf_pad_relays                         ConnectionPadding                     relay     auto,1
DoSCircuitCreationBurst               DoSCircuitCreationBurst               relay     0
DoSCircuitCreationDefenseTimePeriod   DoSCircuitCreationDefenseTimePeriod   relay     0
DoSCircuitCreationDefenseType         DoSCircuitCreationDefenseType         relay     0
DoSCircuitCreationEnabled             DoSCircuitCreationEnabled             relay     auto
DoSCircuitCreation*                   DoSCircuitCreationEnabled             relay     !auto,1
DoSCircuitCreationMinConnections      DoSCircuitCreationMinConnections      relay     0
DoSCircuitCreationRate                DoSCircuitCreationRate                relay     0
DoSConnectionConnectBurst             DoSConnectionConnectBurst             relay     0
DoSConnectionConnectDefenseTimePeriod DoSConnectionConnectDefenseTimePeriod relay     0
DoSConnectionConnectRate              DoSConnectionConnectRate              relay     0
DoSConnectionDefenseType              DoSConnectionDefenseType              relay     0
DoSConnectionEnabled                  DoSConnectionEnabled                  relay     auto
DoSConnection*                        DoSConnectionEnabled                  relay     !auto,1
DoSConnectionMaxConcurrentCount       DoSConnectionMaxConcurrentCount       relay     0
DoSRefuseSingleHopClientRendezvous    DoSRefuseSingleHopClientRendezvous    relay     auto
DoSStreamCreationBurst                DoSStreamCreationBurst                relay     0
DoSStreamCreationDefenseType          DoSStreamCreationDefenseType          relay     0
DoSStreamCreationEnabled              DoSStreamCreationEnabled              relay     auto
DoSStreamCreation*                    DoSStreamCreationEnabled              relay     !auto,1
DoSStreamCreationRate                 DoSStreamCreationRate                 relay     0
ExtendByEd25519ID                     ExtendByEd25519ID                     client    auto
guard-confirmed-min-lifetime-days     GuardLifetime                         client    0
guard-lifetime-days                   GuardLifetime                         client    0
guard-hs-l2-*                         HSLayer2Nodes                         client    -
HiddenServiceEnableIntroDoS*          HiddenServiceEnableIntroDoSDefense    client    !0
KISTSchedRunInterval                  Schedulers                           relay !KIST,!KISTLite
KISTSchedRunIntervalClient            Schedulers                           client !KIST,!KISTLite
KISTSchedRunInterval                  KISTSchedRunInterval                  relay     0
KISTSchedRunIntervalClient            KISTSchedRunInterval                  client    0
cbt[!im]*                             LearnCircuitBuildTimeout              client    1
cbtmax*                               LearnCircuitBuildTimeout              client    1
cbtmincircs                           LearnCircuitBuildTimeout              client    1
max-consensus-age-to-cache-for-diff   MaxConsensusAgeForDiffs               relay     0
MaxOnionQueueDelay                    MaxOnionQueueDelay                    relay     0
guard-n-primary-dir-guards-to-use     NumDirectoryGuards                    client    0
guard-n-primary-guards-to-use         NumEntryGuards                        client    0
guard-n-primary-guards                NumPrimaryGuards                      client    0
overload_onionskin_*                  OverloadStatistics                    relay     1
pb_mincircs                           PathBiasCircThreshold                 client    -1
pb_*factor                            PathBiasCircThreshold                 client    <10000
pb_dropguards                         PathBiasCircThreshold                 client    <10000
pb_extremepct                         PathBiasCircThreshold                 client    <10000
pb_noticepct                          PathBiasCircThreshold                 client    <10000
pb_scalecircs                         PathBiasCircThreshold                 client    <10000
pb_warnpct                            PathBiasCircThreshold                 client    <10000
pb_dropguards                         PathBiasDropGuards                    client    auto
pb_extremepct                         PathBiasExtremeRate                   client    -1
pb_extremeusepct                      PathBiasExtremeUseRate                client    -1
pb_noticepct                          PathBiasNoticeRate                    client    -1
pb_noticeusepct                       PathBiasNoticeUseRate                 client    -1
pb_scalecircs                         PathBiasScaleThreshold                client    -1
pb_scaleuse                           PathBiasScaleUseThreshold             client    -1
pb_minuse                             PathBiasUseThreshold                  client    -1
pb_extremeusepct                      PathBiasUseThreshold                  client    <10000
pb_noticeusepct                       PathBiasUseThreshold                  client    <10000
pb_scaleuse                           PathBiasUseThreshold                  client    <10000
pb_warnpct                            PathBiasWarnRate                      client    -1
min_paths_for_circs_pct               PathsNeededToBuildCircuits            client    -1
perconnbwburst                        PerConnBWBurst                        relay     0
perconnbwrate                         PerConnBWRate                         relay     0
circpad_padding_reduced               ReducedCircuitPadding                 client    0
refuseunknownexits                    RefuseUnknownExits                    relay     auto
FastFlagMinThreshold                  TestingTorNetwork                     authority 0
hsdir_interval                        TestingTorNetwork                     client    0
guard-[!h]*                           UseEntryGuards                        client    1
pb_*                                  UseEntryGuards                        client    1
UseGuardFraction                      UseGuardFraction                      client    auto
guard-hs-l2-*                         VanguardsLiteEnabled                  client    auto,1
vanguards-lite-enabled                VanguardsLiteEnabled                  client    auto
cc_alg                                __AlwaysCongestionControl             client    0
"""

# Options or parameters, option or parameter, group, values with which Tor reads them. If an option
# is "auto", its value is that of the parameter of its name.
_CONDITIONS = """
cbt[!imd]*              cbtdisabled               all 0
cbtmax*                 cbtdisabled               all 0
cbtmincircs             cbtdisabled               all 0
ConfluxClientUX         cc_alg                    all 2
ConfluxClientUX         cfx_enabled               all 1
ConfluxClientUX         ConfluxEnabled            all auto,1
cc_[!a]*                cc_alg                    all 2
cfx_*                   cc_alg                    all 2
cfx_*                   cfx_enabled               all 1
circpad_*               circpad_padding_disabled  all 0
circwindow              cc_alg                    all 0
CircuitPriority*        CircuitPolicy             all EWMA
SWRRWeightFunction      CircuitPolicy             all SWRR,SWRR-literal
DoS*                    ClientOnly                all 0
guard-hs-l2-*           vanguards-lite-enabled    all 1
Exit[PR]*               ClientOnly                all 0
IPv6Exit                ClientOnly                all 0
MaxAdvertisedBandwidth  ClientOnly                all 0
MaxOnionQueueDelay      ClientOnly                all 0
ReducedExitPolicy       ClientOnly                all 0
RefuseUnknownExits      ClientOnly                all 0
ServerDNS*              ClientOnly                all 0
DoSCircuitCreation*     DoSCircuitCreationEnabled all 1
DoSConnection*          DoSConnectionEnabled      all 1
DoSStreamCreation*      DoSStreamCreationEnabled  all 1
dos_num_circ_max_outq   DoSCircuitCreationEnabled all 1
HiddenServiceEnableIntroDoS[BR]* HiddenServiceEnableIntroDoSDefense all 1
nf_ito_*_reduced        ReducedConnectionPadding  all 1
nf_pad_single_onion     HiddenServiceSingleHopMode all !1
Num*Guards              UseEntryGuards            all 1
PathBiasExtremeRate     PathBiasCircThreshold     all <10000
PathBiasNoticeRate      PathBiasCircThreshold     all <10000
PathBiasWarnRate        PathBiasCircThreshold     all <10000
PathBias*UseRate        PathBiasUseThreshold      all <10000
PathBiasScaleThreshold  PathBiasCircThreshold     all <10000
PathBiasScaleUse*       PathBiasUseThreshold      all <10000
ReducedCircuitPadding   CircuitPadding            all 1
ReducedCircuitPadding   circpad_padding_disabled  all 0
ReducedConnectionPadding ConnectionPadding        all auto,1
KISTSchedRunInterval*   Schedulers                all KIST,KISTLite
KISTSockBufSizeFactor   Schedulers                all KIST
"""


def _read_table(table: str) -> Iterator[Override]:
    for names, option, group, harmless in map(str.split, table.strip().splitlines()):
        yield Override(names.casefold(), option, group, tuple(harmless.split(",")))


OVERRIDES = tuple(_read_table(_TABLE))
"""Options that take the place of parameters. One of the compared Tors is enough to refuse it."""

CONDITIONS = tuple(_read_table(_CONDITIONS))
"""What else makes Tor ignore an option or a parameter. All of the compared Tors have to ignore it:
the half-life of EWMA may be set where only one of the variants is EWMA."""

OPTION_DEFAULTS: Mapping[str, tuple[str, ...]] = {
    "HiddenServiceSingleHopMode": ("0",),
    "PathBiasDropGuards": ("0",),
    "ReducedConnectionPadding": ("0",),
}
"""Tor's own defaults of options because of which it does not read a parameter."""

PARAMETER_DEFAULTS: Mapping[str, int] = {
    "cc_alg": 2,
    "DoSCircuitCreationEnabled": 0,
    "DoSConnectionEnabled": 0,
    "DoSStreamCreationEnabled": 0,
    "HiddenServiceEnableIntroDoSDefense": 0,
}
"""Tor's own defaults of parameters because of which it does not read others."""
