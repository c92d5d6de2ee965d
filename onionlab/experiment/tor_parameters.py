"""Consensus parameters that Tor reads, and the torrc options that keep it from reading them.

Tor reads a parameter only if it knows the name and if no option of torrc takes its place. In both
cases it says nothing.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

CONSENSUS_PARAMETERS = frozenset(
    """
    AllowNonearlyExtend AuthDirNumSRVAgreements CircuitPriorityHalflifeMsec
    CircuitPriorityTickSecs DoSCircuitCreationBurst DoSCircuitCreationDefenseTimePeriod
    DoSCircuitCreationDefenseType DoSCircuitCreationEnabled DoSCircuitCreationMinConnections
    DoSCircuitCreationRate DoSConnectionConnectBurst DoSConnectionConnectDefenseTimePeriod
    DoSConnectionConnectRate DoSConnectionDefenseType DoSConnectionEnabled
    DoSConnectionMaxConcurrentCount DoSRefuseSingleHopClientRendezvous DoSStreamCreationBurst
    DoSStreamCreationDefenseType DoSStreamCreationEnabled DoSStreamCreationRate
    ExtendByEd25519ID FastFlagMaxThreshold FastFlagMinThreshold HSV3MaxDescriptorSize
    HiddenServiceEnableIntroDoSBurstPerSec HiddenServiceEnableIntroDoSDefense
    HiddenServiceEnableIntroDoSRatePerSec KISTSchedRunInterval KISTSchedRunIntervalClient
    MaxOnionQueueDelay UseGuardFraction allow-network-reentry assume-reachable
    assume-reachable-ipv6 bwweightscale cbtclosequantile cbtdisabled cbtinitialtimeout
    cbtlearntimeout cbtmaxopencircs cbtmaxtimeouts cbtmincircs cbtmintimeout cbtnummodes
    cbtquantile cbtrecentcount cbttestfreq cc_alg cc_bwe_min cc_cwnd_full_gap
    cc_cwnd_full_minpct cc_cwnd_full_per_cwnd cc_cwnd_inc cc_cwnd_inc_pct_ss cc_cwnd_inc_rate
    cc_cwnd_init cc_cwnd_max cc_cwnd_min cc_ewma_cwnd_pct cc_ewma_max cc_ewma_ss
    cc_rtt_reset_pct cc_sendme_inc cc_ss_max cc_sscap_exit cc_sscap_onion cc_sscap_sbws
    cc_vegas_alpha_exit cc_vegas_alpha_onion cc_vegas_alpha_sbws cc_vegas_beta_exit
    cc_vegas_beta_onion cc_vegas_beta_sbws cc_vegas_delta_exit cc_vegas_delta_onion
    cc_vegas_delta_sbws cc_vegas_gamma_exit cc_vegas_gamma_onion cc_vegas_gamma_sbws
    cc_xoff_client cc_xoff_exit cc_xon_change_pct cc_xon_ewma_cnt cc_xon_rate cellq_high
    cellq_low cfx_drain_pct cfx_enabled cfx_low_exit_threshold cfx_max_legs_set
    cfx_max_linked_set cfx_max_oooq_bytes cfx_max_prebuilt_set cfx_max_unlinked_leg_retry
    cfx_num_legs_set cfx_send_pct circ_max_cell_queue_size circ_max_cell_queue_size_out
    circpad_global_allowed_cells circpad_global_max_padding_pct circpad_max_circ_queued_cells
    circpad_padding_disabled circpad_padding_reduced circwindow dos_num_circ_max_outq
    exit_dns_num_attempts exit_dns_timeout guard-confirmed-min-lifetime-days
    guard-extreme-restriction-percent guard-hs-l2-lifetime-max guard-hs-l2-lifetime-min
    guard-hs-l2-number guard-internet-likely-down-interval guard-lifetime-days
    guard-max-sample-size guard-max-sample-threshold-percent
    guard-meaningful-restriction-percent guard-min-filtered-sample-size
    guard-n-primary-dir-guards-to-use guard-n-primary-guards guard-n-primary-guards-to-use
    guard-nonprimary-guard-connect-timeout guard-nonprimary-guard-idle-timeout
    guard-remove-unlisted-guards-after-days hs_intro_max_introduce2 hs_intro_max_lifetime
    hs_intro_min_introduce2 hs_intro_min_lifetime hs_intro_num_extra
    hs_service_max_rdv_failures hsdir_interval hsdir_n_replicas hsdir_spread_fetch
    hsdir_spread_store max-consensus-age-to-cache-for-diff max_pending_tasks_per_cpu
    maxunmeasuredbw min_paths_for_circs_pct nf_conntimeout_clients nf_conntimeout_relays
    nf_ito_high nf_ito_high_reduced nf_ito_low nf_ito_low_reduced nf_pad_before_usage
    nf_pad_relays nf_pad_single_onion onion-key-grace-period-days onion-key-rotation-days
    onion_queue_wait_cutoff orconn_high orconn_low overload_onionskin_ntor_period_secs
    overload_onionskin_ntor_scale_percent pb_dropguards pb_extremepct pb_extremeusepct
    pb_mincircs pb_minuse pb_multfactor pb_noticepct pb_noticeusepct pb_scalecircs
    pb_scalefactor pb_scaleuse pb_warnpct perconnbwburst perconnbwrate publish-dummy-tap-key
    publish-family-list refuseunknownexits sendme_accept_min_version sendme_emit_min_version
    try-diff-for-consensus-newer-than use-family-ids use-family-lists vanguards-lite-enabled
    """.split()  # noqa: SIM905 - 178 quoted names are harder to read
)
"""The names that Tor 0.4.9.11 passes to networkstatus_get_param() and its relatives."""


@dataclass(frozen=True)
class Override:
    """A torrc option of some hosts that takes the place of consensus parameters.

    Attributes:
        parameters: Name or pattern of the parameters.
        option: The torrc option.
        group: Hosts that would read the parameters: authority, relay or client.
        harmless: Values of the option with which Tor still reads them; "<N": numbers below N.
    """

    parameters: str
    option: str
    group: str
    harmless: tuple[str, ...]

    def holds(self, value: str) -> bool:
        """Return whether Tor ignores the parameters if the option has this value."""
        word = value.strip('"').partition(" ")[0]
        return not any(_equals(word, one) for one in self.harmless)


def overrides_of(parameter: str) -> Iterator[Override]:
    """Yield the options that can take the place of a parameter."""
    return (one for one in OVERRIDES if fnmatch.fnmatchcase(parameter, one.parameters))


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
DoSCircuitCreation*                   DoSCircuitCreationEnabled             relay     auto,1
DoSCircuitCreationMinConnections      DoSCircuitCreationMinConnections      relay     0
DoSCircuitCreationRate                DoSCircuitCreationRate                relay     0
DoSConnectionConnectBurst             DoSConnectionConnectBurst             relay     0
DoSConnectionConnectDefenseTimePeriod DoSConnectionConnectDefenseTimePeriod relay     0
DoSConnectionConnectRate              DoSConnectionConnectRate              relay     0
DoSConnectionDefenseType              DoSConnectionDefenseType              relay     0
DoSConnectionEnabled                  DoSConnectionEnabled                  relay     auto
DoSConnection*                        DoSConnectionEnabled                  relay     auto,1
DoSConnectionMaxConcurrentCount       DoSConnectionMaxConcurrentCount       relay     0
DoSRefuseSingleHopClientRendezvous    DoSRefuseSingleHopClientRendezvous    relay     auto
DoSStreamCreationBurst                DoSStreamCreationBurst                relay     0
DoSStreamCreationDefenseType          DoSStreamCreationDefenseType          relay     0
DoSStreamCreationEnabled              DoSStreamCreationEnabled              relay     auto
DoSStreamCreation*                    DoSStreamCreationEnabled              relay     auto,1
DoSStreamCreationRate                 DoSStreamCreationRate                 relay     0
ExtendByEd25519ID                     ExtendByEd25519ID                     client    auto
guard-confirmed-min-lifetime-days     GuardLifetime                         client    0
guard-lifetime-days                   GuardLifetime                         client    0
guard-hs-l2-*                         HSLayer2Nodes                         client    -
HiddenServiceEnableIntroDoS*          HiddenServiceEnableIntroDoSDefense    client    0
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
KISTSchedRunInterval                  Schedulers                            relay     KIST,KISTLite
KISTSchedRunIntervalClient            Schedulers                            client    KIST,KISTLite
FastFlagMinThreshold                  TestingTorNetwork                     authority 0
hsdir_interval                        TestingTorNetwork                     client    0
guard-[!h]*                           UseEntryGuards                        client    1
pb_*                                  UseEntryGuards                        client    1
UseGuardFraction                      UseGuardFraction                      client    auto
guard-hs-l2-*                         VanguardsLiteEnabled                  client    auto,1
vanguards-lite-enabled                VanguardsLiteEnabled                  client    auto
cc_alg                                __AlwaysCongestionControl             client    0
"""

OVERRIDES = tuple(
    Override(parameters, option, group, tuple(harmless.split(",")))
    for parameters, option, group, harmless in map(str.split, _TABLE.strip().splitlines())
)

TOR_DEFAULTS: Mapping[str, tuple[str, ...]] = {"PathBiasDropGuards": ("0",)}
"""Tor's own defaults that keep it from reading a parameter: option -> values."""
