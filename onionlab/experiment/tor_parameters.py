"""Names of Tor that an experiment file is checked against.

Tor ignores a consensus parameter that it does not know without a word, and so would run something
else than the file says.
"""

from __future__ import annotations

CONSENSUS_PARAMETERS = frozenset(
    """
    AllowNonearlyExtend AuthDirNumSRVAgreements CircuitPriorityHalflifeMsec
    CircuitPriorityTickSecs DoSCircuitCreationBurst DoSCircuitCreationDefenseTimePeriod
    DoSCircuitCreationDefenseType DoSCircuitCreationEnabled DoSCircuitCreationMinConnections
    DoSCircuitCreationRate DoSConnectionConnectBurst DoSConnectionConnectDefenseTimePeriod
    DoSConnectionConnectRate DoSConnectionDefenseType DoSConnectionEnabled
    DoSConnectionMaxConcurrentCount DoSRefuseSingleHopClientRendezvous
    DoSStreamCreationBurst DoSStreamCreationDefenseType DoSStreamCreationEnabled
    DoSStreamCreationRate ExtendByEd25519ID FastFlagMaxThreshold FastFlagMinThreshold
    HSV3MaxDescriptorSize HiddenServiceEnableIntroDoSBurstPerSec
    HiddenServiceEnableIntroDoSDefense HiddenServiceEnableIntroDoSRatePerSec
    KISTSchedRunInterval KISTSchedRunIntervalClient MaxOnionQueueDelay UseGuardFraction
    allow-network-reentry assume-reachable assume-reachable-ipv6 bwweightscale
    cbtclosequantile cbtdisabled cbtinitialtimeout cbtlearntimeout cbtmaxopencircs
    cbtmaxtimeouts cbtmincircs cbtmintimeout cbtnummodes cbtquantile cbtrecentcount
    cbttestfreq cc_alg cc_bwe_min cc_cwnd_full_gap cc_cwnd_full_minpct cc_cwnd_full_per_cwnd
    cc_cwnd_inc cc_cwnd_inc_pct_ss cc_cwnd_inc_rate cc_cwnd_init cc_cwnd_max cc_cwnd_min
    cc_ewma_cwnd_pct cc_ewma_max cc_ewma_ss cc_rtt_reset_pct cc_sendme_inc cc_ss_max
    cc_xoff_client cc_xoff_exit cc_xon_change_pct cc_xon_ewma_cnt cc_xon_rate cellq_high
    cellq_low cfx_drain_pct cfx_enabled cfx_low_exit_threshold cfx_max_legs_set
    cfx_max_linked_set cfx_max_oooq_bytes cfx_max_prebuilt_set cfx_max_unlinked_leg_retry
    cfx_num_legs_set cfx_send_pct circ_max_cell_queue_size circ_max_cell_queue_size_out
    circpad_global_allowed_cells circpad_global_max_padding_pct
    circpad_max_circ_queued_cells circpad_padding_disabled circpad_padding_reduced
    circwindow dos_num_circ_max_outq exit_dns_num_attempts exit_dns_timeout
    guard-confirmed-min-lifetime-days guard-extreme-restriction-percent
    guard-hs-l2-lifetime-max guard-hs-l2-lifetime-min guard-hs-l2-number
    guard-internet-likely-down-interval guard-lifetime-days guard-max-sample-size
    guard-max-sample-threshold-percent guard-meaningful-restriction-percent
    guard-min-filtered-sample-size guard-n-primary-dir-guards-to-use guard-n-primary-guards
    guard-n-primary-guards-to-use guard-nonprimary-guard-connect-timeout
    guard-nonprimary-guard-idle-timeout guard-remove-unlisted-guards-after-days
    hs_intro_max_introduce2 hs_intro_max_lifetime hs_intro_min_introduce2
    hs_intro_min_lifetime hs_intro_num_extra hs_service_max_rdv_failures hsdir_interval
    hsdir_n_replicas hsdir_spread_fetch hsdir_spread_store max_pending_tasks_per_cpu
    maxunmeasuredbw min_paths_for_circs_pct nf_conntimeout_clients nf_conntimeout_relays
    nf_ito_high nf_ito_high_reduced nf_ito_low nf_ito_low_reduced nf_pad_before_usage
    nf_pad_relays onion-key-grace-period-days onion-key-rotation-days
    onion_queue_wait_cutoff orconn_high orconn_low overload_onionskin_ntor_period_secs
    overload_onionskin_ntor_scale_percent pb_dropguards pb_extremepct pb_extremeusepct
    pb_mincircs pb_minuse pb_multfactor pb_noticepct pb_noticeusepct pb_scalecircs
    pb_scalefactor pb_scaleuse pb_warnpct perconnbwburst perconnbwrate publish-dummy-tap-key
    publish-family-list refuseunknownexits sendme_accept_min_version sendme_emit_min_version
    use-family-ids use-family-lists vanguards-lite-enabled
    """.split()  # noqa: SIM905 - 160 quoted names are harder to read
)
"""What Tor 0.4.9.11 asks networkstatus_get_param() and its relatives for."""

_ELSEWHERE = "it has a key of its own, "
_OWN = "the harness gives every host its own"

RESERVED_OPTIONS = {
    option.casefold(): reason
    for option, reason in {
        "ConsensusParams": _ELSEWHERE + "tor.consensus_params",
        "KISTSchedRunInterval": _ELSEWHERE + "tor.scheduler.run_interval",
        "Schedulers": _ELSEWHERE + "tor.scheduler.name",
        "Address": _OWN,
        "DataDirectory": _OWN,
        "DirAuthority": _OWN,
        "DirPort": _OWN,
        "Nickname": _OWN,
        "ORPort": _OWN,
        "SocksPort": _OWN,
    }.items()
}
"""Option of torrc in lower case (Tor does not tell cases apart) -> why tor.torrc cannot hold it."""
