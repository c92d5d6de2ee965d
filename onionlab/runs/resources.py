"""What a run needs of the machine, estimated before it starts."""

from __future__ import annotations

from analysis.formats.plan_file import Resources
from onionlab.experiment import AnySettings, Experiment, Settings

# Measured on full-size and small networks (docs/explanation/performance.md): a Tor or TGen under
# Shadow holds this much private memory, a host without Tor only TGen's share.
_TOR_BYTES = 4 * 2**20
_TGEN_BYTES = 3 * 2**19
_ENGINE_BYTES = 250 * 2**20
# Logs: TGen's heartbeat lines and Tor's own state files.
_DISK_BYTES_PER_CLIENT_S = 220
_DISK_BYTES_PER_HOST = 150 * 2**10
# Two peers: a line of each kind every few milliseconds.
_PEERS_DISK_BYTES = 20 * 2**20


def estimate_resources(experiment: Experiment) -> Resources:
    """Estimate what the largest run of an experiment needs."""
    levels = [_estimate_level(level.settings) for level in experiment.levels.values()]
    return Resources(
        memory_bytes=max(level.memory_bytes for level in levels),
        disk_bytes=max(level.disk_bytes for level in levels),
        processes=max(level.processes for level in levels),
    )


def _estimate_level(settings: AnySettings) -> Resources:
    if not isinstance(settings, Settings):
        return Resources(_ENGINE_BYTES, _PEERS_DISK_BYTES, 2)
    clients, servers = settings.client_count, settings.network.servers.count
    tors = settings.host_count - servers
    return Resources(
        memory_bytes=_ENGINE_BYTES + tors * _TOR_BYTES + (clients + servers) * _TGEN_BYTES,
        disk_bytes=round(
            settings.host_count * _DISK_BYTES_PER_HOST
            + clients
            * settings.time.stop_s
            * _DISK_BYTES_PER_CLIENT_S
            / max(settings.engine.tgen.heartbeat_s, 0.1)
        ),
        processes=tors + clients + servers,
    )
