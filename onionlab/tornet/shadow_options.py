"""The options of Shadow that an experiment or an imported network may set.

Source: shadow_config_spec.md in the docs of Shadow 3.3.0. Options are passed to Shadow unchanged;
these tables only detect wrong names and values before a run.
"""

from __future__ import annotations

from onionlab.yamlfile.field_types import OptionType

_LOG_LEVEL = ("error", "warning", "info", "debug", "trace")

GENERAL: dict[str, OptionType] = {
    "bootstrap_end_time": str,
    "heartbeat_interval": str,
    "log_level": _LOG_LEVEL,
    "model_unblocked_syscall_latency": bool,
    "parallelism": int,
}

EXPERIMENTAL: dict[str, OptionType] = {
    "interface_qdisc": ("fifo", "round-robin"),
    "max_unapplied_cpu_latency": str,
    "native_preemption_enabled": bool,
    "native_preemption_native_interval": str,
    "native_preemption_sim_interval": str,
    "report_errors_to_stderr": bool,
    "runahead": str,
    "scheduler": ("thread-per-core", "thread-per-host"),
    "socket_recv_autotune": bool,
    "socket_recv_buffer": str,
    "socket_send_autotune": bool,
    "socket_send_buffer": str,
    "strace_logging_mode": ("off", "standard", "deterministic"),
    "unblocked_syscall_latency": str,
    "unblocked_vdso_latency": str,
    "use_cpu_pinning": bool,
    "use_dynamic_runahead": bool,
    "use_memory_manager": bool,
    "use_new_tcp": bool,
    "use_object_counters": bool,
    "use_preload_libc": bool,
    "use_preload_openssl_crypto": bool,
    "use_preload_openssl_rng": bool,
    "use_sched_fifo": bool,
    "use_syscall_counters": bool,
    "use_worker_spinning": bool,
}

HOST_OPTION_DEFAULTS: dict[str, OptionType] = {
    "log_level": _LOG_LEVEL,
    "pcap_capture_size": str,
    "pcap_enabled": bool,
}

RUN_OPTIONS: dict[str, OptionType] = {
    "data_directory": str,
    "progress": bool,
    "seed": int,
    "stop_time": str,
    "template_directory": str,
}
"""Options of the section `general` that a run sets itself."""

_PLACES = "each run has its own directory"
_NONDETERMINISTIC = "it makes two runs of one seed differ"

REFUSED: dict[str, str] = {
    "data_directory": _PLACES,
    "template_directory": _PLACES,
    "progress": "the harness shows the progress",
    "seed": "it is the seed of the run",
    "stop_time": "it follows from the times of the experiment",
}
"""Option that neither an experiment nor an imported network can set -> the reason."""

SPOILING: dict[str, tuple[bool, str]] = {
    "native_preemption_enabled": (True, _NONDETERMINISTIC),
    "use_preload_openssl_crypto": (
        True,
        "Tor 0.4.9 exits at start with it (its AES self-test fails)",
    ),
    "use_preload_openssl_rng": (False, _NONDETERMINISTIC),
}
"""Option -> the value that experiments and imported networks cannot use, and the reason."""
