"""Everything that determines a run but its variant, seed and repeat."""

from __future__ import annotations

from typing import Any

from onionlab.experiment.schema.engine_settings import EngineSettings
from onionlab.experiment.schema.names import ClassName
from onionlab.experiment.schema.network_settings import NetworkSettings
from onionlab.experiment.schema.tor_settings import TorSettings
from onionlab.experiment.schema.traffic_settings import TrafficClass
from onionlab.yamlfile.field_types import PositiveTime, Time
from onionlab.yamlfile.model import Model, key

FIRST_CONSENSUS_S = 25.0
"""When all relays have the first consensus: clients' Tors start then at the earliest."""
ONION_SERVICES_START_S = (25.0, 30.0)
"""Before the clients: their descriptors have to be there when clients ask for them."""


class TimeSettings(Model):
    """The phases of a run, one after the other."""

    bootstrap_s: PositiveTime = key(
        alias="bootstrap", description="Tor starts, builds its consensus and its first circuits"
    )
    warm_up_s: Time = key(alias="warm_up", description="clients start; not measured")
    measured_s: PositiveTime = key(
        alias="measured", description="streams that start in this span are measured"
    )
    drain_s: Time = key(
        alias="drain", description="streams that started in the measured span can end"
    )

    @property
    def measured_start_s(self) -> float:
        """Start of the measured span, since the start of the simulation."""
        return self.bootstrap_s + self.warm_up_s

    @property
    def measured_end_s(self) -> float:
        """End of the measured span, since the start of the simulation."""
        return self.measured_start_s + self.measured_s

    @property
    def stop_s(self) -> float:
        """End of the simulation."""
        return self.measured_end_s + self.drain_s


class Settings(Model):
    """Everything that determines a run but its variant, seed and repeat."""

    network: NetworkSettings = key(description="hosts and the network between them")
    traffic: dict[ClassName, TrafficClass] = key(
        min_length=1, description="classes of clients by name, for instance `web` and `bulk`"
    )
    tor: TorSettings = key(description="variants and Tor's settings")
    time: TimeSettings = key(description="phases of a run")
    engine: EngineSettings = key({}, description="options of the simulation itself")

    @property
    def variants(self) -> tuple[str, ...]:
        """Names of the variants, in the order of figures."""
        return self.tor.variants

    @property
    def baseline(self) -> str:
        """The variant that the others are compared with."""
        return self.tor.baseline

    @property
    def classes(self) -> dict[str, dict[str, Any]]:
        """What the analysis is told of each class of clients."""
        return {
            name: {
                "timeout_s": entry.timeout_s,
                "stallout_s": entry.stallout_s,
                "request_bytes": entry.request_bytes,
                "count": entry.count,
                **({"load": True} if entry.is_load else {}),
            }
            for name, entry in self.traffic.items()
        }

    @property
    def client_count(self) -> int:
        """Clients of all classes, and the perf clients."""
        return sum(c.count for c in self.traffic.values()) + self.network.perf_clients

    @property
    def host_count(self) -> int:
        """All simulated hosts."""
        net = self.network
        services = net.servers.count + net.onion_services
        return net.authorities + net.relays.count + services + self.client_count
